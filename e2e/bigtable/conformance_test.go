package bigtable

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/e2e/harness"
)

// TestConformance tests the Bigtable backend against the contract of stores, with the
// emulator as a process of its own. So the race detector does not see the races of the
// emulator, where columns are written out of order and read at the same time.
func TestConformance(t *testing.T) {
	addr := harness.StartEmulator(t)
	var opened atomic.Int64
	open := func(t testing.TB, tables []bucketstore.TableSpec, _ func() time.Time) bucketstore.Store {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		store, err := bigtable.Open(ctx, bigtable.Config{
			Project:      "e2e",
			Instance:     "e2e",
			TablePrefix:  fmt.Sprintf("store%d-", opened.Add(1)), // an empty store in one emulator
			EmulatorHost: addr,
			Tables:       tables,
			CreateTables: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
		return store
	}
	t.Run("one", func(t *testing.T) { storetest.Run(t, open) })
	t.Run("several", func(t *testing.T) { storetest.RunConcurrent(t, open) })
}

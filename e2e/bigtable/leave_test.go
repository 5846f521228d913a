package bigtable

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/e2e/harness"
	"github.com/promtable/promtable/series"
)

// TestBufferLeavesClock: the mark of an adapter with a buffer stays in META until its log
// is empty. If it dies, the next start on the log deletes the mark.
func TestBufferLeavesClock(t *testing.T) {
	b := harness.Emulator(t)
	store := openTables(t, b)
	dir := t.TempDir()
	a := harness.StartAdapter(t, harness.WithBuffer(b, dir))
	wait := func(a *harness.Adapter, want int) (id string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%d marks", want), func() error {
			marks := clockMarks(t, store)
			if len(marks) != want {
				return fmt.Errorf("%d marks: %v", len(marks), marks)
			}
			for id = range maps.Keys(marks) {
				if !marks[id] {
					t.Errorf("the mark %s is of an adapter without a buffer", id)
				}
			}
			return nil
		})
		return id
	}
	first := wait(a, 1)
	want := harness.SendSteps(t, a, 3)
	a.Kill(t)
	if left := wait(a, 1); left != first {
		t.Errorf("the mark is %s, was %s", left, first)
	}
	a.Rerun(t)
	harness.CheckSteps(t, a, want)
	if again := wait(a, 1); again != first {
		t.Errorf("after the next start the mark is %s, was %s", again, first)
	}
	a.Terminate(t)
	wait(a, 0)
}

// clockMarks returns the marks of adapters: whether each has a buffer.
func clockMarks(t testing.TB, store bucketstore.Store) map[string]bool {
	t.Helper()
	marks := make(map[string]bool)
	err := store.Scan(t.Context(), bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow([]byte("clock"))},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		for _, cell := range row.Cells {
			var mark struct{ Buffered bool }
			if err := json.Unmarshal(cell.Value, &mark); err != nil {
				return err
			}
			marks[string(cell.Qualifier)] = mark.Buffered
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

// openTables opens the tables of an emulator.
func openTables(t testing.TB, b harness.Backend) *bigtable.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	store, err := bigtable.Open(ctx, bigtable.Config{
		Project: "e2e", Instance: "e2e", EmulatorHost: b.Env[0][len("BIGTABLE_EMULATOR_HOST="):], Tables: bucketstore.Tables(bucketstore.Retention{}), CreateTables: true,
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

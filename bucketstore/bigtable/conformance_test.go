//go:build !race

package bigtable_test

import (
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// TestConformance leaves out storetest.RunConcurrent: the fake has data races of
// its own there. The emulator binary runs it.
func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name string
		dial bool
	}{
		{"filtered as for the emulator", false},
		{"filtered as for Google's service", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, tables []bucketstore.TableSpec, _ func() time.Time) bucketstore.Store {
				return bigtabletest.Open(t, bigtabletest.WithConfig(func(cfg *bigtable.Config) {
					if tc.dial {
						*cfg = bigtabletest.ServiceConfig(cfg.EmulatorHost)
						cfg.Connections = 2
					}
					cfg.Tables = tables
				}))
			})
		})
	}
}

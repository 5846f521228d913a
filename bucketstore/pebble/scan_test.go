//go:build !race

package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// TestScanReadFails fails the disk at each block of a row in turn: Scan returns the whole
// row or an error.
func TestScanReadFails(t *testing.T) {
	const cells = 64
	plain := func(i int) []byte { return fmt.Appendf(nil, "%04d", i) }
	byDay := func(i int) []byte { return series.AppendQualifier(nil, uint32(i)*halfDay/4) }
	for _, tc := range []struct {
		name      string
		key       string
		qualifier func(i int) []byte
		rows      series.RowRange
	}{
		{"single row", "row", plain, series.SingleRow([]byte("row"))},
		{"range", "row", plain, series.RowRange{Start: []byte("r"), Limit: []byte("s")}},
		{"single row over days", "row," + testBase, byDay, series.SingleRow([]byte("row," + testBase))},
		{"range over days", "row," + testBase, byDay, series.RowRange{Start: []byte("r"), Limit: []byte("s")}},
		{"bases over days", "row," + testBase, byDay, series.RowRange{Start: []byte("row," + testBase), Limit: []byte("row," + nextBase)}},
	} {
		for _, limit := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, limit %d", tc.name, limit), func(t *testing.T) {
				errDisk := errors.New("the disk is gone")
				var reads atomic.Int64 // that succeed
				reads.Store(1 << 40)
				disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && reads.Add(-1) < 0 {
						return errDisk
					}
					return nil
				}))
				writeCells(t, onDisk("/data").WithFS(disk), tc.key, cells, tc.qualifier)
				s := openStore(t, onDisk("/data").WithFS(disk))
				t.Cleanup(func() { reads.Store(1 << 40) }) // before the store closes, and flushes
				awaitTableStats(s)
				req := bucketstore.ScanRequest{
					Table: bucketstore.Metric, Rows: []series.RowRange{tc.rows}, Limit: limit,
					Families: []bucketstore.FamilyRange{{Family: "r0"}},
				}
				failures := 0
				for range 10 * cells { // each scan finds one block more in the cache
					reads.Store(1)
					rows := 0
					err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
						rows++
						if len(row.Cells) != cells {
							t.Errorf("after %d failures the row has %d cells, want %d", failures, len(row.Cells), cells)
						}
						return nil
					})
					if err == nil {
						if rows != 1 {
							t.Errorf("%d rows", rows)
						}
						break
					}
					if failures++; !errors.Is(err, errDisk) {
						t.Fatal(err)
					}
				}
				if failures < cells/8 {
					t.Errorf("the disk failed %d scans only", failures)
				}
			})
		}
	}
}

// awaitTableStats waits until Pebble has read the statistics of all tables, in the
// background after an open: a disk that fails then ends the process.
func awaitTableStats(s *pebble.Store) {
	for {
		tables := s.EngineMetrics().Table
		if tables.InitialStatsCollectionComplete && tables.PendingStatsCollectionCount == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// writeCells fills one row with large cells, each in a block of its own, and
// closes the store.
func writeCells(t *testing.T, cfg pebble.Config, key string, cells int, qualifier func(i int) []byte) {
	t.Helper()
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	for i := range cells {
		value := make([]byte, 40_000) // A block ends after 32 KiB.
		random.Read(value)            // It never fails.
		apply(t, s, bucketstore.Metric, key, setOp("r0", string(qualifier(i)), 1, string(value)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

package pebble_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
)

// indexRows returns so many rows with a cell each.
func indexRows(n int, t int64) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, n)
	for i := range muts {
		muts[i] = bucketstore.Mutation{
			Key: fmt.Appendf(nil, "p,label=value,%s,series %06d", testBase, i*7919%n),
			Ops: []bucketstore.Op{{Family: "i", Qualifier: []byte("q"), Time: t, Value: fmt.Append(nil, t)}},
		}
	}
	return muts
}

// TestIngest writes large batches over small ones and small over large, and reads the cells
// that count, also after a start.
func TestIngest(t *testing.T) {
	const many, few = 20_000, 10
	cfg := onDisk(t.TempDir())
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		rows int
		time int64
	}{{few, 5}, {many, 3}, {few, 7}, {many, 6}, {many, 6}, {few, 1}}
	latest := map[string]int64{}
	for _, step := range steps {
		muts := indexRows(many, step.time)[:step.rows]
		if err := s.Apply(t.Context(), bucketstore.Index, muts); err != nil {
			t.Fatal(err)
		}
		for _, m := range muts {
			latest[string(m.Key)] = max(latest[string(m.Key)], step.time)
		}
		wantLatest(t, s, latest)
	}
	if n := s.EngineMetrics().Ingest.Count; n != 3 {
		t.Errorf("%d tables ingested, want 3", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantLatest(t, openStore(t, cfg), latest)
}

// wantLatest checks that each row of INDEX has one cell, with the latest time.
func wantLatest(t *testing.T, s bucketstore.Store, latest map[string]int64) {
	t.Helper()
	rows := 0
	err := s.Scan(t.Context(), allOf(bucketstore.Index), func(row bucketstore.Row) error {
		rows++
		if want := latest[string(row.Key)]; len(row.Cells) != 1 || row.Cells[0].Time != want || string(row.Cells[0].Value) != fmt.Sprint(want) {
			return fmt.Errorf("row %q is %v, want time %d", row.Key, row.Cells, want)
		}
		return nil
	})
	if err != nil || rows != len(latest) {
		t.Fatalf("%d rows, want %d: %v", rows, len(latest), err)
	}
}

// TestIngestOverwritten writes a column twice in one batch: the greatest time
// counts, of equal ones the last.
func TestIngestOverwritten(t *testing.T) {
	s := openStore(t, onDisk("/data").WithFS(vfs.NewMem()).WithIngest(-1))
	apply(t, s, bucketstore.Metric, "row", setOp("r0", "q", 5, "a"), setOp("r0", "q", 7, "b"), setOp("r0", "q", 7, "c"), setOp("r0", "q", 6, "d"), setOp("r0", "p", 1, "e"))
	err := s.Scan(t.Context(), allOf(bucketstore.Metric), func(row bucketstore.Row) error {
		got := ""
		for _, c := range row.Cells {
			got += fmt.Sprintf("%s=%d%s ", c.Qualifier, c.Time, c.Value)
		}
		if got != "p=1e q=7c " {
			t.Errorf("row %s", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestIngestFails fails the disk while a table is written: the batch fails, nothing of it
// is stored, and the store still works.
func TestIngestFails(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			errDisk := errors.New("the disk is full")
			var broken atomic.Bool
			disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && op.Kind == kind && strings.Contains(op.Path, "ingest") {
					return errDisk
				}
				return nil
			}))
			s := openStore(t, onDisk("/data").WithFS(disk).WithIngest(-1))
			broken.Store(true)
			if err := s.Apply(t.Context(), bucketstore.Index, indexRows(10, 1)); !errors.Is(err, errDisk) {
				t.Fatalf("error %v", err)
			}
			wantLatest(t, s, nil)
			broken.Store(false)
			if left, err := disk.List("/data/ingest"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if err := s.Apply(t.Context(), bucketstore.Index, indexRows(1, 2)); err != nil {
				t.Fatal(err)
			}
			wantLatest(t, s, map[string]int64{string(indexRows(1, 2)[0].Key): 2})
		})
	}
}

//go:build !race

package pebble_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series/seriestest"
)

// A powerLoss is the disk after the power failed before one operation, and whether the table
// was ingested and answered by then.
type powerLoss struct {
	before   string
	disk     crashDisk
	answered bool
}

// TestIngestPowerLoss loses the power before each operation that changes the disk, from the
// begin of an ingest to the end of the store. All of the table is there or nothing, all of it
// once it was answered, and all that was written before. The same batch can be written again.
func TestIngestPowerLoss(t *testing.T) {
	const many = 300
	batch := indexRows(many, 7)
	inMemory := bucketstore.Mutation{Key: batch[many/2].Key, Ops: []bucketstore.Op{
		{Kind: bucketstore.DeleteColumn, Family: "i", Qualifier: []byte("other")}, // goes through the log
		{Family: "i", Qualifier: []byte("q"), Time: 5, Value: []byte("5")},
	}}
	for _, tc := range []struct {
		name string
		// before are the writes before the ingest.
		before   [][]bucketstore.Mutation
		unsynced int // percent of what was not synced that stays all the same
	}{
		{"into an empty store", nil, 0},
		{"over a table", [][]bucketstore.Mutation{indexRows(many, 5)[:many/3]}, 0},
		{"over rows in memory", [][]bucketstore.Mutation{{inMemory}}, 0},
		{"over both", [][]bucketstore.Mutation{indexRows(many, 3)[:many/3], {inMemory}}, 0},
		{"over both, half of what was not synced is lost", [][]bucketstore.Mutation{indexRows(many, 3)[:many/3], {inMemory}}, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seed := seriestest.Seed(t)
			without := make(map[string]int64)
			for _, muts := range tc.before {
				for _, m := range muts {
					without[string(m.Key)] = m.Ops[len(m.Ops)-1].Time
				}
			}
			with := maps.Clone(without)
			for _, m := range batch {
				with[string(m.Key)] = m.Ops[0].Time
			}
			outcomes := make(map[bool]int)
			for _, loss := range losePower(t, tc.before, batch, vfs.CrashCloneCfg{UnsyncedDataPercent: tc.unsynced, RNG: rand.New(rand.NewPCG(seed, 0))}) {
				t.Run("before "+loss.before, func(t *testing.T) {
					s := openStore(t, onDisk("/data").WithFS(loss.disk).WithIngest(-1))
					ingested := loss.answered || hasRow(t, s, batch)
					outcomes[ingested]++
					if ingested {
						wantLatest(t, s, with)
					} else {
						wantLatest(t, s, without)
					}
					if err := s.Apply(t.Context(), bucketstore.Index, batch); err != nil {
						t.Fatal(err)
					}
					wantLatest(t, s, with)
				})
			}
			if outcomes[false] < 3 || outcomes[true] < 3 {
				t.Errorf("the table was there after %d losses, and not after %d", outcomes[true], outcomes[false])
			}
		})
	}
}

// losePower writes to a new store, ingests batch and closes the store. It returns the disk
// before each operation from the ingest on.
func losePower(t *testing.T, before [][]bucketstore.Mutation, batch []bucketstore.Mutation, cfg vfs.CrashCloneCfg) (losses []powerLoss) {
	t.Helper()
	var (
		mu                  sync.Mutex // guards losses and the random numbers of cfg
		recording, answered atomic.Bool
	)
	disk := newCrashDisk(vfs.NewCrashableMem())
	s, err := pebble.Open(onDisk("/data").WithIngest(-1).WithFS(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && recording.Load() {
			mu.Lock()
			defer mu.Unlock()
			isAnswered := answered.Load()
			losses = append(losses, powerLoss{fmt.Sprint(len(losses), " ", op.Kind, " ", op.Path), disk.clone(cfg), isAnswered})
		}
		return nil
	}))))
	if err != nil {
		t.Fatal(err)
	}
	for _, muts := range before {
		if err := s.Apply(t.Context(), bucketstore.Index, muts); err != nil {
			t.Fatal(err)
		}
	}
	ingested := s.EngineMetrics().Ingest.Count
	recording.Store(true)
	if err := s.Apply(t.Context(), bucketstore.Index, batch); err != nil {
		t.Fatal(err)
	}
	answered.Store(true)
	if n := s.EngineMetrics().Ingest.Count - ingested; n != 1 {
		t.Errorf("%d tables were ingested, want 1", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	recording.Store(false)
	return losses
}

// hasRow says whether INDEX has any cell of batch.
func hasRow(t *testing.T, s bucketstore.Store, batch []bucketstore.Mutation) (found bool) {
	t.Helper()
	err := s.Scan(t.Context(), allOf(bucketstore.Index), func(row bucketstore.Row) error {
		found = found || row.Cells[0].Time == batch[0].Ops[0].Time
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

//go:build !race

package seal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// run advances the world by some steps.
func (w *world) run(t testing.TB, steps int) error {
	for range steps {
		if err := w.step(t); err != nil {
			return err
		}
	}
	return w.checkAll()
}

// step is one event.
func (w *world) step(t testing.TB) error {
	switch w.rand.IntN(12) {
	case 0, 1:
		return w.write()
	case 2, 3:
		return w.advance(w.rand.Int64N(8 * minute))
	case 4:
		if w.rand.IntN(40) == 0 {
			return w.advance(w.rand.Int64N(series.Window))
		}
	case 5:
		if w.compares && w.rand.IntN(w.calm) == 0 {
			w.upset()
		}
	case 6:
		if w.compares && w.rand.IntN(10) == 0 {
			w.correct()
		}
	}
	i := w.rand.IntN(len(w.sealers))
	a := w.sealers[i]
	if a.routine.HasEnded() && a.dead {
		a.kill()
		a = w.newActor(t)
		w.sealers[i] = a
	}
	for range 1 + w.rand.IntN(40) {
		if w.now < a.wake && !a.dead {
			break
		}
		if err := a.step(); err != nil {
			return err
		}
		if a.routine.HasEnded() {
			break
		}
	}
	return nil
}

// end kills all processes.
func (w *world) end() {
	for len(w.processes) > 0 {
		w.processes[0].kill()
	}
	for _, a := range w.sealers {
		for a.dead = true; !a.routine.HasEnded(); {
			_ = a.step()
		}
	}
}

// raw counts raw cells of windows before limit.
func (w *world) raw(limit int64) (n int, err error) {
	for row := range w.samples {
		key := w.schema.AppendRowKey(nil, w.series[row.series].key, row.base)
		cells, err := cellsOf(w.store, key)
		if err != nil {
			return 0, err
		}
		for _, c := range cells {
			if c.Family == series.FamilyChunk {
				continue
			}
			delta, err := series.ParseQualifier(c.Qualifier)
			if err != nil {
				return 0, err
			}
			if row.base+int64(delta) < limit {
				n++
			}
		}
	}
	return n, nil
}

// TestSimulation compares the store with a sorted map. Two writers whose clocks differ write;
// sealers stall, die, and work at once. In two of three worlds clocks are compared, and may
// be wrong. No sample is lost, and a sample that only right clocks have written counts as
// if all were right.
func TestSimulation(t *testing.T) {
	var sum world
	sealed := 0
	for seed := range storetest.Seeds(t, 12) {
		w := newWorld(t, seed)
		w.unleased = seed%2 == 0
		w.isTight = seed/4%2 == 1
		if w.compares = seed%3 > 0; seed%5 > 0 {
			w.maxFuture = 10 * time.Minute
		}
		w.calm = []int{5, 20, 60}[w.rand.IntN(3)]
		w.addWriters()
		for range 2 + seed/2%2 {
			w.sealers = append(w.sealers, w.newActor(t))
		}
		err := w.run(t, 6000)
		w.end()
		if err != nil {
			t.Fatalf("%s=%d repeats this: %v", seriestest.SeedVariable, seed, err)
		}
		if err := w.sealAll(t); err != nil {
			t.Fatalf("%s=%d repeats this: %v", seriestest.SeedVariable, seed, err)
		}
		storetest.CheckMeta(t, w.store, w.schema)
		sum.stalls += w.stalls
		sum.deaths += w.deaths
		sum.late += w.late
		sum.sealed += w.sealed
		sum.dropped += w.dropped
		sum.comparisons += w.comparisons
		if w.compares {
			sum.raws += w.raws
			sum.doubted += w.doubted
			sealed += w.sealed
		}
	}
	t.Logf("%d rows sealed, %d stalls, %d deaths, %d mutations too late, %d answers lost",
		sum.sealed, sum.stalls, sum.deaths, sum.late, sum.dropped)
	t.Logf("of those with clocks that are compared: %d comparisons, %d samples to raw families, %d to l because of doubt, %d rows sealed",
		sum.comparisons, sum.raws, sum.doubted, sealed)
	// A run of few rounds may lack the rarest events.
	n := storetest.Rounds(t, 12)
	if sum.sealed < 20*n || sum.stalls < 8*n || sum.deaths < n/2 || n >= 12 && min(sum.late, sum.dropped, sum.raws, sum.doubted, sealed) == 0 {
		t.Error("too few events for a test")
	}
}

// sealAll lets one sealer run without failures until no raw cell is left.
func (w *world) sealAll(t testing.TB) error {
	if err := w.advance(w.maxDelay); err != nil {
		return err
	}
	raw := 0
	for slot := range 4 * 40 {
		w.now += series.Window
		_, _, ok := slotOf(w.now)
		if !ok {
			w.now += 31 * minute
		}
		s := newSealer(t, w.store, w.schema, func() time.Time { return time.UnixMilli(w.now) })
		if err := s.Once(t.Context()); err != nil {
			return err
		}
		if slot%16 > 0 {
			continue
		}
		if err := w.checkAll(); err != nil {
			return err
		}
		window, _, _ := slotOf(w.now)
		var err error
		if raw, err = w.raw(window); err != nil || raw == 0 {
			return err
		}
	}
	return fmt.Errorf("%d raw cells are left", raw)
}

// TestSimulationFindsFaults: the simulation fails without the rules of the fence.
func TestSimulationFindsFaults(t *testing.T) {
	for _, tt := range []struct {
		name     string
		compares bool
		// first is the seed of the first world that is tried: all find it soon.
		first uint64
		harm  func(w *world)
	}{
		{"clocks that differ too much", false, 13, func(w *world) { w.writers[0].offset = 3 * hour }},
		{"writes that take too long", false, 0, func(w *world) { w.maxDelay = 9 * hour }},
		{"deadlines that do not count", false, 0, func(w *world) { w.lax = true }},
		{"deadlines that do not count, and no lease", false, 0, func(w *world) { w.lax, w.unleased = true, true }},
		{"writers with wrong clocks that trust themselves", true, 9, func(w *world) {
			w.peace, w.heed = 5, func(int64) int64 { return 0 }
		}},
		{"raw families for all samples as soon as doubt ends", true, 0, func(w *world) {
			w.heed = func(from int64) int64 {
				if from > series.MaxTime {
					return from
				}
				return 0
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := tt.first; seed < tt.first+30; seed++ {
				w := newWorld(t, seed)
				w.compares = tt.compares
				w.addWriters()
				tt.harm(w)
				w.sealers = append(w.sealers, w.newActor(t))
				err := w.run(t, 6000)
				w.end()
				if err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no defect was found")
		})
	}
}

var _ bucketstore.Store = slowStore{}

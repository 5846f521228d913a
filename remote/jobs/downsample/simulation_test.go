//go:build !race

package downsample_test

import (
	"fmt"
	"testing"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// worldDays is how long a world lasts.
const worldDays = 5

// live lets a world go on until its end.
func (w *world) live() (err error) {
	end := w.now.Load() + worldDays*rollup.Day
	for err = w.err; err == nil && w.now.Load() < end; {
		err = w.step()
	}
	w.end()
	return err
}

// finish makes all that is due without failures, and wants rollups of all samples.
func (w *world) finish() error {
	w.now.Add(2 * rollup.Day)
	for _, f := range w.later {
		f.land()
	}
	if err := w.flush(w.ctx); err != nil {
		return err
	}
	p := w.processes[0]
	for range 2 { // notes are made when they are old enough
		for _, p := range w.processes {
			p.horizon = w.horizon
			p.days.Tick(w.ctx)
		}
		w.now.Add(hour)
		if err := p.maker.Once(w.ctx); err != nil {
			return err
		}
	}
	released := int64(0)
	for range 3 { // other processes see what is closed, obey it, and say so
		var err error
		if released, err = p.maker.Release(w.ctx, w.now.Load()); err != nil {
			return err
		}
		for _, p := range w.processes {
			p.days.Tick(w.ctx)
			p.register()
		}
		w.now.Add(hour)
	}
	w.now.Add(-3 * hour)
	if want := rollup.DayOf(w.now.Load() - downsample.Delay.Milliseconds()); released != want || p.days.Made() != want {
		return fmt.Errorf("days up to %d are released, up to %d made, want %d", released, p.days.Made(), want)
	}
	w.horizon = released
	for _, s := range w.series {
		for _, base := range bases {
			w.mark(rowName{s, base})
		}
	}
	return w.check()
}

// TestSimulation compares what rollups tell with the samples, in worlds of three processes, two of direct mode and one with a buffer, and
// in worlds of one that has the store for itself. Each reading is compared, before and after samples were deleted.
//
//	STORETEST_PERCENT=10000 go test -run TestSimulation -timeout 1h ./remote/jobs/downsample
func TestSimulation(t *testing.T) {
	rounds := 0
	var sum world
	for seed := range storetest.Seeds(t, 12) {
		rounds++
		for _, exclusive := range []bool{false, true} {
			w := newWorld(t, seed, exclusive, rules{})
			err := w.live()
			storetest.CheckMeta(t, &w.store, w.schema)
			if err == nil {
				err = w.finish()
			}
			if err != nil {
				t.Fatalf("%s=%d repeats this, exclusive %v: %v", seriestest.SeedVariable, seed, exclusive, err)
			}
			sum.add(w)
		}
	}
	t.Logf("%d worlds: %d rollups used, %d of them after samples were deleted, %d not used", 2*rounds, sum.used, sum.final, sum.unused)
	t.Logf("%d stalls, %d requests failed, %d rows lost an answer; %d samples of closed days refused; %d releases, %d cells deleted",
		sum.stalls, sum.unknown, sum.lost, sum.refused, sum.releases, sum.collected)
	if n := rounds; sum.used < 1000*n || sum.final < 500*n || sum.unused < 50*n || sum.stalls < 20*n || sum.refused < 10*n || sum.releases < n || sum.collected < 10*n {
		t.Error("too few events for a test")
	}
}

// add adds the counters of a world.
func (w *world) add(o *world) {
	w.used += o.used
	w.unused += o.unused
	w.final += o.final
	w.stalls += o.stalls
	w.lost += o.lost
	w.refused += o.refused
	w.unknown += o.unknown
	w.releases += o.releases
	w.collected += o.collected
}

// TestSimulationFindsFaults: the simulation fails if a rule is broken.
func TestSimulationFindsFaults(t *testing.T) {
	for _, tt := range []struct {
		name      string
		exclusive bool
		broken    rules
		// first is the first world that is tried: all find it soon.
		first uint64
	}{
		{"writes that are not counted", false, rules{noCounts: true}, 0},
		{"makers that do not wait", false, rules{noWait: true}, 53},
		{"begun goes back", false, rules{lowerBegun: true}, 0},
		{"all rollups of a day have one time", false, rules{flatTimes: true}, 0},
		{"no last walk", false, rules{noWalk: true}, 0},
		{"days are never closed", false, rules{dropClosed: true}, 0},
		{"closed days are written to", false, rules{openClosed: true}, 0},
		{"memory is ignored", false, rules{ignoreMemory: true}, 0},
		{"logs of others are ignored", false, rules{ignoreLogs: true}, 0},
		{"logs do not say what is in them", false, rules{emptyLogs: true}, 0},
		{"one process: writes that are not counted", true, rules{noCounts: true}, 0},
		{"one process: no locks", true, rules{noLocks: true}, 21},
		{"one process: no last walk", true, rules{noWalk: true}, 0},
		{"one process: closed days are written to", true, rules{openClosed: true}, 0},
		{"one process: memory is ignored", true, rules{ignoreMemory: true}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := tt.first; seed < tt.first+100; seed++ {
				w := newWorld(t, seed, tt.exclusive, tt.broken)
				if err := w.live(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no defect was found")
		})
	}
}

//go:build !race

package seal_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// A use is what a process does because its clock is not in doubt, from start to end by the
// time of the world. It is a write to a raw family, until its latest arrival; or the
// sealing of a row, from the read to the arrival of the mutation.
type use struct {
	p          *process
	offset     int64
	begin, end int64
	seals      bool
}

// clashes says whether a sealer may delete what a writer writes: both run at once, by
// clocks that are too far apart.
func (u use) clashes(v use) bool {
	d := u.offset - v.offset
	return u.p != v.p && u.seals != v.seals && u.begin <= v.end && v.begin <= u.end && max(d, -d) > seal.Skew
}

func (u use) String() string {
	what := "writes"
	if u.seals {
		what = "seals"
	}
	return fmt.Sprintf("a process %d ms ahead %s from %d to %d", u.offset, what, u.begin-worldBase, u.end-worldBase)
}

// A clockWorld is a world in which processes compare and use their clocks, without samples.
type clockWorld struct {
	*world
	// most is how many processes there are at once.
	most int
	// reads is when a process has read a row, by its clock and by the time of the world.
	reads         map[*process][2]int64
	uses          []use
	writes, seals int
}

func (w *clockWorld) start() { w.newProcess(w.clockOffset()) }

// clockOffset returns how far ahead a clock is: half of them are right, the others often a
// little more or less wrong than is allowed.
func (w *clockWorld) clockOffset() int64 {
	switch w.rand.IntN(4) {
	case 0:
		return w.rand.Int64N(2*hour) - hour
	case 1:
		return 4 * w.rightOffset()
	}
	return w.rightOffset() / 2
}

// rely lets a process do what its clock allows, or not.
func (w *clockWorld) rely(p *process) error {
	if p.isAsleep() {
		return nil
	}
	now := p.wall()
	if w.rawFrom(p) <= series.MaxTime && w.rand.IntN(2) == 0 {
		w.writes++
		if err := w.use(use{p, p.offset, w.now, w.now + seal.MutationTime, false}); err != nil {
			return err
		}
	}
	read, ok := w.reads[p]
	since, err := p.clock.Relied()
	isFresh := ok && read[0] <= now && now-read[0] <= seal.Freshness
	switch {
	case isFresh && err == nil && since <= read[0] && w.rand.IntN(2) == 0:
		w.seals++
		delete(w.reads, p)
		return w.use(use{p, p.offset, read[1], w.now + seal.MutationTime, true})
	case w.rand.IntN(3) == 0:
		w.reads[p] = [2]int64{now, w.now}
	}
	return nil
}

func (w *clockWorld) use(u use) error {
	w.uses = slices.DeleteFunc(w.uses, func(v use) bool { return v.end < w.now-hour })
	for _, v := range w.uses {
		if u.clashes(v) {
			return fmt.Errorf("%s, and %s", u, v)
		}
	}
	w.uses = append(w.uses, u)
	return nil
}

// upset makes something happen to a process.
func (w *clockWorld) upset() {
	p := w.processes[w.rand.IntN(len(w.processes))]
	switch w.rand.IntN(7) {
	case 0:
		if len(w.processes) < w.most {
			w.start()
		}
	case 1:
		w.die(p)
		if len(w.processes) == 0 || w.rand.IntN(2) == 0 {
			w.start()
		}
	case 2:
		w.set(p, w.clockOffset())
	case 3:
		p.offset += w.rand.Int64N(minute) - minute/2
	case 4:
		p.cutOff = w.now + w.outage()
	case 5:
		w.cutOff = w.now + w.outage()
	case 6:
		p.suspend(w.outage())
	}
}

// die kills a process. It may leave before if all its work has ended.
func (w *clockWorld) die(p *process) {
	p.kill()
	isBusy := slices.ContainsFunc(w.uses, func(u use) bool { return u.p == p && u.end >= w.now })
	if !isBusy && w.rand.IntN(2) == 0 {
		_ = p.clock.Leave(context.Background())
	}
}

// recover ends all failures.
func (w *clockWorld) recover() {
	w.cutOff = w.now
	for _, p := range w.processes {
		p.cutOff = w.now
		if p.isWrong() {
			w.set(p, w.rightOffset()/2)
		}
	}
}

// live lets processes compare clocks for some steps. Failures come together and end
// together, so that most clocks are not in doubt when they come again.
func (w *clockWorld) live(steps int) error {
	for range 1 + w.rand.IntN(w.most) {
		w.start()
	}
	isTrouble, left, rare := false, 50, 0
	for range steps {
		if err := w.advance(w.rand.Int64N(minute / 2)); err != nil {
			return err
		}
		if left--; left <= 0 {
			isTrouble, left, rare = !isTrouble, 20+w.rand.IntN(100), 3<<w.rand.IntN(5)
			if !isTrouble {
				w.recover()
			}
		}
		if isTrouble && w.rand.IntN(rare) == 0 {
			w.upset()
		}
		for _, p := range w.processes {
			if err := w.rely(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func newClockWorld(t testing.TB, seed uint64) *clockWorld {
	w := &clockWorld{world: newWorld(t, seed), reads: make(map[*process][2]int64)}
	w.compares, w.most = true, 2+w.rand.IntN(3)
	return w
}

// TestClockSimulation: of two processes whose clocks are too far apart none writes to raw families
// while the other seals.
func TestClockSimulation(t *testing.T) {
	writes, seals := 0, 0
	for seed := range storetest.Seeds(t, 60) {
		w := newClockWorld(t, seed)
		err := w.live(10_000)
		w.end()
		if err != nil {
			t.Fatalf("%s=%d repeats this: %v", seriestest.SeedVariable, seed, err)
		}
		writes += w.writes
		seals += w.seals
	}
	t.Logf("%d writes, %d seals", writes, seals)
	if writes < 1000 || seals < 1000 {
		t.Error("too few events for a test")
	}
}

// TestClockSimulationFindsFaults: TestClockSimulation fails without the rules of a Clock.
func TestClockSimulationFindsFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(w *clockWorld)
	}{
		{"writers with wrong clocks that trust themselves", func(w *clockWorld) { w.heed = func(int64) int64 { return 0 } }},
		{"clocks that are set without notice", func(w *clockWorld) { w.noMonotonic = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(30) {
				w := newClockWorld(t, seed)
				tt.harm(w)
				err := w.live(10_000)
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

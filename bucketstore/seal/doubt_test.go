package seal_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
)

// A use is what a process did in reliance on its clock, in the time of the world:
// a write to a raw family, which may arrive from begin to end, or what is from the
// read of a row to the arrival of the mutation that seals it.
type use struct {
	p          *process
	offset     int64
	begin, end int64
	isSeal     bool
}

// clash says whether a sealer may delete what a writer wrote: both happen at once,
// by clocks too far apart.
func (u use) clash(v use) bool {
	d := u.offset - v.offset
	return u.p != v.p && u.isSeal != v.isSeal && u.begin <= v.end && v.begin <= u.end && max(d, -d) > seal.Skew
}

// A clockWorld is a world in which processes do nothing but compare their clocks
// and rely on them.
type clockWorld struct {
	*world
	// reads is when a process has last read a row, by its clock and by the world's.
	reads map[*process][2]int64
	uses  []use
	// most is how many processes there are at once, at most.
	most int
	// writes and seals count uses.
	writes, seals int
}

// begin starts a process.
func (w *clockWorld) begin() { w.newProcess(w.clockOffset()) }

// clockOffset returns how far ahead a clock is: often not much more or less than
// what may be.
func (w *clockWorld) clockOffset() int64 {
	switch w.rand.IntN(4) {
	case 0:
		return w.rand.Int64N(2*hour) - hour
	case 1:
		return w.rand.Int64N(40*minute) - 20*minute
	}
	return w.rand.Int64N(6*minute) - 3*minute
}

// rely lets a process do what its clock allows.
func (w *clockWorld) rely(p *process) error {
	if p.isAsleep() {
		return nil
	}
	if p.clock.RawFrom(p.now()) <= series.MaxTime && w.rand.IntN(2) == 0 {
		w.writes++
		if err := w.use(use{p, p.offset, w.now, w.now + seal.MutationTime, false}); err != nil {
			return err
		}
	}
	read, ok := w.reads[p]
	since, err := p.clock.Relied()
	switch {
	case ok && err == nil && since <= read[0] && p.wall() >= read[0] && p.wall()-read[0] <= seal.Freshness && w.rand.IntN(2) == 0:
		w.seals++
		delete(w.reads, p)
		return w.use(use{p, p.offset, read[1], w.now + seal.MutationTime, true})
	case w.rand.IntN(3) == 0:
		w.reads[p] = [2]int64{p.wall(), w.now}
	}
	return nil
}

func (w *clockWorld) use(u use) error {
	w.uses = slices.DeleteFunc(w.uses, func(v use) bool { return v.end < w.now-hour })
	for _, v := range w.uses {
		if u.clash(v) {
			return fmt.Errorf("at %d: %+v and %+v", w.now-worldBase, u, v)
		}
	}
	w.uses = append(w.uses, u)
	return nil
}

// upset is something that happens to a process.
func (w *clockWorld) upset() {
	p := w.processes[w.rand.IntN(len(w.processes))]
	switch w.rand.IntN(7) {
	case 0:
		if len(w.processes) < w.most {
			w.begin()
		}
	case 1:
		p.stop()
		over := func(u use) bool { return u.p != p || u.end < w.now }
		if w.rand.IntN(2) == 0 && !slices.ContainsFunc(w.uses, func(u use) bool { return !over(u) }) {
			_ = p.clock.Leave(context.Background())
		}
		if len(w.processes) == 0 || w.rand.IntN(2) == 0 {
			w.begin()
		}
	case 2:
		if !p.isAsleep() {
			p.offset = w.clockOffset()
		}
	case 3:
		p.offset += w.rand.Int64N(minute) - minute/2
	case 4:
		p.cutOff = w.now + w.rand.Int64N(w.outage())
	case 5:
		w.cutOff = w.now + w.rand.Int64N(w.outage())
	case 6:
		if !p.isAsleep() {
			p.sleep(w.rand.Int64N(w.outage()))
		}
	}
}

// makeWell makes all well.
func (w *clockWorld) makeWell() {
	w.cutOff = w.now
	for _, p := range w.processes {
		p.cutOff = w.now
		if p.isWrong() && !p.isAsleep() {
			p.offset = w.rand.Int64N(6*minute) - 3*minute
		}
	}
}

// runClocks lets processes compare clocks for some steps. Much happens at once, and
// then nothing until most clocks are in no doubt again.
func runClocks(w *clockWorld, steps int) error {
	for range 1 + w.rand.IntN(w.most) {
		w.begin()
	}
	trouble, left, rare := false, 50, 0
	for range steps {
		if err := w.advance(w.rand.Int64N(30_000)); err != nil {
			return err
		}
		if left--; left <= 0 {
			trouble, left, rare = !trouble, 20+w.rand.IntN(100), 3<<w.rand.IntN(5)
			if !trouble {
				w.makeWell()
			}
		}
		if trouble && w.rand.IntN(rare) == 0 {
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
	w.compares = true
	w.most = 2 + w.rand.IntN(3)
	t.Cleanup(w.end)
	return w
}

// TestDoubt: of two processes whose clocks are too far apart never one writes to
// raw families while the other seals.
func TestDoubt(t *testing.T) {
	first, rounds := setting(t, seedVariable, uint64(time.Now().UnixNano())), setting(t, roundsVariable, 12)
	writes, seals := 0, 0
	for n := range 10 * rounds {
		w := newClockWorld(t, first+n)
		if err := runClocks(w, 10_000); err != nil {
			t.Fatalf("%s=%d repeats this: %v", seedVariable, first+n, err)
		}
		w.end()
		writes += w.writes
		seals += w.seals
	}
	t.Logf("%s=%d repeats this run: %d writes, %d seals", seedVariable, first, writes, seals)
}

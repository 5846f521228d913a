package seal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
)

// never is a time of the world that does not come.
const never = math.MaxInt64

// A process is one of those that write or seal, on a machine of its own. Its clock
// may be wrong, be set and be compared with others; its machine may be suspended.
// Comparisons and their requests are steps in the time of the world.
type process struct {
	w *world
	// offset is how far its clock is ahead of the time of the world.
	offset int64
	// asleep is for how long its machine was suspended, and awake until when it is.
	asleep, awake int64
	// cutOff is until when META/clock cannot be reached.
	cutOff int64
	// clock is nil in a world without comparisons. due is when it goes on, next does so.
	clock *seal.Clock
	due   int64
	next  func() (struct{}, bool)
	halt  func()
}

// newProcess returns a process that starts now.
func (w *world) newProcess(offset int64) *process {
	p := &process{w: w, offset: offset, due: never, halt: func() {}}
	if !w.compares {
		return p
	}
	w.started++
	p.clock = seal.NewClock(seal.ClockConfig{
		Store: clockStore{p}, Now: p.now, MaxFuture: w.maxFuture, ID: fmt.Sprint("process ", w.started),
	})
	p.clock.SetUptime(func(time.Time) time.Duration { return p.uptime() })
	p.due = w.now
	p.next, p.halt = iter.Pull(p.compare())
	w.processes = append(w.processes, p)
	return p
}

// wall is what the clock says.
func (p *process) wall() int64 { return p.w.now + p.offset }

func (p *process) now() time.Time { return time.UnixMilli(p.wall()) }

// uptime is what a clock says that stands still while the machine is suspended.
func (p *process) uptime() time.Duration {
	return time.Duration(p.w.now-p.asleep) * time.Millisecond
}

// isWrong says whether the clock is so wrong that there are promises that the
// process cannot keep.
func (p *process) isWrong() bool { return p.offset < -maxOffset || p.offset > maxOffset }

// isAsleep says whether the machine is suspended.
func (p *process) isAsleep() bool { return p.w.now < p.awake }

// sleep suspends the machine.
func (p *process) sleep(d int64) {
	p.awake = p.w.now + d
	p.asleep += d // the process sees neither clock before it is awake
	p.stall(d)
}

// stall keeps the process from comparing.
func (p *process) stall(d int64) {
	if p.due != never {
		p.due = max(p.due, p.w.now+d)
	}
}

// step goes on with comparisons up to the next pause.
func (p *process) step() error {
	p.due = never
	p.next()
	return nil
}

// stop ends the process: it compares no more.
func (p *process) stop() {
	p.due = never
	p.halt()
	p.w.processes = slices.DeleteFunc(p.w.processes, func(o *process) bool { return o == p })
}

// errHalted is what a process is told when the world ends.
var errHalted = errors.New("halted")

// compare compares clocks again and again, and yields when it has to wait for due.
func (p *process) compare() iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		rand := p.w.rand
		pause := func(d int64) error {
			if p.due = max(p.w.now+d, p.awake); !yield(struct{}{}) {
				return errHalted
			}
			return nil
		}
		for {
			ctx := context.WithValue(context.Background(), pauseKey{}, pause)
			if err := p.clock.Compare(ctx); err == nil {
				p.w.comparisons++
			} else if errors.Is(err, errHalted) {
				return
			}
			if pause(seal.ClockInterval.Milliseconds()+rand.Int64N(2000)) != nil {
				return
			}
		}
	}
}

// pauseKey is the key of the function with which a request of a context takes time.
type pauseKey struct{}

// A clockStore is META/clock as a process sees it: requests take time, fail, and
// may be carried out though they fail.
type clockStore struct{ p *process }

// request is called before a request is carried out. late says when it is carried
// out if its answer is an error, never if it is not.
func (s clockStore) request(ctx context.Context) (late int64, err error) {
	w := s.p.w
	pause, ok := ctx.Value(pauseKey{}).(func(int64) error)
	if !ok {
		return never, nil // a process that leaves
	}
	took := int64(0)
	if w.rand.IntN(4) == 0 {
		took = w.rand.Int64N(15_000)
	}
	begun := w.now
	if err := pause(took); err != nil {
		return never, err
	}
	late = never
	switch {
	case w.now-begun > 30_000 || w.now < s.p.cutOff || w.now < w.cutOff || w.rand.IntN(50) == 0:
		err = errRefused
		if w.now-begun < 30_000 && w.rand.IntN(3) == 0 {
			late = w.now + w.rand.Int64N(30_000-(w.now-begun))
		}
	}
	return late, err
}

func (s clockStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	late, err := s.request(ctx)
	switch {
	case err == nil:
		s.p.w.store.apply(table, muts[0])
	case late != never:
		s.p.w.flying = append(s.p.w.flying, flight{late, func() error {
			s.p.w.store.apply(table, muts[0])
			return nil
		}})
	}
	return err
}

func (s clockStore) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if _, err := s.request(ctx); err != nil {
		return err
	}
	return s.p.w.store.Scan(context.Background(), req, fn)
}

func (clockStore) CheckAndApply(context.Context, bucketstore.Table, bucketstore.Condition, bucketstore.Mutation) (bool, error) {
	panic("not used")
}

func (clockStore) Drop(context.Context, bucketstore.Table, series.RowRange) error { panic("not used") }

func (clockStore) Close() error { return nil }

// upset is one of the things that happen to processes in a world that compares
// clocks.
func (w *world) upset() {
	i := w.rand.IntN(len(w.writers))
	wr := w.writers[i]
	switch w.rand.IntN(8) {
	case 0:
		w.restart(i, w.offset())
	case 1:
		w.restart(i, wr.offset)
	case 2, 3, 4:
		w.set(w.processes[w.rand.IntN(len(w.processes))], w.offset())
	case 5:
		p := w.processes[w.rand.IntN(len(w.processes))]
		p.cutOff = w.now + w.rand.Int64N(w.outage())
	case 6:
		w.cutOff = w.now + w.rand.Int64N(w.outage())
	case 7:
		if !wr.isAsleep() {
			wr.sleep(w.rand.Int64N(w.outage()))
		}
	}
}

// restart ends writer i, by a crash or not, and starts another one.
func (w *world) restart(i int, offset int64) {
	old := w.writers[i]
	old.stop()
	if w.rand.IntN(2) == 0 && len(w.flying) == 0 {
		_ = old.clock.Leave(context.Background())
	}
	line := old.line
	if offset != old.offset {
		w.lines++
		line = w.lines
	}
	w.writers[i] = w.newWriter(offset, line)
}

// surprise is what happens while a sealer has read rows and has not sealed them.
func (w *world) surprise(a *actor) {
	if !w.compares || a.dead {
		return
	}
	if w.rand.IntN(w.peace) == 0 {
		w.restart(w.rand.IntN(len(w.writers)), w.wrongOffset())
	}
	if w.rand.IntN(4) == 0 {
		a.stall(4 * minute)
	}
	for range w.rand.IntN(6) {
		if err := w.write(); err != nil && w.err == nil {
			w.err = err
		}
	}
}

// correct sets a clock that is wrong right, if there is one.
func (w *world) correct() {
	if i := slices.IndexFunc(w.processes, (*process).isWrong); i >= 0 {
		w.set(w.processes[i], w.rand.Int64N(2*maxOffset+1)-maxOffset)
	}
}

// set sets the clock of a process.
func (w *world) set(p *process, offset int64) {
	if p.isAsleep() {
		return // or it could not tell for how long
	}
	p.offset = offset
	for _, wr := range w.writers {
		if wr.process == p {
			w.lines++
			wr.line = w.lines
		}
	}
}

// outage returns how long something may be away.
func (w *world) outage() int64 {
	return []int64{2 * minute, 10 * minute, 40 * minute, 5 * hour}[w.rand.IntN(4)]
}

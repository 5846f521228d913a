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
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
)

// never is a time after the end of the world.
const never = math.MaxInt64

// A process writes or seals, on a machine of its own. Its clock may be wrong, and be set,
// and its machine may be suspended. It compares its clock with the others; time passes
// between the steps of that.
type process struct {
	w *world
	// offset is how far its clock is ahead of the time of the world.
	offset int64
	// suspended is how long its machine was suspended, awake when it resumes.
	suspended, awake int64
	// cutOff is the time until which it cannot reach META/clock.
	cutOff int64

	// clock is nil if the world does not compare clocks.
	clock *seal.Clock
	// compareAt is when next continues the comparison; halt ends it.
	compareAt int64
	next      func() (struct{}, bool)
	halt      func()
}

// newProcess returns a process that starts now.
func (w *world) newProcess(offset int64) *process {
	p := &process{w: w, offset: offset, compareAt: never, halt: func() {}}
	if !w.compares {
		return p
	}
	w.started++
	p.clock = seal.NewClock(seal.ClockConfig{
		Store: clockStore{p}, Now: p.now, MaxFuture: w.maxFuture, ID: fmt.Sprint("process ", w.started),
	})
	p.clock.SetUptime(func(time.Time) time.Duration { return p.uptime() })
	p.compareAt = w.now
	p.next, p.halt = iter.Pull(p.compare())
	w.processes = append(w.processes, p)
	return p
}

// wall is the time of its clock.
func (p *process) wall() int64 { return p.w.now + p.offset }

func (p *process) now() time.Time { return time.UnixMilli(p.wall()) }

// uptime is monotonic, and stands still while the machine is suspended.
func (p *process) uptime() time.Duration {
	if p.w.noMonotonic {
		return time.Duration(p.wall()) * time.Millisecond
	}
	return time.Duration(p.w.now-p.suspended) * time.Millisecond
}

// isWrong says whether the clock differs more from the time of the world than right clocks
// may.
func (p *process) isWrong() bool { return p.offset < -maxOffset || p.offset > maxOffset }

// isAsleep says whether the machine is suspended.
func (p *process) isAsleep() bool { return p.w.now < p.awake }

// suspend suspends the machine, unless it is suspended.
func (p *process) suspend(d int64) {
	if p.isAsleep() {
		return
	}
	p.awake = p.w.now + d
	p.suspended += d // which shows only when it is awake
	p.hold(d)
}

// hold delays comparisons.
func (p *process) hold(d int64) {
	if p.compareAt != never {
		p.compareAt = max(p.compareAt, p.w.now+d)
	}
}

// kill ends the process: it compares no more.
func (p *process) kill() {
	p.compareAt = never
	p.halt()
	p.w.processes = slices.DeleteFunc(p.w.processes, func(o *process) bool { return o == p })
}

// goOn continues the comparison up to the next pause.
func (p *process) goOn() error {
	p.compareAt = never
	p.next()
	return nil
}

// compare compares clocks in a loop. It yields where time passes, until compareAt.
func (p *process) compare() iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		pause := func(d int64) error {
			if p.compareAt = max(p.w.now+d, p.awake); !yield(struct{}{}) {
				return errDead
			}
			return nil
		}
		for ctx := context.WithValue(context.Background(), pauseKey{}, pause); ; {
			err := p.clock.Compare(ctx)
			if err == nil {
				p.w.comparisons++
			}
			if errors.Is(err, errDead) || pause(seal.ClockInterval.Milliseconds()+p.w.rand.Int64N(2000)) != nil {
				return
			}
		}
	}
}

// pauseKey is the context key of the function that lets a request take time.
type pauseKey struct{}

// A clockStore is the store as a Clock sees it: requests take time and fail, and some
// failed ones are applied later.
type clockStore struct{ p *process }

func (s clockStore) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

// metaTimeout bounds a request of a Clock.
const metaTimeout = 30_000

// request lets a request take time. If it fails, late is when it is applied nevertheless,
// or never.
func (s clockStore) request(ctx context.Context) (late int64, err error) {
	w := s.p.w
	pause, ok := ctx.Value(pauseKey{}).(func(int64) error)
	if !ok {
		return never, nil // that of a process that leaves
	}
	started := w.now
	if err := pause(max(0, w.rand.Int64N(60_000)-45_000)); err != nil {
		return never, err
	}
	late = never
	left := metaTimeout - (w.now - started)
	if left <= 0 || w.now < s.p.cutOff || w.now < w.cutOff || w.rand.IntN(50) == 0 {
		err = errRefused
		if w.rand.IntN(3) == 0 && left > 0 {
			late = w.now + w.rand.Int64N(left)
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
		s.p.w.inFlight = append(s.p.w.inFlight, request{arrival: late, land: func() error {
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

// rawFrom is the bucketstore.RawFrom of a process.
func (w *world) rawFrom(p *process) int64 {
	from := p.clock.RawFrom(p.now())
	if w.heed != nil {
		from = w.heed(from)
	}
	return from
}

// upset makes something happen to the processes of a world that compares clocks.
func (w *world) upset() {
	i, p := w.rand.IntN(len(w.writers)), w.processes[w.rand.IntN(len(w.processes))]
	switch w.rand.IntN(8) {
	case 0:
		w.restart(i, w.offset())
	case 1:
		w.restart(i, w.writers[i].offset)
	case 2, 3, 4:
		w.set(p, w.offset())
	case 5:
		p.cutOff = w.now + w.outage()
	case 6:
		w.cutOff = w.now + w.outage()
	case 7:
		w.writers[i].suspend(w.outage())
	}
}

// outage returns the duration of a failure: minutes, or hours.
func (w *world) outage() int64 {
	return w.rand.Int64N([]int64{2 * minute, 10 * minute, 40 * minute, 5 * hour}[w.rand.IntN(4)])
}

// restart kills writer i and starts another one, on another machine unless the clock is the
// same. Some leave before.
func (w *world) restart(i int, offset int64) {
	old := w.writers[i]
	old.kill()
	if len(w.inFlight) == 0 && w.rand.IntN(2) == 0 {
		_ = old.clock.Leave(context.Background())
	}
	id := old.id
	if offset != old.offset {
		id = w.newID()
	}
	w.writers[i] = w.newWriter(offset, id)
}

// set sets the clock of a process, unless the machine is suspended: if the clock were set
// back by just as much, the process could not see either.
func (w *world) set(p *process, offset int64) {
	if p.isAsleep() {
		return
	}
	p.offset = offset
	for _, wr := range w.writers {
		if wr.process == p {
			wr.id = w.newID()
		}
	}
}

// correct sets one wrong clock right.
func (w *world) correct() {
	if i := slices.IndexFunc(w.processes, (*process).isWrong); i >= 0 {
		w.set(w.processes[i], w.rightOffset())
	}
}

// surprise happens after a sealer has read a row and before it seals it: samples are
// written, and sometimes a writer with a wrong clock has just started.
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

package downsample_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/series/rollup"
)

// taker is an appender that takes samples, or fails.
type taker struct {
	bucketstore.Appender
	got []int64
	err error
	do  func()
}

func (a *taker) Append(_ context.Context, samples []bucketstore.Sample) error {
	for _, s := range samples {
		a.got = append(a.got, s.T)
	}
	if a.do != nil {
		a.do()
	}
	return a.err
}

func samplesAt(times ...int64) (samples []bucketstore.Sample) {
	for _, t := range times {
		samples = append(samples, bucketstore.Sample{T: t})
	}
	return samples
}

// TestAppender: samples of closed days are refused for ever, those of others pass, and errors name the positions that the caller
// knows.
func TestAppender(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	const closed, open = day0 - rollup.Day, day0 + rollup.Day
	if released, err := f.maker.Release(t.Context(), closed+1); err != nil || released != closed {
		t.Fatalf("released %d, %v", released, err)
	}
	for _, tt := range []struct {
		name  string
		times []int64
		err   error // of the appender beneath
		// passed are those that reach it; failed are positions, refused those that are never to be sent again.
		passed, failed []int64
		refused        []int64
	}{
		{"open days", []int64{closed + 1, open}, nil, []int64{closed + 1, open}, nil, nil},
		{"closed days", []int64{closed, 1, 0}, nil, nil, []int64{0, 1, 2}, []int64{0, 1, 2}},
		{"both", []int64{open, closed, closed + 1, closed - 1, open}, nil, []int64{open, closed + 1, open}, []int64{1, 3}, []int64{1, 3}},
		{"both, and some fail", []int64{open, closed, open + 1, open + 2}, &bucketstore.SamplesError{Failed: []int{1, 2}, Err: errRefused, Refused: map[int]error{2: errRefused}},
			[]int64{open, open + 1, open + 2}, []int64{1, 2, 3}, []int64{1, 3}},
		{"both, and all fail", []int64{open, closed}, errLost, []int64{open}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			beneath := &taker{err: tt.err}
			err := f.days.Appender(beneath).Append(t.Context(), samplesAt(tt.times...))
			if !slices.Equal(beneath.got, tt.passed) {
				t.Errorf("%v passed, want %v", beneath.got, tt.passed)
			}
			var failed *bucketstore.SamplesError
			if !errors.As(err, &failed) {
				failed = new(bucketstore.SamplesError)
			}
			var refused []int64
			for i := range tt.times {
				if failed.Refused[i] != nil {
					refused = append(refused, int64(i))
				}
			}
			if fmt.Sprint(failed.Failed) != fmt.Sprint(tt.failed) || !slices.Equal(refused, tt.refused) {
				t.Errorf("%v failed, %v for ever, want %v and %v: %v", failed.Failed, refused, tt.failed, tt.refused, err)
			}
			if tt.err == nil && len(tt.failed) > 0 != errors.Is(err, downsample.ErrClosed) || tt.err == errLost && !errors.Is(err, errLost) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestAppenderBefore: before any day was closed all samples pass, also the one at the time 0.
func TestAppenderBefore(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	beneath := new(taker)
	if err := f.days.Appender(beneath).Append(t.Context(), samplesAt(0, 1)); err != nil || len(beneath.got) != 2 {
		t.Errorf("%v passed, %v", beneath.got, err)
	}
}

// TestAppenderUnknown: while it is not known which days are closed, those that may be are to be sent again.
func TestAppenderUnknown(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	f.advance(5 * 24 * time.Hour)
	due := rollup.DayOf(f.clock.Load() - downsample.Delay.Milliseconds())
	beneath := new(taker)
	err := f.days.Appender(beneath).Append(t.Context(), samplesAt(due+rollup.Day, due, day0))
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) || !slices.Equal(failed.Failed, []int{1, 2}) || len(failed.Refused) > 0 || errors.Is(err, downsample.ErrClosed) {
		t.Errorf("error %v, %+v", err, failed)
	}
	if !slices.Equal(beneath.got, []int64{due + rollup.Day}) {
		t.Errorf("%v passed", beneath.got)
	}
	f.days.Tick(t.Context())
	if err := f.days.Appender(beneath).Append(t.Context(), samplesAt(day0)); err != nil {
		t.Error(err)
	}
}

// TestAppenderLate: a sample is not acknowledged if its day was closed while it was written.
func TestAppenderLate(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	f.advance(downsample.LeaseTime)
	f.days.Tick(t.Context())
	o := f.other()
	release := func() {
		if _, err := o.maker.Release(t.Context(), day0+rollup.Day+1); err != nil {
			t.Fatal(err)
		}
	}
	err := f.days.Appender(&taker{do: release}).Append(t.Context(), samplesAt(day0+1, day0+2*rollup.Day))
	var failed *bucketstore.SamplesError
	if !errors.Is(err, downsample.ErrClosed) || errors.As(err, &failed) {
		t.Errorf("error %v", err)
	}
	err = f.days.Appender(&taker{do: func() { f.advance(time.Hour) }}).Append(t.Context(), samplesAt(day0+2*rollup.Day))
	if err != nil {
		t.Errorf("error %v of a day that is open", err)
	}
}

// TestRelease: days are closed, what buffers have of them is stored, what differs is made, and then they are released. After a crash between two
// steps the next process goes on.
func TestRelease(t *testing.T) {
	eachBackend(t, func(t *testing.T, inner bucketstore.Store) {
		store := &failing{inner, works}
		f := newFixture(t, store, false)
		const end = day0 + rollup.Day
		f.write("m", day0-rollup.Day+1, day0+1, end)
		f.once()
		var steps []string
		f.cfg.Flush = func(ctx context.Context) error {
			steps = append(steps, "flush")
			counted := f.days.Counted(f.store)
			return bucketstore.NewDirect(counted, f.schema, f.now, nil).Append(ctx, []bucketstore.Sample{{Ref: bucketstore.NewDirect(counted, f.schema, f.now, nil).Ref(f.key("m")), T: day0 + 2, V: 2}})
		}
		errStep := errors.New("the process ends here")
		for n := 0; ; n++ {
			// Each process comes one step further.
			f.start(false)
			left := n
			store.fail = func(kind string, table bucketstore.Table) error {
				if kind == "scan" && table == bucketstore.Meta {
					return nil
				}
				steps = append(steps, fmt.Sprint(kind, " ", table))
				if left--; left < 0 {
					return errStep
				}
				return nil
			}
			f.advance(downsample.LeaseTime)
			steps = steps[:0]
			released, err := f.maker.Release(t.Context(), end+hour)
			store.fail = works
			if err == nil {
				if released != end {
					t.Fatalf("released %d", released)
				}
				break
			}
			if !errors.Is(err, errStep) || released > end || n > 200 {
				t.Fatalf("released %d, %v", released, err)
			}
			if f.days.Released() == end {
				t.Fatalf("released before the end, at step %d: %v", n, steps)
			}
		}
		f.wantRollups("m", day0-rollup.Day, day0)
		if closed, err := f.days.Closed(t.Context()); !slices.Contains(f.waits(), downsample.PropagationTime) || err != nil || closed != end {
			t.Errorf("it has slept %v, closed %d, %v", f.waits(), closed, err)
		}
		if err := f.appender().Append(t.Context(), []bucketstore.Sample{{Ref: f.appender().Ref(f.key("m")), T: end}}); !errors.Is(err, downsample.ErrClosed) {
			t.Errorf("error %v", err)
		}

		// Nothing of these days is made after that, whatever comes.
		before := fmt.Sprint(f.rollups("m"))
		late := f.days.Counted(f.store)
		if err := bucketstore.NewDirect(late, f.schema, f.now, nil).Append(t.Context(), []bucketstore.Sample{{Ref: bucketstore.NewDirect(late, f.schema, f.now, nil).Ref(f.key("m")), T: day0 + 5}}); err != nil {
			t.Fatal(err)
		}
		f.noteLate()
		f.once()
		if after := fmt.Sprint(f.rollups("m")); after != before {
			t.Errorf("rollups %s, want %s", after, before)
		}
		if len(f.notes()) > 0 {
			t.Error("a note is left")
		}
		if released, err := f.maker.Release(t.Context(), end); err != nil || released != end {
			t.Errorf("released %d, %v", released, err)
		}
	})
}

// TestReleaseOrder: the buffer is flushed after all writers obey.
func TestReleaseOrder(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	flushed := false
	f.cfg.Flush = func(context.Context) error {
		flushed = true
		if waits := f.waits(); !slices.Equal(waits, []time.Duration{downsample.PropagationTime}) {
			t.Errorf("it is flushed after %v", waits)
		}
		return nil
	}
	f.advance(downsample.LeaseTime)
	f.slept = nil
	f.start(false)
	if _, err := f.maker.Release(t.Context(), day0+2*rollup.Day); err != nil || !flushed {
		t.Errorf("flushed %v, %v", flushed, err)
	}
	f.cfg.Flush = func(context.Context) error { return errRefused }
	g := begun(t, new(storetest.Memory), true)
	g.cfg.Flush = f.cfg.Flush
	g.start(true)
	if released, err := g.maker.Release(t.Context(), day0+2*rollup.Day); !errors.Is(err, errRefused) || released > 0 {
		t.Errorf("released %d, %v", released, err)
	}
}

// TestReleaseLogs: a day is released when no log of another process has a sample of it, or may get one. Until then it is a state: a
// metric, and a line of the log when it changes.
func TestReleaseLogs(t *testing.T) {
	const end = day0 + rollup.Day
	for _, tt := range []struct {
		name     string
		logs     []meta.Log
		released int64
	}{
		{"none", nil, end},
		{"one that does not say", []meta.Log{{ID: "a"}}, 0},
		{"one of an adapter that may take more", []meta.Log{{ID: "a", Closed: end - 1, Oldest: end + 1}}, day0},
		{"one that is empty, and may get more", []meta.Log{{ID: "a", Closed: day0}}, day0},
		{"one that is empty", []meta.Log{{ID: "a", Closed: end}}, end},
		{"one of later samples", []meta.Log{{ID: "a", Closed: end + rollup.Day, Oldest: end + 1}}, end},
		{"one with the last sample", []meta.Log{{ID: "a", Closed: end, Oldest: end}}, day0},
		{"one with earlier samples", []meta.Log{{ID: "a", Closed: end, Oldest: day0}}, day0 - rollup.Day},
		{"one with any samples", []meta.Log{{ID: "a", Closed: end, Oldest: 1}}, 0},
		{"one of many", []meta.Log{{ID: "a", Closed: end}, {ID: "b", Closed: end, Oldest: day0 + 1}, {ID: "c", Closed: end}}, day0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := begun(t, new(storetest.Memory), false)
			var lines []string
			f.logger = log.LoggerFunc(func(pairs ...any) error {
				lines = append(lines, fmt.Sprint(pairs...))
				return nil
			})
			f.advance(downsample.LeaseTime)
			logs := tt.logs
			f.cfg.Logs = func(context.Context) ([]meta.Log, error) { return logs, nil }
			f.start(false)
			release := func(want int64) {
				t.Helper()
				lines = nil
				released, err := f.maker.Release(t.Context(), end+hour)
				if err != nil || released != want {
					t.Errorf("released %d, %v, want %d", released, err, want)
				}
			}
			waiting := func(want float64, n int) {
				t.Helper()
				if got := f.metric("adapter_rollup_waiting", "logs"); got != want || len(lines) != n {
					t.Errorf("waiting %v, want %v; logged %q, want %d lines", got, want, lines, n)
				}
			}
			release(tt.released)
			if tt.released == end {
				waiting(0, 0)
				return
			}
			waiting(1, 1)
			release(tt.released)
			waiting(1, 0)
			if closed, err := f.days.Closed(t.Context()); err != nil || closed != end {
				t.Errorf("closed %d, %v", closed, err)
			}
			logs = nil
			release(end)
			waiting(0, 1)
		})
	}
	f := begun(t, new(storetest.Memory), false)
	f.cfg.Logs = func(context.Context) ([]meta.Log, error) { return nil, errRefused }
	f.advance(downsample.LeaseTime)
	f.start(false)
	if released, err := f.maker.Release(t.Context(), end); !errors.Is(err, errRefused) || released != 0 {
		t.Errorf("the logs are not known: released %d, %v", released, err)
	}
}

// TestRefused: a process says that a day is closed for it when every write that may not know so has ended.
func TestRefused(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	o := f.other()
	o.days.SetElapsed(func(from, to time.Time) (monotonic, wall time.Duration) { return to.Sub(from), to.Sub(from) })
	want := func(when string, of *fixture, want int64) {
		t.Helper()
		if got := of.days.Refused(); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	want("nothing is closed", o, 0)
	const first, second = day0, day0 + rollup.Day
	if released, err := f.maker.Release(t.Context(), first+1); err != nil || released != first {
		t.Fatal(released, err)
	}
	want("it has not seen that a day is closed", o, 0)
	o.days.Tick(t.Context())
	want("it has just seen it", o, 0)
	o.advance(downsample.PropagationTime - time.Millisecond)
	want("almost later", o, 0)
	o.advance(time.Millisecond)
	want("later", o, first)
	if _, err := f.maker.Release(t.Context(), second+1); err != nil {
		t.Fatal(err)
	}
	o.days.Tick(t.Context())
	want("it has just seen the next day", o, first)
	o.advance(downsample.PropagationTime)
	want("later", o, second)
	want("a start", f.other(), second)
}

// TestReleaseHeld: while another process makes rollups nothing is released.
func TestReleaseHeld(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	o := f.other()
	if released, err := o.maker.Release(t.Context(), day0+2*rollup.Day); err != nil || released != 0 {
		t.Errorf("released %d, %v", released, err)
	}
	f.advance(downsample.LeaseTime)
	if released, err := o.maker.Release(t.Context(), day0+2*rollup.Day); err != nil || released != day0+rollup.Day {
		t.Errorf("released %d, %v", released, err)
	}
}

// TestReleasedMeanwhile: a maker that was suspended before it read a row writes nothing, if the day was released and some of its samples are
// gone.
func TestReleasedMeanwhile(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := begun(t, store, false)
	f.write("m", day0+2)
	f.noteLate()
	o := f.other()
	suspended, before := false, ""
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind != "scan" || table != bucketstore.Metric || suspended {
			return nil
		}
		suspended = true
		f.advance(24 * time.Hour)
		if _, err := o.maker.Release(t.Context(), day0+rollup.Day+1); err != nil || o.days.Released() != day0+rollup.Day {
			t.Fatal(o.days.Released(), err)
		}
		before = fmt.Sprint(f.rollups("m"))
		// A write that was not answered comes, and what was deleted is gone.
		f.apply(bucketstore.Metric, bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key("m"), bases[0]), Ops: []bucketstore.Op{
			{Kind: bucketstore.Add, Family: "d", Qualifier: qualifier(day0), Time: day0 + rollup.Day, Value: bucketstore.AppendSum(nil, 1)},
			{Kind: bucketstore.DeleteColumn, Family: "l", Qualifier: qualifier(day0 + 1)},
		}})
		return nil
	}
	_ = f.maker.Once(t.Context())
	if after := fmt.Sprint(f.rollups("m")); !suspended || after != before {
		t.Errorf("rollups %s, want %s", after, before)
	}
}

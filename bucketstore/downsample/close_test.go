package downsample_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/downsample"
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
	f := begun(t, new(rows), false)
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
	f := newFixture(t, new(rows), true)
	beneath := new(taker)
	if err := f.days.Appender(beneath).Append(t.Context(), samplesAt(0, 1)); err != nil || len(beneath.got) != 2 {
		t.Errorf("%v passed, %v", beneath.got, err)
	}
}

// TestAppenderUnknown: while it is not known which days are closed, those that may be are to be sent again.
func TestAppenderUnknown(t *testing.T) {
	f := begun(t, new(rows), false)
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
	f := begun(t, new(rows), false)
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
		if closed, err := f.days.Closed(t.Context()); !slices.Contains(f.waits(), downsample.SettleTime) || err != nil || closed != end {
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
	f := begun(t, new(rows), false)
	flushed := false
	f.cfg.Flush = func(context.Context) error {
		flushed = true
		if waits := f.waits(); !slices.Equal(waits, []time.Duration{downsample.SettleTime}) {
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
	g := begun(t, new(rows), true)
	g.cfg.Flush = f.cfg.Flush
	g.start(true)
	if released, err := g.maker.Release(t.Context(), day0+2*rollup.Day); !errors.Is(err, errRefused) || released > 0 {
		t.Errorf("released %d, %v", released, err)
	}
}

// TestReleaseHeld: while another process makes rollups nothing is released.
func TestReleaseHeld(t *testing.T) {
	f := begun(t, new(rows), false)
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
	store := &failing{new(rows), works}
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

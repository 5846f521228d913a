package downsample_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// TestMaker: all rows of the days that are due have rollups, also where a base begins in a day, and days that were
// written to later have new ones.
func TestMaker(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		const day1, day2 = day0 + rollup.Day, day0 + 2*rollup.Day
		f.write("both", day0, day0+1, day0+5*minute, day0+rollup.Day, day1+1, worldBase-1, worldBase, worldBase+1, day2, day2+1)
		f.write("before", day0+hour)
		f.write("after", day2+hour)
		for i := range 450 { // more than are read at once
			f.write(fmt.Sprint("many", i), day0+int64(i)*minute+1)
		}
		f.once()
		f.wantRollups("both", day0-rollup.Day, day0)
		f.wantRollups("before", day0)
		f.wantRollups("after")
		f.wantRollups("many449", day0)
		if made := f.days.Made(); made != day1 || f.days.Begun() != day1 {
			t.Errorf("made up to %d, begun %d, want %d", made, f.days.Begun(), day1)
		}
		if !slices.Equal(f.waits(), []time.Duration{downsample.PropagationTime}) {
			t.Errorf("the maker has slept %v", f.slept)
		}

		f.advance(24 * time.Hour)
		f.once()
		f.wantRollups("both", day0-rollup.Day, day0, day1)
		f.wantRollups("after")

		f.write("both", worldBase+2) // late
		f.wantCount("both", map[int64]int64{day1: 1})
		f.once()
		if n := len(f.rollups("both")); n != 8 { // nothing is known of it yet
			t.Errorf("%d rollups", n)
		}
		f.noteLate()
		f.once()
		f.wantRollups("both", day0-rollup.Day, day0, day1)
		if left := f.notes(); len(left) > 0 {
			t.Errorf("notes are left: %v", left)
		}
	})
}

func (f *fixture) wantCount(name string, want map[int64]int64) {
	f.Helper()
	if got := f.counts(name); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("series %s has counts %v, want %v", name, got, want)
	}
}

// TestMakerKinds: histograms beside floats and start timestamps have no buckets, rows that lose their samples have an empty cell, and
// those that cannot be read have none.
func TestMakerKinds(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	value := func(v cell.Value) []byte { return cell.Append(nil, v) }
	for name, v := range map[string][]byte{
		"histogram": value(cell.Value{Histogram: tsdbutil.GenerateTestHistogram(1)}),
		"started":   value(cell.Value{Float: 1, Start: day0}),
		"broken":    nil,
	} {
		f.write(name, day0+1, day0+hour)
		op := bucketstore.Op{Family: series.FamilyLate, Qualifier: qualifier(day0 + 2*hour), Time: day0, Value: v}
		if v == nil { // a chunk whose checksum is wrong
			op.Family, op.Value = series.FamilyChunk, []byte("12345678")
			op.Qualifier = slices.Concat(op.Qualifier, op.Qualifier, []byte("1234"))
		}
		f.apply(bucketstore.Metric, bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key(name), bases[0]), Ops: []bucketstore.Op{op}})
	}
	f.write("deleted", day0+1)
	f.once()
	for _, name := range []string{"histogram", "started"} {
		for _, m := range f.rollups(name) {
			if rollup.HasBuckets(m.value) || len(f.rollups(name)) != 2 {
				t.Errorf("%s has %v", name, f.rollups(name))
			}
		}
	}
	if found := f.rollups("broken"); len(found) > 0 {
		t.Errorf("a row that cannot be read has %v", found)
	}
	if n := f.metric("adapter_rollup_failures_total"); n != 1 {
		t.Errorf("%v failures", n)
	}
	f.wantRollups("deleted", day0)
	delete := bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key("deleted"), bases[0]), Ops: []bucketstore.Op{{
		Kind: bucketstore.DeleteColumn, Family: series.FamilyLate, Qualifier: qualifier(day0 + 1),
	}}}
	if err := f.days.Counted(f.store).Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{delete}); err != nil {
		t.Fatal(err)
	}
	f.noteLate()
	f.once()
	for _, m := range f.rollups("deleted") {
		if len(m.value) > 0 || m.count != 1 {
			t.Errorf("without samples there is %v", m)
		}
	}
}

func qualifier(t int64) []byte {
	_, delta := series.Split(t)
	return series.AppendQualifier(nil, delta)
}

func (f *fixture) metric(name string, labels ...string) float64 {
	f.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() != name || len(labels) > 0 && m.GetLabel()[0].GetValue() != labels[0] {
				continue
			}
			if m.Gauge != nil {
				return m.Gauge.GetValue()
			}
			return m.Counter.GetValue()
		}
	}
	f.Fatalf("no metric %s %v", name, labels)
	return 0
}

// failing is a store that fails.
type failing struct {
	bucketstore.Store
	// fail is called with each request of a kind: "scan", "apply", "check".
	fail func(kind string, table bucketstore.Table) error
}

func (s *failing) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if err := s.fail("scan", req.Table); err != nil {
		return err
	}
	return s.Store.Scan(ctx, req, fn)
}

func (s *failing) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if err := s.fail("apply", table); err != nil {
		return err
	}
	return s.Store.Apply(ctx, table, muts)
}

func (s *failing) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, m bucketstore.Mutation) (bool, error) {
	if err := s.fail("check", table); err != nil {
		return false, err
	}
	return s.Store.CheckAndApply(ctx, table, cond, m)
}

func works(string, bucketstore.Table) error { return nil }

// TestNotesNotRead: if it is not known which days were written to late, that is an error.
func TestNotesNotRead(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, true)
	f.write("m", day0+1)
	f.once()
	scans := 0
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "scan" && table == bucketstore.Meta {
			if scans++; scans == 2 { // the first reads the state
				return errRefused
			}
		}
		return nil
	}
	if err := f.maker.Once(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("error %v", err)
	}
}

// TestMakerResumes: after an error in the middle of a day the maker goes on, and does not write again what is there. The metrics say what
// it did.
func TestMakerResumes(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, true)
	for i := range 500 {
		f.write(fmt.Sprintf("m%03d", i), day0+minute)
	}
	batches := 0
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "apply" && table == bucketstore.Metric {
			if batches++; batches == 2 {
				return errRefused
			}
		}
		return nil
	}
	if err := f.maker.Once(t.Context()); !errors.Is(err, errRefused) {
		t.Fatalf("error %v", err)
	}
	if f.days.Made() >= day0+rollup.Day || len(f.rollups("m000")) != 2 || len(f.rollups("m499")) != 0 {
		t.Errorf("made up to %d, first %v, last %v", f.days.Made(), f.rollups("m000"), f.rollups("m499"))
	}
	if lag := f.metric("adapter_rollup_lag_seconds"); lag <= downsample.Delay.Seconds() {
		t.Errorf("the lag is %v s", lag)
	}
	f.once()
	f.wantRollups("m499", day0)
	want := 0.0
	for _, m := range f.rollups("m000") {
		if m.resolution == rollup.OneHour {
			want = 500 * float64(len(m.value))
		}
	}
	for name, want := range map[string]float64{"adapter_rollup_failures_total": 0, "adapter_rollup_lag_seconds": 0} {
		if got := f.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if cells, bytes := f.metric("adapter_rollup_cells_total", "1h"), f.metric("adapter_rollup_bytes_total", "1h"); cells != 500 || bytes != want {
		t.Errorf("%v cells of 1h with %v bytes, want 500 with %v", cells, bytes, want)
	}
	if rows, walks := f.metric("adapter_rollup_rows_total"), f.metric("adapter_rollup_walks_total"); rows < 700 || walks < 2 {
		t.Errorf("%v rows, %v walks", rows, walks)
	}
	if n, err := testutil.GatherAndCount(f.reg); err != nil || n != 10 {
		t.Errorf("%d metrics, %v", n, err)
	}
	before := f.metric("adapter_rollup_rows_total")
	f.once()
	if got := f.metric("adapter_rollup_rows_total"); got != before {
		t.Error("the maker reads rows without a reason")
	}
}

// TestMakerPauses: the maker reads so many rows a second.
func TestMakerPauses(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	for i := range 500 {
		f.write(fmt.Sprint("m", i), day0+minute)
	}
	f.cfg.RowsPerSecond = 100
	f.start(true)
	f.once()
	slept, rows := time.Duration(0), f.metric("adapter_rollup_rows_total")
	for _, d := range f.slept {
		slept += d
	}
	if want := time.Duration(rows/100) * time.Second; rows < 500 || slept != want {
		t.Errorf("pauses of %v for %v rows, want %v", slept, rows, want)
	}
}

// TestFirstDay: after an upgrade the first day is that of the first samples that are there, and it is made of all of
// them.
func TestFirstDay(t *testing.T) {
	for _, tt := range []struct {
		name         string
		horizon      int64
		first, want  int64 // of samples, of rollups
		withoutIndex bool
	}{
		{"no horizon", 0, day0 - 9*rollup.Day + 1, day0 - 9*rollup.Day, false},
		{"a horizon at the end of a day", day0 - 2*rollup.Day, day0 - 3*rollup.Day + 1, day0 - 2*rollup.Day, false},
		{"a horizon in a day", day0 - 2*rollup.Day + hour, day0 - 3*rollup.Day + 1, day0 - rollup.Day, false},
		{"a horizon after it", day0 + 2*rollup.Day, day0 - 3*rollup.Day + 1, day0 + rollup.Day, false},
		{"the first time", 0, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, new(storetest.Memory), true)
			f.cfg.Timeline = timelinetest.From(func() int64 { return tt.horizon })
			if tt.first == 0 {
				f.clock.Store(33*hour + 1)
			}
			f.start(true)
			f.once()
			if f.days.Begun() != 0 {
				t.Errorf("without samples days up to %d have begun", f.days.Begun())
			}
			for day := rollup.DayOf(tt.first); day < day0+rollup.Day && day < tt.first+20*rollup.Day; day += rollup.Day {
				f.write("m", max(0, day)+hour, day+rollup.Day)
			}
			f.write("m", tt.first)
			f.once()
			for _, m := range f.rollups("m") {
				if m.day < tt.want {
					t.Errorf("there is a rollup of day %d", (m.day-day0)/rollup.Day)
				}
			}
			if tt.first > 0 && tt.want <= day0 {
				for day := tt.want; day <= day0; day += rollup.Day {
					if !slices.ContainsFunc(f.rollups("m"), func(m made) bool { return m.day == day }) {
						t.Errorf("there is no rollup of day %d", (day-day0)/rollup.Day)
					}
				}
			}
		})
	}
}

// TestHorizonMoves: no rollup is made of a day of which samples may be gone, also if the horizon comes while it is read.
func TestHorizonMoves(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, true)
	horizon := int64(0)
	f.cfg.Timeline = timelinetest.From(func() int64 { return horizon })
	f.start(true)
	first := series.PeriodOf(day0 - 3*rollup.Day) // the first day has it
	f.write("m", first+1, day0-2*rollup.Day+1, day0+1)
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "scan" && table == bucketstore.Metric {
			horizon = day0 - hour // it passes the days that are made now
		}
		return nil
	}
	f.once()
	store.fail = works
	f.wantRollups("m", day0)
	if f.days.Made() != day0+rollup.Day {
		t.Errorf("made up to %d", f.days.Made())
	}
}

// TestCuts: of a series of which some samples may have been deleted, also since its row was read, nothing of their day is made.
func TestCuts(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, true)
	cuts := make(map[string]int64)
	failure := error(nil)
	f.cfg.Timeline = timelinetest.Bounds{Rules: func(context.Context) (timeline.KeyRules, error) { return keyCuts(cuts), failure }}
	f.start(true)
	f.write("cut", day0+1)
	f.write("whole", day0+1)
	cuts[string(f.key("cut"))] = day0
	f.once()
	f.wantRollups("cut", day0) // it begins with the day
	f.wantRollups("whole", day0)
	f.write("cut", day0+2)
	f.write("whole", day0+2)
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "scan" && table == bucketstore.Metric {
			cuts[string(f.key("cut"))] = day0 + 1
		}
		return nil
	}
	before := fmt.Sprint(f.rollups("cut"))
	cuts[string(f.key("cut"))] = 0
	if err := f.maker.MakeSeries(t.Context(), day0, []jobs.Posting{{Series: f.key("cut")}, {Series: f.key("whole")}}); err != nil {
		t.Fatal(err)
	}
	f.wantRollups("whole", day0)
	if got := fmt.Sprint(f.rollups("cut")); got != before {
		t.Errorf("rollups %s, want %s", got, before)
	}
	failure = errors.New("META is down")
	f.write("whole", day0+3)
	if err := f.maker.MakeSeries(t.Context(), day0, []jobs.Posting{{Series: f.key("whole")}}); !errors.Is(err, failure) {
		t.Error(err)
	}
}

// TestClockAhead: a clock that was far ahead has days begun and made that are not there yet. They are made when they are
// written to, as late ones.
func TestClockAhead(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	f.write("m", day0+1)
	f.advance(30 * 24 * time.Hour)
	f.once()
	if want := day0 + 31*rollup.Day; f.days.Made() != want {
		t.Fatalf("made up to %d, want %d", f.days.Made(), want)
	}
	f.noteLate() // of nothing
	ahead := f.clock.Load()
	f.write("m", day0+2)
	f.days.Tick(t.Context()) // a note from the future
	f.advance(-30 * 24 * time.Hour)
	f.once()
	f.wantRollups("m", day0)
	f.clock.Store(day0 + rollup.Day + 12*hour)
	f.write("m", day0+rollup.Day+1)
	f.noteLate()
	f.once()
	f.wantRollups("m", day0, day0+rollup.Day)
	if lag := f.metric("adapter_rollup_lag_seconds"); lag != 0 {
		t.Errorf("the lag is %v", lag)
	}
	if f.clock.Load() > ahead {
		t.Error("the clock is still ahead")
	}
}

// TestLease: one maker works at a time, and another one goes on when the lease is over, after it has waited itself.
func TestLease(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		o := f.other()
		f.write("m", day0+1)
		ctx, cancel := context.WithCancel(t.Context())
		f.maker.SetSleep(func(context.Context, time.Duration) error { cancel(); return ctx.Err() })
		if err := f.maker.Once(ctx); !errors.Is(err, context.Canceled) { // it begins and ends
			t.Fatal(err)
		}
		if err := o.maker.Once(t.Context()); !errors.Is(err, downsample.ErrHeld) {
			t.Fatalf("error %v", err)
		}
		f.advance(downsample.LeaseTime)
		o.advance(0)
		late := o.other() // it has not seen begun before
		late.once()
		if !slices.Equal(late.waits(), []time.Duration{downsample.PropagationTime}) {
			t.Errorf("the next maker has slept %v", late.slept)
		}
		f.wantRollups("m", day0)
		if err := f.maker.Once(t.Context()); !errors.Is(err, downsample.ErrHeld) && err != nil {
			t.Errorf("error %v", err)
		}
		late.write("m", day0+2)
		late.noteLate()
		f.advance(downsample.LeaseTime)
		o = f.other() // what was made once needs no wait
		o.once()
		f.wantRollups("m", day0)
		if waits := o.waits(); len(waits) > 0 {
			t.Errorf("for a late day the maker has slept %v", waits)
		}
	})
}

// TestLeave: a maker that ends gives up its lease, so that another one goes on at once; but not that of another maker.
func TestLeave(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		o := f.other()
		f.write("m", day0+1)
		ctx, cancel := context.WithCancel(t.Context())
		f.maker.SetSleep(func(_ context.Context, d time.Duration) error {
			f.advance(d)
			if d == time.Minute { // it has made all that is due
				cancel()
			}
			return ctx.Err()
		})
		f.maker.Run(ctx)
		f.wantRollups("m", day0)
		f.advance(24 * time.Hour)
		o.once()
		f.wantRollups("m", day0)
		if o.days.Made() != day0+2*rollup.Day {
			t.Errorf("the other has made up to %d", o.days.Made())
		}
		f.maker.Leave(t.Context())
		if err := f.maker.Once(t.Context()); !errors.Is(err, downsample.ErrHeld) {
			t.Errorf("the lease of another maker was given up: error %v", err)
		}
	})
}

// TestLag: the lag grows from the first day on that is due, whatever keeps the maker from it, and what it waits for is no failure.
func TestLag(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(f *fixture)
		waiting  float64
		failures float64
	}{
		{"a clock in doubt", func(f *fixture) { f.cfg.ClockErr = func() error { return errRefused } }, 1, 0},
		{"META is not written", func(f *fixture) {
			f.store = &failing{f.store, func(kind string, table bucketstore.Table) error {
				if kind != "scan" && table == bucketstore.Meta {
					return errRefused
				}
				return nil
			}}
		}, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, new(storetest.Memory), false)
			var lines int
			f.logger = log.LoggerFunc(func(...any) error { lines++; return nil })
			tt.change(f)
			f.start(false)
			want := func(what string, days float64) {
				t.Helper()
				runs := 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f.maker.SetSleep(func(context.Context, time.Duration) error {
					if runs++; runs == 2 {
						cancel()
					}
					return ctx.Err()
				})
				f.maker.Run(ctx)
				since := 0.0
				if days > 0 {
					since = (days-1)*24*3600 + downsample.Delay.Seconds() + 0.001
				}
				if lag := f.metric("adapter_rollup_lag_seconds"); lag != since {
					t.Errorf("%s: the lag is %v s, want %v", what, lag, since)
				}
			}
			want("no samples", 0)
			f.apply(bucketstore.Index, indexRows(f.schema, f.key("m"), "m", series.PeriodOf(day0))...)
			first := rollup.DayOf(series.PeriodOf(day0))
			before := f.metric("adapter_rollup_failures_total")
			want("some", float64((day0+rollup.Day-first)/rollup.Day))
			if got := f.metric("adapter_rollup_failures_total") - before; got != tt.failures {
				t.Errorf("%v failures, want %v", got, tt.failures)
			}
			if got := f.metric("adapter_rollup_waiting", "clock"); got != tt.waiting || tt.waiting > 0 && lines != 1 {
				t.Errorf("waiting %v, want %v; %d lines", got, tt.waiting, lines)
			}
		})
	}
}

// TestLostAnswer: a maker that does not know whether begun was raised waits as if it was raised when it sees it.
func TestLostAnswer(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, false)
	f.write("m", day0+1)
	lost := &losing{store, 1}
	f.store = lost
	f.start(false)
	if err := f.maker.Once(t.Context()); !errors.Is(err, errLost) {
		t.Fatalf("error %v", err)
	}
	f.advance(time.Minute)
	f.once()
	if !slices.Equal(f.waits(), []time.Duration{downsample.PropagationTime}) {
		t.Errorf("the maker has slept %v", f.slept)
	}
	f.wantRollups("m", day0)
}

// losing is a store that loses answers of CheckAndApply.
type losing struct {
	bucketstore.Store
	left int
}

func (s *losing) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, m bucketstore.Mutation) (bool, error) {
	done, err := s.Store.CheckAndApply(ctx, table, cond, m)
	if s.left--; s.left >= 0 {
		return false, errors.Join(errLost, err)
	}
	return done, err
}

// TestTakeover: a maker that was suspended while another one worked changes nothing of what that has made known, whether
// the lease of the other one is over or not.
func TestTakeover(t *testing.T) {
	for _, passed := range []time.Duration{0, downsample.LeaseTime} {
		store := &failing{new(storetest.Memory), works}
		f := newFixture(t, store, false)
		for day := day0 - 3*rollup.Day; day <= day0; day += rollup.Day {
			f.write("m", day+1)
		}
		o := f.other()
		suspended := false
		store.fail = func(kind string, table bucketstore.Table) error {
			if kind == "apply" && table == bucketstore.Metric && !suspended {
				suspended = true
				f.advance(3 * time.Hour)
				o.once()
				f.advance(passed)
				f.days.Tick(t.Context()) // it knows of that
			}
			return nil
		}
		if err := f.maker.Once(t.Context()); errors.Is(err, downsample.ErrHeld) != (passed == 0) {
			t.Errorf("%s after the other one worked: error %v", passed, err)
		}
		if made := o.days.Made(); made != day0+rollup.Day || f.days.Made() != made {
			t.Errorf("%s after the other one worked: made up to %d and %d", passed, made, f.days.Made())
		}
		f.wantRollups("m", day0-3*rollup.Day, day0-2*rollup.Day, day0-rollup.Day, day0)
	}
}

// TestLongWalk: the lease of a walk that takes longer than it stays.
func TestLongWalk(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), false)
	for i := range 900 {
		f.write(fmt.Sprint("m", i), day0+1)
	}
	o := f.other()
	f.cfg.RowsPerSecond = 0.2 // 200 rows in 1,000 s
	f.start(false)
	tries := 0
	f.maker.SetSleep(func(ctx context.Context, d time.Duration) error {
		f.clock.Add(max(0, d.Milliseconds()))
		if err := o.maker.Once(ctx); !errors.Is(err, downsample.ErrHeld) {
			t.Errorf("another maker works: %v", err)
		}
		tries++
		return nil
	})
	f.once()
	f.wantRollups("m899", day0)
	if tries < 5 {
		t.Errorf("%d pauses", tries)
	}
}

// TestClockErr: nothing is made while the clock is in doubt.
func TestClockErr(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), false)
	f.write("m", day0+1)
	doubt := errors.New("the clock is in doubt")
	f.cfg.ClockErr = func() error { return doubt }
	f.start(false)
	if err := f.maker.Once(t.Context()); !errors.Is(err, doubt) || !errors.Is(err, downsample.ErrClock) || f.days.Begun() != 0 {
		t.Errorf("error %v, begun %d", err, f.days.Begun())
	}
	if released, err := f.maker.Release(t.Context(), f.clock.Load()); err != nil || released != 0 {
		t.Errorf("released %d, %v: a clock in doubt is a state, and nothing is released", released, err)
	}
}

// TestTenants: the rollups of all tenants are made.
func TestTenants(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	tenants := []string{"a", "b"}
	f.tenants = jobs.NamedTenants(f.schema, tenants...)
	f.start(true)
	none := f.schema
	for _, tenant := range tenants {
		f.schema, _ = none.ForTenant(tenant)
		f.write("m", day0+1)
	}
	f.once()
	for _, tenant := range tenants {
		f.schema, _ = none.ForTenant(tenant)
		f.wantRollups("m", day0)
	}
}

// TestProgress: many days make few lines in the log.
func TestProgress(t *testing.T) {
	store := &failing{new(storetest.Memory), works}
	f := newFixture(t, store, true)
	f.write("m", day0-400*rollup.Day+1)
	var lines strings.Builder
	days, err := downsample.Open(t.Context(), downsample.Config{Store: f.store, Schema: f.schema, Now: f.now, Logger: log.NewLogfmtLogger(&lines)})
	if err != nil {
		t.Fatal(err)
	}
	f.cfg.Registerer = nil
	f.maker = downsample.NewMaker(days, f.cfg)
	store.fail = func(kind string, _ bucketstore.Table) error {
		if kind == "check" { // two for each day
			f.advance(time.Second)
		}
		return nil
	}
	f.once()
	found := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(found) < 5 || len(found) > 20 || !strings.Contains(found[0], " of=404") || !strings.Contains(found[len(found)-1], "days=404 of=404") {
		t.Errorf("%d lines, the last one %s", len(found), found[len(found)-1])
	}
}

// keyCuts are rules that cut series by their keys.
type keyCuts map[string]int64

func (c keyCuts) Latest() int64              { return math.MaxInt64 }
func (c keyCuts) KeyCut(key []byte) int64    { return c[string(key)] }
func (c keyCuts) KeyClosed(key []byte) int64 { return c[string(key)] }

// TestMakerEarlierKinds: rollups of kinds that are no longer written are made again when their day is read: if it was written to, and before its
// samples go. Then they stay.
func TestMakerEarlierKinds(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		f.write("x", day0+1, day0+hour, day0+2*hour)
		f.write("y", day0+1)
		f.once()
		f.wantRollups("x", day0)
		earlier := func() {
			for _, m := range f.rollups("x") {
				f.apply(bucketstore.Metric, bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key("x"), m.base), Ops: []bucketstore.Op{{
					Kind: bucketstore.SetCell, Family: m.resolution.Family(), Qualifier: series.AppendQualifier(nil, rollup.Qualifier(m.day, m.base)),
					Time: m.day + rollup.Day + m.count, Value: append([]byte{1}, m.value[1:]...),
				}}})
			}
		}
		earlier()
		f.write("y", day0+hour)
		f.noteLate()
		f.once()
		f.wantRollups("x", day0)
		f.wantRollups("y", day0)

		earlier()
		end := int64(day0 + rollup.Day)
		if released, err := f.maker.Release(t.Context(), end+hour); err != nil || released != end {
			t.Fatal(released, err)
		}
		f.wantRollups("x", day0)
		earlier()
		f.apply(bucketstore.Meta, bucketstore.Mutation{Key: series.AppendMetaLateKey(nil, day0), Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyMeta, Time: f.clock.Load(), Value: []byte("late"),
		}}})
		f.advance(downsample.NoteAge)
		f.once()
		for _, m := range f.rollups("x") {
			if !rollup.IsEarlier(m.value) {
				t.Errorf("%s of a day whose samples may be gone is made again", m.resolution)
			}
		}
	})
}

package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const (
	someTime = int64(1_300_000_000_000)
	day      = int64(24 * time.Hour / time.Millisecond)
)

var errStore = errors.New("the store is down")

// A fixture is a store whose META is watched, and the clock.
type fixture struct {
	bucketstore.Store
	clock atomic.Int64 // the store looks at it, too
	// fail makes writes of META fail.
	fail bool
	// events are the writes of META and the calls of Expire, in order.
	events []string
	reg    *prometheus.Registry
	// usage is what the store says that it takes.
	usage bucketstore.Usage
}

func (f *fixture) now() time.Time { return time.UnixMilli(f.clock.Load()) }

func (f *fixture) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if f.fail {
		return false, errStore
	}
	applied, err := f.Store.CheckAndApply(ctx, table, cond, mut)
	f.events = append(f.events, fmt.Sprintf("%s %s", mut.Key, mut.Ops[len(mut.Ops)-1].Value))
	return applied, err
}

func (f *fixture) expire(r rollup.Resolution, cut int64) {
	what := "expire "
	if r != rollup.Raw {
		what += r.String() + " "
	}
	f.events = append(f.events, fmt.Sprint(what, cut-someTime))
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{}
	f.clock.Store(someTime)
	var err error
	if f.Store, err = pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: f.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		storetest.CheckMeta(t, f.Store, series.Schema{})
		if err := f.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// open opens the retention as a start does.
func (f *fixture) open(t *testing.T, change func(*retention.Config)) (*retention.Retention, error) {
	t.Helper()
	m, err := meta.Open(t.Context(), f, series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	f.reg = prometheus.NewRegistry()
	cfg := retention.Config{Meta: m, Now: f.now, Expire: f.expire, Registerer: f.reg, Usage: func() (bucketstore.Usage, error) { return f.usage, nil }}
	change(&cfg)
	return retention.Open(t.Context(), cfg)
}

func (f *fixture) mustOpen(t *testing.T, change func(*retention.Config)) *retention.Retention {
	t.Helper()
	r, err := f.open(t, change)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func raw(days int64) func(*retention.Config) {
	return func(cfg *retention.Config) { cfg.Keep[rollup.Raw] = time.Duration(days*day) * time.Millisecond }
}

func (f *fixture) wantCut(t *testing.T, r *retention.Retention, want int64) {
	t.Helper()
	if got := r.Shown(rollup.Raw, f.now()); got != want {
		t.Errorf("the cut is %d days and %d ms from someTime, want %d days and %d ms", (got-someTime)/day, (got-someTime)%day, (want-someTime)/day, (want-someTime)%day)
	}
}

func (f *fixture) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(f.events, want) {
		t.Errorf("got  %q\nwant %q", f.events, want)
	}
	f.events = nil
}

func horizonAt(cut int64) string { return fmt.Sprintf(`horizon {"raw":%d}`, cut) }

func TestForEver(t *testing.T) {
	f := newFixture(t)
	r := f.mustOpen(t, raw(0))
	f.wantCut(t, r, 0)
	f.clock.Add(100_000 * day)
	if err := r.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantCut(t, r, 0)
	f.wantEvents(t)
}

// TestHorizonFirst: the horizon is stored before the store may delete, and the store deletes
// what was before it an interval ago.
func TestHorizonFirst(t *testing.T) {
	f := newFixture(t)
	r := f.mustOpen(t, raw(10))
	f.wantCut(t, r, someTime-10*day)
	f.wantEvents(t, horizonAt(someTime-10*day), fmt.Sprint("expire ", -10*day))
	f.clock.Add(5)
	f.wantCut(t, r, someTime-10*day+5) // The clock moves the cut, not the horizon.
	f.wantEvents(t)
	horizon := someTime - 10*day
	for range 2 {
		f.clock.Add(day)
		if err := r.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.wantEvents(t, fmt.Sprint("expire ", horizon-someTime), horizonAt(f.clock.Load()-10*day))
		horizon = f.clock.Load() - 10*day
	}
	if got, want := gauge(t, f.reg, "adapter_retention_cut_timestamp_seconds"), float64(horizon)/1000; got != want {
		t.Errorf("the metric of the cut is %v, want %v", got, want)
	}
}

// TestNextCut: metrics say how long everything is kept, and when the next day goes.
func TestNextCut(t *testing.T) {
	f := newFixture(t)
	f.clock.Store(1_700_000_000_000) // 2023-11-14T22:13:20Z
	const midnight = 1_699_920_000   // of that day
	f.mustOpen(t, func(cfg *retention.Config) {
		cfg.Keep = bucketstore.Retention{10 * 24 * time.Hour, timeline.Off, 0}
		cfg.Size = 7
	})
	for _, tt := range []struct {
		name  string
		pairs []string
		want  float64
	}{
		{"adapter_retention_limit_bytes", nil, 7},
		{"adapter_retention_limit_seconds", []string{"raw"}, 10 * 86400},
		{"adapter_retention_limit_seconds", []string{"1h"}, 0},
		{"adapter_retention_next_cut_timestamp_seconds", []string{"raw"}, midnight + 86400},
		{"adapter_retention_next_cut_timestamp_seconds", []string{"1h"}, 0},
	} {
		if got := gauge(t, f.reg, tt.name, tt.pairs...); got != tt.want {
			t.Errorf("%s %v is %v, want %v", tt.name, tt.pairs, got, tt.want)
		}
	}
	f.clock.Store((midnight + 86400) * 1000) // the day is over
	if got := gauge(t, f.reg, "adapter_retention_next_cut_timestamp_seconds", "raw"); got != midnight+2*86400 {
		t.Errorf("a day later the next cut is at %v", got)
	}
}

// gauge returns the value of a gauge or a counter whose labels have these values.
func gauge(t *testing.T, reg *prometheus.Registry, name string, values ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if family.GetName() == name && slices.Equal(have, values) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestMetaDown: nothing is deleted while the horizon cannot be stored. The cut moves on all
// the same.
func TestMetaDown(t *testing.T) {
	f := newFixture(t)
	f.fail = true
	if _, err := f.open(t, raw(10)); !errors.Is(err, errStore) {
		t.Fatal(err)
	}
	f.wantEvents(t)
	f.fail = false
	r := f.mustOpen(t, raw(10))
	f.events, f.fail = nil, true
	f.clock.Add(day)
	for range 3 {
		if err := r.Advance(t.Context()); !errors.Is(err, errStore) {
			t.Fatal(err)
		}
	}
	f.wantCut(t, r, someTime-9*day)
	expire := fmt.Sprint("expire ", -10*day)
	f.wantEvents(t, expire, expire, expire)
}

// TestLonger: what was cut once stays hidden, if samples are kept for longer, for ever, or by
// an earlier clock.
func TestLonger(t *testing.T) {
	for _, tt := range []struct {
		name  string
		days  int64
		clock int64
	}{
		{"longer", 20, someTime}, {"for ever", 0, someTime}, {"an earlier clock", 10, someTime - 5*day}, {"just as long", 10, someTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.mustOpen(t, raw(10))
			f.events = nil
			f.clock.Store(tt.clock)
			r := f.mustOpen(t, raw(tt.days))
			f.wantCut(t, r, someTime-10*day)
			f.wantEvents(t, fmt.Sprint("expire ", -10*day)) // Half-deleted days go.
			f.clock.Store(someTime + 100*day)
			if tt.days > 0 {
				f.wantCut(t, r, someTime+100*day-tt.days*day)
			}
		})
	}
}

// TestStoreAge: where the store deletes by age itself, the horizon follows that age, not the
// flag. So a flag that was too short for a while hides nothing that is there.
func TestStoreAge(t *testing.T) {
	f := newFixture(t)
	open := func(flag, age int64) *retention.Retention {
		t.Helper()
		return f.mustOpen(t, func(cfg *retention.Config) {
			raw(flag)(cfg)
			cfg.Expire, cfg.StoreAge[rollup.Raw] = nil, time.Duration(age*day)*time.Millisecond
		})
	}
	r := open(3, 0)
	f.wantCut(t, r, someTime-3*day)
	f.wantEvents(t)
	r = open(0, 0)
	f.wantCut(t, r, 0)
	r = open(10, 17)
	f.wantCut(t, r, someTime-10*day)
	f.wantEvents(t, horizonAt(someTime-17*day))
	r = open(30, 17) // The tables were not changed.
	f.wantCut(t, r, someTime-17*day)
	r = open(30, 37)
	f.wantCut(t, r, someTime-17*day)
	f.clock.Add(20 * day)
	f.wantCut(t, r, someTime-10*day)
}

// TestRunEnds with its context.
func TestRunEnds(t *testing.T) {
	f := newFixture(t)
	r := f.mustOpen(t, raw(10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
}

// TestRunReads: an adapter knows within minutes what another one, or schema apply, has changed.
func TestRunReads(t *testing.T) {
	rows := new(storetest.Memory)
	synctest.Test(t, func(t *testing.T) {
		about, err := meta.Open(t.Context(), storetest.Shared(rows, true), series.Schema{}, time.Now)
		if err == nil {
			err = about.Init(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := retention.Open(t.Context(), retention.Config{Meta: about, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		for _, h := range []meta.Horizons{{300, 200, 100}, {400, 200, 100}, {50, 50, 50}} {
			before, err := about.Horizons(t.Context())
			if err == nil && h[0] > before[0] {
				_, err = about.RaiseHorizons(t.Context(), h)
			} else if err == nil {
				_, err = about.LowerHorizons(t.Context(), before, h)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2*time.Minute + time.Second) // of the bubble
			synctest.Wait()
			for of, want := range h {
				if got := r.Horizon(rollup.Resolution(of)); got != want {
					t.Errorf("the horizon of %s is %d, want %d", rollup.Resolution(of), got, want)
				}
			}
		}
		cancel()
		<-ended
	})
}

// TestClockAhead: a clock that is years ahead hides all samples, and the newest days of them are
// not deleted. When it is right again they are there.
func TestClockAhead(t *testing.T) {
	const midnight = someTime - someTime%day
	f := newFixture(t)
	f.usage = bucketstore.Usage{Days: []bucketstore.DayUsage{{End: midnight - 9*day}, {End: midnight}, {End: midnight + day}}}
	f.clock.Store(someTime + 1000*day)
	r := f.mustOpen(t, raw(90))
	f.wantCut(t, r, someTime+910*day)
	if got := r.Horizon(rollup.Raw); got != midnight-2*day {
		t.Errorf("the horizon is %d, want %d", got, midnight-2*day)
	}
	f.wantEvents(t, horizonAt(midnight-2*day), fmt.Sprint("expire ", midnight-2*day-someTime))
	f.clock.Store(someTime)
	f.wantCut(t, r, midnight-2*day)
}

// TestSize: the oldest days go when the store is too large, as few as will do, and never the
// newest three of samples or of the clock. The horizon is raised first.
func TestSize(t *testing.T) {
	const midnight = someTime - someTime%day
	// days are the ends of days from midnight on, each with 10 bytes.
	daysOf := func(ends ...int64) (u bucketstore.Usage) {
		for _, end := range ends {
			u.Bytes += 10
			u.Days = append(u.Days, bucketstore.DayUsage{End: midnight + end*day, Bytes: 10})
		}
		return u
	}
	other := func(u bucketstore.Usage, bytes uint64) bucketstore.Usage {
		u.Bytes += bytes
		return u
	}
	const none = -1000
	for _, tt := range []struct {
		name    string
		usage   bucketstore.Usage
		size    uint64
		horizon int64 // in days from midnight
		want    int64
	}{
		{"no limit", daysOf(-9, -8, -7, 1), 0, none, none},
		{"just fits", daysOf(-9, -8, -7, 0), 40, none, none},
		{"a byte too large", daysOf(-9, -8, -7, 0), 39, none, -9},
		{"two days", daysOf(-9, -8, -7, 0), 20, none, -8},
		{"what is no day counts", other(daysOf(-9, -8, -7, 0), 25), 50, none, -8},
		{"the newest three of the clock", daysOf(-9, -8, -7, -3, -2, -1, 0, 1), 1, none, -3},
		{"the newest three of samples", daysOf(-30, -29, -28, -27, -26), 1, none, -29},
		{"days without samples between", daysOf(-30, -20, -9), 1, none, -20},
		{"a sample far ahead", daysOf(-30, -2, -1, 0, 900), 1, none, -30},
		{"what is before the horizon is gone", daysOf(-9, -8, -7, -6, 0), 30, -8, -8},
		{"and more", daysOf(-9, -8, -7, -6, 0), 20, -8, -7},
		{"no days", other(daysOf(), 100), 1, none, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			m, err := meta.Open(t.Context(), f, series.Schema{}, f.now)
			if err != nil {
				t.Fatal(err)
			}
			if tt.horizon != none {
				if _, err := m.RaiseHorizons(t.Context(), meta.Horizons{midnight + tt.horizon*day}); err != nil {
					t.Fatal(err)
				}
			}
			f.events = nil
			r := f.mustOpen(t, func(cfg *retention.Config) {
				cfg.Size, cfg.Usage = tt.size, func() (bucketstore.Usage, error) { return tt.usage, nil }
			})
			var events []string
			want := int64(0)
			if tt.want != none {
				want = midnight + tt.want*day
				events = []string{fmt.Sprint("expire ", want-someTime)}
				if tt.want != tt.horizon {
					events = append([]string{horizonAt(want)}, events...)
				}
			}
			f.wantCut(t, r, want)
			f.wantEvents(t, events...)
		})
	}
}

// TestSizeCountsOnce: days that are over the size are counted and logged when they are cut, once, however often they have to wait before.
func TestSizeCountsOnce(t *testing.T) {
	const midnight = someTime - someTime%day
	f := newFixture(t)
	for _, end := range []int64{-30, -20, -10, -9, 0} {
		f.usage.Bytes += 10
		f.usage.Days = append(f.usage.Days, bucketstore.DayUsage{End: midnight + end*day, Bytes: 10})
	}
	bound := int64(0) // no rollup is final yet
	var logged bytes.Buffer
	r := f.mustOpen(t, func(cfg *retention.Config) {
		raw(25)(cfg) // the first day goes for its age
		cfg.Size = 25
		cfg.Logger = log.NewLogfmtLogger(&logged)
		cfg.Release = func(context.Context, int64) (int64, error) { return bound, nil }
	})
	wantDropped := func(want int) {
		t.Helper()
		if got := gauge(t, f.reg, "adapter_retention_size_drops_total"); got != float64(want) {
			t.Errorf("%v days are counted, want %d", got, want)
		}
		lines := 0
		for line := range strings.Lines(logged.String()) {
			if strings.Contains(line, "--retention.size") {
				lines++
			}
		}
		if lines != want {
			t.Errorf("%d lines, want %d:\n%s", lines, want, &logged)
		}
	}
	wantDropped(0)
	for _, step := range []struct {
		bound int64
		want  int
	}{{0, 0}, {midnight - 20*day, 1}, {midnight - 20*day, 1}, {midnight - 10*day, 2}, {midnight, 2}} {
		bound = step.bound
		if err := r.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantDropped(step.want)
	}
}

// TestSizeFails: a store that cannot say what it takes keeps its samples.
func TestSizeFails(t *testing.T) {
	f := newFixture(t)
	_, err := f.open(t, func(cfg *retention.Config) {
		raw(10)(cfg)
		cfg.Size, cfg.Usage = 1, func() (bucketstore.Usage, error) { return bucketstore.Usage{}, errStore }
	})
	if !errors.Is(err, errStore) {
		t.Error(err)
	}
	f.wantEvents(t)
}

// days returns so many days.
func days(n int64) time.Duration { return time.Duration(n*day) * time.Millisecond }

func (f *fixture) wantCuts(t *testing.T, r *retention.Retention, want ...int64) {
	t.Helper()
	for of := range rollup.NumResolutions {
		if got := r.Shown(of, f.now()); got != want[of] {
			t.Errorf("the cut of %s is %d ms from someTime, want %d", of, got-someTime, want[of]-someTime)
		}
	}
}

// TestResolutions: each resolution has a horizon and a cut of its own.
func TestResolutions(t *testing.T) {
	f := newFixture(t)
	keep := func(raw, fiveMinutes, oneHour int64) func(*retention.Config) {
		return func(cfg *retention.Config) {
			cfg.Keep = bucketstore.Retention{days(raw), days(fiveMinutes), days(oneHour)}
		}
	}
	r := f.mustOpen(t, keep(10, 100, 0))
	f.wantCuts(t, r, someTime-10*day, someTime-100*day, 0)
	f.wantEvents(t, fmt.Sprintf(`horizon {"5m":%d,"raw":%d}`, someTime-100*day, someTime-10*day), fmt.Sprint("expire ", -10*day), fmt.Sprint("expire 5m ", -100*day))
	f.clock.Add(day)
	f.wantCuts(t, r, someTime-9*day, someTime-99*day, 0)
	r = f.mustOpen(t, keep(20, 200, 1000))
	f.wantCuts(t, r, someTime-10*day, someTime-100*day, someTime-999*day)
	f.wantEvents(t, fmt.Sprintf(`horizon {"1h":%d,"5m":%d,"raw":%d}`, someTime-999*day, someTime-100*day, someTime-10*day),
		fmt.Sprint("expire ", -10*day), fmt.Sprint("expire 5m ", -100*day), fmt.Sprint("expire 1h ", -999*day))
	// A clock that is ahead deletes nothing of the newest days.
	f.usage = bucketstore.Usage{Days: []bucketstore.DayUsage{{End: someTime}}}
	f.clock.Add(5000 * day)
	r = f.mustOpen(t, keep(20, 200, 1000))
	for of := range rollup.NumResolutions {
		if got := r.Horizon(of); got != someTime-3*day {
			t.Errorf("the horizon of %s is %d ms from someTime", of, got-someTime)
		}
	}
}

// TestOff: rollups that are off go with the finer resolution, also when it goes by the size of
// the store.
func TestOff(t *testing.T) {
	f := newFixture(t)
	r := f.mustOpen(t, func(cfg *retention.Config) { cfg.Keep = bucketstore.Retention{days(10), timeline.Off, days(100)} })
	f.wantCuts(t, r, someTime-10*day, someTime-10*day, someTime-100*day)
	r = f.mustOpen(t, func(cfg *retention.Config) { cfg.Keep = bucketstore.Retention{days(9), days(50), timeline.Off} })
	f.wantCuts(t, r, someTime-9*day, someTime-10*day, someTime-10*day) // the horizon of 5m is there
	f.usage = bucketstore.Usage{Bytes: 40}
	const midnight = someTime - someTime%day
	for _, end := range []int64{-7, -6, -3, 0} {
		f.usage.Days = append(f.usage.Days, bucketstore.DayUsage{End: midnight + end*day, Bytes: 10})
	}
	r = f.mustOpen(t, func(cfg *retention.Config) {
		cfg.Keep, cfg.Size = bucketstore.Retention{0, timeline.Off, timeline.Off}, 30
	})
	f.wantCuts(t, r, midnight-7*day, midnight-7*day, midnight-7*day)
}

// TestRelease: samples wait for the bound, and are shown until the horizon has passed them.
func TestRelease(t *testing.T) {
	f := newFixture(t)
	bound, boundErr := someTime-30*day, error(nil)
	r := f.mustOpen(t, func(cfg *retention.Config) {
		cfg.Keep = bucketstore.Retention{days(10), days(20), 0}
		cfg.Release = func(context.Context, int64) (int64, error) { return bound, boundErr }
	})
	f.wantCuts(t, r, someTime-30*day, someTime-20*day, 0)
	bound = someTime - 12*day
	f.wantCuts(t, r, someTime-30*day, someTime-20*day, 0)
	if err := r.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantCuts(t, r, someTime-12*day, someTime-20*day, 0)
	bound = someTime
	if err := r.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantCuts(t, r, someTime-10*day, someTime-20*day, 0) // The flag asks for no more.
	f.clock.Add(day)
	boundErr = errStore
	if err := r.Advance(t.Context()); !errors.Is(err, errStore) {
		t.Error(err)
	}
	f.wantCuts(t, r, someTime-10*day, someTime-19*day, 0)
}

// TestShared: of the adapters of a store each shows what its flags say, and none lets go what META keeps. A horizon that is taken back is
// read again.
func TestShared(t *testing.T) {
	f := newFixture(t)
	about, err := meta.Open(t.Context(), f, series.Schema{}, f.now)
	if err == nil {
		err = about.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	var last *bucketstore.Retention
	share := func(of int64) {
		t.Helper()
		keep := bucketstore.Retention{days(of)}
		if set, err := about.SetRetention(t.Context(), last, keep); err != nil || !set {
			t.Fatal(set, err)
		}
		last = &keep
	}
	asked := int64(-1)
	meanwhile := func() {}
	open := func(age int64) *retention.Retention {
		t.Helper()
		f.Store = storetest.Shared(f.Store, true)
		return f.mustOpen(t, func(cfg *retention.Config) {
			raw(age)(cfg)
			cfg.Expire, cfg.Days = nil, madeTo(func() int64 { return 0 })
			cfg.Release = func(_ context.Context, cut int64) (int64, error) {
				asked = cut
				meanwhile()
				return cut, nil
			}
		})
	}
	for _, tt := range []struct {
		name              string
		shared, flag, let int64 // in days, 0 is for ever
	}{
		{"for ever, the flag for less", 0, 3, 0},
		{"for longer than the flag", 30, 3, 30},
		{"as the flag", 30, 30, 30},
		{"for less than the flag", 30, 60, 60},
		{"for less than the flag, which is for ever", 30, 0, 0},
	} {
		share(tt.shared)
		r := open(tt.flag)
		want := int64(0)
		if tt.let > 0 {
			want = someTime - tt.let*day
		}
		if got := r.Horizon(rollup.Raw); got != want {
			t.Errorf("%s: the horizon is %d days from someTime", tt.name, (got-someTime)/day)
		}
		if _, err := about.LowerHorizons(t.Context(), meta.Horizons{r.Horizon(rollup.Raw)}, meta.Horizons{}); err != nil {
			t.Fatal(err)
		}
	}

	share(3)
	r := open(3)
	f.wantCut(t, r, someTime-3*day)
	share(30)
	if _, err := about.LowerHorizons(t.Context(), meta.Horizons{someTime - 3*day}, meta.Horizons{someTime - 20*day}); err != nil {
		t.Fatal(err)
	}
	f.clock.Add(day)
	if err := r.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantCut(t, r, someTime-20*day)

	// META may change while the last rollups are made.
	share(3)
	meanwhile = func() { share(10) }
	if err := r.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked != someTime+day-3*day {
		t.Errorf("asked for samples before %d days from someTime", (asked-someTime)/day)
	}
	f.wantCut(t, r, someTime+day-10*day)
}

// TestMade: where the store deletes by age itself, samples are shown until their rollups are made, as far as they are there. But none are
// taken, and no rollup is made, of what it may have deleted.
func TestMade(t *testing.T) {
	f := newFixture(t)
	made, bound := int64(0), int64(0)
	r := f.mustOpen(t, func(cfg *retention.Config) {
		cfg.Keep = bucketstore.Retention{days(3), 0, 0}
		cfg.Expire, cfg.StoreAge = nil, bucketstore.Retention{days(10), 0, 0}
		cfg.Release = func(_ context.Context, cut int64) (int64, error) { return min(cut, bound), nil }
		cfg.Days = madeTo(func() int64 { return made })
	})
	for _, tt := range []struct {
		name              string
		made, bound, want int64
	}{
		{"no rollup is made", 0, 0, 0},
		{"some days have rollups", someTime - 12*day, 0, someTime - 12*day},
		{"all that may be deleted have rollups", someTime - 9*day, 0, someTime - 10*day},
		{"days are released", someTime - 2*day, someTime - 5*day, someTime - 5*day},
		{"all that are old enough", someTime - 2*day, someTime - 2*day, someTime - 3*day},
	} {
		made, bound = tt.made, tt.bound
		if err := r.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.wantCut(t, r, tt.want)
		if got := r.Horizon(rollup.Raw); got != tt.want {
			t.Errorf("%s: the horizon is %d days from someTime", tt.name, (got-someTime)/day)
		}
		if got, want := r.Deleted(f.now()), max(tt.want, someTime-10*day); got != want {
			t.Errorf("%s: samples may have been deleted before %d days from someTime", tt.name, (got-someTime)/day)
		}
	}
}

// TestStoreAges: where the store deletes by age itself, each resolution has its own age. Rollups
// that are made keep no samples.
func TestStoreAges(t *testing.T) {
	f := newFixture(t)
	r := f.mustOpen(t, func(cfg *retention.Config) {
		cfg.Keep = bucketstore.Retention{days(10), days(20), 0}
		cfg.Expire, cfg.StoreAge = nil, bucketstore.Retention{days(17), days(15), days(300)}
		cfg.Release = func(context.Context, int64) (int64, error) { return 0, nil }
		cfg.Days = madeTo(func() int64 { return someTime })
	})
	f.wantCuts(t, r, someTime-17*day, someTime-15*day, someTime-300*day)
	f.wantEvents(t, fmt.Sprintf(`horizon {"1h":%d,"5m":%d,"raw":%d}`, someTime-300*day, someTime-15*day, someTime-17*day))
}

// madeTo are days of rollups that are made up to a time.
type madeTo func() int64

func (m madeTo) Made() int64                           { return m() }
func (m madeTo) TakenFrom() int64                      { return 0 }
func (m madeTo) Closed(context.Context) (int64, error) { return 0, nil }

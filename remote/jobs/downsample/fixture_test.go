package downsample_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// day0 is the day before the one in which worldBase begins.
const day0 = worldBase/rollup.Day*rollup.Day - rollup.Day

// eachBackend runs a test on both stores.
func eachBackend(t *testing.T, test func(t *testing.T, store bucketstore.Store)) {
	t.Run("pebble", func(t *testing.T) {
		store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, store)
	})
	t.Run("bigtable", func(t *testing.T) { test(t, bigtabletest.Open(t)) })
}

// A fixture is a store, what is known of its days, and a maker, with a clock that the test moves.
type fixture struct {
	testing.TB
	store  bucketstore.Store
	schema series.Schema
	// tenants are those of the store. Nil is that of schema when it starts.
	tenants jobs.Tenants
	clock   *atomic.Int64
	days    *downsample.Days
	maker   *downsample.Maker
	reg     *prometheus.Registry
	cfg     downsample.MakerConfig
	logger  log.Logger
	// slept are the pauses of the maker. The clock moves meanwhile.
	slept []time.Duration
}

// newFixture returns a fixture at the time when day0 is due. The store is not for one process, unless exclusive is set.
func newFixture(t testing.TB, store bucketstore.Store, exclusive bool) *fixture {
	t.Helper()
	f := &fixture{TB: t, store: store, clock: new(atomic.Int64)}
	f.clock.Store(day0 + rollup.Day + downsample.Delay.Milliseconds() + 1)
	var err error
	if f.schema, err = series.NewSchema(nil); err != nil {
		t.Fatal(err)
	}
	f.cfg = downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.Bounds{}, Holder: "test"}
	f.start(exclusive)
	t.Cleanup(func() { storetest.CheckMeta(t, store, f.schema) })
	return f
}

// start starts a process over the store.
func (f *fixture) start(exclusive bool) {
	f.Helper()
	var err error
	if f.days, err = downsample.Open(f.Context(), downsample.Config{Store: storetest.Shared(f.store, !exclusive), Schema: f.schema, Tenants: f.tenants, Now: f.now, Logger: f.logger}); err != nil {
		f.Fatal(err)
	}
	f.reg = prometheus.NewRegistry()
	f.cfg.Registerer = f.reg
	f.maker = downsample.NewMaker(f.days, f.cfg)
	f.maker.SetSleep(func(ctx context.Context, d time.Duration) error {
		if d > 0 {
			f.slept = append(f.slept, d)
			f.clock.Add(d.Milliseconds())
		}
		return ctx.Err()
	})
}

// other returns another process over the same store, with the same clock.
func (f *fixture) other() *fixture {
	f.Helper()
	o := &fixture{TB: f.TB, store: f.store, schema: f.schema, clock: f.clock, cfg: f.cfg}
	o.start(false)
	return o
}

func (f *fixture) now() time.Time { return time.UnixMilli(f.clock.Load()) }

func (f *fixture) advance(d time.Duration) { f.clock.Add(d.Milliseconds()) }

func (f *fixture) once() {
	f.Helper()
	if err := f.maker.Once(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// waits are the pauses of the maker but for those between rows.
func (f *fixture) waits() []time.Duration {
	return slices.DeleteFunc(slices.Clone(f.slept), func(d time.Duration) bool { return d < time.Second })
}

// key returns the key of a series.
func (f *fixture) key(name string) []byte {
	f.Helper()
	key, err := f.schema.AppendSeriesKey(nil, labels.FromStrings("__name__", name, "x", "y"))
	if err != nil {
		f.Fatal(err)
	}
	return key
}

// appender returns what writes samples, as the process does.
func (f *fixture) appender() bucketstore.Appender {
	return f.days.Appender(bucketstore.NewDirect(f.days.Counted(f.store), f.schema, f.now, nil))
}

// write appends floats of a series at these times, and makes it findable.
func (f *fixture) write(name string, times ...int64) {
	f.Helper()
	var samples []bucketstore.Sample
	appender := f.appender()
	for i, t := range times {
		f.apply(bucketstore.Index, indexRows(f.schema, f.key(name), name, series.PeriodOf(t))...)
		samples = append(samples, bucketstore.Sample{Ref: appender.Ref(f.key(name)), T: t, V: float64(i%7) + float64(t%1000)})
	}
	if err := appender.Append(f.Context(), samples); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) apply(table bucketstore.Table, muts ...bucketstore.Mutation) {
	f.Helper()
	if err := f.store.Apply(f.Context(), table, muts); err != nil {
		f.Fatal(err)
	}
}

// A made rollup of a row and day.
type made struct {
	resolution rollup.Resolution
	day, base  int64
	count      int64 // on which it is based
	value      []byte
}

// scan reads families of the rows of a series.
func (f *fixture) scan(name string, families []bucketstore.FamilyRange, fn func(base int64, cells []bucketstore.Cell)) {
	f.Helper()
	for _, base := range bases {
		key := f.schema.AppendRowKey(nil, f.key(name), base)
		err := f.store.Scan(f.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(key)}, Families: families},
			func(row bucketstore.Row) error { fn(base, row.Cells); return nil })
		if err != nil {
			f.Fatal(err)
		}
	}
}

// rollups reads the rollups of a series.
func (f *fixture) rollups(name string) (found []made) {
	f.Helper()
	f.scan(name, rollupFamilies(), func(base int64, cells []bucketstore.Cell) {
		for _, c := range cells {
			day := rollup.DayOfCell(base, c.Qualifier)
			m := made{resolution: rollup.FiveMinutes, day: day, base: base, count: c.Time - day - rollup.Day, value: bytes.Clone(c.Value)}
			switch c.Family {
			case series.FamilyCount:
				continue
			case rollup.OneHour.Family():
				m.resolution = rollup.OneHour
			}
			found = append(found, m)
		}
	})
	return found
}

// counts reads the counts of a series, by day, and the sum of those of both rows.
func (f *fixture) counts(name string) map[int64]int64 {
	f.Helper()
	found := make(map[int64]int64)
	f.scan(name, rollupFamilies(), func(base int64, cells []bucketstore.Cell) {
		for _, c := range cells {
			if c.Family != series.FamilyCount {
				continue
			}
			n, err := bucketstore.ParseSum(c.Value)
			if err != nil {
				f.Fatal(err)
			}
			day := rollup.DayOfCell(base, c.Qualifier)
			if c.Time != day+rollup.Day {
				f.Errorf("the count of day %d has time %d", day, c.Time)
			}
			found[day] += n
		}
	})
	return found
}

// wantRollups wants rollups of exactly these days, in each row that has samples of it, that tell what the samples tell.
func (f *fixture) wantRollups(name string, days ...int64) {
	f.Helper()
	got := f.rollups(name)
	wanted := 0
	f.scan(name, rawFamilies(), func(base int64, cells []bucketstore.Cell) {
		samples := make(map[int64]uint64)
		if err := addSamples(samples, base, cells); err != nil {
			f.Fatal(err)
		}
		counts := make(map[int64]int64)
		for _, c := range cells {
			if c.Family == series.FamilyCount {
				counts[rollup.DayOfCell(base, c.Qualifier)], _ = bucketstore.ParseSum(c.Value)
			}
		}
		for _, day := range days {
			ts, vs := samplesIn(samples, max(day, base-1), min(day+rollup.Day, base+series.Period-1))
			if len(ts) == 0 {
				continue
			}
			for _, r := range rollup.Downsampled {
				wanted++
				var e rollup.Encoder
				want := made{r, day, base, counts[day], e.Append(nil, r, day, ts, vs)}
				if !slices.ContainsFunc(got, func(m made) bool { return fmt.Sprint(m) == fmt.Sprint(want) }) {
					f.Errorf("series %s has no rollup of %s of day %d and base %d, with count %d and %d samples, in\n%v", name, r, (day-day0)/rollup.Day, base, counts[day], len(ts), got)
				}
			}
		}
	})
	if len(got) != wanted {
		f.Errorf("series %s has %d rollups, want %d: %v", name, len(got), wanted, got)
	}
}

// noteLate lets a process write its notes, and time pass until they are old enough.
func (f *fixture) noteLate() {
	f.days.Tick(f.Context())
	f.advance(downsample.NoteAge)
}

// notes are the rows of META that name late days.
func (f *fixture) notes() (days []int64) {
	f.Helper()
	err := f.store.Scan(f.Context(), bucketstore.ScanRequest{Table: bucketstore.Meta, Rows: []series.RowRange{series.MetaLateRange()},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}}}, func(row bucketstore.Row) error {
		day, err := series.ParseMetaLateKey(row.Key)
		days = append(days, day)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return days
}

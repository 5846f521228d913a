package engine_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series/rollup"
)

// yearDays are the days of BenchmarkYear, and yearSeries how many series of each kind it has.
const yearDays, yearSeries = 380, 8

// yearKinds are counters by when they are scraped, with a sample each 15 seconds on average.
var yearKinds = []struct {
	name string
	// gap returns the time from the sample at a time to the next one, in milliseconds.
	gap func(r *rand.Rand, at int64) int64
	// more is how much longer than the step windows are: of an irregular series, the rollups of an hour do not tell most of those that are so long.
	more time.Duration
}{
	{"scraped", func(r *rand.Rand, at int64) int64 { return 15_000 + r.Int64N(1000) - at%1000 }, 15 * time.Second},
	{"irregular", func(r *rand.Rand, _ int64) int64 { return 1 + int64(r.ExpFloat64()*15_000) }, time.Minute},
}

// openYear returns an engine over a year of samples and rollups.
func openYear(b *testing.B) *engine.Engine {
	b.Helper()
	store, schema, r := remotetest.OpenPebble(b), newSchema(b), rand.New(rand.NewPCG(1, 2))
	w := backfill.New(backfill.Config{Store: store, Index: index.New(index.Config{Schema: schema, AtomicPuts: true, Exclusive: true}, indexrows.New(store)), Schema: schema})
	for _, kind := range yearKinds {
		for i := range yearSeries {
			s, err := w.Series(labels.FromStrings("__name__", kind.name, "i", fmt.Sprint(i)))
			v, at := 0.0, rollupStart+r.Int64N(15_000)
			for err == nil && at < rollupStart+yearDays*rollup.Day {
				v += float64(r.IntN(100))
				err = s.Append(b.Context(), []int64{at}, []float64{v})
				at += kind.gap(r, at)
			}
			if err == nil {
				err = s.Close(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	clock := func() time.Time { return time.UnixMilli(rollupStart + (yearDays+2)*rollup.Day) }
	err := w.Flush(b.Context())
	days, openErr := downsample.Open(b.Context(), downsample.Config{Store: storetest.Shared(store, false), Schema: schema, Now: clock})
	if err != nil || openErr != nil {
		b.Fatal(err, openErr)
	}
	maker := downsample.NewMaker(days, downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.Bounds{}})
	if err := maker.Once(b.Context()); err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Timeline: func(now time.Time) *timeline.View {
			return &timeline.View{Now: now, HasRollups: true, Made: days.Made()}
		},
		Store: store, Appender: bucketstore.NewDirect(store, schema, clock, nil), Schema: schema, Now: clock, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close(b.Context()) })
	return e
}

// cpuTime returns what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkYear asks for a year as Grafana does, in zones whose hours begin with those of UTC and in others, of series whose windows rollups of an hour tell, and
// of others.
func BenchmarkYear(b *testing.B) {
	e := openYear(b)
	for _, kind := range yearKinds {
		for _, step := range []time.Duration{6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
			for _, offset := range []time.Duration{0, 330 * time.Minute} {
				for _, resolution := range []string{"auto", "5m", "0s"} {
					name := fmt.Sprintf("%s/step=%v/offset=%v/%s", kind.name, step, offset, resolution)
					b.Run(name, func(b *testing.B) { askYear(b, e, kind.name, step, step+kind.more, offset, resolution) })
				}
			}
		}
	}
}

// askYear asks for the rate of series of a kind over a range at each step.
func askYear(b *testing.B, e *engine.Engine, kind string, step, long, offset time.Duration, resolution string) {
	coarsest, err := eval.ParseCoarsest(resolution)
	if err != nil {
		b.Fatal(err)
	}
	from := time.UnixMilli(rollupStart).Add(8*24*time.Hour - offset)
	promql := eval.New(queryOptions(), eval.NewMemory(0, 0))
	var usage *reader.Usage
	before := cpuTime(b)
	for b.Loop() {
		usage = &reader.Usage{}
		ctx := reader.WithUsage(eval.WithCoarsest(b.Context(), coarsest), usage)
		found, _ := runQuery(b, ctx, promql, e, fmt.Sprintf("rate(%s[%ds])", kind, int(long.Seconds())), from, from.Add(365*24*time.Hour), step)
		if len(found) != yearSeries {
			b.Fatalf("%d series", len(found))
		}
	}
	counts := usage.Counts()
	for unit, v := range map[string]float64{
		"cpu-ms/op": float64((cpuTime(b) - before).Microseconds()) / 1000 / float64(b.N), "rows": float64(counts.Rows), "kB": float64(counts.Bytes) / 1000,
		"1h-days": float64(counts.Days1h), "5m-days": float64(counts.Days5m),
	} {
		b.ReportMetric(v, unit)
	}
}

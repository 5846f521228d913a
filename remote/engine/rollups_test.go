package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// rollupDays are the days of the samples of the tests of rollups. They begin before the base at 1640677507072 and end
// after it, which lies inside a bucket of each resolution.
const (
	rollupStart = 18_986 * rollup.Day
	rollupDays  = 8
)

// A rolled is a store with samples and rollups, and an engine that uses them and one that does not.
type rolled struct {
	now         time.Time
	sources     rollup.Sources
	days        *downsample.Days
	maker       *downsample.Maker
	engine, raw *engine.Engine
	// reg has the metrics of engine.
	reg    *prometheus.Registry
	series []rolledSeries
	r      *rand.Rand
}

type rolledSeries struct {
	ls      labels.Labels
	counter bool
	samples map[int64]float64
	// source draws the histograms, unless it is nil.
	source     *seriestest.HistogramSource
	histograms map[int64]ingest.Histogram
}

func newRolled(t *testing.T, r *rand.Rand) *rolled {
	t.Helper()
	return newRolledOn(t, r, remotetest.OpenPebble(t))
}

// newRolledOn is newRolled on a store that is empty.
func newRolledOn(t *testing.T, r *rand.Rand, store bucketstore.Store) *rolled {
	t.Helper()
	s := &rolled{now: time.UnixMilli(rollupStart + (rollupDays+2)*rollup.Day), r: r, reg: prometheus.NewRegistry()}
	clock := func() time.Time { return s.now }
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.days, err = downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(store, false), Schema: schema, Now: clock}); err != nil {
		t.Fatal(err)
	}
	s.maker = downsample.NewMaker(s.days, downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.Bounds{}})
	counted := s.days.Counted(store)
	open := func(sources func(time.Time) rollup.Sources) *engine.Engine {
		view, reg := timeline.Func(timeline.Unbounded), prometheus.NewRegistry()
		if sources != nil {
			reg = s.reg
			view = func(now time.Time) *timeline.View {
				there := sources(now)
				return &timeline.View{Now: now, Shown: there.From, Writable: s.sources.From[rollup.Raw], HasRollups: true, Made: there.Until}
			}
		}
		e, err := engine.New(engine.Config{
			Timeline: view, Registerer: reg,
			Store: counted, Appender: s.days.Appender(bucketstore.NewDirect(counted, schema, clock, nil)), Schema: schema, Now: clock,
			MaxFuture: engine.Unbounded,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	s.engine = open(func(time.Time) rollup.Sources {
		sources := s.sources
		sources.Until = s.days.Made()
		return sources
	})
	s.raw = open(nil)
	return s
}

// fill appends samples of some series.
func (s *rolled) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		of := rolledSeries{counter: i%3 > 0, samples: make(map[int64]float64)}
		name := "gauge"
		if of.counter {
			name = "x_total"
		}
		of.ls = labels.FromStrings("__name__", name, "job", strconv.Itoa(i%2), "instance", strconv.Itoa(i))
		interval := []int64{15_000, 15_000, 60_000, 17_123, 400_000}[s.r.IntN(5)]
		v := 0.0
		for at := rollupStart + s.r.Int64N(interval); at < rollupStart+rollupDays*rollup.Day; at += interval {
			if s.r.IntN(2000) == 0 {
				of.samples[at] = seriestest.StaleNaN
				at += s.r.Int64N(10 * 3600_000)
				continue
			}
			v = s.next(of.counter, v)
			jitter := int64(0)
			if s.r.IntN(3) == 0 {
				jitter = s.r.Int64N(2000)
			}
			of.samples[at+jitter] = v
		}
		s.append(t, of.ls, of.samples)
		s.series = append(s.series, of)
	}
}

func (s *rolled) next(counter bool, v float64) float64 {
	switch {
	case s.r.IntN(3000) == 0:
		return []float64{0, math.Copysign(0, -1), math.NaN(), 1e300, math.Inf(1)}[s.r.IntN(5)]
	case !counter:
		return math.Round(s.r.NormFloat64() * 1000)
	case s.r.IntN(500) == 0:
		return 0
	case s.r.IntN(2) == 0:
		return v
	}
	return v + s.r.Float64()*10
}

func (s *rolled) append(t *testing.T, ls labels.Labels, samples map[int64]float64) {
	t.Helper()
	one := ingest.Series{Labels: ls}
	for at, v := range samples {
		one.Samples = append(one.Samples, ingest.Sample{T: at, V: v})
	}
	var rejected ingest.Rejected
	if _, err := s.engine.Append(t.Context(), []ingest.Series{one}, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
}

// rewrite stores late samples.
func (s *rolled) rewrite(t *testing.T) {
	t.Helper()
	of := &s.series[s.r.IntN(len(s.series))]
	late := make(map[int64]float64)
	at := rollupStart + s.r.Int64N(rollupDays*rollup.Day)
	if s.sources.From[rollup.Raw] > 0 { // days of which samples are gone are closed
		at = max(at, rollup.DayOf(s.sources.From[rollup.Raw])+rollup.Day+1)
	}
	if of.source != nil {
		histograms := map[int64]ingest.Histogram{at: nextHistogram(of.source), at + s.r.Int64N(600_000): nextHistogram(of.source)}
		maps.Copy(of.histograms, histograms)
		s.appendHistograms(t, of.ls, histograms)
		return
	}
	for range 1 + s.r.IntN(20) {
		late[at] = s.next(of.counter, s.r.Float64()*100)
		of.samples[at] = late[at]
		at += s.r.Int64N(600_000)
	}
	s.append(t, of.ls, late)
}

// absolute returns the sum of the absolute values in (after, to] of the series of a result, or of all series if that is of several.
func (s *rolled) absolute(metric labels.Labels, after, to int64) (sum float64) {
	for _, of := range s.series {
		if metric.Has("instance") && of.ls.Get("instance") != metric.Get("instance") {
			continue
		}
		for at, v := range of.samples {
			if at > after && at <= to && math.Abs(v) <= math.MaxFloat64 { // and no NaN
				sum += math.Abs(v)
			}
		}
	}
	return sum
}

// compareWorld compares the answers to random queries of random series.
func compareWorld(t *testing.T, r *rand.Rand) (compared, differ, used int) {
	t.Helper()
	s := newRolled(t, r)
	s.fill(t, 9)
	if r.IntN(2) == 0 {
		s.fillHistograms(t)
	}
	if r.IntN(2) == 0 { // as if the samples before were gone
		s.sources.From[rollup.Raw] = rollupStart + r.Int64N(rollupDays*rollup.Day)
		s.sources.From[rollup.FiveMinutes] = []int64{0, s.sources.From[rollup.Raw] - r.Int64N(2*rollup.Day), math.MaxInt64}[r.IntN(3)]
	}
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if i%20 == 10 {
			s.rewrite(t)
		}
		n, d, u := s.compare(t)
		if t.Failed() {
			break
		}
		compared, differ, used = compared+n, differ+d, used+u
	}
	return compared, differ, used
}

var rollupFunctions = []string{
	"rate", "increase", "delta", "changes", "resets", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time",
	"count_over_time", "present_over_time", "first_over_time", "last_over_time", "ts_of_first_over_time", "ts_of_last_over_time", "", "irate", "quantile",
}

// compare compares the answers to a random query.
func (s *rolled) compare(t *testing.T) (compared, differ, used int) {
	t.Helper()
	fn := rollupFunctions[s.r.IntN(len(rollupFunctions))]
	window := []time.Duration{5 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * time.Minute, 61 * time.Minute}[s.r.IntN(8)]
	if s.r.IntN(2) == 0 { // as Grafana asks: longer than the step by the interval of scrapes
		window += []time.Duration{15 * time.Second, 15 * time.Second, time.Minute, 30 * time.Second, 10 * time.Second, 2 * time.Minute}[s.r.IntN(6)]
	}
	step := []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 13 * time.Minute, 90 * time.Second}[s.r.IntN(7)]
	start := rollupStart + s.r.Int64N(rollupDays)*rollup.Day + []int64{0, 300_000, 3_600_000, s.r.Int64N(rollup.Day), s.midnight()}[s.r.IntN(5)]
	name := []string{"x_total", "gauge"}[s.r.IntN(2)]
	if len(s.series) > 9 && s.r.IntN(3) > 0 {
		name = []string{"native", "native", "other_native", "mixed_native"}[s.r.IntN(4)]
	}
	expr := name
	switch fn {
	case "":
	case "quantile":
		expr = fmt.Sprintf("quantile_over_time(0.3, %s[%s])", name, window)
	default:
		expr = fmt.Sprintf("%s(%s[%s])", fn, name, window)
	}
	if s.r.IntN(4) == 0 {
		expr = strings.Replace(expr, "]", "] offset 1h", 1)
	}
	if strings.HasSuffix(name, "native") && s.sources.From[rollup.Raw] == 0 {
		expr = fmt.Sprintf(histogramExpressions[s.r.IntN(len(histogramExpressions))], expr)
	}
	from, to := time.UnixMilli(start), time.UnixMilli(start).Add(step*time.Duration(s.r.IntN(120)))
	sources := s.sources
	sources.Until, sources.Coarsest = s.days.Made(), rollup.OneHour
	shift := int64(0)
	if strings.Contains(expr, "offset") {
		shift = 3600_000
	}
	plan := rollup.NewPlan(rollup.Windows{Start: start - shift, Step: step.Milliseconds(), Range: window.Milliseconds(), Count: int(to.Sub(from)/step) + 1, Last: fn == ""}, sources)
	got, warnings := s.askWith(t, s.engine, expr, from, to, step)
	want, wantWarnings := s.askWith(t, s.raw, expr, from, to, step)
	if s.sources.From[rollup.Raw] > 0 && plan != nil {
		widens := slices.ContainsFunc(textsOf(warnings), func(text string) bool { return strings.Contains(text, "widened") })
		return s.compareKnown(t, expr, window, shift, plan, widens, got, want)
	}
	if len(got) != len(want) {
		t.Fatalf("%s from %d to %d, step %s: %d series, %d from samples", expr, from.UnixMilli(), to.UnixMilli(), step, len(got), len(want))
	}
	if !slices.Equal(textsOf(warnings), textsOf(wantWarnings)) {
		t.Fatalf("%s from %d to %d, step %s: warnings %v, %v from samples", expr, from.UnixMilli(), to.UnixMilli(), step, textsOf(warnings), textsOf(wantWarnings))
	}
	isSum := fn == "sum_over_time" || fn == "avg_over_time"
	for i := range want {
		if labels.Compare(got[i].Metric, want[i].Metric) != 0 || len(got[i].Floats) != len(want[i].Floats) || len(got[i].Histograms) != len(want[i].Histograms) {
			t.Fatalf("%s from %d to %d, step %s: %s has %d values and %d histograms, %s %d and %d from samples", expr, from.UnixMilli(), to.UnixMilli(), step,
				got[i].Metric, len(got[i].Floats), len(got[i].Histograms), want[i].Metric, len(want[i].Floats), len(want[i].Histograms))
		}
		for j, p := range want[i].Histograms {
			compared++
			if q := got[i].Histograms[j]; q.T != p.T || !sameHistograms(p.H, q.H) {
				s.describe(t, expr, p.T, want[i].Metric)
				t.Errorf("%s at %d (query from %d, step %s), %s:\n%v at %d,\n%v from samples", expr, p.T, from.UnixMilli(), step, want[i].Metric, q.H, q.T, p.H)
				return
			}
		}
		for j, p := range want[i].Floats {
			compared++
			if q := got[i].Floats[j]; q.T == p.T && (math.Float64bits(p.F) == math.Float64bits(q.F) || math.IsNaN(p.F) && math.IsNaN(q.F)) {
				continue
			}
			if isSum && math.Abs(got[i].Floats[j].F-p.F) <= 1e-12*s.absolute(want[i].Metric, p.T-window.Milliseconds()-3600_000, p.T) {
				differ++
				continue
			}
			s.describe(t, expr, p.T, want[i].Metric)
			t.Errorf("%s at %d (query from %d, step %s), %s: %v, %v from samples", expr, p.T, from.UnixMilli(), step, want[i].Metric, got[i].Floats[j].F, p.F)
			return
		}
	}
	if plan != nil {
		used++
	}
	return compared, differ, used
}

// compareKnown compares the values of an answer that is in part of a time of which no samples are there: those of windows that need not be
// widened. Some may be missing there.
func (s *rolled) compareKnown(t *testing.T, expr string, window time.Duration, shift int64, plan *rollup.Plan, widens bool, got, want promql.Matrix) (compared, differ, used int) {
	t.Helper()
	needsSamples := strings.HasPrefix(expr, "irate") || strings.HasPrefix(expr, "quantile")
	for i := range got {
		n := slices.IndexFunc(want, func(of promql.Series) bool { return labels.Equal(of.Metric, got[i].Metric) })
		var values map[int64]promql.Sample
		if n >= 0 {
			values = pointsOf(want[n])
		}
		for _, p := range pointsOf(got[i]) {
			end := p.T - shift
			if _, _, isWide := plan.Widen(end-window.Milliseconds(), end); isWide {
				continue
			}
			if needsSamples && end-window.Milliseconds() < s.sources.From[rollup.Raw] {
				continue // the window has what is left
			}
			compared++
			v, ok := values[p.T]
			mayWiden := widens && end-window.Milliseconds() < s.sources.From[rollup.Raw]+rollup.Day // where it begins
			isSum := strings.HasPrefix(expr, "sum_") || strings.HasPrefix(expr, "avg_")
			switch {
			case ok && sameHistograms(p.H, v.H) && (math.Float64bits(p.F) == math.Float64bits(v.F) || math.IsNaN(p.F) && math.IsNaN(v.F)):
			case ok && isSum && p.H == nil && math.Abs(p.F-v.F) <= 1e-12*s.absolute(got[i].Metric, end-window.Milliseconds(), end):
				differ++
			case mayWiden:
			default:
				t.Errorf("%s at %d, %s: %s, %s (%t) from samples; the samples from %d on are there", expr, p.T, got[i].Metric, textOf(p), textOf(v), ok, s.sources.From[rollup.Raw])
				return
			}
		}
	}
	return compared, differ, 1
}

// describe logs what both engines know of the window of a value.
func (s *rolled) describe(t *testing.T, expr string, at int64, metric labels.Labels) {
	t.Helper()
	at0 := strings.Index(expr, "[")
	if at0 < 0 {
		return
	}
	rest := expr[strings.LastIndex(expr[:at0], "(")+1:]
	rest = rest[:strings.Index(rest, ")")+1]
	for _, fn := range []string{"count_over_time", "first_over_time", "last_over_time", "ts_of_first_over_time", "ts_of_last_over_time", "resets", "changes", "increase", "delta"} {
		for name, e := range map[string]*engine.Engine{"rollups": s.engine, "samples": s.raw} {
			for _, found := range s.ask(t, e, fn+"("+rest, time.UnixMilli(at), time.UnixMilli(at), time.Hour) {
				if found.Metric.Get("instance") == metric.Get("instance") {
					t.Logf("%s: %s %v", name, fn, found)
				}
			}
		}
	}
}

// textsOf returns warnings, sorted. One is left out: where only counts and sums of histograms are asked for, it depends on where chunks begin.
func textsOf(warnings annotations.Annotations) (texts []string) {
	for _, err := range warnings.AsErrors() {
		if !strings.Contains(err.Error(), "conflicting counter resets") {
			texts = append(texts, err.Error())
		}
	}
	slices.Sort(texts)
	return texts
}

// ask returns the answer of an engine.
func (s *rolled) ask(t *testing.T, e *engine.Engine, expr string, from, to time.Time, step time.Duration) promql.Matrix {
	t.Helper()
	found, _ := s.askWith(t, e, expr, from, to, step)
	return found
}

// askWith returns the answer of an engine with its warnings.
func (s *rolled) askWith(t *testing.T, e *engine.Engine, expr string, from, to time.Time, step time.Duration) (promql.Matrix, annotations.Annotations) {
	t.Helper()
	return runQuery(t, t.Context(), eval.New(queryOptions(), eval.NewMemory(0, 0)), e, expr, from, to, step)
}

func queryOptions() promql.EngineOpts {
	return promql.EngineOpts{
		MaxSamples: math.MaxInt, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(promqltest.TestParserOpts),
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
	}
}

// runQuery returns the answer of an engine of PromQL over the series of e.
func runQuery(t testing.TB, ctx context.Context, engine promql.QueryEngine, e *engine.Engine, expr string, from, to time.Time, step time.Duration) (promql.Matrix, annotations.Annotations) {
	t.Helper()
	q, err := engine.NewRangeQuery(ctx, e, nil, expr, from, to, step)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		t.Fatalf("%s: %v", expr, res.Err)
	}
	found := slices.Clone(res.Value.(promql.Matrix))
	for i := range found { // Close gives the memory to other queries
		found[i].Floats, found[i].Histograms = slices.Clone(found[i].Floats), slices.Clone(found[i].Histograms)
	}
	return found, res.Warnings
}

// midnight returns a time of a day of UTC at which one begins in a zone from which an hour of Grafana's does not begin with one of UTC, in milliseconds.
func (s *rolled) midnight() int64 {
	const minute = int64(60_000)
	offset := []int64{330, 345, -210}[s.r.IntN(3)] * minute
	return (rollup.Day - offset) % rollup.Day
}

// comparePoints compares two answers, each in parts. Sums are added in another order, so they are almost the same.
func comparePoints(t *testing.T, about string, isSum bool, got, want []promql.Matrix) (points int) {
	t.Helper()
	index := func(parts []promql.Matrix) map[string]promql.Sample {
		found := make(map[string]promql.Sample)
		for _, part := range parts {
			for _, one := range part {
				for at, p := range pointsOf(one) {
					found[fmt.Sprint(one.Metric, " at ", at)] = p
				}
			}
		}
		return found
	}
	found, expected := index(got), index(want)
	for at, p := range expected {
		q, ok := found[at]
		isSame := math.Float64bits(p.F) == math.Float64bits(q.F) || math.IsNaN(p.F) && math.IsNaN(q.F)
		isClose := isSum && math.Abs(p.F-q.F) <= 1e-9*max(1, math.Abs(p.F))
		if !ok || !sameHistograms(p.H, q.H) || !isSame && !isClose {
			t.Errorf("%s: %s is %s (%t), and %s", about, at, textOf(q), ok, textOf(p))
			return len(expected)
		}
	}
	for at, p := range found {
		if _, ok := expected[at]; !ok {
			t.Errorf("%s: %s is %s, and none", about, at, textOf(p))
			break
		}
	}
	return len(expected)
}

// TestRollupBatches: rollups that are too large for a batch are read in smaller ones, with the same answer.
func TestRollupBatches(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	s.fill(t, 3)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, to := time.UnixMilli(rollupStart+rollup.Day), time.UnixMilli(rollupStart+7*rollup.Day)
	const expr = "count_over_time(x_total[6h])"
	whole := s.ask(t, s.engine, expr, from, to, 6*time.Hour)
	s.engine.SetBatchBytes(1 << 10)
	parts := s.ask(t, s.engine, expr, from, to, 6*time.Hour)
	if fmt.Sprint(parts) != fmt.Sprint(whole) || len(whole) != 2 {
		t.Errorf("in one batch\n%v\nin smaller ones\n%v", whole, parts)
	}
	if f := (&fixture{reg: s.reg}); f.counter(t, "adapter_engine_read_batches_total", "result", "split") == 0 {
		t.Error("no batch was split")
	}
}

// checkKept: a query for all that is kept gives the samples that rollups keep, and all of the time in which they are
// there.
func checkKept(t *testing.T, s *rolled) {
	r := s.r
	// Days without buckets keep nothing. Of those of fillLarge one has more samples than all others, and one has start timestamps.
	compared := slices.DeleteFunc(slices.Clone(s.series), func(of rolledSeries) bool {
		return of.ls.Get("__name__") == "mixed_native" || of.ls.Get("instance") == "dense" || of.ls.Get("instance") == "started"
	})
	values := make([]map[int64]string, len(compared))
	for i := range compared {
		values[i] = compared[i].values()
	}
	for round := range storetest.Rounds(t, 10) {
		s.sources.From[rollup.Raw] = rollupStart + r.Int64N(rollupDays*rollup.Day)
		wholeFrom := rollup.DayOf(s.sources.From[rollup.Raw]) + rollup.Day
		resolution := rollup.FiveMinutes
		if s.sources.From[rollup.FiveMinutes] = 0; r.IntN(2) == 0 {
			s.sources.From[rollup.FiveMinutes], resolution = math.MaxInt64, rollup.OneHour
		}
		mint := rollupStart + r.Int64N(rollupDays*rollup.Day)
		maxt := mint + r.Int64N(rollupDays*rollup.Day)
		if round%4 == 0 {
			mint, maxt = math.MinInt64, math.MaxInt64
		}
		for i := range compared {
			of := &compared[i]
			q := reader.Query{Matchers: matchersOf(of.ls), Mint: mint, Maxt: maxt, Kept: true, Decoded: r.IntN(2) == 0}
			got := selectAll(t, s.engine, q)
			last := make(map[int64]int64) // of each bucket
			for at, v := range values[i] {
				if at < mint || at > maxt {
					continue
				}
				kept, ok := got[at]
				if ok && kept != v {
					t.Fatalf("%s at %d: %x, want %x", of.ls, at, kept, v)
				}
				if !ok && at > wholeFrom {
					t.Fatalf("%s: the sample at %d is missing; all from %d on are there", of.ls, at, wholeFrom)
				}
				last[resolution.Start(at)] = max(last[resolution.Start(at)], at)
				delete(got, at)
			}
			for at := range got {
				if of.source != nil && at < mint {
					continue // it tells of a reset
				}
				t.Fatalf("%s: there is no sample at %d in [%d, %d]", of.ls, at, mint, maxt)
			}
			again := selectAll(t, s.engine, q)
			for start, at := range last {
				if _, ok := again[at]; !ok && start+resolution.Span() <= maxt {
					t.Fatalf("%s: the last sample of the bucket from %d is missing, at %d", of.ls, start, at)
				}
			}
		}
	}
}

// matchersOf selects a series.
func matchersOf(ls labels.Labels) (ms []*labels.Matcher) {
	ls.Range(func(l labels.Label) { ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value)) })
	return ms
}

// values returns the samples as valueText has them.
func (of *rolledSeries) values() map[int64]string {
	values := make(map[int64]string)
	for at, v := range of.samples {
		values[at] = valueText(cell.Value{Float: v})
	}
	for at, h := range of.histograms {
		values[at] = valueText(cell.Value{Histogram: h.H, FloatHistogram: h.FH})
	}
	return values
}

// selectAll returns the samples of the one series of q as valueText has them.
func selectAll(t *testing.T, e *engine.Engine, q reader.Query) map[int64]string {
	t.Helper()
	set, err := e.Select(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int64]string)
	for set.Next() {
		for chunks := set.At().Iterator(nil); chunks.Next(); {
			samples := chunks.At().Chunk.Iterator(nil)
			for kind := samples.Next(); kind != chunkenc.ValNone; kind = samples.Next() {
				var v cell.Value
				switch kind {
				case chunkenc.ValFloat:
					_, v.Float = samples.At()
				case chunkenc.ValHistogram:
					_, v.Histogram = samples.AtHistogram(nil)
				default:
					_, v.FloatHistogram = samples.AtFloatHistogram(nil)
				}
				found[samples.AtT()] = valueText(v)
			}
			if err := samples.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// partTexts returns the parts of an explanation as text, with hours since the start.
func partTexts(parts []reader.ExplainedPart) (texts []string) {
	for _, p := range parts {
		text := fmt.Sprintf("%v to %v: %s", float64(p.From-rollupStart)/3600_000, float64(p.To-rollupStart)/3600_000, strings.Join(p.Read, ","))
		if p.Gone {
			text += " gone"
		}
		if p.Widened {
			text += " widened"
		}
		texts = append(texts, text)
	}
	return texts
}

// TestParts: an explanation says which windows come from samples and which from buckets, as it is planned, and as it is read.
func TestParts(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	for i := range 2 {
		samples := make(map[int64]float64)
		for at := int64(rollupStart + 7_000); at < rollupStart+rollupDays*rollup.Day; at += 15_000 {
			samples[at] = float64(at)
		}
		s.append(t, labels.FromStrings("__name__", "x_total", "i", strconv.Itoa(i)), samples)
	}
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	const hour, day = int64(3600_000), rollup.Day
	hours := func(first, step, long int64, count int) rollup.Windows {
		return rollup.Windows{Start: rollupStart + first, Step: step, Range: long, Count: count}
	}
	for _, tt := range []struct {
		name    string
		windows rollup.Windows
		want    rollup.Want
		change  func(*rollup.Sources)
		// late is a time of a late sample of one of the two series.
		late       int64
		plan, read []string
	}{
		{name: "whole hours", windows: hours(day, 6*hour, 6*hour, 9), want: rollup.Resets, plan: []string{"24 to 72: 1h"}},
		{name: "minutes", windows: hours(day, 60_000, 300_000, 100), want: rollup.Resets, plan: []string{"24 to 25.65: raw"}},
		{name: "edges", windows: hours(day+60_000, day, day, 3), want: rollup.Resets, plan: []string{"24.016666666666666 to 72.01666666666667: raw,1h"}},
		{name: "no hours", windows: hours(day, 6*hour, 6*hour, 2), want: rollup.Resets, plan: []string{"24 to 30: 5m"},
			change: func(s *rollup.Sources) { s.From[rollup.OneHour] = math.MaxInt64 }},
		{name: "after the last day", windows: hours(8*day, 6*hour, 6*hour, 9), want: rollup.Resets, plan: []string{"192 to 216: 1h", "222 to 240: raw"},
			read: []string{"192 to 192: 1h", "198 to 240: raw"}}, // days without samples have no rollups,
		{name: "as Grafana asks", windows: hours(day, 6*hour, 6*hour+15_000, 9), want: rollup.Resets, plan: []string{"24 to 72: 1h"}},
		{name: "as Grafana asks of what is gone", windows: hours(day, 6*hour, 6*hour+15_000, 9), want: rollup.Resets, plan: []string{"24 to 72: 1h gone"},
			change: func(s *rollup.Sources) { s.From[rollup.Raw] = rollupStart + 6*day }},
		{name: "samples gone", windows: hours(day, day, day, 5), want: rollup.Resets, plan: []string{"24 to 72: 1h gone", "96 to 120: 1h"},
			change: func(s *rollup.Sources) { s.From[rollup.Raw] = rollupStart + 2*day + 1 }},
		{name: "widened", windows: hours(day+60_000, day, day, 4), want: rollup.Resets,
			plan: []string{"24.016666666666666 to 24.016666666666666: 5m gone widened", "48.016666666666666 to 48.016666666666666: raw,5m gone",
				"72.01666666666667 to 96.01666666666667: raw,1h"},
			read: []string{"24.016666666666666 to 24.016666666666666: 5m gone widened", "48.016666666666666 to 48.016666666666666: raw,5m gone widened",
				"72.01666666666667 to 96.01666666666667: raw,1h"},
			change: func(s *rollup.Sources) { s.From[rollup.Raw] = rollupStart + 2*day }},
		{name: "nothing left", windows: hours(day, 60_000, 300_000, 3), want: rollup.Resets, plan: []string{"24 to 24.033333333333335:  gone"},
			change: func(s *rollup.Sources) {
				s.From = [rollup.NumResolutions]int64{rollupStart + 2*day, math.MaxInt64, math.MaxInt64}
			}},
		{name: "a late sample", windows: hours(day, day, day, 5), want: rollup.Resets, late: rollupStart + 2*day + hour,
			plan: []string{"24 to 120: 1h"}, read: []string{"24 to 48: 1h", "72 to 72: raw,1h", "96 to 120: 1h"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.sources = rollup.Sources{}
			if tt.change != nil {
				tt.change(&s.sources)
			}
			if tt.late > 0 {
				s.append(t, labels.FromStrings("__name__", "x_total", "i", "0"), map[int64]float64{tt.late: 1})
			}
			if tt.read == nil {
				tt.read = tt.plan
			}
			w := tt.windows
			q := reader.Query{Matchers: matchersOf(labels.FromStrings("__name__", "x_total")), Mint: w.Start - w.Range + 1, Maxt: w.Start + int64(w.Count-1)*w.Step}
			b := &eval.Buckets{Windows: w, Want: tt.want, Coarsest: rollup.OneHour}
			planned, err := s.engine.PlanRead(t.Context(), q, b)
			if err != nil {
				t.Fatal(err)
			}
			if got := partTexts(planned.Parts); !slices.Equal(got, tt.plan) || planned.Total.Rows > 0 {
				t.Errorf("planned %q, want %q; %+v", got, tt.plan, planned.Total)
			}
			read, err := s.engine.Measure(t.Context(), q, b)
			if err != nil {
				t.Fatal(err)
			}
			if got := partTexts(read.Parts); !slices.Equal(got, tt.read) {
				t.Errorf("read %q, want %q", got, tt.read)
			}
		})
	}
}

// TestPartsBounded: an explanation has not more parts than can be shown.
func TestPartsBounded(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	// One window in two is of whole hours, and 5 minutes are not there.
	w := rollup.Windows{Start: rollupStart, Step: 30 * 60_000 * 37, Range: 3600_000, Count: 5000}
	s.sources = rollup.Sources{From: [rollup.NumResolutions]int64{rollup.Raw: rollupStart + 1e12, rollup.FiveMinutes: math.MaxInt64}}
	q := reader.Query{Matchers: matchersOf(labels.FromStrings("__name__", "x_total")), Mint: w.Start, Maxt: w.Start + 5000*w.Step}
	x, err := s.engine.PlanRead(t.Context(), q, &eval.Buckets{Windows: w, Want: rollup.Resets, Coarsest: rollup.OneHour})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(x.Parts); n == 0 || n > 200 || x.Parts[0].From != w.Start || x.Parts[n-1].To != w.Start+4999*w.Step || !x.Parts[0].Widened {
		t.Errorf("%d parts: %v", n, partTexts(x.Parts))
	}
}

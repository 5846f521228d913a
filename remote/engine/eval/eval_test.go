package eval_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/engine/eval"
)

func options() promql.EngineOpts {
	return promql.EngineOpts{
		MaxSamples:               50_000_000,
		Timeout:                  100 * time.Second,
		NoStepSubqueryIntervalFn: func(int64) int64 { return (1 * time.Minute).Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       true,
		LookbackDelta:            5 * time.Minute,
		Parser:                   parser.NewParser(promqltest.TestParserOpts),
	}
}

// TestUpstream evaluates each query of upstream's tests of PromQL with upstream's engine,
// too, and compares the results.
func TestUpstream(t *testing.T) {
	promqltest.RunBuiltinTests(t, &comparing{
		Engine:   promqltest.NewTestEngine(t, true, 0, 10_000),
		upstream: promqltest.NewTestEngineWithOpts(t, options()),
		ours:     eval.New(options(), eval.NewMemory(0, 0)).SetCores(4, 1),
		t:        t,
	})
}

// comparing is an engine that gives each query to two others, too, and wants them to
// answer the same.
type comparing struct {
	*promql.Engine
	upstream, ours promql.QueryEngine
	t              *testing.T
	// undecided is how many queries upstream's engine answered in more than one way.
	undecided int
}

// shuffled selects series in a random order.
type shuffled struct{ storage.Queryable }

func (s shuffled) Querier(from, to int64) (storage.Querier, error) {
	q, err := s.Queryable.Querier(from, to)
	return shuffledQuerier{q}, err
}

type shuffledQuerier struct{ storage.Querier }

func (q shuffledQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := q.Querier.Select(ctx, sorted, hints, matchers...)
	var series []storage.Series
	for set.Next() {
		series = append(series, set.At())
	}
	rand.Shuffle(len(series), func(i, j int) { series[i], series[j] = series[j], series[i] })
	return &seriesSet{SeriesSet: set, rest: series}
}

// seriesSet has the series of rest, and the error and warnings of a set that was read.
type seriesSet struct {
	storage.SeriesSet
	rest []storage.Series
	at   storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series { return s.at }

// NewInstantQuery implements promql.QueryEngine.
func (c *comparing) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	c.compare(ctx, q, qs, func(e promql.QueryEngine, q storage.Queryable) (promql.Query, error) {
		return e.NewInstantQuery(ctx, q, opts, qs, ts)
	})
	return c.Engine.NewInstantQuery(ctx, q, opts, qs, ts)
}

// NewRangeQuery implements promql.QueryEngine.
func (c *comparing) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	c.compare(ctx, q, qs, func(e promql.QueryEngine, q storage.Queryable) (promql.Query, error) {
		return e.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
	})
	return c.Engine.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
}

// newQuery makes a query of an engine that reads a store.
type newQuery func(promql.QueryEngine, storage.Queryable) (promql.Query, error)

func (c *comparing) compare(ctx context.Context, q storage.Queryable, qs string, query newQuery) {
	want, got := answer(ctx, c.upstream, q, qs, query), answer(ctx, c.ours, q, qs, query)
	if want == got {
		return
	}
	// Upstream's engine adds in the order of a map, and that of a small map is always a
	// rotation of the order in which series first had a value.
	for range 200 {
		if answer(ctx, c.upstream, q, qs, query) != want || answer(ctx, c.upstream, shuffled{q}, qs, query) == got {
			c.undecided++
			return
		}
	}
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(gots), len(wants)) {
		if gots[i] != wants[i] {
			c.t.Errorf("%s\n got line %d of %d: %s\nwant of %d: %s", qs, i, len(gots), gots[i], len(wants), wants[i])
			return
		}
	}
	c.t.Errorf("%s\n got %s\nwant %s", qs, got, want)
}

// answer returns all of an answer as text: values bit for bit, all NaNs alike, and
// annotations as a set.
func answer(ctx context.Context, e promql.QueryEngine, data storage.Queryable, qs string, query newQuery) string {
	q, err := query(e, data)
	if err != nil {
		return err.Error()
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return res.Err.Error()
	}
	warnings, infos := res.Warnings.AsStrings(qs, 0, 0)
	notes := slices.Sorted(slices.Values(append(warnings, infos...)))
	samples := q.Stats().Samples
	counted := fmt.Sprintln(samples.TotalSamples, samples.SamplesRead, samples.TotalSamplesPerStep, samples.SamplesReadPerStep)
	if strings.Contains(qs, ":") { // of subqueries not all samples are told
		counted = ""
	}
	return text(res.Value, strings.Contains(qs, "sort")) + "\n" + stringOf(notes) + counted
}

func stringOf(notes []string) (all string) {
	for _, note := range notes {
		all += note + "\n"
	}
	return all
}

// text returns a value as text, in which each float is its bits.
func text(v parser.Value, ordered bool) string {
	var b strings.Builder
	switch v := v.(type) {
	case promql.Matrix:
		for _, s := range v {
			fmt.Fprintf(&b, "%s\n", s.Metric)
			for _, p := range s.Floats {
				fmt.Fprintf(&b, "  %d %s\n", p.T, bits(p.F))
			}
			for _, p := range s.Histograms {
				fmt.Fprintf(&b, "  %d %s\n", p.T, p.H.TestExpression())
			}
		}
	case promql.Vector:
		if !ordered {
			slices.SortFunc(v, func(a, b promql.Sample) int { return labels.Compare(a.Metric, b.Metric) })
		}
		for _, s := range v {
			fmt.Fprintf(&b, "%s %d %s", s.Metric, s.T, bits(s.F))
			if s.H != nil {
				b.WriteString(s.H.TestExpression())
			}
			b.WriteString("\n")
		}
	case promql.Scalar:
		fmt.Fprintf(&b, "%d %s\n", v.T, bits(v.V))
	default:
		b.WriteString(v.String())
	}
	return b.String()
}

func bits(v float64) string {
	if math.IsNaN(v) {
		return "NaN"
	}
	return fmt.Sprintf("%x (%g)", math.Float64bits(v), v)
}

// TestStreams: queries of these kinds read each series only while they evaluate it. What upstream's
// engine reads it keeps to the end.
func TestStreams(t *testing.T) {
	data := memory{&floatSeries{labels: labels.FromStrings("__name__", "a_bucket", "le", "+Inf"), ts: []int64{1, 2}, vs: []float64{1, 2}}}
	for _, qs := range []string{
		"a_bucket", "-a_bucket", "a_bucket > 1", "rate(a_bucket[5m])", "sum(a_bucket)", "avg by (le) (increase(a_bucket[1h] offset 5m))",
		"histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))", "topk(3, a_bucket)", `count_values("v", a_bucket)`,
		"sum(rate(a_bucket[5m])) / sum(rate(a_bucket[5m] @ 5))", "max_over_time(sum(a_bucket)[1h:1m])", "sum(a_bucket) or vector(1)",
		"quantile(0.5, abs(a_bucket) * 2)", "stddev(quantile_over_time(0.5, a_bucket[5m]))", "label_replace(rate(a_bucket[5m]), \"x\", \"\", \"\", \"\")",
	} {
		q, err := eval.New(options(), eval.NewMemory(0, 0)).NewRangeQuery(t.Context(), streamed{data, t}, nil, qs, time.UnixMilli(0), time.UnixMilli(60_000), time.Second)
		if err != nil {
			t.Fatal(qs, err)
		}
		if res := q.Exec(t.Context()); res.Err != nil {
			t.Error(qs, res.Err)
		}
		q.Close()
	}
}

// streamed is a store that wants all that is selected to be streamed.
type streamed struct {
	memory
	t *testing.T
}

// Querier implements storage.Queryable.
func (s streamed) Querier(int64, int64) (storage.Querier, error) {
	return streamedQuerier{memoryQuerier{nil, s.memory}, s.t}, nil
}

type streamedQuerier struct {
	memoryQuerier
	t *testing.T
}

// Select implements storage.Querier.
func (q streamedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if _, ok := eval.Passing(ctx); !ok {
		q.t.Errorf("%v is not streamed", ms)
	}
	return q.memoryQuerier.Select(ctx, sorted, hints, ms...)
}

// TestHeld: what a query holds is counted while it is evaluated, a value at each step of a sparse
// series included, and no longer after it.
func TestHeld(t *testing.T) {
	data := memory{&floatSeries{labels: labels.FromStrings("__name__", "a"), ts: []int64{1}, vs: []float64{1}}}
	const steps = 10_000
	for _, qs := range []string{"a", "abs(a) + a", "sum(a)", "topk(1, a)", `count_values("v", a)`} {
		m := eval.NewMemory(steps, 0)
		q, err := eval.New(options(), m).NewRangeQuery(t.Context(), data, nil, qs, time.UnixMilli(0), time.UnixMilli((steps-1)*60_000), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if res := q.Exec(t.Context()); !errors.Is(res.Err, eval.ErrMemory) {
			t.Errorf("%s: %v", qs, res.Err)
		}
		if m.Held() != 0 {
			t.Errorf("%s holds %d bytes", qs, m.Held())
		}
	}
}

// TestEnded: a query that runs too long, or is canceled, while a part reads series says so, as
// upstream's engine does.
func TestEnded(t *testing.T) {
	opts := options()
	opts.Timeout = time.Millisecond
	for _, qs := range []string{"a", "sum(a) + sum(rate(a[5m]))"} {
		ctx, cancel := context.WithCancel(t.Context())
		for _, tt := range []struct {
			opts  promql.EngineOpts
			begin func()
			want  error
		}{
			{opts, func() {}, promql.ErrQueryTimeout("expression evaluation")},
			{options(), cancel, promql.ErrQueryCanceled("expression evaluation")},
		} {
			q, err := eval.New(tt.opts, eval.NewMemory(0, 0)).NewInstantQuery(ctx, endless{tt.begin}, nil, qs, time.UnixMilli(1000))
			if err != nil {
				t.Fatal(err)
			}
			if res := q.Exec(ctx); res.Err != tt.want {
				t.Errorf("%s: %v, want %v", qs, res.Err, tt.want)
			}
			q.Close()
		}
	}
}

// endless is a store whose series come when the query has ended. begin is called when they are
// asked for.
type endless struct{ begin func() }

// Querier implements storage.Queryable.
func (e endless) Querier(int64, int64) (storage.Querier, error) { return endlessQuerier{nil, e}, nil }

type endlessQuerier struct {
	storage.LabelQuerier
	endless
}

// Select implements storage.Querier.
func (q endlessQuerier) Select(ctx context.Context, _ bool, _ *storage.SelectHints, _ ...*labels.Matcher) storage.SeriesSet {
	q.begin()
	<-ctx.Done()
	return storage.ErrSeriesSet(fmt.Errorf("read rows: %w", ctx.Err()))
}

// Close implements storage.LabelQuerier.
func (endlessQuerier) Close() error { return nil }

// TestManySteps: a subquery of very many steps is refused, and one of many is evaluated.
func TestManySteps(t *testing.T) {
	data := memory{&floatSeries{labels: labels.FromStrings("__name__", "a"), ts: []int64{1, 2}, vs: []float64{1, 2}}}
	e := eval.New(options(), eval.NewMemory(0, 0))
	for _, qs := range []string{"count_over_time(sum(a)[10000d:1ms])", "count_over_time(max_over_time(a[1m:1ms])[10000d:1d])"} {
		_, err := e.NewInstantQuery(t.Context(), data, nil, qs, time.UnixMilli(1000))
		if err == nil || !strings.Contains(err.Error(), "1ms] has ") {
			t.Errorf("%s: %v", qs, err)
		}
	}
	q, err := e.NewInstantQuery(t.Context(), data, nil, "count_over_time(sum(a)[50m:1ms] @ 300)", time.UnixMilli(1000))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	const want = "{} => 300000 @[1000]" // from the first sample on
	if res := q.Exec(t.Context()); res.Err != nil || res.String() != want {
		t.Errorf("%v, want %s", res, want)
	}
}

package eval_test

import (
	"context"
	"fmt"
	"math"
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
		ours:     eval.New(options(), eval.NewMemory(0, 0)),
		t:        t,
	})
}

// comparing is an engine that gives each query to two others, too, and wants them to
// answer the same.
type comparing struct {
	*promql.Engine
	upstream, ours promql.QueryEngine
	t              *testing.T
}

// NewInstantQuery implements promql.QueryEngine.
func (c *comparing) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	c.compare(ctx, qs, func(e promql.QueryEngine) (promql.Query, error) { return e.NewInstantQuery(ctx, q, opts, qs, ts) })
	return c.Engine.NewInstantQuery(ctx, q, opts, qs, ts)
}

// NewRangeQuery implements promql.QueryEngine.
func (c *comparing) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	c.compare(ctx, qs, func(e promql.QueryEngine) (promql.Query, error) {
		return e.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
	})
	return c.Engine.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
}

func (c *comparing) compare(ctx context.Context, qs string, query func(promql.QueryEngine) (promql.Query, error)) {
	want, got := answer(ctx, c.upstream, qs, query), answer(ctx, c.ours, qs, query)
	if want == got {
		return
	}
	for range 200 {
		if again := answer(ctx, c.upstream, qs, query); again != want {
			return // upstream's engine does not agree with itself: it adds in the order of a map
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
func answer(ctx context.Context, e promql.QueryEngine, qs string, query func(promql.QueryEngine) (promql.Query, error)) string {
	q, err := query(e)
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

// TestManySteps: a subquery of very many steps is refused, and one of many is evaluated.
func TestManySteps(t *testing.T) {
	data := memory{&floatSeries{labels: labels.FromStrings("__name__", "a"), ts: []int64{1, 2}, vs: []float64{1, 2}}}
	e := eval.New(options(), eval.NewMemory(0, 0))
	_, err := e.NewInstantQuery(t.Context(), data, nil, "count_over_time(sum(a)[10000d:1ms])", time.UnixMilli(1000))
	if err == nil || !strings.Contains(err.Error(), "[10000d:1ms]") {
		t.Error(err)
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

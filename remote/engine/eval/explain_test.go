package eval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// The times of the queries that are explained.
var explainStart, explainEnd = time.Unix(10_000, 0), time.Unix(20_000, 0)

func explainNodes(t *testing.T, opts promql.EngineOpts, expr string, step time.Duration) *eval.Node {
	t.Helper()
	root, err := eval.New(opts, eval.NewMemory(0, 0)).Explain(t.Context(), expr, explainStart, explainEnd, step)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// explainText returns a tree as text, a line for each node.
func explainText(x *eval.Node, indent string) string {
	line := fmt.Sprintf("%s%s (%s, %s)", indent, x.Text, x.Kind, x.Type)
	if x.Streamed != "" {
		line += " streamed: " + x.Streamed
	}
	if x.InStreamed {
		line += " in streamed"
	}
	if x.Reason != "" {
		line += " not streamed: " + x.Reason
	}
	if x.Read != nil {
		line += fmt.Sprintf(" reads [%d, %d]", x.Read.Mint, x.Read.Maxt)
	}
	for _, child := range x.Children {
		line += "\n" + explainText(child, indent+"  ")
	}
	return line
}

// TestExplainTree: an explanation says what is streamed, why the rest is not, and what is read.
func TestExplainTree(t *testing.T) {
	tests := []struct {
		expr string
		step time.Duration
		want string
	}{
		{`sum by (job) (rate(a[5m]))`, time.Minute, `sum by (job) (rate(a[5m])) (aggregation, instant vector) streamed: sum by (job) of rate
  rate(a[5m]) (function, instant vector) in streamed
    a[5m] (range selector, range vector) in streamed reads [9700001, 19960000]`},
		{`sum by (job) (rate(a[5m]))`, 0, `sum by (job) (rate(a[5m])) (aggregation, instant vector) streamed: sum by (job) of rate
  rate(a[5m]) (function, instant vector) in streamed
    a[5m] (range selector, range vector) in streamed reads [9700001, 10000000]`},
		{`(avg without (x) ((1 - ceil(a))))`, time.Minute, `avg without (x) ((1 - ceil(a))) (aggregation, instant vector) streamed: avg without (x) of 2 operations on selector
  1 - ceil(a) (operator, instant vector) in streamed
    1 (literal, scalar) in streamed
    ceil(a) (function, instant vector) in streamed
      a (selector, instant vector) in streamed reads [9700001, 19960000]`},
		{`histogram_quantile(0.9, sum by (le) (rate(a[5m])))`, time.Minute, `histogram_quantile(0.9, sum by (le) (rate(a[5m]))) (function, instant vector) not streamed: histogram_quantile cannot be streamed: Prometheus' engine evaluates it over the streamed part below
  0.9 (literal, scalar)
  sum by (le) (rate(a[5m])) (aggregation, instant vector) streamed: sum by (le) of rate
    rate(a[5m]) (function, instant vector) in streamed
      a[5m] (range selector, range vector) in streamed reads [9700001, 19960000]`},
		{`sum(a) / sum(b offset 1h)`, time.Minute, `sum(a) / sum(b offset 1h) (operator, instant vector) not streamed: / is an operation between vectors: Prometheus' engine evaluates it over the streamed parts below
  sum(a) (aggregation, instant vector) streamed: sum of selector
    a (selector, instant vector) in streamed reads [9700001, 19960000]
  sum(b offset 1h) (aggregation, instant vector) streamed: sum of selector
    b offset 1h (selector, instant vector) in streamed reads [6100001, 16360000]`},
		{`sum(rate(a[5m] @ 3000)) + sum(b)`, time.Minute, `sum(rate(a[5m] @ 3000)) + sum(b) (operator, instant vector) not streamed: + is an operation between vectors: Prometheus' engine evaluates it over the streamed parts below
  sum(rate(a[5m] @ 3000)) (aggregation, instant vector) streamed: sum of rate
    rate(a[5m] @ 3000) (function, instant vector) in streamed
      a[5m] @ 3000 (range selector, range vector) in streamed reads [2700001, 3000000]
  sum(b) (aggregation, instant vector) streamed: sum of selector
    b (selector, instant vector) in streamed reads [9700001, 19960000]`},
		{`absent(a offset 10s)`, time.Minute, `absent(a offset 10s) (function, instant vector) streamed: absence of selector
  a offset 10s (selector, instant vector) in streamed reads [9690001, 19950000]`},
		{`max_over_time(sum(a)[1h:5m] offset 10m)`, time.Minute, `max_over_time(sum(a)[1h:5m] offset 10m) (function, instant vector) not streamed: max_over_time is over a subquery: Prometheus' engine evaluates it over the streamed part below
  sum(a)[1h:5m] offset 10m (subquery, range vector) not streamed: the subquery is no selector, and no operation on one: Prometheus' engine evaluates it over the streamed part below
    sum(a) (aggregation, instant vector) streamed: sum of selector
      a (selector, instant vector) in streamed reads [5700001, 19200000]`},
		{`max_over_time(sum(a)[1h:5m] @ 5000)`, time.Minute, `max_over_time(sum(a)[1h:5m] @ 5000) (function, instant vector) not streamed: max_over_time is over a subquery: Prometheus' engine evaluates it
  sum(a)[1h:5m] @ 5000 (subquery, range vector) not streamed: the subquery is no selector, and no operation on one: Prometheus' engine evaluates it
    sum(a) (aggregation, instant vector) not streamed: sum(a)[1h:5m] @ 5000 has a fixed time (@): Prometheus' engine evaluates it
      a (selector, instant vector) not streamed: sum(a)[1h:5m] @ 5000 has a fixed time (@): Prometheus' engine evaluates it reads [1100001, 5000000]`},
		{`2 * sum(a)`, time.Minute, `2 * sum(a) (operator, instant vector) not streamed: sum(a) is an aggregation, whose result no part begins with: Prometheus' engine evaluates it over the streamed part below
  2 (literal, scalar)
  sum(a) (aggregation, instant vector) streamed: sum of selector
    a (selector, instant vector) in streamed reads [9700001, 19960000]`},
		{`1 + time()`, time.Minute, `1 + time() (operator, scalar)
  1 (literal, scalar)
  time() (function, scalar)`},
	}
	for _, tt := range tests {
		t.Run(tt.expr, func(t *testing.T) {
			if got := explainText(explainNodes(t, options(), tt.expr, tt.step), ""); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestExplainBuckets: a selector asks for its windows, and for buckets if rollups can answer, up to the resolution that the query allows.
func TestExplainBuckets(t *testing.T) {
	for _, tt := range []struct {
		expr, coarsest string
		want           rollup.Resolution
	}{
		{"rate(a[5m])", "", rollup.OneHour},
		{"rate(a[5m] offset 1m)", "auto", rollup.OneHour},
		{"rate(a[5m])", "30m", rollup.FiveMinutes},
		{"rate(a[5m])", "0s", rollup.Raw},
		{"irate(a[5m])", "", rollup.Raw},
		{"timestamp(a offset 1m)", "", rollup.OneHour},
		{"absent_over_time((a[5m]))", "", rollup.OneHour},
		{"label_replace(a, \"b\", \"c\", \"d\", \"e\")", "", rollup.OneHour},
		{"double_exponential_smoothing(a[5m], 0.5, 0.5)", "", rollup.Raw},
	} {
		coarsest, err := eval.ParseCoarsest(tt.coarsest)
		if err != nil {
			t.Fatal(err)
		}
		ctx := eval.WithCoarsest(t.Context(), coarsest)
		root, err := eval.New(options(), eval.NewMemory(0, 0)).Explain(ctx, tt.expr, explainStart, explainEnd, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		b := root.Children[0].Read.Buckets
		switch {
		case b == nil || b.Coarsest != tt.want || b.Windows.Range != 300_000:
			t.Errorf("%s up to %q asks for %+v", tt.expr, tt.coarsest, b)
		case b.Windows.Start+b.Shift != explainStart.UnixMilli():
			t.Errorf("%s: windows %+v are shifted by %d", tt.expr, b.Windows, b.Shift)
		}
	}
	if _, err := eval.ParseCoarsest("raw"); err == nil {
		t.Error("raw is a resolution")
	}
}

// TestExplainReasons: the sentences of roots that are not streamed.
func TestExplainReasons(t *testing.T) {
	tests := []struct{ expr, reason string }{
		{`a and b`, "and is an operation between vectors: Prometheus' engine evaluates it over the streamed parts below"},
		{`-(a and b)`, "a and b is an operation between vectors: Prometheus' engine evaluates it over the streamed parts below"},
		{`a * scalar(b)`, "* has a scalar that is no number literal: Prometheus' engine evaluates it over the streamed parts below"},
		{`ceil({x="y"})`, "ceil drops metric names, and its selector is not of one metric: Prometheus' engine evaluates it over the streamed part below"},
		{`limitk(2, a)`, "limitk is no aggregation that streams: Prometheus' engine evaluates it over the streamed part below"},
		{`topk(scalar(a), b)`, "topk has a parameter that is no number literal: Prometheus' engine evaluates it over the streamed parts below"},
		{`topk(0, b)`, "topk has a parameter that is not from 1 to a million: Prometheus' engine evaluates it over the streamed part below"},
		{`count_values("__name__", b)`, "count_values has no plain label name: Prometheus' engine evaluates it over the streamed part below"},
		{`quantile_over_time(scalar(a), b[5m])`, "quantile_over_time has a scalar that is no number literal: Prometheus' engine evaluates it over the streamed part below"},
		{`sum(rate(a[5m] anchored))`, "a[5m] is anchored or smoothed: Prometheus' engine evaluates it"},
		{`max_over_time(a[1h:5ms])`, "max_over_time is over a subquery: Prometheus' engine evaluates it"},
	}
	for _, tt := range tests {
		t.Run(tt.expr, func(t *testing.T) {
			if got := explainNodes(t, options(), tt.expr, time.Minute).Reason; got != tt.reason {
				t.Errorf("got  %s\nwant %s", got, tt.reason)
			}
		})
	}
}

// TestExplainOptions: an option that keeps everything from streaming is named.
func TestExplainOptions(t *testing.T) {
	for name, set := range map[string]func(*promql.EngineOpts){
		"promql-delayed-name-removal": func(o *promql.EngineOpts) { o.EnableDelayedNameRemoval = true },
		"type-and-unit-labels":        func(o *promql.EngineOpts) { o.EnableTypeAndUnitLabels = true },
		"use-start-timestamps":        func(o *promql.EngineOpts) { o.UseStartTimestamps = true },
	} {
		t.Run(name, func(t *testing.T) {
			opts := options()
			set(&opts)
			x := explainNodes(t, opts, "sum(a)", 0)
			for _, x := range []*eval.Node{x, x.Children[0]} {
				if want := name + " is on: Prometheus' engine evaluates it"; x.Reason != want || x.Streamed != "" {
					t.Errorf("%+v", x)
				}
			}
			if read := x.Children[0].Read; read == nil || read.Mint != 9_700_001 || read.Maxt != 10_000_000 {
				t.Errorf("reads %+v", read)
			}
		})
	}
}

func TestExplainErrors(t *testing.T) {
	e := eval.New(options(), eval.NewMemory(0, 0))
	for expr, want := range map[string]string{
		"sum(":                            "parse error",
		"a[5m]":                           "invalid expression type",
		"max_over_time(a[100d:1ms])":      "a longer step",
		"a" + strings.Repeat("+a", 1_000): "more than 1000 operations",
	} {
		if _, err := e.Explain(t.Context(), expr, explainStart, explainEnd, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v", expr, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Explain(ctx, "a", explainStart, explainEnd, time.Minute); err == nil || !errors.As(err, new(promql.ErrQueryCanceled)) {
		t.Errorf("canceled: %v", err)
	}
}

// TestExplainReads: what an explanation says that is read is what the query reads.
func TestExplainReads(t *testing.T) {
	exprs := []string{
		`sum(rate(a[5m]))`, `a - a offset 1w`, `absent(a) or timestamp(b)`, `a @ 3000 + a @ start()`, `sum(a) + max_over_time(b[1h] offset -5m)`,
		`max_over_time(rate(a[5m])[1h:] offset 10m)`, `max_over_time(a[1h:7s] @ 5000)`, `rate(a[5m] smoothed)`, `increase(a[5m] anchored)`,
		`max_over_time(max_over_time(sum(a offset 3m)[10m:1m])[1h:])`, `histogram_quantile(0.5, a)`, `info(a)`,
	}
	for _, expr := range exprs {
		for _, step := range []time.Duration{0, time.Minute} {
			compareReads(t, expr, step)
		}
	}
	r := random{seriestest.NewRand(t)}
	for range 500 {
		compareReads(t, r.query(), time.Duration(1+r.IntN(300))*time.Second)
	}
}

// compareReads compares what is explained to be read with what a query reads.
func compareReads(t *testing.T, expr string, step time.Duration) {
	t.Helper()
	read := &recorder{}
	e := eval.New(options(), eval.NewMemory(0, 0))
	query, err := e.NewInstantQuery(t.Context(), read, nil, expr, explainStart)
	if step != 0 && err == nil {
		query.Close()
		query, err = e.NewRangeQuery(t.Context(), read, nil, expr, explainStart, explainEnd, step)
	}
	if err != nil { // a random query may be none
		if _, explained := e.Explain(t.Context(), expr, explainStart, explainEnd, step); explained == nil || explained.Error() != err.Error() {
			t.Errorf("%s: explained is %v, want %v", expr, explained, err)
		}
		return
	}
	defer query.Close()
	if res := query.Exec(t.Context()); res.Err != nil {
		t.Fatal(expr, res.Err)
	}
	explained := readsOf(explainNodes(t, options(), expr, step))
	slices.Sort(explained)
	slices.Sort(read.reads)
	if !slices.Equal(explained, read.reads) {
		t.Errorf("%s, step %s: explained are %v, read %v", expr, step, explained, read.reads)
	}
}

func readsOf(x *eval.Node) (reads []string) {
	if x.Read != nil {
		reads = append(reads, fmt.Sprint(x.Read.Matchers, x.Read.Mint, x.Read.Maxt))
	}
	for _, child := range x.Children {
		reads = append(reads, readsOf(child)...)
	}
	return reads
}

// A recorder is a source without series that remembers what is asked for.
type recorder struct {
	storage.LabelQuerier
	reads []string
}

func (r *recorder) Querier(int64, int64) (storage.Querier, error) { return r, nil }

func (r *recorder) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	r.reads = append(r.reads, fmt.Sprint(ms, hints.Start, hints.End))
	return storage.EmptySeriesSet()
}

func (r *recorder) Close() error { return nil }

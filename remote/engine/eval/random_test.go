package eval_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/series/seriestest"
)

// TestRandom compares answers to random queries over random data with those of upstream's
// engine.
func TestRandom(t *testing.T) {
	cases := storetest.Rounds(t, 3000)
	r := &random{seriestest.NewRand(t)}
	c := &comparing{upstream: promqltest.NewTestEngineWithOpts(t, options()), ours: eval.New(options(), eval.NewMemory(0, 0)).SetCores(4, 1), t: t}
	var data *recorded
	for i := range cases {
		if i%500 == 0 {
			data = record(t, r.data(t))
		}
		qs := r.query()
		for len(qs) > 300 {
			qs = r.query()
		}
		start := time.UnixMilli(dataStart + r.Int64N(dataSpan))
		step := time.Duration(1+r.IntN(300)) * time.Second
		end := start.Add(time.Duration(r.IntN(40))*step + time.Duration(r.IntN(1000))*time.Millisecond)
		instant := r.IntN(4) == 0
		c.compare(t.Context(), data, qs, func(e promql.QueryEngine, data storage.Queryable) (promql.Query, error) {
			if instant {
				return e.NewInstantQuery(t.Context(), data, nil, qs, start)
			}
			return e.NewRangeQuery(t.Context(), data, nil, qs, start, end, step)
		})
		if t.Failed() {
			t.Fatalf("case %d, from %d to %d, step %s, instant %t", i, start.UnixMilli(), end.UnixMilli(), step, instant)
		}
	}
	if t.Logf("%d of %d undecided", c.undecided, cases); c.undecided > cases/50 {
		t.Errorf("upstream's engine answered %d of %d queries in more than one way", c.undecided, cases)
	}
}

const (
	// dataStart is when the data begin, and dataSpan how long they last, in milliseconds.
	dataStart = 1_000_000_000
	dataSpan  = 2 * 60 * 60 * 1000
)

type random struct{ *rand.Rand }

// of returns one of some texts.
func (r random) of(texts ...string) string { return texts[r.IntN(len(texts))] }

// data returns a store with series of each kind.
func (r random) data(t *testing.T) storage.Storage {
	store := teststorage.New(t)
	r.fillAll(t, store)
	return store
}

// fillAll appends series of each kind.
func (r random) fillAll(t *testing.T, store storage.Storage) {
	for _, name := range []string{"a_total", "b_total", "gauge", "sparse", "native", "mixed", "h_bucket"} {
		for job := range 2 {
			for instance := range 3 {
				ls := labels.FromStrings("__name__", name, "job", strconv.Itoa(job), "instance", strconv.Itoa(instance))
				if name != "h_bucket" {
					r.fill(t, store, name, ls)
					continue
				}
				for _, le := range []string{"0.1", "1", "10", "+Inf"} {
					r.fill(t, store, name, labels.NewBuilder(ls).Set("le", le).Labels())
				}
			}
		}
	}
}

// fill appends the samples of a series.
func (r random) fill(t *testing.T, store storage.Storage, name string, ls labels.Labels) {
	app := store.Appender(t.Context())
	interval := []int64{5_000, 15_000, 15_000, 60_000, 17_123}[r.IntN(5)]
	v, resets := 0.0, 0
	for at := int64(dataStart) + r.Int64N(interval); at < dataStart+dataSpan; at += interval {
		if r.IntN(60) == 0 {
			if r.IntN(2) == 0 {
				r.append(t, app, ls, at, math.Float64frombits(value.StaleNaN))
			}
			at += r.Int64N(20 * 60_000)
			continue
		}
		jitter := int64(0)
		if r.IntN(3) == 0 {
			jitter = r.Int64N(interval / 2)
		}
		switch {
		case name == "native" || name == "mixed" && r.IntN(40) != 0 && (at/1_200_000)%2 == 0:
			if r.IntN(30) == 0 {
				resets = r.IntN(10)
			}
			r.appendHistogram(t, app, ls, at+jitter, resets)
			resets++
			continue
		case r.IntN(25) == 0:
			v = r.special()
		case strings.HasSuffix(name, "_total") || name == "h_bucket":
			v += float64(r.IntN(5)) * r.Float64()
		default:
			v = r.NormFloat64() * 100
		}
		r.append(t, app, ls, at+jitter, v)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// special returns a float that is easily got wrong.
func (r random) special() float64 {
	return []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1, 1e16}[r.IntN(10)]
}

func (r random) append(t *testing.T, app storage.Appender, ls labels.Labels, at int64, v float64) {
	if _, err := app.Append(0, ls, at, v); err != nil {
		t.Fatal(err)
	}
}

func (r random) appendHistogram(t *testing.T, app storage.Appender, ls labels.Labels, at int64, n int) {
	var h *histogram.Histogram
	var fh *histogram.FloatHistogram
	switch r.IntN(20) {
	case 0:
		fh = tsdbutil.GenerateTestFloatHistogram(int64(n))
	case 1:
		h = tsdbutil.GenerateTestCustomBucketsHistogram(int64(n))
	case 2:
		fh = tsdbutil.GenerateTestGaugeFloatHistogram(int64(n))
	default:
		h = tsdbutil.GenerateTestHistogram(int64(n))
	}
	if _, err := app.AppendHistogram(0, ls, at, h, fh); err != nil {
		t.Fatal(err)
	}
}

// query returns an expression whose value is a vector or a scalar.
func (r random) query() string {
	switch r.IntN(15) {
	case 0:
		return fmt.Sprintf("histogram_quantile(%s, sum by (le, job) (rate(h_bucket%s)))", r.number(), r.window())
	case 1:
		return fmt.Sprintf("%s(%s(%s(%s%s)))", r.of("histogram_count", "histogram_sum", "histogram_avg", "absent"), r.of("sum", "avg", ""), r.of("rate", "avg_over_time", "last_over_time"), r.of("native", "mixed"), r.window())
	case 2:
		return fmt.Sprintf("%s %s %s %s", r.aggregation(), r.of("+", "/", "-", "and", "or", "unless", "> bool", "<"), r.of("on(job)", "", "ignoring(instance)"), r.aggregation())
	case 3:
		return fmt.Sprintf("%s(%d, %s)", r.of("topk", "bottomk", "topk by (job) ", "bottomk without (instance) "), r.IntN(4), r.elements())
	case 4:
		return fmt.Sprintf("%s((%s)[%dm:%s])", r.of("max_over_time", "avg_over_time", "sum_over_time", "last_over_time", "deriv"), r.aggregation(), 1+r.IntN(30), r.of("", "1m", "37s")) + r.of("", "", " + 1")
	case 5:
		return fmt.Sprintf("%s(%s)", r.of("abs", "sort", "absent", "scalar", "timestamp", "sum", "max", "sgn"), r.aggregation())
	case 6:
		return fmt.Sprintf(`label_replace(%s, "x", "$1", "job", "(.*)")`, r.aggregation())
	case 7:
		return fmt.Sprintf("%s(%s%s)", r.of("absent", "timestamp", "absent_over_time", "count_values by (job)"), "", r.of("gauge", `{nothing="x"}`))
	case 10:
		return fmt.Sprintf(`count_values %s ("job", %s)`, r.of("", "by (instance)", "without (instance)"), r.elements())
	case 8, 9:
		return r.elements()
	}
	return r.aggregation()
}

func (r random) aggregation() string {
	op := r.of("sum", "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile")
	parameter := ""
	if op == "quantile" {
		parameter = r.number() + ", "
	}
	grouping := r.of("", "by (job)", "by (job, instance)", "without (instance)", "by ()", "without ()", "by (__name__)", "by (nothing)", "without (job, le)")
	return fmt.Sprintf("%s %s (%s%s)", op, grouping, parameter, r.elements())
}

func (r random) elements() string {
	switch r.IntN(9) {
	case 0:
		return fmt.Sprintf("%s %s %s", r.elements(), r.operator(), r.number())
	case 1:
		return fmt.Sprintf("%s %s (%s)", r.number(), r.operator(), r.elements())
	case 2:
		return fmt.Sprintf("%s(%s)", r.of("abs", "ceil", "floor", "sqrt", "exp", "ln", "log2", "log10", "-", ""), r.elements())
	case 3, 4:
		return r.selector() + r.modifier()
	}
	return r.call()
}

func (r random) operator() string {
	return r.of("+", "-", "*", "/", "%", "^", "atan2", "==", "!=", ">", "<", ">=", "<=", "== bool", "> bool")
}

func (r random) call() string {
	window := r.selector() + r.window() + r.modifier()
	switch r.IntN(10) {
	case 0:
		return fmt.Sprintf("quantile_over_time(%s, %s)", r.number(), window)
	case 1:
		return fmt.Sprintf("predict_linear(%s, %s)", window, r.number())
	case 2, 3, 4, 5:
		return fmt.Sprintf("%s(%s)", r.of("rate", "rate", "increase", "delta"), window)
	}
	return fmt.Sprintf("%s(%s)", r.of("irate", "idelta", "deriv", "changes", "resets", "avg_over_time", "count_over_time",
		"last_over_time", "max_over_time", "min_over_time", "present_over_time", "stddev_over_time", "stdvar_over_time", "sum_over_time"), window)
}

func (r random) selector() string {
	switch r.IntN(12) {
	case 0:
		return `{__name__=~"a_total|b_total"}`
	case 1:
		return `{__name__=~".+",job="1"}`
	}
	return r.of("a_total", "b_total", "gauge", "sparse", "native", "mixed", "h_bucket") + r.of("", "", "", `{job="1"}`, `{instance=~"0|2"}`, `{instance!="1"}`, `{job="none"}`)
}

func (r random) window() string {
	return r.of("[5m]", "[5m]", "[1m]", "[17s]", "[30m]", "[1ms]", "[90s]")
}

func (r random) modifier() string {
	return r.of("", "", "", "", " offset 5m", " offset -3m", fmt.Sprintf(" @ %d", (dataStart+r.Int64N(dataSpan))/1000), " @ start()", " @ end() offset 1m")
}

func (r random) number() string {
	return r.of("0", "1", "2", "-1", "0.5", "0.99", "1e10", "NaN", "-Inf", "3.7")
}

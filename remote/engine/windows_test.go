package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// callOf returns a call of a function, of which %s is the selector. It is empty if the function takes none.
func callOf(fn *parser.Function) string {
	var args []string
	takesSelector := false
	for _, kind := range fn.ArgTypes {
		switch kind {
		case parser.ValueTypeVector:
			args, takesSelector = append(args, "%[1]s"), true
		case parser.ValueTypeMatrix:
			args, takesSelector = append(args, "%[1]s[5m]"), true
		case parser.ValueTypeString:
			args = append(args, `"a"`)
		default:
			args = append(args, fmt.Sprintf("0.%d", 5+len(args)))
		}
	}
	if !takesSelector {
		return ""
	}
	return fn.Name + "(" + strings.Join(args, ", ") + ")"
}

// windowExpressions are calls of all functions that take a selector but info, which looks at others, and of what else reads one.
func windowExpressions() []string {
	expressions := []string{
		"%s", "-%s", "%[1]s and %[1]s", "%[1]s + on (instance) %[1]s", "sum(%s)", "topk(1, timestamp(%s))", "%s @ end()", "irate(%s[5m] @ end())",
		"%s offset 7m", "timestamp(%s offset 1h)", "irate(%s[5m] offset -1h)", "deriv(%s[5m]) > 0", "stddev(stddev_over_time(%s[5m]))",
		"count_values(\"v\", irate(%s[5m]))", "absent((%s))",
	}
	for name, fn := range parser.Functions {
		if expr := callOf(fn); expr != "" && name != "info" {
			expressions = append(expressions, expr)
		}
	}
	return expressions
}

// TestOnlyWindows: whatever the function, samples between the windows of a query are not read, and the answer is that from all samples.
func TestOnlyWindows(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	samples, histograms := make(map[int64]float64), make(map[int64]ingest.Histogram)
	source := seriestest.HistogramSource{Rand: s.r}
	v := 0.0
	for at := int64(rollupStart + 7_000); at < rollupStart+rollupDays*rollup.Day; at += 60_000 {
		v = s.next(true, v)
		samples[at], histograms[at] = v, nextHistogram(&source)
	}
	s.append(t, labels.FromStrings("__name__", "x_total", "instance", "0"), samples)
	s.appendHistograms(t, labels.FromStrings("__name__", "native", "instance", "1"), histograms)
	from, to := time.UnixMilli(rollupStart+rollup.Day+s.r.Int64N(rollup.Day)), time.UnixMilli(rollupStart+rollupDays*rollup.Day)
	ask := func(e promql.QueryEngine, source *engine.Engine, expr string) (promql.Matrix, int64) {
		var usage reader.Usage
		found, _ := runQuery(t, reader.WithUsage(t.Context(), &usage), e, source, expr, from, to, 6*time.Hour)
		return found, usage.Counts().Cells
	}
	upstream, streaming := promql.NewEngine(queryOptions()), eval.New(queryOptions(), eval.NewMemory(0, 0))
	expressions, stride := windowExpressions(), storetest.Stride(t, 1)
	for i := s.r.IntN(stride); i < len(expressions); i += stride {
		expr := expressions[i]
		for _, selector := range []string{"x_total", "native"} {
			about := fmt.Sprintf(expr, selector)
			want, all := ask(upstream, s.raw, about)
			got, read := ask(streaming, s.engine, about)
			comparePoints(t, about, false, []promql.Matrix{got}, []promql.Matrix{want})
			if read > all/10 && !strings.Contains(expr, "@") || read > all {
				t.Errorf("%s read %d cells, all are %d", about, read, all)
			}
		}
	}
}

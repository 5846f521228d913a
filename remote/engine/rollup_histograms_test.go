package engine_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// fillHistograms appends series of histograms of each kind, and one of floats and histograms.
func (s *rolled) fillHistograms(t *testing.T) {
	t.Helper()
	for i, source := range []*seriestest.HistogramSource{
		{}, {Float: true}, {Steady: true}, {Custom: true}, {Custom: true, Float: true}, {Gauge: true}, {Steady: true, Float: true}, {},
	} {
		source.Rand = s.r
		name := "native"
		if source.Custom || source.Gauge {
			name = "other_native"
		}
		of := rolledSeries{
			ls:         labels.FromStrings("__name__", name, "job", strconv.Itoa(i%2), "instance", "native"+strconv.Itoa(i)),
			source:     source,
			samples:    make(map[int64]float64),
			histograms: make(map[int64]engine.Histogram),
		}
		isMixed := i == 7
		if isMixed {
			of.ls = labels.NewBuilder(of.ls).Set("__name__", "mixed_native").Labels()
		}
		interval := []int64{15_000, 60_000, 60_000, 47_123, 400_000}[s.r.IntN(5)]
		for at := rollupStart + s.r.Int64N(interval); at < rollupStart+rollupDays*rollup.Day; at += interval {
			switch n := s.r.IntN(2000); {
			case n == 0:
				of.histograms[at] = engine.Histogram{H: &histogram.Histogram{Sum: seriestest.StaleNaN}}
			case n == 1:
				of.samples[at] = seriestest.StaleNaN
			case n == 2:
				at += s.r.Int64N(10 * 3600_000)
			case isMixed && at/rollup.Day%3 == 0, isMixed && s.r.IntN(5000) == 0:
				of.samples[at] = s.r.Float64()
			default:
				of.histograms[at] = nextHistogram(source)
			}
		}
		s.append(t, of.ls, of.samples)
		s.appendHistograms(t, of.ls, of.histograms)
		s.series = append(s.series, of)
	}
}

func nextHistogram(source *seriestest.HistogramSource) engine.Histogram {
	v := source.Next()
	return engine.Histogram{H: v.Histogram, FH: v.FloatHistogram}
}

func (s *rolled) appendHistograms(t *testing.T, ls labels.Labels, histograms map[int64]engine.Histogram) {
	t.Helper()
	one := engine.Series{Labels: ls}
	for at, h := range histograms {
		h.T = at
		one.Histograms = append(one.Histograms, h)
	}
	var rejected engine.Rejected
	if _, err := s.engine.Append(t.Context(), []engine.Series{one}, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
}

// histogramExpressions take a function of histograms.
var histogramExpressions = []string{
	"%s", "%s", "sum by (job) (%s)", "histogram_quantile(0.9, sum(%s))", "histogram_count(%s)", "histogram_sum(sum(%s))", "avg(%s)", "histogram_avg(%s)",
}

// sameHistograms says whether two histograms are the same, but for empty buckets, which chunks add and drop.
func sameHistograms(a, b *histogram.FloatHistogram) bool {
	if a == nil || b == nil {
		return a == b
	}
	a, b = a.Copy().Compact(0), b.Copy().Compact(0)
	isGauge := func(h *histogram.FloatHistogram) bool { return h.CounterResetHint == histogram.GaugeType }
	return a.Equals(b) && isGauge(a) == isGauge(b)
}

// points returns the points of a series by time.
func pointsOf(s promql.Series) map[int64]promql.Sample {
	points := make(map[int64]promql.Sample)
	for _, p := range s.Floats {
		points[p.T] = promql.Sample{T: p.T, F: p.F}
	}
	for _, p := range s.Histograms {
		points[p.T] = promql.Sample{T: p.T, H: p.H}
	}
	return points
}

func textOf(p promql.Sample) string {
	if p.H != nil {
		return fmt.Sprintf("%v (hint %d)", p.H, p.H.CounterResetHint)
	}
	return fmt.Sprint(p.F)
}

// valueText returns the bytes of a value, without the empty buckets of a histogram and without its hint, unless it is a gauge. All staleness markers
// are the same.
func valueText(v cell.Value) string {
	hint := func(h histogram.CounterResetHint) histogram.CounterResetHint {
		if h == histogram.GaugeType {
			return h
		}
		return histogram.UnknownCounterReset
	}
	var sum float64
	switch {
	case v.Histogram != nil:
		h := v.Histogram.Copy().Compact(0)
		h.CounterResetHint, sum, v.Histogram = hint(h.CounterResetHint), h.Sum, h
	case v.FloatHistogram != nil:
		h := v.FloatHistogram.Copy().Compact(0)
		h.CounterResetHint, sum, v.FloatHistogram = hint(h.CounterResetHint), h.Sum, h
	default:
		sum = v.Float
	}
	if value.IsStaleNaN(sum) {
		return "stale"
	}
	return string(cell.Append(nil, v))
}

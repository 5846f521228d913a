package engine_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
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
			histograms: make(map[int64]ingest.Histogram),
		}
		isMixed := i == 7
		if isMixed {
			of.ls = labels.NewBuilder(of.ls).Set("__name__", "mixed_native").Labels()
		}
		interval := []int64{15_000, 60_000, 60_000, 47_123, 400_000}[s.r.IntN(5)]
		for at := rollupStart + s.r.Int64N(interval); at < rollupStart+rollupDays*rollup.Day; at += interval {
			switch n := s.r.IntN(2000); {
			case n == 0:
				of.histograms[at] = ingest.Histogram{H: &histogram.Histogram{Sum: seriestest.StaleNaN}}
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

func nextHistogram(source *seriestest.HistogramSource) ingest.Histogram {
	v := source.Next()
	return ingest.Histogram{H: v.Histogram, FH: v.FloatHistogram}
}

func (s *rolled) appendHistograms(t *testing.T, ls labels.Labels, histograms map[int64]ingest.Histogram) {
	t.Helper()
	one := ingest.Series{Labels: ls}
	for at, h := range histograms {
		h.T = at
		one.Histograms = append(one.Histograms, h)
	}
	var rejected ingest.Rejected
	if _, err := s.engine.Append(t.Context(), []ingest.Series{one}, &rejected); err != nil || rejected.Err() != nil {
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

// TestHalvesOfDay: where a base begins in a day, what one of the two rows does not tell is unknown in its part of the day alone.
func TestHalvesOfDay(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	const base = (rollupStart/series.Period + 1) * series.Period
	of := rolledSeries{ls: labels.FromStrings("__name__", "halves"), histograms: make(map[int64]ingest.Histogram)}
	day := rollup.DayOf(base)
	for at := day + 30_000; at < day+rollup.Day; at += 60_000 {
		of.histograms[at] = nextHistogram(&seriestest.HistogramSource{Rand: s.r})
	}
	s.append(t, of.ls, map[int64]float64{base + 2*time.Hour.Milliseconds(): 1}) // a row of both kinds is not rolled up
	s.appendHistograms(t, of.ls, of.histograms)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.sources.From[rollup.Raw], s.sources.From[rollup.FiveMinutes] = math.MaxInt64, math.MaxInt64
	found := s.ask(t, s.engine, "count_over_time(halves[1h])", time.UnixMilli(day).Add(time.Hour), time.UnixMilli(day+rollup.Day), time.Hour)
	if hours := (base - day) / time.Hour.Milliseconds(); len(found) != 1 || len(found[0].Floats) != int(hours) {
		t.Errorf("%v, want %d hours", found, hours)
	}
}

package harness

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// A Point is a sample whose value is kept as bits: NaN payloads and -0 count.
type Point struct {
	T         int64  // milliseconds
	Bits      uint64 // of the value
	Histogram string // a native histogram, as histogramText writes it; "" if there is none
	Start     int64  // start timestamp in milliseconds, 0 if there is none
}

// String writes the value as a number and as bits.
func (p Point) String() string {
	if p.Histogram != "" {
		return fmt.Sprintf("%s @%d since %d", p.Histogram, p.T, p.Start)
	}
	if p.Start != 0 {
		return fmt.Sprintf("%v (%#016x) @%d since %d", math.Float64frombits(p.Bits), p.Bits, p.T, p.Start)
	}
	return fmt.Sprintf("%v (%#016x) @%d", math.Float64frombits(p.Bits), p.Bits, p.T)
}

// PointAt returns a point with the value v. The time t is in milliseconds.
func PointAt(t int64, v float64) Point { return Point{T: t, Bits: math.Float64bits(v)} }

// HistogramPoint returns a point with a native histogram, h or fh. The time t and
// the start timestamp are in milliseconds.
func HistogramPoint(t, start int64, h *histogram.Histogram, fh *histogram.FloatHistogram) Point {
	kind := "float"
	if h != nil {
		kind, fh = "integer", h.ToFloat(nil)
	}
	return Point{T: t, Start: start, Histogram: kind + " " + histogramText(fh)}
}

// histogramText writes a histogram so that two are the same exactly if their
// texts are. Buckets that are empty at the ends of spans, and whether the
// counter was reset, may come and go in chunks.
func histogramText(fh *histogram.FloatHistogram) string {
	h := fh.Copy().Compact(0)
	bits := func(list ...float64) (texts []string) {
		for _, v := range list {
			texts = append(texts, fmt.Sprintf("%x", math.Float64bits(v)))
		}
		return texts
	}
	return fmt.Sprintf("schema %d gauge %t zero, count, sum %s spans %v %v buckets %s %s bounds %s",
		h.Schema, h.CounterResetHint == histogram.GaugeType, bits(h.ZeroThreshold, h.ZeroCount, h.Count, h.Sum),
		h.PositiveSpans, h.NegativeSpans, bits(h.PositiveBuckets...), bits(h.NegativeBuckets...), bits(h.CustomValues...))
}

// A TimeSeries is a series and its points, ascending.
type TimeSeries struct {
	Labels labels.Labels
	Points []Point
}

// CountPoints returns how many points all series hold.
func CountPoints(series []TimeSeries) int {
	n := 0
	for _, s := range series {
		n += len(s.Points)
	}
	return n
}

// DiffSeries describes the first differences between two lists of series, sorted
// by labels. It returns "" if there is none.
func DiffSeries(got, want []TimeSeries) string {
	const most = 5
	var out []string
	for len(out) < most && (len(got) > 0 || len(want) > 0) {
		switch order := compareFirst(got, want); {
		case order < 0:
			out, got = append(out, "not asked for: "+got[0].Labels.String()), got[1:]
		case order > 0:
			out, want = append(out, "missing: "+want[0].Labels.String()), want[1:]
		default:
			if d := diffPoints(got[0].Points, want[0].Points); d != "" {
				out = append(out, got[0].Labels.String()+": "+d)
			}
			got, want = got[1:], want[1:]
		}
	}
	return strings.Join(out, "\n")
}

// compareFirst says which list begins with the lesser series.
func compareFirst(a, b []TimeSeries) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	default:
		return labels.Compare(a[0].Labels, b[0].Labels)
	}
}

func diffPoints(got, want []Point) string {
	if slices.Equal(got, want) {
		return ""
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("point %d of %d is %v, want %v of %d", i, len(got), got[i], want[i], len(want))
		}
	}
	return fmt.Sprintf("%d points, want %d", len(got), len(want))
}

// SortSeries sorts by labels.
func SortSeries(series []TimeSeries) {
	slices.SortFunc(series, func(a, b TimeSeries) int { return labels.Compare(a.Labels, b.Labels) })
}

// WithoutEmpty removes series without points from the slice.
func WithoutEmpty(series []TimeSeries) []TimeSeries {
	return slices.DeleteFunc(series, func(s TimeSeries) bool { return len(s.Points) == 0 })
}

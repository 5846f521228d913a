package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// A point is a sample whose value is kept as bits: NaN payloads and -0 count.
type point struct {
	t     int64 // milliseconds
	bits  uint64
	hist  string // a native histogram, as histogramText writes it
	start int64  // start timestamp in milliseconds, 0 if there is none
}

func (p point) String() string {
	if p.hist != "" {
		return fmt.Sprintf("%s @%d since %d", p.hist, p.t, p.start)
	}
	if p.start != 0 {
		return fmt.Sprintf("%v (%#016x) @%d since %d", math.Float64frombits(p.bits), p.bits, p.t, p.start)
	}
	return fmt.Sprintf("%v (%#016x) @%d", math.Float64frombits(p.bits), p.bits, p.t)
}

// at returns a point with the value v.
func at(t int64, v float64) point { return point{t: t, bits: math.Float64bits(v)} }

// histogramAt returns a point with one of these histograms.
func histogramAt(t, start int64, h *histogram.Histogram, fh *histogram.FloatHistogram) point {
	kind := "float"
	if h != nil {
		kind, fh = "integer", h.ToFloat(nil)
	}
	return point{t: t, start: start, hist: kind + " " + histogramText(fh)}
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

// A timeSeries is a series and its points, ascending.
type timeSeries struct {
	labels labels.Labels
	points []point
}

// countPoints returns how many points all series hold.
func countPoints(series []timeSeries) int {
	n := 0
	for _, s := range series {
		n += len(s.points)
	}
	return n
}

// diff describes the first differences between two sorted lists of series, or
// returns "".
func diff(got, want []timeSeries) string {
	const most = 5
	var out []string
	for len(out) < most && (len(got) > 0 || len(want) > 0) {
		switch order := compareFirst(got, want); {
		case order < 0:
			out, got = append(out, "not asked for: "+got[0].labels.String()), got[1:]
		case order > 0:
			out, want = append(out, "missing: "+want[0].labels.String()), want[1:]
		default:
			if d := diffPoints(got[0].points, want[0].points); d != "" {
				out = append(out, got[0].labels.String()+": "+d)
			}
			got, want = got[1:], want[1:]
		}
	}
	return strings.Join(out, "\n")
}

// compareFirst says which list begins with the lesser series.
func compareFirst(a, b []timeSeries) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	default:
		return labels.Compare(a[0].labels, b[0].labels)
	}
}

func diffPoints(got, want []point) string {
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

// sortSeries sorts by labels.
func sortSeries(series []timeSeries) {
	slices.SortFunc(series, func(a, b timeSeries) int { return labels.Compare(a.labels, b.labels) })
}

// withoutEmpty drops series that have no points.
func withoutEmpty(series []timeSeries) []timeSeries {
	return slices.DeleteFunc(series, func(s timeSeries) bool { return len(s.points) == 0 })
}

package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// A point is a sample whose value is kept as bits: NaN payloads and -0 count.
type point struct {
	t    int64 // milliseconds
	bits uint64
}

func (p point) String() string {
	return fmt.Sprintf("%v (%#016x) @%d", math.Float64frombits(p.bits), p.bits, p.t)
}

// at returns a point with the value v.
func at(t int64, v float64) point { return point{t, math.Float64bits(v)} }

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

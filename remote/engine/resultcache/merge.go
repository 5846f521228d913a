package resultcache

import (
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// A part has the results at some consecutive steps of a query: of matrix, which is sorted, what
// lies in times.
type part struct {
	matrix promql.Matrix
	times  span
}

// series returns the series of p that have samples. They share the arrays of p.
func (p part) series() promql.Matrix {
	out := make(promql.Matrix, 0, len(p.matrix))
	for i := range p.matrix {
		if s := p.at(i); len(s.Floats)+len(s.Histograms) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// at returns a series of p.
func (p part) at(i int) promql.Series {
	s := p.matrix[i]
	s.Floats = clip(s.Floats, p.times, func(f promql.FPoint) int64 { return f.T })
	s.Histograms = clip(s.Histograms, p.times, func(h promql.HPoint) int64 { return h.T })
	return s
}

// clip returns the points that lie in times.
func clip[P any](points []P, times span, timeOf func(P) int64) []P {
	n := len(points)
	if n == 0 || timeOf(points[0]) >= times.mint && timeOf(points[n-1]) <= times.maxt {
		return points
	}
	first := sort.Search(n, func(i int) bool { return timeOf(points[i]) >= times.mint })
	limit := sort.Search(n, func(i int) bool { return timeOf(points[i]) > times.maxt })
	return points[first:limit]
}

// merge returns the series of parts, which are in order of time, sorted. They share no array with
// the parts.
func merge(parts []part) promql.Matrix {
	next := make([]int, len(parts)) // of each part the next series
	var out promql.Matrix
	var pieces []promql.Series // of one series
	for {
		var least labels.Labels
		found := false
		for i, p := range parts {
			if next[i] < len(p.matrix) {
				if m := p.matrix[next[i]].Metric; !found || labels.Compare(m, least) < 0 {
					least, found = m, true
				}
			}
		}
		if !found {
			return out
		}
		pieces = pieces[:0]
		for i, p := range parts {
			if next[i] < len(p.matrix) && labels.Equal(p.matrix[next[i]].Metric, least) {
				pieces = append(pieces, p.at(next[i]))
				next[i]++
			}
		}
		if s := join(pieces); len(s.Floats)+len(s.Histograms) > 0 {
			out = append(out, s)
		}
	}
}

// onGrid leaves of m, which shares no array with others, the points at the steps of a grid, and the series that have any.
func onGrid(m promql.Matrix, g grid) promql.Matrix {
	apart := func(t int64) bool { return (t-g.phase)%g.step != 0 }
	for i := range m {
		m[i].Floats = slices.DeleteFunc(m[i].Floats, func(p promql.FPoint) bool { return apart(p.T) })
		m[i].Histograms = slices.DeleteFunc(m[i].Histograms, func(p promql.HPoint) bool { return apart(p.T) })
	}
	return slices.DeleteFunc(m, func(s promql.Series) bool { return len(s.Floats)+len(s.Histograms) == 0 })
}

// join puts the pieces of a series together.
func join(pieces []promql.Series) promql.Series {
	floats, histograms := 0, 0
	for _, s := range pieces {
		floats += len(s.Floats)
		histograms += len(s.Histograms)
	}
	out := promql.Series{Metric: pieces[0].Metric}
	if floats > 0 {
		out.Floats = make([]promql.FPoint, 0, floats)
	}
	if histograms > 0 {
		out.Histograms = make([]promql.HPoint, 0, histograms)
	}
	for _, s := range pieces {
		out.Floats = append(out.Floats, s.Floats...)
		out.Histograms = append(out.Histograms, s.Histograms...)
	}
	return out
}

package eval

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// A grid is the times at which a part is evaluated, in milliseconds: count of them, step
// apart. The step is not 0.
type grid struct {
	start, step int64
	count       int
}

// at returns the time of step i.
func (g grid) at(i int) int64 { return g.start + int64(i)*g.step }

// last returns the time of the last step.
func (g grid) last() int64 { return g.at(g.count - 1) }

// first returns the grid of the first step alone.
func (g grid) first() grid { return grid{g.start, g.step, min(g.count, 1)} }

// A column has the values of a series at the steps of a grid: a float or a histogram where
// has is true.
type column struct {
	has    []bool
	values []float64
	// histograms is nil if there are none; then all values are floats.
	histograms []*histogram.FloatHistogram
}

func newColumn(steps int) column {
	return column{has: make([]bool, steps), values: make([]float64, steps)}
}

// clear removes all values.
func (c *column) clear() {
	clear(c.has)
	c.histograms = nil
}

// set sets the value at step i.
func (c *column) set(i int, v float64) { c.has[i], c.values[i] = true, v }

// setHistogram is set of a histogram.
func (c *column) setHistogram(i int, h *histogram.FloatHistogram) {
	if c.histograms == nil {
		c.histograms = make([]*histogram.FloatHistogram, len(c.has))
	}
	c.has[i], c.histograms[i] = true, h
}

// histogram returns the histogram at step i, or nil.
func (c *column) histogram(i int) *histogram.FloatHistogram {
	if c.histograms == nil {
		return nil
	}
	return c.histograms[i]
}

// held returns how many samples the values are, as upstream counts: 16 bytes of a
// histogram are one.
func (c *column) held() (n int) {
	for i := range c.has {
		n += c.heldAt(i)
	}
	return n
}

// size returns how many samples a column is that is held, and how many bytes it and its series take.
func (c *column) size() (samples, bytes int) {
	samples = c.held()
	return samples, len(c.has)*pointSize + samples*sampleSize
}

// heldAt is held of step i.
func (c *column) heldAt(i int) int {
	switch h := c.histogram(i); {
	case h != nil:
		return heldBy(h)
	case c.has[i]:
		return 1
	}
	return 0
}

// heldBy returns how many samples a histogram is, as upstream counts.
func heldBy(h *histogram.FloatHistogram) int { return (h.Size() + 8) / 16 }

// isEmpty says whether there is no value.
func (c *column) isEmpty() bool { return !slices.Contains(c.has, true) }

// hasFloat says whether there is a float.
func (c *column) hasFloat() bool {
	for i, has := range c.has {
		if has && c.histogram(i) == nil {
			return true
		}
	}
	return false
}

// series returns the values at the steps of a grid as a series of a matrix.
func (c *column) series(metric labels.Labels, g grid) promql.Series {
	s := promql.Series{Metric: metric}
	floats := 0
	for i, has := range c.has {
		if has && c.histogram(i) == nil {
			floats++
		}
	}
	if floats > 0 {
		s.Floats = make([]promql.FPoint, 0, floats)
	}
	for i, has := range c.has {
		switch h := c.histogram(i); {
		case h != nil:
			s.Histograms = append(s.Histograms, promql.HPoint{T: g.at(i), H: h})
		case has:
			s.Floats = append(s.Floats, promql.FPoint{T: g.at(i), F: c.values[i]})
		}
	}
	return s
}

// clone returns a copy.
func (c *column) clone() column {
	return column{slices.Clone(c.has), slices.Clone(c.values), slices.Clone(c.histograms)}
}

// A result is a series of a part's results.
type result struct {
	metric labels.Labels
	column
}

// matrix returns results as upstream's engine does, and empties them.
func (p *part) matrix(results []result) promql.Matrix {
	all := make(promql.Matrix, len(results))
	for i, r := range results {
		all[i] = r.series(r.metric, p.grid)
		results[i] = result{}
	}
	return all
}

// A resultSet shows the results of a part as series. They are evaluated at the first
// Next.
type resultSet struct {
	evaluate func() ([]result, annotations.Annotations, error)
	grid     grid

	evaluated bool
	results   []result
	at        int
	warnings  annotations.Annotations
	err       error
}

// Next implements storage.SeriesSet.
func (s *resultSet) Next() bool {
	if !s.evaluated {
		s.evaluated, s.at = true, -1
		s.results, s.warnings, s.err = s.evaluate()
	}
	s.at++
	return s.err == nil && s.at < len(s.results)
}

// At implements storage.SeriesSet.
func (s *resultSet) At() storage.Series {
	r := &s.results[s.at]
	return &storage.SeriesEntry{Lset: r.metric, SampleIteratorFn: func(it chunkenc.Iterator) chunkenc.Iterator {
		again, ok := it.(*columnIterator)
		if !ok {
			again = new(columnIterator)
		}
		*again = columnIterator{column: r.column, grid: s.grid, at: -1}
		return again
	}}
}

// Err implements storage.SeriesSet.
func (s *resultSet) Err() error { return s.err }

// Warnings implements storage.SeriesSet.
func (s *resultSet) Warnings() annotations.Annotations { return s.warnings }

// A columnIterator has a sample at each step: the value, or a staleness marker, so that
// no older value is taken for one at a step without.
type columnIterator struct {
	column
	grid grid
	at   int
}

var staleness = math.Float64frombits(value.StaleNaN)

// Next implements chunkenc.Iterator.
func (it *columnIterator) Next() chunkenc.ValueType {
	it.at++
	return it.kind()
}

func (it *columnIterator) kind() chunkenc.ValueType {
	switch {
	case it.at >= it.grid.count:
		return chunkenc.ValNone
	case it.histogram(it.at) != nil:
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// A timestamp is an int64 by another name: go vet takes a Seek of an int64 for one of
// io.Seeker's.
type timestamp = int64

// Seek implements chunkenc.Iterator.
func (it *columnIterator) Seek(t timestamp) chunkenc.ValueType {
	it.at = max(it.at, 0)
	if ahead := t - it.grid.start; ahead > 0 {
		it.at = max(it.at, int(min((ahead+it.grid.step-1)/it.grid.step, int64(it.grid.count))))
	}
	return it.kind()
}

// At implements chunkenc.Iterator.
func (it *columnIterator) At() (int64, float64) {
	switch v := it.values[it.at]; {
	case !it.has[it.at]:
		return it.AtT(), staleness
	case isStale(v):
		return it.AtT(), math.NaN()
	default:
		return it.AtT(), v
	}
}

// AtT implements chunkenc.Iterator.
func (it *columnIterator) AtT() int64 { return it.grid.at(it.at) }

// AtST implements chunkenc.Iterator. The start is unknown.
func (*columnIterator) AtST() int64 { return 0 }

// AtHistogram implements chunkenc.Iterator. There are only those of floats.
func (*columnIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("eval: a column was asked for a histogram of integers")
}

// AtFloatHistogram implements chunkenc.Iterator.
func (it *columnIterator) AtFloatHistogram(to *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	h := it.histograms[it.at]
	if to == nil {
		return it.AtT(), h
	}
	h.CopyTo(to)
	return it.AtT(), to
}

// Err implements chunkenc.Iterator.
func (*columnIterator) Err() error { return nil }

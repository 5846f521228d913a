package eval

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
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

// A column has the floats of a series at the steps of a grid. Where there is none, has is
// false.
type column struct {
	has    []bool
	values []float64
}

func newColumn(steps int) column { return column{make([]bool, steps), make([]float64, steps)} }

// set sets the value at step i.
func (c *column) set(i int, v float64) { c.has[i], c.values[i] = true, v }

// count returns how many steps have a value.
func (c *column) count() (n int) {
	for _, has := range c.has {
		if has {
			n++
		}
	}
	return n
}

// clone returns a copy.
func (c *column) clone() column { return column{slices.Clone(c.has), slices.Clone(c.values)} }

// A result is a series of a part's results.
type result struct {
	metric labels.Labels
	column
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
	if it.at >= it.grid.count {
		return chunkenc.ValNone
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
	if it.has[it.at] {
		return it.AtT(), it.values[it.at]
	}
	return it.AtT(), staleness
}

// AtT implements chunkenc.Iterator.
func (it *columnIterator) AtT() int64 { return it.grid.at(it.at) }

// AtST implements chunkenc.Iterator. The start is unknown.
func (*columnIterator) AtST() int64 { return 0 }

// AtHistogram implements chunkenc.Iterator. There are none.
func (*columnIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("eval: a column of floats was asked for a histogram")
}

// AtFloatHistogram implements chunkenc.Iterator. There are none.
func (*columnIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	panic("eval: a column of floats was asked for a histogram")
}

// Err implements chunkenc.Iterator.
func (*columnIterator) Err() error { return nil }

package seriestest

import (
	"math"
	"math/rand/v2"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/series/cell"
)

// A HistogramSource draws the histograms of a series, one after the other: with resets, gaps, hints, and buckets that change.
type HistogramSource struct {
	Rand *rand.Rand
	// Float draws histograms of floats, Custom such with custom buckets, and Gauge such that go up and down. Steady draws no resets and no
	// changes of the buckets.
	Float, Custom, Gauge, Steady bool

	counts    [8]uint64
	sum       float64
	schema    int32
	layout    int
	threshold float64
}

// Next returns the next one.
func (s *HistogramSource) Next() cell.Value {
	r := s.Rand
	often := 400
	if s.Gauge {
		often = 5
	}
	switch n := r.IntN(often); {
	case s.Steady:
	case n == 0: // begins again
		s.counts, s.sum, s.schema = [8]uint64{}, 0, int32(r.IntN(4))
	case n == 1: // in one bucket only
		s.counts[r.IntN(8)] = 0
	case n == 2:
		s.schema = max(s.schema-1, -1)
	case n == 3:
		s.layout = r.IntN(3)
	case n == 4:
		s.threshold = []float64{0, 0.001, 0.01, 2}[r.IntN(4)]
	}
	for range r.IntN(4) {
		s.counts[r.IntN(8)] += uint64(r.IntN(5))
	}
	s.sum += r.Float64()
	h := &histogram.Histogram{Schema: s.schema, Sum: s.sum, ZeroThreshold: s.threshold}
	if s.Custom {
		h = &histogram.Histogram{Schema: histogram.CustomBucketsSchema, Sum: s.sum}
		h.CustomValues = [][]float64{{1, 2, 3, 5, 8, 13, 21}, {1, 2, 4, 5, 8, 13, 21}, {1, 2, 3, 5, 8}}[s.layout]
	} else {
		h.ZeroCount = s.counts[7]
		h.Count = h.ZeroCount
	}
	buckets := min(7, len(h.CustomValues)+1)
	if !s.Custom {
		buckets = 7
	}
	h.PositiveSpans = []histogram.Span{{Offset: int32(s.layout % 2), Length: uint32(buckets)}}
	if s.Custom {
		h.PositiveSpans[0].Offset = 0
	}
	last := int64(0)
	for _, n := range s.counts[:buckets] {
		h.PositiveBuckets = append(h.PositiveBuckets, int64(n)-last)
		last = int64(n)
		h.Count += n
	}
	if r.IntN(2) == 0 {
		h.Compact(r.IntN(3))
	}
	h.CounterResetHint = histogram.UnknownCounterReset
	switch n := r.IntN(300); {
	case s.Gauge, n == 0 && !s.Steady:
		h.CounterResetHint = histogram.GaugeType
	case n == 1:
		h.CounterResetHint = histogram.CounterReset
	case n < 100:
		h.CounterResetHint = histogram.NotCounterReset
	}
	if !s.Float || r.IntN(1000) == 0 && !s.Steady {
		return cell.Value{Histogram: h}
	}
	f := h.ToFloat(nil)
	f.Mul(0.37)
	if n := r.IntN(3000); n == 0 && !s.Steady {
		f.Sum = math.Inf(1)
	}
	return cell.Value{FloatHistogram: f}
}

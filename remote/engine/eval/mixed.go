package eval

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// mixedColumn evaluates the elements of a series that has histograms. It holds the samples
// of one window: histograms are large.
func (p *part) mixedColumn(s storage.Series, out *column) error {
	it := s.Iterator(nil)
	if p.vector.SkipHistogramBuckets {
		it = promql.NewHistogramStatsIterator(it)
	}
	kind := it.Next()
	var m mixedWindow
	added := int64(math.MinInt64)
	for i := range p.grid.count {
		to := p.grid.at(i) - p.shift
		after := to - p.rangeMs
		if from := p.sought(to); kind != chunkenc.ValNone && it.AtT() < from {
			kind = it.Seek(from)
		}
		read := 0
		for ; kind != chunkenc.ValNone && it.AtT() <= to; kind = it.Next() {
			t := it.AtT()
			if t > added {
				n := m.add(it, kind, p.call != nil)
				if added = t; t > after {
					read += n
				}
			}
			if t == to {
				break // the next window seeks from here
			}
		}
		m.drop(after) // one at that time is read: the next one is compared with it
		if p.call != nil {
			p.counts.add(i, m.held(), read)
			p.callAt(i, m.floats, m.histograms, out)
			continue
		}
		m.selectAt(p, i, out)
		p.counts.add(i, out.heldAt(i), out.heldAt(i))
	}
	return it.Err()
}

// sought returns the time from which on upstream reads samples for the window that ends at to.
func (p *part) sought(to int64) int64 {
	if p.call == nil {
		return to - p.rangeMs + 1
	}
	return to - p.rangeMs
}

// A mixedWindow has the samples of a window.
type mixedWindow struct {
	floats     []promql.FPoint
	histograms []promql.HPoint
}

// drop drops the samples up to a time.
func (m *mixedWindow) drop(after int64) {
	m.floats = slices.DeleteFunc(m.floats, func(p promql.FPoint) bool { return p.T <= after })
	// What functions have kept of a slice of histograms must not change.
	m.histograms = slices.DeleteFunc(slices.Clone(m.histograms), func(p promql.HPoint) bool { return p.T <= after })
}

// add adds the sample at which it stands, and returns what it holds of it. If withoutStale
// is set, staleness markers are left out.
func (m *mixedWindow) add(it chunkenc.Iterator, kind chunkenc.ValueType, withoutStale bool) (held int) {
	if kind == chunkenc.ValFloat {
		t, v := it.At()
		if withoutStale && isStale(v) {
			return 0
		}
		m.floats = append(m.floats, promql.FPoint{T: t, F: v})
		return 1
	}
	t, h := it.AtFloatHistogram(nil)
	if withoutStale && isStale(h.Sum) {
		return 0
	}
	m.histograms = append(m.histograms, promql.HPoint{T: t, H: h})
	return heldBy(h)
}

// held returns how many samples the window holds, as upstream counts.
func (m *mixedWindow) held() int {
	n := len(m.floats)
	for _, p := range m.histograms {
		n += heldBy(p.H)
	}
	return n
}

// selectAt evaluates an instant selector at step i: it has the last sample of the window,
// if that is no staleness marker.
func (m *mixedWindow) selectAt(p *part, i int, out *column) {
	var float promql.FPoint
	var last promql.HPoint
	if n := len(m.floats); n > 0 {
		float = m.floats[n-1]
	}
	if n := len(m.histograms); n > 0 {
		last = m.histograms[n-1]
	}
	switch {
	case len(m.floats)+len(m.histograms) == 0:
	case last.H == nil || len(m.floats) > 0 && float.T > last.T:
		if !isStale(float.F) {
			out.set(i, p.timeOr(float.T, float.F))
		}
	case isStale(last.H.Sum):
	case p.isTimestamp:
		out.set(i, p.timeOr(last.T, 0))
	default:
		out.setHistogram(i, last.H)
	}
}

package eval

import (
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
	for i := range p.grid.count {
		to := p.grid.at(i) - p.shift
		after := to - p.rangeMs
		m.drop(after)
		for kind != chunkenc.ValNone && it.AtT() <= to {
			if it.AtT() > after {
				m.add(it, kind, p.call != nil)
			}
			kind = it.Next()
		}
		switch {
		case p.call != nil:
			p.callAt(i, m.floats, m.histograms, out)
		default:
			m.selectAt(i, out)
		}
	}
	return it.Err()
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

// add adds the sample at which it stands. If withoutStale is set, staleness markers are
// left out.
func (m *mixedWindow) add(it chunkenc.Iterator, kind chunkenc.ValueType, withoutStale bool) {
	if kind == chunkenc.ValFloat {
		if t, v := it.At(); !withoutStale || !isStale(v) {
			m.floats = append(m.floats, promql.FPoint{T: t, F: v})
		}
		return
	}
	if t, h := it.AtFloatHistogram(nil); !withoutStale || !isStale(h.Sum) {
		m.histograms = append(m.histograms, promql.HPoint{T: t, H: h})
	}
}

// selectAt evaluates an instant selector at step i: it has the last sample of the window,
// if that is no staleness marker.
func (m *mixedWindow) selectAt(i int, out *column) {
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
			out.set(i, float.F)
		}
	case !isStale(last.H.Sum):
		out.setHistogram(i, last.H)
	}
}

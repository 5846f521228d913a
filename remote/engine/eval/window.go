package eval

import (
	"time"

	"github.com/prometheus/prometheus/promql"
)

// extrapolated is rate, increase and delta: how much the samples of a window grow, as if
// they covered it up to its ends.
//
// Its arithmetic is upstream's, operation for operation. So it is as precise as theirs.
type extrapolated struct {
	// counter says that a sample less than the one before begins again at 0.
	counter bool
	// perSecond divides by the length of the window.
	perSecond bool
	window    time.Duration

	// resets are the positions of samples less than the one before.
	resets []int
}

// begin takes note of the resets of a series.
func (e *extrapolated) begin(s *samples) {
	e.resets = e.resets[:0]
	if !e.counter {
		return
	}
	for i := 1; i < len(s.vs); i++ {
		if s.vs[i] < s.vs[i-1] {
			e.resets = append(e.resets, i)
		}
	}
}

// value returns the result over a window that ends at end, in milliseconds. Windows come
// in order of time.
func (e *extrapolated) value(s *samples, w window, end int64) (v float64, ok bool) {
	last := w.limit - 1
	if last-w.first < 1 {
		return 0, false
	}
	v = s.vs[last] - s.vs[w.first]
	for len(e.resets) > 0 && e.resets[0] <= w.first {
		e.resets = e.resets[1:]
	}
	for _, i := range e.resets {
		if i > last {
			break
		}
		v += s.vs[i-1]
	}
	return v * e.factor(growth{s.ts[w.first], s.ts[last], s.between(w), s.vs[w.first], v}, end), true
}

// A growth is how much the samples of a window grow, from the value of the first one on. So many samples lie after that.
type growth struct {
	first, last int64
	samples     int
	from, by    float64
}

// factor returns what makes of the growth of the samples of a window that of the window, which ends at end.
func (e *extrapolated) factor(g growth, end int64) float64 {
	start := end - e.window.Milliseconds()
	toStart := float64(g.first-start) / 1000
	toEnd := float64(end-g.last) / 1000
	sampled := float64(g.last-g.first) / 1000
	between := sampled / float64(g.samples)
	threshold := between * 1.1

	if toStart >= threshold {
		toStart = between / 2
	}
	if e.counter && g.by > 0 && g.from >= 0 {
		// A counter is not extrapolated to less than 0.
		if toZero := sampled * (g.from / g.by); toZero < toStart {
			toStart = toZero
		}
	}
	if toEnd >= threshold {
		toEnd = between / 2
	}
	factor := 1.0
	if sampled != 0 {
		factor = (sampled + toStart + toEnd) / sampled
	}
	if e.perSecond {
		factor /= e.window.Seconds()
	}
	return factor
}

// columnOf evaluates rate, increase or delta of a series.
func (e *extrapolated) columnOf(p *part, s *samples, out *column) {
	e.begin(s)
	all := e.resets
	var w window
	for i := range p.grid.count {
		end := p.grid.at(i) - p.shift
		before := w
		w.move(s.ts, end-p.rangeMs, end)
		p.counts.addWindow(i, before, w)
		if v, ok := e.value(s, w, end); ok {
			out.set(i, v)
		}
	}
	e.resets = all
}

// setPoints makes p.points of samples.
func (p *part) setPoints(ts []int64, vs []float64) {
	p.points = p.points[:0]
	for i, t := range ts {
		p.points = append(p.points, promql.FPoint{T: t, F: vs[i]})
	}
}

// callColumn evaluates any other function of a window, by calling upstream's.
func (p *part) callColumn(s *samples, out *column) {
	p.setPoints(s.ts, s.vs)
	var w window
	for i := range p.grid.count {
		to := p.grid.at(i) - p.shift
		before := w
		w.move(s.ts, to-p.rangeMs, to)
		p.counts.addWindow(i, before, w)
		p.callAt(i, p.points[w.first:w.limit:w.limit], nil, out)
	}
}

// callAt calls upstream's function for step i.
func (p *part) callAt(i int, floats []promql.FPoint, histograms []promql.HPoint, out *column) {
	if len(floats)+len(histograms) == 0 {
		return
	}
	p.input[0].Floats, p.input[0].Histograms = floats, histograms
	p.helper.Ts = p.grid.at(i)
	vec, annos := p.function(p.arguments, p.input, p.call.Args, &p.helper)
	p.warnings.Merge(annos)
	p.helper.Out = vec[:0]
	switch {
	case len(vec) == 0:
	case vec[0].H != nil:
		out.setHistogram(i, vec[0].H)
	default:
		out.set(i, vec[0].F)
	}
}

// selectColumn evaluates an instant selector: at each step the last sample, if it is not
// older than the lookback, and no staleness marker.
func (p *part) selectColumn(s *samples, out *column) {
	at := 0
	for i := range p.grid.count {
		to := p.grid.at(i) - p.shift
		for at < len(s.ts) && s.ts[at] <= to {
			at++
		}
		if at > 0 && s.ts[at-1] > to-p.rangeMs && !isStale(s.vs[at-1]) {
			out.set(i, p.timeOr(s.ts[at-1], s.vs[at-1]))
			p.counts.add(i, 1, 1)
		}
	}
}

package eval

import (
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// histogramPoints evaluate the histograms of p.known.
type histogramPoints struct {
	p *part
	// points are the histograms, where there is no staleness marker and no float.
	points []promql.HPoint
	// floatsBefore, unless nil, is how many floats there are before each point and before the end, and evaluateFloats is pointsFunc.
	floatsBefore   []int
	evaluateFloats func(i int, w window, after, to int64, out *column)
	// counted, unless nil, is what the function counts.
	counted func(window) float64
	// grow, unless nil, is upstream's function that tells how much the samples of a window grow, selector and arguments what it is called
	// with, and extrapolated makes of it what the window grows.
	grow         promql.FunctionCall
	selector     parser.MatrixSelector
	arguments    parser.Expressions
	extrapolated *extrapolated
}

// newHistogramPoints returns also how many bytes the histograms take.
func (p *part) newHistogramPoints() (h *histogramPoints, bytes int) {
	h = &histogramPoints{p: p, points: make([]promql.HPoint, len(p.known.Times))}
	for i, v := range p.known.Histograms {
		if h.points[i].T = p.known.Times[i]; v.FloatHistogram != nil {
			h.points[i].H = v.FloatHistogram
			bytes += v.FloatHistogram.Size()
		}
	}
	if p.vector.SkipHistogramBuckets {
		h.skipBuckets()
	}
	if p.known.HasFloats {
		bytes += h.countFloats()
		h.evaluateFloats = p.pointsFunc()
	}
	if p.call == nil {
		return h, bytes
	}
	h.counted = p.countFunc()
	switch p.call.Func.Name {
	case "rate", "increase":
		h.beginGrowth("increase")
	case "delta":
		h.beginGrowth("delta")
	}
	return h, bytes
}

// countFloats makes floatsBefore, and returns how many bytes it takes.
func (h *histogramPoints) countFloats() (bytes int) {
	h.floatsBefore = make([]int, len(h.points)+1)
	for i, point := range h.points {
		h.floatsBefore[i+1] = h.floatsBefore[i]
		if point.H == nil && !isStale(h.p.known.Values[i]) {
			h.floatsBefore[i+1]++
		}
	}
	return 8 * len(h.floatsBefore)
}

// floatsIn returns how many floats a window has.
func (h *histogramPoints) floatsIn(w window) int {
	if h.floatsBefore == nil {
		return 0
	}
	return h.floatsBefore[w.limit] - h.floatsBefore[w.first]
}

// skipBuckets leaves of the histograms what upstream does where only counts and sums are asked for.
func (h *histogramPoints) skipBuckets() {
	points := &pointIterator{points: h.points}
	it := promql.NewHistogramStatsIterator(points)
	for i := range h.points {
		if i > 0 && h.p.isSkipped(h.points[i-1].T) {
			it.Reset(points)
		}
		if it.Next(); h.points[i].H != nil {
			_, h.points[i].H = it.AtFloatHistogram(nil)
		}
	}
}

// isSkipped says that the first window that ends after a sample at t begins after it. Upstream seeks there, and does not compare the next
// sample with this one.
func (p *part) isSkipped(t int64) bool {
	start := p.grid.start - p.shift
	next := 0
	if t >= start {
		next = int((t-start)/p.grid.step) + 1
	}
	return next < p.grid.count && t < p.sought(p.grid.at(next)-p.shift)
}

// A pointIterator has only what a promql.HistogramStatsIterator needs.
type pointIterator struct {
	chunkenc.Iterator
	points []promql.HPoint
	// at is the position after the current one.
	at int
}

// Next implements chunkenc.Iterator.
func (it *pointIterator) Next() chunkenc.ValueType {
	it.at++
	return chunkenc.ValFloatHistogram
}

// AtFloatHistogram implements chunkenc.Iterator.
func (it *pointIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return it.points[it.at-1].T, it.points[it.at-1].H
}

// beginGrowth prepares the call of upstream's function.
func (h *histogramPoints) beginGrowth(function string) {
	h.extrapolated, h.grow = h.p.newExtrapolated(), promql.FunctionCalls[function]
	h.selector = *h.p.call.Args[0].(*parser.MatrixSelector)
	vector := *h.p.vector
	vector.Offset = 0
	h.selector.VectorSelector = &vector
	h.arguments = parser.Expressions{&h.selector}
}

// evaluate evaluates step i over the points of w, see part.pointsFunc.
func (h *histogramPoints) evaluate(i int, w window, after, to int64, out *column) {
	points := h.points[w.first:w.limit:w.limit]
	floats := h.floatsIn(w)
	switch {
	case h.p.call == nil:
		if last := points[len(points)-1]; last.H != nil && h.p.isTimestamp {
			out.set(i, h.p.timeOr(last.T, 0))
		} else if last.H != nil {
			out.setHistogram(i, last.H)
		} else if floats > 0 {
			h.evaluateFloats(i, w, after, to, out)
		}
	case floats == len(points):
		h.evaluateFloats(i, w, after, to, out)
	case h.counted != nil:
		out.set(i, h.p.scaled(h.counted(w), after, to))
	case floats > 0:
		h.evaluateMixed(i, w, out)
	case h.grow != nil:
		h.setGrowth(i, w, after, to, out)
	default:
		h.p.callAt(i, nil, points, out)
	}
}

// evaluateMixed evaluates step i over a window of floats and histograms. Functions that take all samples of one kind have no value there,
// and the samples that buckets keep are enough for others.
func (h *histogramPoints) evaluateMixed(i int, w window, out *column) {
	var floats []promql.FPoint
	var histograms []promql.HPoint
	for at := w.first; at < w.limit; at++ {
		if point := h.points[at]; point.H != nil {
			histograms = append(histograms, point)
		} else {
			floats = append(floats, promql.FPoint{T: point.T, F: h.p.known.Values[at]})
		}
	}
	h.p.callAt(i, floats, histograms, out)
}

// setGrowth sets rate, increase or delta at step i. Upstream's function is called for the time from the first to the last sample, of which it
// multiplies the growth by 1. So it need not know how many samples there are.
func (h *histogramPoints) setGrowth(i int, w window, after, to int64, out *column) {
	points := h.points[w.first:w.limit:w.limit]
	first, last := points[0], points[len(points)-1]
	if len(points) == 1 {
		return
	}
	p, e := h.p, h.extrapolated
	h.selector.Range = time.Duration(last.T-first.T) * time.Millisecond
	p.input[0].Floats, p.input[0].Histograms, p.helper.Ts = nil, points, last.T
	vec, annos := h.grow(nil, p.input, h.arguments, &p.helper)
	p.warnings.Merge(annos)
	if p.helper.Out = vec[:0]; len(vec) == 0 {
		return
	}
	grown := vec[0].H
	e.window = time.Duration(to-after) * time.Millisecond
	factor := e.factor(growth{first.T, last.T, int(p.numberOf(w)) - 1, first.H.Count, grown.Count}, to)
	grown.Mul(factor)
	if to-after != p.rangeMs && !e.perSecond {
		grown.Mul(float64(p.rangeMs) / float64(to-after))
	}
	out.setHistogram(i, grown)
}

// count counts a window at step i, see counts.addWindow.
func (h *histogramPoints) count(i int, before, w window) {
	total := h.floatsIn(w)
	read := h.floatsIn(window{max(w.first, before.limit), w.limit})
	for at := w.first; at < w.limit; at++ {
		if h.points[at].H == nil {
			continue
		}
		held := heldBy(h.points[at].H)
		if total += held; at >= before.limit {
			read += held
		}
	}
	h.p.counts.add(i, total, read)
}

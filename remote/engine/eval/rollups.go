package eval

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/promtable/promtable/series/rollup"
)

// Buckets says what a selector needs to know of its series: what is in its windows. A source may leave out what is between them, and give
// it buckets in place of samples.
type Buckets struct {
	Windows rollup.Windows
	Want    rollup.Want
	// Coarsest is the longest bucket that it may have. Of rollup.Raw it needs samples.
	Coarsest rollup.Resolution
	// Shift is how much later than its end a window is evaluated, in milliseconds: the offset.
	Shift int64
}

// coarsestKey is the key of a rollup.Resolution in a context.
type coarsestKey struct{}

// WithCoarsest returns a context whose queries get no longer buckets, or none if r is rollup.Raw.
func WithCoarsest(ctx context.Context, r rollup.Resolution) context.Context {
	return context.WithValue(ctx, coarsestKey{}, r)
}

// ParseCoarsest returns the longest resolution of up to a duration, as Prometheus writes it. "auto" and "" are the longest there is.
func ParseCoarsest(text string) (coarsest rollup.Resolution, err error) {
	if text == "" || text == "auto" {
		return rollup.Coarsest, nil
	}
	longest, err := model.ParseDuration(text)
	if err != nil {
		var names []string
		for _, r := range rollup.Downsampled {
			names = append(names, r.String())
		}
		last := len(names) - 1
		return 0, fmt.Errorf("it has to be auto, 0s, %s or %s", strings.Join(names[:last], ", "), names[last])
	}
	for _, r := range rollup.Downsampled {
		if time.Duration(r.Span())*time.Millisecond <= time.Duration(longest) {
			coarsest = r
		}
	}
	return coarsest, nil
}

// bucketsKey is the key of *Buckets in a context.
type bucketsKey struct{}

// BucketsOf returns what is needed by a select with this context, or nil if it needs all samples.
func BucketsOf(ctx context.Context) *Buckets {
	b, _ := ctx.Value(bucketsKey{}).(*Buckets)
	return b
}

// fromBuckets are the functions whose value follows from buckets, and what it takes.
var fromBuckets = map[string]rollup.Want{
	"rate": rollup.Resets, "increase": rollup.Resets, "delta": 0,
	"changes": rollup.Counts, "resets": rollup.Counts,
	"sum_over_time": rollup.Sums, "avg_over_time": rollup.Sums,
	"min_over_time": 0, "max_over_time": 0, "count_over_time": 0, "present_over_time": 0,
	"first_over_time": 0, "last_over_time": 0, "ts_of_first_over_time": 0, "ts_of_last_over_time": 0,
}

// buckets returns what the part needs, or nil if that is nothing.
func (p *part) buckets(ctx context.Context) *Buckets {
	b := p.windows()
	coarsest, isBounded := ctx.Value(coarsestKey{}).(rollup.Resolution)
	if !isBounded {
		coarsest = rollup.Coarsest
	}
	if b == nil || coarsest == rollup.Raw {
		return b
	}
	if p.call == nil {
		b.Coarsest, b.Windows.Last, b.Want = coarsest, true, rollup.Markers
		return b
	}
	want, ok := fromBuckets[p.call.Func.Name]
	if ok && (want&rollup.Counts == 0 || !p.vector.SkipHistogramBuckets) { // else the counts of histograms are those of their counts and sums
		b.Coarsest, b.Want = coarsest, want
	}
	return b
}

// isOfAggregates says whether the value follows from how many samples there are, their sum, the least and the greatest one.
func (p *part) isOfAggregates() bool {
	if p.absent != nil || p.call == nil {
		return p.absent != nil
	}
	switch p.call.Func.Name {
	case "count_over_time", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "present_over_time":
		return true
	}
	return false
}

// windows returns the samples that the part needs, or nil if it has no step.
func (p *part) windows() *Buckets {
	if p.grid.count == 0 {
		return nil
	}
	return &Buckets{Coarsest: rollup.Raw, Shift: p.shift, Windows: rollup.Windows{
		Start: p.grid.start - p.shift, Step: p.grid.step, Range: p.rangeMs, Count: p.grid.count,
	}}
}

// pointsColumn evaluates the elements of a series of buckets. It returns how many bytes its histograms take.
func (p *part) pointsColumn(s rollup.PointSeries, out *column) (held int, err error) {
	w := p.windows().Windows
	w.Last = p.call == nil
	p.known.Reset(p.want, w)
	if err := s.AppendPoints(&p.known); err != nil {
		return 0, err
	}
	p.isEstimated = p.isEstimated || p.known.IsEstimated && !p.isOfAggregates()
	if len(p.known.Histograms) == 0 {
		p.eachWindow(s.Plan(), p.pointsFunc(), p.counts.addWindow, out)
		return 0, nil
	}
	h, held := p.newHistogramPoints()
	p.eachWindow(s.Plan(), h.evaluate, h.count, out)
	return held, nil
}

// eachWindow evaluates the windows of a series of which plan was read, if they are known.
func (p *part) eachWindow(plan *rollup.Plan, evaluate func(i int, w window, after, to int64, out *column), count func(i int, before, w window), out *column) {
	holes, edges := p.known.Holes, p.known.Edges
	var w window
	for i := range p.grid.count {
		end := p.grid.at(i) - p.shift
		after, to, isWide := plan.Widen(end-p.rangeMs, end)
		for len(edges) > 0 && edges[0].Limit <= after {
			edges = edges[1:]
		}
		if len(edges) > 0 && edges[0].From <= after {
			after, isWide = edges[0].Start, true
		}
		before := w
		w.move(p.known.Times, after, to)
		count(i, before, w)
		for len(holes) > 0 && holes[0][1] <= after+1 {
			holes = holes[1:]
		}
		if len(holes) > 0 && holes[0][0] <= to {
			p.isUnknown = true
			if p.absent != nil {
				p.absent.unknown[i] = true
			}
			continue
		}
		if w.first == w.limit {
			continue
		}
		p.isWide = p.isWide || isWide
		evaluate(i, w, after, to, out)
	}
}

// pointsFunc returns what evaluates step i of p.known over the points of w, which is not empty: those of the
// times (after, to], in milliseconds.
func (p *part) pointsFunc() func(i int, w window, after, to int64, out *column) {
	k := &p.known
	if p.call == nil {
		return func(i int, w window, _, _ int64, out *column) {
			if v := k.Values[w.limit-1]; !isStale(v) {
				out.set(i, p.timeOr(k.Times[w.limit-1], v))
			}
		}
	}
	switch p.call.Func.Name {
	case "rate", "increase", "delta":
		return p.extrapolatedPoints()
	case "sum_over_time":
		return func(i int, w window, after, to int64, out *column) {
			out.set(i, p.scaled(sumOf(k.Sums[w.first:w.limit]), after, to))
		}
	case "avg_over_time":
		return func(i int, w window, _, _ int64, out *column) {
			out.set(i, sumOf(k.Sums[w.first:w.limit])/float64(p.numberOf(w)))
		}
	}
	if count := p.countFunc(); count != nil {
		return func(i int, w window, after, to int64, out *column) { out.set(i, p.scaled(count(w), after, to)) }
	}
	p.setPoints(k.Times, k.Values)
	return func(i int, w window, _, _ int64, out *column) {
		p.callAt(i, p.points[w.first:w.limit:w.limit], nil, out)
	}
}

// timeOr returns what an instant selector has of a sample: its value, or its time in seconds.
func (p *part) timeOr(t int64, v float64) float64 {
	if p.isTimestamp {
		return float64(t) / 1000
	}
	return v
}

// countFunc returns what counts something of the samples of a window of p.known, or nil if the function counts nothing.
func (p *part) countFunc() func(w window) float64 {
	sum := func(of []int32) (n float64) {
		for _, v := range of {
			n += float64(v)
		}
		return n
	}
	switch p.call.Func.Name {
	case "count_over_time":
		return func(w window) float64 { return float64(p.numberOf(w)) }
	case "changes":
		return func(w window) float64 { return sum(p.known.Changes[w.first+1 : w.limit]) }
	case "resets":
		return func(w window) float64 { return sum(p.known.Resets[w.first+1 : w.limit]) }
	}
	return nil
}

// numberOf returns how many samples a window of p.known has.
func (p *part) numberOf(w window) int32 {
	return p.known.Numbers[w.limit-1] - p.known.Numbers[w.first] + 1
}

// scaled returns what the window that was asked for has of a number that grows with the time, such as one of samples, if the window (after, to]
// has v and was widened.
func (p *part) scaled(v float64, after, to int64) float64 {
	if to-after == p.rangeMs {
		return v
	}
	return v * (float64(p.rangeMs) / float64(to-after))
}

// extrapolatedPoints is pointsFunc of rate, increase and delta. Over a window that is widened it is what the window of the
// query has of it, if it grows evenly.
func (p *part) extrapolatedPoints() func(i int, w window, after, to int64, out *column) {
	e := p.newExtrapolated()
	s := &samples{ts: p.known.Times, vs: p.known.Values, numbers: p.known.Numbers}
	e.begin(s)
	return func(i int, w window, after, to int64, out *column) {
		e.window = time.Duration(to-after) * time.Millisecond
		if v, ok := e.value(s, w, to); ok {
			if !e.perSecond {
				v = p.scaled(v, after, to)
			}
			out.set(i, v)
		}
	}
}

func sumOf(vs []float64) float64 {
	var sum, c float64
	for _, v := range vs {
		sum, c = kahansum.Inc(v, sum, c)
	}
	return sum + c
}

// warnOfBuckets adds what is to be said of answers from buckets.
func (p *part) warnOfBuckets() {
	of := p.vector.String()
	if p.call != nil {
		of = p.call.String()
	}
	if p.isWide {
		p.warnings.Add(fmt.Errorf("%w: the samples of a part of the time are no longer kept, so windows of %q are widened there to whole 5m or 1h rollups", annotations.PromQLWarning, of))
	}
	if p.isEstimated {
		p.warnings.Add(fmt.Errorf("%w: a part of the time comes from downsampled blocks, which do not tell when samples were, nor the first and last one of a gauge: %q is an estimate there", annotations.PromQLWarning, of))
	}
	if p.isUnknown {
		p.warnings.Add(fmt.Errorf("%w: the samples of a part of the time are no longer kept, and rollups do not tell %q there, so it has no value", annotations.PromQLWarning, of))
	}
}

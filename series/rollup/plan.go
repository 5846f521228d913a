package rollup

import (
	"cmp"
	"math"
	"slices"

	"github.com/promtable/promtable/series"
)

// Windows are the ranges of time that a query looks at: Count of them, of which number i is
// (Start + i*Step - Range, Start + i*Step], in milliseconds.
type Windows struct {
	Start, Step, Range int64
	Count              int
	// Last says that only the last sample of each is asked for.
	Last bool
}

// Sources say what there is of which time.
type Sources struct {
	// From is the first time of which all samples, or buckets of a resolution, are there, in milliseconds. It is MaxInt64 if there are none.
	From [NumResolutions]int64
	// Until is the end of the last day of which there may be buckets.
	Until int64
	// Coarsest is the resolution beyond which none is used while a finer one is there. Of Raw no buckets are used.
	Coarsest Resolution
}

// A Span is a part of time, (After, To] in milliseconds, that is read at one resolution. At other
// than Raw both are multiples of it.
type Span struct {
	After, To  int64
	Resolution Resolution
}

// A Plan says what is read for windows.
type Plan struct {
	// Spans are in order of time and do not overlap.
	Spans []Span
	// after is the end of the last day of which not all samples, or buckets of a resolution, are there, or MinInt64.
	after    [NumResolutions]int64
	segments []segment
	last     bool
	widens   bool
}

// Widens says whether a window is widened.
func (p *Plan) Widens() bool { return p.widens }

// A segment is a part of time in which buckets of one resolution are used, up to its end.
type segment struct {
	to         int64
	resolution Resolution
}

// What it costs to read, in samples: those of a window of a series that has one each 15 s, and to go to a place in a row.
const (
	windowCost = float64(series.Window) / 15_000
	placeCost  = 250
)

// NewPlan returns the cheapest plan that gives exact answers, where there is one. It is nil if that is to read all samples
// from the first to the last window. What a window is read from where there are no samples does not depend on how many windows there are.
func NewPlan(w Windows, s Sources) *Plan {
	if w.Count == 0 {
		return nil
	}
	p := &Plan{last: w.Last}
	for r, from := range s.From {
		p.after[r] = wholeDays(from)
	}
	bounds := append([]int64{0, max(0, s.Until), math.MaxInt64}, p.after[:]...)
	slices.Sort(bounds)
	after, usesBuckets := int64(math.MinInt64), false
	for _, to := range slices.Compact(bounds) {
		r := s.choose(w, &p.after, after, to)
		usesBuckets = usesBuckets || r != Raw && w.meet(after, to)
		if n := len(p.segments); n > 0 && p.segments[n-1].resolution == r {
			p.segments[n-1].to = to
		} else {
			p.segments = append(p.segments, segment{to, r})
		}
		after = to
	}
	p.makeSpans(w)
	if !usesBuckets && !p.leavesOut() {
		return nil
	}
	return p
}

// leavesOut says whether it is worth it to read the spans of samples one by one, and not all from the first to the last.
func (p *Plan) leavesOut() bool {
	if len(p.Spans) < 2 {
		return false
	}
	whole := []Span{{p.Spans[0].After, p.Spans[len(p.Spans)-1].To, Raw}}
	return rawCost(p.Spans) < rawCost(whole)*9/10
}

// wholeDays returns the end of the last day of which something is before from.
func wholeDays(from int64) int64 {
	switch from {
	case 0:
		return math.MinInt64
	case math.MaxInt64:
		return from
	}
	return DayOf(from) + Day
}

// meet says whether a window has a part of (after, to].
func (w Windows) meet(after, to int64) bool {
	return w.Start-w.Range < to && w.end() > after
}

func (w Windows) end() int64 { return w.Start + int64(w.Count-1)*w.Step }

// choose returns the resolution of the times (after, to].
func (s Sources) choose(w Windows, first *[NumResolutions]int64, after, to int64) Resolution {
	clipped, ok := w.clip(after, to)
	if !ok || s.Coarsest == Raw {
		return Raw
	}
	hasRaw := after >= first[Raw]
	best, least := Raw, 0.0
	if hasRaw {
		least = rawCost(clipped.covers(Raw))
	}
	for _, r := range Downsampled {
		switch {
		case after < first[r], to > max(s.Until, first[Raw]), hasRaw && to <= 0:
			continue // there are none
		case r > s.Coarsest && (hasRaw || best != Raw):
			continue
		case !hasRaw: // the finest, by which windows are widened least, or a longer one whose cells may tell all windows
			if best == Raw || w.areWhole(r) {
				best = r
			}
			continue
		}
		if cost := rawCost(clipped.edges(r)) + cellCost(clipped.covers(r), r); cost < least {
			best, least = r, cost
		}
	}
	return best
}

// areWhole says whether all windows end with buckets of r, and begin where these may tell all of them.
func (w Windows) areWhole(r Resolution) bool {
	isWhole := func(t int64) bool { return r.Floor(t) == t }
	return isWhole(w.Start) && (w.Count == 1 || isWhole(w.Step)) && w.HasShortEdges(r)
}

// cellCost is what it costs to read the cells of r of spans: of whole days, each once.
func cellCost(spans []Span, r Resolution) (cost float64) {
	last := int64(math.MinInt64)
	for _, s := range spans {
		first, limit := DayOf(s.After), DayOf(s.To)+Day
		cost += float64(float64(limit-max(first, last)) / float64(Day) * table[r].cost) // not fused, see TestFused
		last = limit
	}
	return cost
}

// clip returns the windows that have a part of (after, to].
func (w Windows) clip(after, to int64) (Windows, bool) {
	if !w.meet(after, to) {
		return w, false
	}
	if after >= w.Start {
		skip := (after-w.Start)/w.Step + 1 // those that end at or before after
		w.Start, w.Count = w.Start+skip*w.Step, w.Count-int(skip)
	}
	if w.end()-w.Range >= to {
		w.Count = int((to-1+w.Range-w.Start)/w.Step) + 1
	}
	return w, w.Count > 0
}

// covers returns the times of all windows, widened to whole buckets.
func (w Windows) covers(r Resolution) (spans []Span) {
	for i := range w.Count {
		to := w.Start + int64(i)*w.Step
		spans = addSpan(spans, Span{r.Floor(to - w.Range), r.Ceil(to), r})
	}
	return spans
}

// edges returns the buckets that lie only in part in a window.
func (w Windows) edges(r Resolution) []Span {
	var starts, ends []Span
	for i := range w.Count {
		to := w.Start + int64(i)*w.Step
		if after := to - w.Range; !w.HasShortEdges(r) && r.Floor(after) != after {
			starts = addSpan(starts, Span{r.Floor(after), r.Floor(after) + r.Span(), Raw})
		}
		if r.Floor(to) != to {
			ends = addSpan(ends, Span{r.Floor(to), r.Ceil(to), Raw})
		}
	}
	return join(append(starts, ends...))
}

// addSpan adds a span that begins at or after all others begin.
func addSpan(spans []Span, s Span) []Span {
	if n := len(spans); n > 0 && spans[n-1].To >= s.After {
		spans[n-1].To = max(spans[n-1].To, s.To)
		return spans
	}
	return append(spans, s)
}

// join sorts spans and joins those that meet.
func join(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.After, b.After) })
	merged := spans[:0]
	for _, s := range spans {
		merged = addSpan(merged, s)
	}
	return merged
}

// rawCost is what it costs to read the samples of spans: of whole chunks.
func rawCost(spans []Span) (cost float64) {
	last := int64(math.MinInt64)
	for _, s := range spans {
		first, limit := s.After/series.Window, s.To/series.Window+1
		if first > last {
			cost += placeCost
		}
		cost += float64(float64(limit-max(first, last)) * windowCost) // not fused, see TestFused
		last = limit
	}
	return cost
}

// resolutionAt returns the resolution of the segment that has t.
func (p *Plan) resolutionAt(t int64) Resolution {
	for _, s := range p.segments {
		if t <= s.to {
			return s.resolution
		}
	}
	return Raw
}

// makeSpans makes the spans: all times of windows, the edges of those as samples where these are there.
func (p *Plan) makeSpans(w Windows) {
	var covers, starts, ends []Span
	for i := range w.Count {
		to := w.Start + int64(i)*w.Step
		after := to - w.Range
		_, _, isWide := p.Widen(after, to)
		p.widens = p.widens || isWide
		first, last := p.resolutionAt(after+1), p.resolutionAt(to)
		covers = addSpan(covers, Span{first.Floor(after), last.Ceil(to), Raw})
		if first.Floor(after) != after && after >= p.after[Raw] && !w.HasShortEdges(first) {
			starts = addSpan(starts, Span{first.Floor(after), first.Floor(after) + first.Span(), Raw})
		}
		if last.Floor(to) != to && to > p.after[Raw] {
			ends = addSpan(ends, Span{last.Floor(to), last.Ceil(to), Raw})
		}
	}
	edges := join(append(starts, ends...))
	for _, c := range covers {
		for c.After < c.To {
			next := Span{c.After, c.To, p.resolutionAt(c.After + 1)}
			for _, s := range p.segments {
				if s.to > c.After {
					next.To = min(next.To, s.to)
					break
				}
			}
			for len(edges) > 0 && edges[0].To <= next.After {
				edges = edges[1:]
			}
			if len(edges) > 0 && edges[0].After < next.To {
				if e := edges[0]; e.After > next.After {
					next.To = e.After
				} else {
					next.To, next.Resolution = min(next.To, e.To), Raw
				}
			}
			p.addSpan(next)
			c.After = next.To
		}
	}
}

func (p *Plan) addSpan(s Span) {
	if n := len(p.Spans); n > 0 && p.Spans[n-1].To == s.After && p.Spans[n-1].Resolution == s.Resolution {
		p.Spans[n-1].To = s.To
		return
	}
	p.Spans = append(p.Spans, s)
}

// Widen returns the window (after, to], widened where it does not end with one of the buckets of which there are no samples, and whether it
// is. Points.Edges say where it begins.
func (p *Plan) Widen(after, to int64) (wideAfter, wideTo int64, widened bool) {
	wideAfter, wideTo = after, to
	if to <= p.after[Raw] {
		wideTo = p.resolutionAt(to).Ceil(to)
	}
	if p.last && wideTo != to {
		wideAfter = min(after, wideTo-p.resolutionAt(to).Span())
	}
	return wideAfter, wideTo, wideAfter != after || wideTo != to
}

// Cut ends the spans at a time, in milliseconds, as if there were no windows later: the bucket that goes on after it is read as samples. It is not ok if
// these are not there.
func (p *Plan) Cut(to int64) (ok bool) {
	n := len(p.Spans)
	for n > 0 && p.Spans[n-1].After >= to {
		n--
	}
	if p.Spans = p.Spans[:n]; n == 0 || p.Spans[n-1].To <= to {
		return true
	}
	last := &p.Spans[n-1]
	last.To = last.Resolution.Floor(to)
	if last.To == to {
		return true
	}
	if last.To == last.After {
		p.Spans = p.Spans[:n-1]
	}
	p.addSpan(Span{last.To, to, Raw})
	return to > p.after[Raw]
}

// Range returns the times (after, to] from the first to the last span of a resolution. It is not ok if there is
// none.
func (p *Plan) Range(r Resolution) (after, to int64, ok bool) {
	for _, s := range p.Spans {
		if s.Resolution != r {
			continue
		}
		if !ok {
			after, ok = s.After, true
		}
		to = s.To
	}
	return after, to, ok
}

// HasRaw says whether all samples of a day are there.
func (p *Plan) HasRaw(day int64) bool { return day >= p.after[Raw] }

// Finer returns the coarsest resolution that is finer than r and of which there may be buckets of a day. It is Raw if there is none.
func (p *Plan) Finer(r Resolution, day int64) (finer Resolution) {
	for _, f := range Downsampled {
		if f < r && day >= p.after[f] {
			finer = f
		}
	}
	return finer
}

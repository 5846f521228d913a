package rollup

// Where windows begin.
//
// A window that begins inside a bucket has only the samples after that: all of them must be kept. Grafana's windows are longer than
// its step by the interval of scrapes, so that they begin that much before the end of a bucket. So cells tell of each bucket how long before
// its end all samples are kept.

// The tail of a bucket is part of the stored format: up to so many of the samples of the last part of a bucket, in milliseconds.
const (
	maxTail  = 5
	tailSpan = 60 * 1000
)

// knownSpans are the times before the end of a bucket in which all samples may be kept, in milliseconds. A class is a position, from 1 on. They
// are part of the stored format.
var knownSpans = [...]int64{0, 1000, 2000, 5000, 10_000, 15_000, 20_000, 30_000, 60_000, 120_000, maxEdge}

// Special classes, which are part of the stored format: nothing is known, and all samples of the bucket are kept.
const (
	knownNone = 0
	knownAll  = 15
)

// maxEdge is how long before the end of a bucket a window may begin that is planned to be read from buckets, in milliseconds.
const maxEdge = 240_000

// knownSince returns the class of a bucket of which the last sample that is not kept lies so long before its end.
func knownSince(gap int64) int64 {
	class := int64(knownNone)
	for i, span := range knownSpans {
		if span <= gap {
			class = int64(i)
		}
	}
	return class
}

// isKnown says whether a class is one.
func isKnown(class int64) bool {
	return class == knownAll || class >= 0 && class < int64(len(knownSpans))
}

// knownFrom returns the first time from which on a window may begin in a bucket up to end of a class that is not knownAll.
func knownFrom(class, end int64) int64 { return end - knownSpans[class] }

// An Edge is the part of a bucket in which no window may begin, [From, Limit) in milliseconds, because not all samples after that are known. A window from
// Start on has all of them.
type Edge struct{ From, Limit, Start int64 }

// edge returns that of a bucket: it is empty if a window may begin anywhere.
func (b *decoded) edge() Edge {
	if len(b.times) < 2 || b.known == knownAll {
		return Edge{}
	}
	return Edge{b.times[0], min(b.times[len(b.times)-1], knownFrom(b.known, b.end)), b.start}
}

// beginIn says whether a window begins in an edge.
func (w *Windows) beginIn(e Edge) bool {
	return e.From < e.Limit && !w.Last && w.beginAt(e.From, e.Limit)
}

// beginAt says whether a window begins at the times [from, limit), in milliseconds.
func (w *Windows) beginAt(from, limit int64) bool {
	if w.Count == 0 {
		return false
	}
	first := w.Start - w.Range
	if from > first && w.Count > 1 {
		first += min(int64(w.Count-1), (from-first+w.Step-1)/w.Step) * w.Step
	}
	return from <= first && first < limit
}

// needTails says whether a window may begin between the samples of the tails of the buckets in (start, end], in milliseconds. Else these are
// passed: most windows begin in few buckets. Sums need all tails, so that they are added in the same order whatever windows there are.
func (p *Points) needTails(start, end int64) bool {
	switch w := &p.windows; {
	case w.Count == 0, p.Want&Sums != 0:
		return true
	case w.Last:
		return false
	default:
		return w.beginAt(start+1, end)
	}
}

// edgeOf returns how long before the end of a bucket of r all windows begin, in milliseconds. It is not ok if that is not the same of all, or
// longer than maxEdge.
func (w *Windows) edgeOf(r Resolution) (edge int64, ok bool) {
	if r == Raw {
		return 0, true
	}
	begin := w.Start - w.Range
	edge = r.Ceil(begin) - begin
	return edge, edge <= maxEdge && (w.Count == 1 || w.Step%r.Span() == 0)
}

// HasShortEdges says whether windows begin in buckets of r only where these may tell all of them.
func (w *Windows) HasShortEdges(r Resolution) bool {
	_, ok := w.edgeOf(r)
	return w.Last || ok
}

// AppendUnknown appends the buckets of a cell of a day in which a window begins after samples of which not all are kept, as spans to be read as
// samples.
func (p *Points) AppendUnknown(to []Span, c Cell, day int64) ([]Span, error) {
	if len(c.Value) == 0 || !HasBuckets(c.Value) || p.windows.Last || p.windows.Count == 0 {
		return to, nil
	}
	if edge, isSame := p.windows.edgeOf(c.Resolution); isSame && edge <= leastKnown(c.Value) {
		return to, nil
	}
	err := p.appendCell(c, day, day, day+Day, func(b *decoded) error {
		if p.windows.beginIn(b.edge()) {
			to = append(to, Span{b.start, b.end, Raw})
		}
		return nil
	})
	p.decoders[c.Resolution].cell = nil
	return to, err
}

// CostLessThanDay says whether the samples of some buckets of a day, in order of time, cost less to read than those of all of it.
func CostLessThanDay(buckets []Span, day int64) bool {
	return len(buckets) == 0 || rawCost(buckets) < rawCost([]Span{{day, day + Day, Raw}})*3/4
}

// leastKnown returns how long before their end all buckets of a cell keep all samples, in milliseconds.
func leastKnown(data []byte) int64 {
	if !hasEdges(data[0]) || len(data) < edgeHeadSize {
		return 0
	}
	switch least := int64(data[edgeHeadSize-1]); {
	case least == knownAll:
		return Day
	case isKnown(least):
		return knownSpans[least]
	}
	return 0
}

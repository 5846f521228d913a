package rollup

import (
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// ErrSamples says that only the samples of a day can tell what is asked for.
var ErrSamples = errors.New("the day has no buckets")

// Want says what is asked for beside samples.
type Want uint8

// What can be asked for.
const (
	// Markers are staleness markers that end a bucket.
	Markers Want = 1 << iota
	// Resets are all samples before and after a reset. Buckets without them are holes.
	Resets
	// Sums are those of Points. Buckets without one are holes.
	Sums
	// Counts are the changes and resets of Points.
	Counts
	// Integers are histograms of integers as such, and all histograms with the hints with which they were written. Else Points have histograms of
	// floats, which do not tell of counter resets but by comparison.
	Integers
	// Floats are days of floats: where samples are there, cells of histograms do not tell what is wanted.
	Floats
)

// A PointSeries is a series that may have been read as buckets in place of samples.
type PointSeries interface {
	// Plan says what was read at which resolution. It is nil if the series has all its samples.
	Plan() *Plan
	// HasBuckets says whether there is anything but samples.
	HasBuckets() bool
	// AppendPoints appends what is known of the times that were asked for. Start timestamps are left out. It is called if HasBuckets.
	AppendPoints(*Points) error
}

// Points are true samples of a series, some of all, in order of time, and what is known of those
// between.
type Points struct {
	Want Want
	// Times are in milliseconds.
	Times  []int64
	Values []float64
	// Histograms is empty if all samples are floats. Else it has the histogram at each time, and no histogram where there is a float or, unless
	// Integers are wanted, a staleness marker. HasFloats says whether there are floats.
	Histograms []cell.Value
	HasFloats  bool
	// Numbers are how many samples there are up to each, itself included. A marker does not
	// count.
	Numbers []int32
	// Sums, if wanted, are the sums of samples: those of each bucket are at the first sample that it
	// keeps, those of the others of it are 0.
	Sums []float64
	// Changes and Resets, if Counts are wanted, are how often the value changes, and is less than the one
	// before, from the sample before to each.
	Changes, Resets []int32
	// Holes are times [start, limit), in milliseconds, of which it is not known what is wanted. There is no sample in
	// them. They are in order of time.
	Holes [][2]int64
	// Edges are where no window may begin, in order of time: those in which one does.
	Edges []Edge
	// IsEstimated says that there are buckets of an AggregateEncoder, whose samples are estimates.
	IsEstimated bool

	windows Windows
	// before is the value of the last sample, or histogramBefore the sample, and hasBefore says that there is one.
	before          float64
	histogramBefore *histogram.FloatHistogram
	hasBefore       bool
	number          int32
	// decoders read the cells of each resolution.
	decoders [NumResolutions]decoder
}

// Reset removes all points, for what is wanted of windows. Without windows nothing is asked of edges.
func (p *Points) Reset(want Want, windows Windows) {
	for i := range p.decoders {
		p.decoders[i].cell = nil
	}
	*p = Points{
		Want: want, windows: windows, Edges: p.Edges[:0], Times: p.Times[:0], Values: p.Values[:0], Histograms: p.Histograms[:0], Numbers: p.Numbers[:0], Sums: p.Sums[:0],
		Changes: p.Changes[:0], Resets: p.Resets[:0], Holes: p.Holes[:0], decoders: p.decoders,
	}
}

// Append appends samples, all of their time. Staleness markers may be among them.
func (p *Points) Append(ts []int64, vs []float64) {
	for i, v := range vs {
		if isStale(v) {
			p.addMarker(ts[i], cell.Value{})
			continue
		}
		changes, resets := p.counts(v)
		p.add(point{t: ts[i], v: v, samples: 1, sum: v, changes: changes, resets: resets})
	}
}

// AppendHistogram appends the one sample of its time. It may be a staleness marker.
func (p *Points) AppendHistogram(t int64, h *histogram.FloatHistogram) {
	v := cell.Value{FloatHistogram: h}
	if isMarker(v) {
		p.addMarker(t, cell.Value{})
		return
	}
	v.FloatHistogram = floatOf(v)
	at := point{t: t, histogram: v, samples: 1}
	at.changes, at.resets = p.countsOfHistogram(v)
	p.add(at)
}

// counts returns how often the value changes, and is less, from the last sample to v, if that follows it. From a histogram it is both.
func (p *Points) counts(v float64) (changes, resets int32) {
	if !p.hasBefore {
		return 0, 0
	}
	if p.histogramBefore != nil {
		return 1, 1
	}
	return countFloats(p.before, v)
}

func countFloats(before, v float64) (changes, resets int32) {
	if isChange(before, v) {
		changes = 1
	}
	if v < before {
		resets = 1
	}
	return changes, resets
}

func countHistograms(before, h *histogram.FloatHistogram) (changes, resets int32) {
	if isHistogramChange(before, h) {
		changes = 1
	}
	if h.DetectReset(before) {
		resets = 1
	}
	return changes, resets
}

// countsOfHistogram is counts of a histogram, if Counts are wanted.
func (p *Points) countsOfHistogram(v cell.Value) (changes, resets int32) {
	if p.Want&Counts == 0 {
		return 0, 0
	}
	h := floatOf(v)
	switch before := p.histogramBefore; {
	case !p.hasBefore:
	case before == nil: // a float
		changes, resets = 1, 1
	default:
		changes, resets = countHistograms(before, h)
	}
	p.histogramBefore = h
	return changes, resets
}

// A point is a sample, of which histogram is none if it is a float. After the one before it, up to itself, there are so many samples, with this
// sum, changes and resets.
type point struct {
	t               int64
	v               float64
	histogram       cell.Value
	samples         int32
	sum             float64
	changes, resets int32
}

func (p *Points) add(at point) {
	p.append(at)
	p.before, p.hasBefore = at.v, true
	if at.histogram == (cell.Value{}) {
		p.HasFloats, p.histogramBefore = true, nil
	}
}

// addMarker adds a staleness marker, which is no sample, if it is wanted.
func (p *Points) addMarker(t int64, v cell.Value) {
	if p.Want&Markers != 0 {
		p.append(point{t: t, v: stale, histogram: v})
	}
}

func (p *Points) append(at point) {
	p.number += at.samples
	p.Times, p.Values, p.Numbers = append(p.Times, at.t), append(p.Values, at.v), append(p.Numbers, p.number)
	if at.histogram != (cell.Value{}) || len(p.Histograms) > 0 {
		for len(p.Histograms) < len(p.Times)-1 {
			p.Histograms = append(p.Histograms, cell.Value{})
		}
		p.Histograms = append(p.Histograms, at.histogram)
	}
	if p.Want&Sums != 0 {
		p.Sums = append(p.Sums, at.sum)
	}
	if p.Want&Counts != 0 {
		p.Changes, p.Resets = append(p.Changes, at.changes), append(p.Resets, at.resets)
	}
}

var stale = math.Float64frombits(value.StaleNaN)

// AppendHole says that nothing is known of the times [start, limit).
func (p *Points) AppendHole(start, limit int64) {
	if n := len(p.Holes); n > 0 && p.Holes[n-1][1] >= start {
		p.Holes[n-1][1] = max(p.Holes[n-1][1], limit)
		return
	}
	p.Holes = append(p.Holes, [2]int64{start, limit})
}

// missing are the flags of buckets that do not have what is wanted.
func (w Want) missing() (flags int64) {
	flags = flagRemoved
	if w&Resets != 0 {
		flags |= flagNoResets
	}
	if w&Sums != 0 {
		flags |= flagNoSum
	}
	if w&Counts != 0 {
		flags |= flagNoCounts
	}
	return flags
}

// HasBuckets says whether a cell has what AppendCell needs. It does of kinds that this version does not know, so that AppendCell tells of them.
func HasBuckets(data []byte) bool { return len(data) == 0 || data[0] != kindSamples }

// IsEarlier says whether a cell is of a kind that is no longer written: the samples of the day give one that tells more.
func IsEarlier(data []byte) bool {
	return len(data) > 0 && (data[0] == kindFloats || data[0] == kindHistograms)
}

// HasAll says whether a cell tells all that is wanted of its day: AppendCell gives no hole and not ErrSamples.
func HasAll(data []byte, want Want) bool {
	if len(data) == 0 {
		return true
	}
	isWanted := len(data) >= headSize && isOfBuckets(data[0]) && (want&Floats == 0 || !isOfHistograms(data[0]))
	return isWanted && int64(data[1])&want.missing() == 0
}

// NeedsFiner says whether a cell does not tell all that is wanted of its day, and one of a finer resolution may: there are too many resets, or a part of
// a bucket is deleted.
func NeedsFiner(data []byte, want Want) bool {
	return !HasAll(data, want) && HasBuckets(data) && len(data) >= headSize && int64(data[1])&want.missing()&(flagNoResets|flagRemoved) != 0
}

// A Cell is the value of a cell at a resolution.
type Cell struct {
	Resolution Resolution
	Value      []byte
}

// AppendCells is AppendCell of the first of some cells of one row and day, the coarsest first. For buckets of which it does not tell what is wanted it
// appends what the next one does, which is not empty.
func (p *Points) AppendCells(day int64, cells []Cell, after, to int64) error {
	first, finer := cells[0], cells[1:]
	return p.appendCell(first, day, after, to, func(b *decoded) error {
		if len(finer) == 0 || b.flags&p.Want.missing() == 0 && !p.windows.beginIn(b.edge()) {
			p.addBucket(b)
			return nil
		}
		return p.AppendCells(day, finer, b.start, b.end)
	})
}

// AppendCell appends what a cell keeps of the times (after, to], in milliseconds: buckets that lie only in part in
// them are left out. It goes on where it was if it is called again with the same cell, which must not have changed, and
// later times. The error is ErrSamples if the cell has no buckets; it is a series.ErrCorrupt, and what is appended
// is to be dropped, if it is no cell.
func (p *Points) AppendCell(r Resolution, day int64, data []byte, after, to int64) error {
	return p.AppendCells(day, []Cell{{r, data}}, after, to)
}

// appendCell calls add with the buckets of a cell, see AppendCell.
func (p *Points) appendCell(c Cell, day, after, to int64, add func(*decoded) error) error {
	d, r, data := &p.decoders[c.Resolution], c.Resolution, c.Value
	if len(data) == 0 {
		return nil
	}
	switch {
	case data[0] == kindSamples:
		return ErrSamples
	case !isOfBuckets(data[0]):
		return fmt.Errorf("%w: a rollup of kind %d, which this version does not know", series.ErrCorrupt, data[0])
	}
	if len(data) < headSize {
		return corrupt("%x", data)
	}
	if !d.isOpen(data, after) {
		if err := d.open(data, r, day, p.Want, p.needTails(day, day+Day)); err != nil {
			return err
		}
	}
	for start, ok := d.nextStart(); ok && start+r.Span() <= to; start, ok = d.nextStart() {
		if start < after {
			if err := d.skip(); err != nil {
				return err
			}
			continue
		}
		b, err := d.next(p.needTails(start, start+r.Span()))
		if err == nil {
			err = add(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addBucket adds the samples of a bucket, or a hole.
func (p *Points) addBucket(b *decoded) {
	if b.flags&p.Want.missing() != 0 {
		p.AppendHole(b.start+1, b.end+1)
		p.hasBefore = false
		return
	}
	if e := b.edge(); p.windows.beginIn(e) {
		p.Edges = append(p.Edges, e)
	}
	p.IsEstimated = p.IsEstimated || b.isEstimated
	// What is not kept counts for the first sample from which on all are: a window may begin after that, and not between.
	known := b.firstKnown()
	if len(b.histograms) == 0 && len(p.Histograms) == 0 && p.Want&(Sums|Counts) == 0 {
		p.addFloats(b, known)
	} else {
		p.addPoints(b, known)
	}
	if b.flags&flagMarker != 0 {
		marker := b.markerValue
		if p.Want&Integers == 0 {
			marker = cell.Value{}
		}
		p.addMarker(b.marker, marker)
	}
}

// addFloats is addPoints of floats, of which neither Sums nor Counts are wanted: most queries are for these.
func (p *Points) addFloats(b *decoded, known int) {
	if len(b.times) == 0 {
		return
	}
	rest := b.samples - int32(len(b.times))
	for i := range b.times {
		if p.number++; i > 0 && i == known {
			p.number += rest
		}
		p.Numbers = append(p.Numbers, p.number)
	}
	p.Times, p.Values = append(p.Times, b.times...), append(p.Values, b.values...)
	p.before, p.hasBefore, p.HasFloats, p.histogramBefore = b.values[len(b.values)-1], true, true, nil
}

// addPoints adds the samples that a bucket keeps. The one at known is the first from which on all are.
func (p *Points) addPoints(b *decoded, known int) {
	rest := point{samples: b.samples - int32(len(b.times)), sum: b.sum, changes: b.changes, resets: b.resets}
	for i := range b.times {
		if b.isOwn(i, known) {
			rest.sum -= b.point(i).v
		}
		if i > known {
			changes, resets := p.countsBetween(b, i)
			rest.changes, rest.resets = rest.changes-changes, rest.resets-resets
		}
	}
	if b.isOwn(0, known) { // all are
		rest.sum = 0
	}
	for i := range b.times {
		at := b.point(i)
		at.samples = 1
		if b.isOwn(i, known) {
			at.sum = at.v
		}
		switch {
		case i == 0:
			at.changes, at.resets = p.countsOf(at)
			at.sum += rest.sum
		case i > known:
			at.changes, at.resets = p.countsBetween(b, i)
		}
		if i > 0 && i == known {
			at.samples, at.changes, at.resets = 1+rest.samples, rest.changes, rest.resets
		}
		p.add(at)
	}
	if last := len(b.histograms) - 1; last > 0 && p.Want&Counts != 0 {
		p.histogramBefore = floatOf(b.histograms[last])
	}
}

// firstKnown returns the position of the first sample of a bucket from which on all are kept.
func (b *decoded) firstKnown() int {
	last := max(0, len(b.times)-1)
	if b.known == knownAll {
		return 0
	}
	from := knownFrom(b.known, b.end)
	known := min(1, last)
	for known < last && b.times[known] <= from {
		known++
	}
	return known
}

// isOwn says whether the sum of a sample that is kept stands at itself, and not at the first of the bucket.
func (b *decoded) isOwn(i, known int) bool { return b.known != knownNone && i >= known }

// point returns a sample that is kept, without what is between it and others.
func (b *decoded) point(i int) point {
	if len(b.histograms) > 0 {
		return point{t: b.times[i], histogram: b.histograms[i]}
	}
	return point{t: b.times[i], v: b.values[i]}
}

// countsOf is counts of any sample.
func (p *Points) countsOf(at point) (changes, resets int32) {
	if at.histogram != (cell.Value{}) {
		return p.countsOfHistogram(at.histogram)
	}
	return p.counts(at.v)
}

// countsBetween returns how often the value changes, and is less, from the sample before to one that is kept, if Counts are wanted.
func (p *Points) countsBetween(b *decoded, i int) (changes, resets int32) {
	switch {
	case p.Want&Counts == 0:
		return 0, 0
	case len(b.histograms) > 0:
		return countHistograms(floatOf(b.histograms[i-1]), floatOf(b.histograms[i]))
	}
	return countFloats(b.values[i-1], b.values[i])
}

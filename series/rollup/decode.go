package rollup

import (
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series"
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
)

// Points are true samples of a series, some of all, in order of time, and what is known of those
// between.
type Points struct {
	Want Want
	// Times are in milliseconds.
	Times  []int64
	Values []float64
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

	// before is the value of the last sample, hasBefore says that there is one.
	before    float64
	hasBefore bool
	number    int32
	d         decoder
}

// Reset removes all points.
func (p *Points) Reset(want Want) {
	p.d.cell = nil
	*p = Points{
		Want: want, Times: p.Times[:0], Values: p.Values[:0], Numbers: p.Numbers[:0], Sums: p.Sums[:0],
		Changes: p.Changes[:0], Resets: p.Resets[:0], Holes: p.Holes[:0], d: p.d,
	}
}

// Append appends samples, all of their time. Staleness markers may be among them.
func (p *Points) Append(ts []int64, vs []float64) {
	for i, v := range vs {
		if isStale(v) {
			p.addMarker(ts[i])
			continue
		}
		changes, resets := p.counts(v)
		p.add(point{ts[i], v, 1, v, changes, resets})
	}
}

// counts returns how often the value changes, and is less, from the last sample to v, if that follows it.
func (p *Points) counts(v float64) (changes, resets int32) {
	if !p.hasBefore {
		return 0, 0
	}
	if isChange(p.before, v) {
		changes = 1
	}
	if v < p.before {
		resets = 1
	}
	return changes, resets
}

// A point is a sample. After the one before it, up to itself, there are so many samples, with this
// sum, changes and resets.
type point struct {
	t               int64
	v               float64
	samples         int32
	sum             float64
	changes, resets int32
}

func (p *Points) add(at point) {
	p.append(at)
	p.before, p.hasBefore = at.v, true
}

// addMarker adds a staleness marker, which is no sample, if it is wanted.
func (p *Points) addMarker(t int64) {
	if p.Want&Markers != 0 {
		p.append(point{t: t, v: stale})
	}
}

func (p *Points) append(at point) {
	p.number += at.samples
	p.Times, p.Values, p.Numbers = append(p.Times, at.t), append(p.Values, at.v), append(p.Numbers, p.number)
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
	if w&Resets != 0 {
		flags |= flagNoResets
	}
	if w&Sums != 0 {
		flags |= flagNoSum
	}
	return flags
}

// HasBuckets says whether a cell has what AppendCell needs.
func HasBuckets(cell []byte) bool { return len(cell) == 0 || cell[0] != kindSamples }

// HasAll says whether a cell tells all that is wanted of its day: AppendCell gives no hole and not ErrSamples.
func HasAll(cell []byte, want Want) bool {
	return len(cell) == 0 || len(cell) >= headSize && cell[0] == kindFloats && int64(cell[1])&want.missing() == 0
}

// AppendCell appends what a cell keeps of the times (after, to], in milliseconds: buckets that lie only in part in
// them are left out. It goes on where it was if it is called again with the same cell, which must not have changed, and
// later times. The error is ErrSamples if the cell has no buckets; it is a series.ErrCorrupt, and what is appended
// is to be dropped, if it is no cell.
func (p *Points) AppendCell(r Resolution, day int64, cell []byte, after, to int64) error {
	if len(cell) == 0 {
		return nil
	}
	switch cell[0] {
	case kindSamples:
		return ErrSamples
	case kindFloats:
	default:
		return fmt.Errorf("%w: a rollup of kind %d, which this version does not know", series.ErrCorrupt, cell[0])
	}
	if len(cell) < headSize {
		return corrupt("%x", cell)
	}
	if !p.d.isOpen(cell, after) {
		if err := p.d.open(cell, r, day, p.Want); err != nil {
			return err
		}
	}
	for start, ok := p.d.nextStart(); ok && start+int64(r) <= to; start, ok = p.d.nextStart() {
		if start < after {
			p.d.skip()
			continue
		}
		b, err := p.d.next()
		if err != nil {
			return err
		}
		p.addBucket(b)
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
	for i, t := range b.times {
		at := point{t: t, v: b.values[i]}
		switch {
		case i == 0:
			at.samples, at.sum = 1, b.sum
			at.changes, at.resets = p.counts(at.v)
		case i == len(b.times)-1:
			at.samples = b.samples - int32(i)
			at.changes, at.resets = b.changes, b.resets
		default:
			at.samples = 1
		}
		p.add(at)
	}
	if b.flags&flagMarker != 0 {
		p.addMarker(b.marker)
	}
}

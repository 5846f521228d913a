package rollup

import (
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
)

// Without returns a cell without the buckets that have a part of the times [start, limit), in milliseconds. If there are none
// it is the cell itself. Of a bucket that lies only in part in these times it keeps that something was removed, unless r is the
// Finest: finer buckets that are left are not taken for nothing. Without any bucket, and where only samples can tell what there is, it is empty. The error is a
// series.ErrCorrupt.
func (e *Encoder) Without(cell []byte, r Resolution, day, start, limit int64) (left []byte, err error) {
	if len(cell) == 0 || day+Day < start || limit <= day+1 {
		return cell, nil
	}
	if !HasBuckets(cell) {
		return nil, nil
	}
	var p Points
	p.Want = Markers | Sums | Counts | Integers
	if err := p.AppendCell(r, day, cell, day, day); err != nil { // which opens it
		return nil, err
	}
	d := &p.decoders[r]
	var h HistogramEncoder
	h.Begin(r, day)
	e.begin()
	removed := false
	for begin, ok := d.nextStart(); ok; begin, ok = d.nextStart() {
		b, err := d.next(true)
		if err != nil {
			return nil, err
		}
		if begin < limit-1 && begin+r.Span() >= start {
			removed = true
			if isWhole := start <= begin+1 && begin+r.Span() < limit; isWhole || r == Finest {
				continue
			}
			*b = decoded{start: b.start, end: b.end, flags: flagRemoved, times: b.times[:0], values: b.values[:0], histograms: b.histograms[:0], tail: b.tail[:0]}
			if d.isHistograms {
				b.flags |= flagNoSum // as all have
			}
		}
		if !d.isHistograms {
			e.addDecoded(b, r, day)
		} else if err := h.addDecoded(b); err != nil {
			return nil, err
		}
	}
	if !removed {
		return cell, nil
	}
	if d.isHistograms {
		return h.end(nil, cell[0]), nil
	}
	return e.end(nil, cell[0]), nil
}

// addDecoded adds a bucket as it was read.
func (e *HistogramEncoder) addDecoded(b *decoded) error {
	e.addColumns(b, len(b.times))
	for i, v := range b.histograms {
		if err := e.chunks.Append(b.times[i], v); err != nil {
			return fmt.Errorf("%w: %w", series.ErrCorrupt, err)
		}
	}
	if b.flags&flagMarker != 0 {
		return e.chunks.Append(b.marker, b.markerValue)
	}
	return nil
}

// addDecoded adds a bucket as it was read.
func (e *Encoder) addDecoded(b *decoded, r Resolution, day int64) {
	e.int(columnNumber, (b.start-day)/r.Span())
	e.int(columnFlags, b.flags)
	e.int(columnSamples, int64(b.samples))
	last := len(b.times) - 1
	e.int(columnKept, int64(max(0, last-1-len(b.tail))))
	if b.flags&flagMarker != 0 {
		e.int(columnMarker, b.end-b.marker)
	}
	if last < 0 {
		return
	}
	e.int(columnFirstTime, b.times[0]-b.start)
	e.float(columnFirst, b.values[0])
	e.float(columnSum, b.sum)
	if last == 0 {
		return
	}
	e.int(columnLastTime, b.end-b.times[last])
	e.float(columnLast, b.values[last])
	e.int(columnChanges, int64(b.changes))
	e.int(columnResets, int64(b.resets))
	before := b.times[0]
	for i := 1; i < last; i++ {
		if !slices.Contains(b.tail, b.times[i]) {
			e.int(columnBetweenTime, b.times[i]-before)
			e.float(columnBetween, b.values[i])
			before = b.times[i]
		}
	}
	e.int(columnKnown, b.known)
	e.int(columnTail, int64(len(b.tail)))
	later := last
	for _, t := range b.tail {
		i, _ := slices.BinarySearch(b.times, t)
		e.addTailSample(b.times[later]-t, b.values[later], b.values[i])
		later = i
	}
}

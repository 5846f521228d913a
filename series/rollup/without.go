package rollup

import (
	"fmt"

	"github.com/promtable/promtable/series"
)

// Without returns a cell without the buckets that have a part of the times [start, limit), in milliseconds. If there are none
// it is the cell itself. Of an hour that lies only in part in these times it keeps that something was removed, so that the buckets of 5 minutes that
// are left are not taken for nothing. Without any bucket, and where only samples can tell what there is, it is empty. The error is a
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
	var h HistogramEncoder
	h.Begin(r, day)
	e.begin()
	removed := false
	for begin, ok := p.d.nextStart(); ok; begin, ok = p.d.nextStart() {
		b, err := p.d.next()
		if err != nil {
			return nil, err
		}
		if begin < limit-1 && begin+int64(r) >= start {
			removed = true
			if isWhole := start <= begin+1 && begin+int64(r) < limit; isWhole || r == FiveMinutes {
				continue
			}
			*b = decoded{start: b.start, end: b.end, flags: flagRemoved, times: b.times[:0], values: b.values[:0], histograms: b.histograms[:0]}
			if p.d.isHistograms {
				b.flags |= flagNoSum // as all have
			}
		}
		if !p.d.isHistograms {
			e.addDecoded(b, r, day)
		} else if err := h.addDecoded(b); err != nil {
			return nil, err
		}
	}
	if !removed {
		return cell, nil
	}
	if p.d.isHistograms {
		return h.end(nil), nil
	}
	return e.end(nil, kindFloats), nil
}

// addDecoded adds a bucket as it was read.
func (e *HistogramEncoder) addDecoded(b *decoded) error {
	e.addColumns(b.start, b.flags, int(b.samples), len(b.times), int(b.changes), int(b.resets))
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
	last := len(b.times) - 1
	e.int(columnNumber, (b.start-day)/int64(r))
	e.int(columnFlags, b.flags)
	e.int(columnSamples, int64(b.samples))
	e.int(columnKept, int64(max(0, last-1)))
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
	for i := 1; i < last; i++ {
		e.int(columnBetweenTime, b.times[i]-b.times[i-1])
		e.float(columnBetween, b.values[i])
	}
}

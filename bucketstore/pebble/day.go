package pebble

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A calendar says how a layer maps cells to days.
type calendar struct {
	// period is the unit of bases, and span the length of a day, in milliseconds.
	period, span int64
	// byDelta says that the day follows from base plus delta, not from the base alone.
	byDelta bool
}

// calendars are those of the layers, by their first bytes. A day of a layer of rollups may be a whole base: there are few of a real day.
var calendars = newCalendars()

func newCalendars() (all [256]*calendar) {
	all[countByte] = &calendar{period: series.Period, span: rollup.Day, byDelta: true}
	all[indexByte] = &calendar{period: series.IndexPeriod, span: series.IndexPeriod}
	for r := range rollup.NumResolutions {
		first, span := r.Layer()
		all[first] = &calendar{period: series.Period, span: span, byDelta: span < series.Period}
	}
	return all
}

// calendarOf returns the calendar of a layer, nil if it has no days.
func calendarOf(first byte) *calendar { return calendars[first] }

// last is the last day of any cell, but for noDay.
func (c *calendar) last() uint32 { return uint32((series.MaxTime + c.period) / c.span) }

// end returns when a day is over, in milliseconds.
func (c *calendar) end(day uint32) int64 { return (int64(day) + 1) * c.span }

const (
	// noDay is the day of rows without a base in their key. No other row has a cell there:
	// the last real day is about 116,000.
	noDay uint32 = 1<<32 - 1

	daySize = 4
)

// A bucket is the start of the days of a row in a layer. A row without a base has one day only,
// noDay.
type bucket struct {
	*calendar
	base int64 // in milliseconds
	// hasBase says that the key has a base.
	hasBase bool
}

// in returns the same bucket in another layer.
func (b bucket) in(c *calendar) bucket {
	b.calendar = c
	return b
}

// bucketOf returns the bucket of a row. Every read and write computes it, so it depends on
// nothing but the key, not even on the schema. The base follows the first unescaped comma
// that a digit follows. It has 13 digits, is a multiple of the period, and ends the key or
// precedes a comma. By this rule a series with a label name, or behind a tenant a metric
// name, that begins with a digit has no base. It is stored as well as any other, but not by
// time.
func (c *calendar) bucketOf(key []byte) bucket {
	at, ok := baseOffset(key)
	if !ok || len(key) > at+series.TimeDigits && key[at+series.TimeDigits] != ',' {
		return bucket{calendar: c}
	}
	base, ok := series.ParseTime(key[at:])
	if !ok || base%c.period != 0 {
		return bucket{calendar: c}
	}
	return bucket{calendar: c, base: base, hasBase: true}
}

// baseOffset returns the offset of the first digit after an unescaped comma.
func baseOffset(key []byte) (at int, ok bool) {
	for {
		n := bytes.IndexByte(key[at:], ',')
		if n < 0 || at+n+1 == len(key) {
			return 0, false
		}
		comma := at + n
		at = comma + 1
		if isDigit(key[at]) && !isEscaped(key, comma) {
			return at, true
		}
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isEscaped says whether the byte at i has an odd number of backslashes before
// it.
func isEscaped(key []byte, i int) bool {
	n := 0
	for n < i && key[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// day returns the day of the cells with this qualifier. A greater qualifier never has an
// earlier day, so the days of a family, in their order, hold its cells in theirs.
func (b bucket) day(qualifier []byte) uint32 { return b.dayAt(delta(qualifier)) }

func (b bucket) dayAt(delta uint32) uint32 {
	switch {
	case !b.hasBase:
		return noDay
	case !b.byDelta:
		return uint32(b.base / b.span)
	}
	return uint32((b.base + int64(delta)) / b.span)
}

// A deltaRange is a range of deltas, both ends included.
type deltaRange struct{ first, last uint32 }

func allDeltas() deltaRange { return deltaRange{0, 1<<32 - 1} }

func noDeltas() deltaRange { return deltaRange{1<<32 - 1, 0} }

// include makes d a range with the deltas of fr, too.
func (d *deltaRange) include(fr bucketstore.FamilyRange) {
	d.first = min(d.first, delta(fr.Start))
	if len(fr.Limit) == 0 {
		d.last = 1<<32 - 1
	}
	d.last = max(d.last, delta(fr.Limit))
}

// days returns the days in exist that may hold cells with these deltas.
func (b bucket) days(exist []uint32, d deltaRange) []uint32 {
	from, _ := slices.BinarySearch(exist, b.dayAt(d.first))
	to, found := slices.BinarySearch(exist, b.dayAt(d.last))
	if found {
		to++
	}
	return exist[from:max(from, to)]
}

// delta returns the first four bytes of a qualifier, padded with NULs.
func delta(qualifier []byte) uint32 {
	if len(qualifier) >= 4 {
		return binary.BigEndian.Uint32(qualifier)
	}
	var padded [4]byte
	copy(padded[:], qualifier)
	return binary.BigEndian.Uint32(padded[:])
}

// A splitter divides ranges of rows by the days in which their cells may lie.
type splitter struct {
	layers []layerDays
	parts  []partition // space
}

// in returns the days that may hold cells of a bucket, by layer. They are valid until the next
// call. Those of rows without a base are among them if none is set.
func (s *splitter) in(b bucket, none bool) []partition {
	s.parts = s.parts[:0]
	for n := range s.layers {
		l := &s.layers[n]
		for _, day := range b.in(l.calendar).days(l.exist, l.deltas) {
			s.parts = append(s.parts, partition{n, day})
		}
		if last := len(l.exist) - 1; none && b.hasBase && last >= 0 && l.exist[last] == noDay {
			s.parts = append(s.parts, partition{n, noDay})
		}
	}
	return s.parts
}

// all returns all days.
func (s *splitter) all() []partition {
	s.parts = s.parts[:0]
	for n := range s.layers {
		for _, day := range s.layers[n].exist {
			s.parts = append(s.parts, partition{n, day})
		}
	}
	return s.parts
}

// split divides r into parts, in order. For each part it returns the days that may hold its
// cells, by layer. They are valid until the next ones. A layer without days has one, 0.
//
// If the bounds of r differ only from the base on, all rows of a part have one base or
// none: between two such keys there is no key with a base before the first or after the
// last. That is why bucketOf looks at the first digit after a comma, whatever follows.
func (s *splitter) split(r series.RowRange) iter.Seq2[series.RowRange, []partition] {
	return func(yield func(series.RowRange, []partition) bool) {
		c := s.layers[0].calendar
		span, ok := commonBases(r)
		switch {
		case c == nil:
			s.parts = append(s.parts[:0], partition{})
			yield(r, s.parts)
		case isSingle(r):
			yield(r, s.in(c.bucketOf(r.Start), false))
		case !ok:
			yield(r, s.all())
		default:
			s.splitBases(r, c.period, span, yield)
		}
	}
}

// A baseSpan is the bases in the bounds of a range, which stand at an offset.
type baseSpan struct {
	at          int
	first, last int64
}

// splitBases is split for a range whose bounds have a span of bases.
func (s *splitter) splitBases(r series.RowRange, period int64, span baseSpan, yield func(series.RowRange, []partition) bool) {
	var before bucket // the last one with cells, so far
	for base := span.first &^ (period - 1); base <= span.last; base += period {
		next := bucket{base: base, hasBase: true}
		if len(s.in(next, false)) == 0 {
			continue
		}
		if before.hasBase {
			limit := series.AppendTime(slices.Clone(r.Start[:span.at]), base)
			if !yield(series.RowRange{Start: r.Start, Limit: limit}, s.in(before, true)) {
				return
			}
			r.Start = limit
		}
		before = next
	}
	if !r.IsEmpty() {
		yield(r, s.in(before, true))
	}
}

// commonBases returns the bases in the bounds of a range, if the bounds are equal before them.
func commonBases(r series.RowRange) (b baseSpan, ok bool) {
	if b.at, ok = baseOffset(r.Start); !ok || !bytes.HasPrefix(r.Limit, r.Start[:b.at]) {
		return b, false
	}
	if b.first, ok = series.ParseTime(r.Start[b.at:]); !ok {
		return b, false
	}
	b.last, ok = series.ParseTime(r.Limit[b.at:])
	return b, ok
}

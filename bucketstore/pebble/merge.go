package pebble

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/series"
)

// daySlots bounds the iterators of a scan, but for those of noDay. It gives all days of a bucket
// in each layer, and all index periods of four years, iterators of their own. So neighbouring
// rows are read day by day without seeks.
const (
	daySlots   = 256
	layerSlots = daySlots / maxLayers
)

// A dayIter is an iterator over one day of a layer. It only goes forward.
type dayIter struct {
	iter *pebble.Iterator // nil until it is needed
	// first and day are the layer and the day of iter; first is 0 if it has none.
	first byte
	day   uint32
	// state is the last state of iter, if sought.
	sought bool
	state  pebble.IterValidityState
	// missed counts the steps that did not reach their key.
	missed int

	lower, upper []byte // of the day
}

const (
	// stepsBeforeSeek is how many cells goTo steps over: a seek costs about as much.
	stepsBeforeSeek = 20
	// fewSteps is how many it steps over while that fails, except for one time in
	// retrySteps: distant rows may be followed by neighbours.
	fewSteps   = 2
	retrySteps = 16
)

// goTo goes forward to the first cell at or after key and says whether there is one. It may
// say no if there is none before limit: deleted cells after limit need not be passed.
func (it *dayIter) goTo(key, limit []byte) bool {
	if !it.sought || !it.step(key, limit) {
		it.sought = true
		it.state = it.iter.SeekGEWithLimit(key, limit)
	}
	return it.state == pebble.IterValid
}

// next goes to the next cell, with the same limit.
func (it *dayIter) next(limit []byte) bool {
	it.state = it.iter.NextWithLimit(limit)
	return it.state == pebble.IterValid
}

// step goes forward by some cells and says whether it did what goTo wants.
func (it *dayIter) step(key, limit []byte) bool {
	steps := fewSteps
	if it.missed%retrySteps == 0 {
		steps = stepsBeforeSeek
	}
	for i := 0; it.state == pebble.IterAtLimit || it.state == pebble.IterValid && bytes.Compare(it.iter.Key(), key) < 0; i++ {
		if i == steps {
			it.missed++
			return false
		}
		if it.next(limit); it.state == pebble.IterAtLimit {
			return true
		}
	}
	return true
}

// dayIter returns the iterator of a day of a layer. Another one may take it over.
func (sc *scanner) dayIter(p partition) (it *dayIter, err error) {
	l := sc.layers[p.layer].layer
	it = &sc.iters[(p.day+uint32(l.number*layerSlots))%daySlots]
	if p.day == noDay {
		it = &sc.iters[daySlots+l.number]
	}
	switch {
	case it.iter != nil:
	case !sc.taken:
		it.iter, sc.taken = sc.first, true
	default:
		if it.iter, err = sc.first.Clone(pebble.CloneOptions{}); err != nil {
			return nil, err
		}
	}
	if it.first != l.first || it.day != p.day {
		it.first, it.day, it.sought, it.missed = l.first, p.day, false, 0
		it.lower = appendHead(it.lower[:0], l.first, p.day)
		it.upper = appendHeadLimit(it.upper[:0], l.first, p.day)
		it.iter.SetBounds(it.lower, it.upper)
	}
	return it, nil
}

// rewind makes all iterators seek.
func (sc *scanner) rewind() {
	for i := range sc.iters {
		sc.iters[i].sought = false
	}
}

// close closes all iterators.
func (sc *scanner) close() (err error) {
	if !sc.taken {
		err = sc.first.Close()
	}
	for i := range sc.iters {
		it := &sc.iters[i]
		if it.iter != nil {
			err = errors.Join(err, it.iter.Close())
		}
		it.iter, it.first = nil, 0
	}
	sc.first, sc.taken = nil, false
	return err
}

// A cursor is a row of a range in one day of a layer.
type cursor struct {
	partition
	row []byte // the head and the row of stored keys
	// upper is the upper bound of the stored keys of the range in this day.
	upper []byte
}

// compare orders cursors by row and then by layer and day.
func (sc *scanner) compare(a, b *cursor) int {
	if c := sc.compareRows(a, b); c != 0 {
		return c
	}
	if a.layer < b.layer || a.layer == b.layer && a.day < b.day {
		return -1
	}
	return 1
}

func (sc *scanner) compareRows(a, b *cursor) int {
	return bytes.Compare(a.row[sc.headSize:], b.row[sc.headSize:])
}

// scanRows delivers the rows of r, whose cells lie in these days. It merges the days: the
// next row is the least of all cursors.
func (sc *scanner) scanRows(ctx context.Context, r series.RowRange, days []partition, out *delivery) error {
	if err := sc.enter(r, days); err != nil {
		return err
	}
	for len(sc.waiting) > 0 && !out.ended {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		for n < len(sc.waiting) && sc.compareRows(sc.waiting[0], sc.waiting[n]) == 0 {
			n++
		}
		sc.least = append(sc.least[:0], sc.waiting[:n]...)
		sc.waiting = slices.Delete(sc.waiting, 0, n)
		sc.begin()
		for _, c := range sc.least {
			if err := sc.readCursor(c); err != nil {
				return err
			}
		}
		if err := sc.deliver(out); err != nil {
			return err
		}
	}
	return nil
}

// enter puts a cursor at the first row of r in each of these days.
func (sc *scanner) enter(r series.RowRange, days []partition) error {
	sc.waiting = sc.waiting[:0]
	for len(sc.cursors) < len(days) {
		sc.cursors = append(sc.cursors, new(cursor))
	}
	for i, p := range days {
		it, err := sc.dayIter(p)
		if err != nil {
			return err
		}
		c, first := sc.cursors[i], sc.layers[p.layer].first
		c.partition = p
		c.upper = appendUpper(c.upper[:0], first, p.day, r)
		c.row = appendLower(c.row[:0], first, p.day, r)
		it.goTo(c.row, c.upper)
		if err := sc.wait(c, it); err != nil {
			return err
		}
	}
	return nil
}

// wait adds c, whose iterator is it, to the waiting cursors, unless it is at its end.
func (sc *scanner) wait(c *cursor, it *dayIter) error {
	if it.state != pebble.IterValid {
		return it.iter.Error()
	}
	key := it.iter.Key()
	if bytes.Compare(key, c.upper) >= 0 {
		return nil
	}
	c.row = append(c.row[:0], key[:splitRow(key)]...)
	at, _ := slices.BinarySearchFunc(sc.waiting, c, sc.compare)
	sc.waiting = slices.Insert(sc.waiting, at, c)
	return nil
}

// readCursor reads the row of c in its day, and moves c to the next row.
func (sc *scanner) readCursor(c *cursor) error {
	it, err := sc.dayIter(c.partition)
	if err != nil {
		return err
	}
	sc.row = append(sc.row[:0], c.row...)
	if err := sc.readRow(it, sc.columns[c.layer], c.upper); err != nil {
		return err
	}
	if err := sc.leaveRow(it, c.upper); err != nil {
		return err
	}
	return sc.wait(c, it)
}

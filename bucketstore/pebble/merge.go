package pebble

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/series"
)

// maxIterators bounds the iterators of a scan. It gives all days of a bucket, and all index
// periods of four years, iterators of their own. So neighbouring rows are read day by day
// without seeks. The last iterator is for noDay.
const maxIterators = 257

// A dayIter is an iterator over one day. It only goes forward.
type dayIter struct {
	iter *pebble.Iterator // nil until it is needed
	// day is the day of iter, if set.
	day uint32
	set bool
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

// dayIter returns the iterator of a day. Another day may take it over.
func (sc *scanner) dayIter(day uint32) (it *dayIter, err error) {
	it = &sc.iters[day%(maxIterators-1)]
	if day == noDay {
		it = &sc.iters[maxIterators-1]
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
	if !it.set || it.day != day {
		it.day, it.set, it.sought, it.missed = day, true, false, 0
		it.lower = appendHead(it.lower[:0], sc.table.first, day)
		it.upper = appendHeadLimit(it.upper[:0], sc.table.first, day)
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
		it.iter, it.set = nil, false
	}
	sc.first, sc.taken = nil, false
	return err
}

// A cursor is a row of a range in one day.
type cursor struct {
	day uint32
	row []byte // the head and the row of stored keys
	// upper is the upper bound of the stored keys of the range in this day.
	upper []byte
}

// compare orders cursors by row and then by day.
func (sc *scanner) compare(a, b *cursor) int {
	if c := sc.compareRows(a, b); c != 0 {
		return c
	}
	if a.day < b.day {
		return -1
	}
	return 1
}

func (sc *scanner) compareRows(a, b *cursor) int {
	head := headSize(sc.table.first)
	return bytes.Compare(a.row[head:], b.row[head:])
}

// scanRows delivers the rows of r, whose cells lie in these days. It merges the days: the
// next row is the least of all cursors.
func (sc *scanner) scanRows(ctx context.Context, r series.RowRange, days []uint32, out *delivery) error {
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
func (sc *scanner) enter(r series.RowRange, days []uint32) error {
	sc.waiting = sc.waiting[:0]
	for len(sc.cursors) < len(days) {
		sc.cursors = append(sc.cursors, new(cursor))
	}
	for i, day := range days {
		it, err := sc.dayIter(day)
		if err != nil {
			return err
		}
		c := sc.cursors[i]
		c.day = day
		c.upper = appendUpper(c.upper[:0], sc.table.first, day, r)
		c.row = appendLower(c.row[:0], sc.table.first, day, r)
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
	it, err := sc.dayIter(c.day)
	if err != nil {
		return err
	}
	sc.row = append(sc.row[:0], c.row...)
	if err := sc.readRow(it, c.upper); err != nil {
		return err
	}
	if err := sc.leaveRow(it, c.upper); err != nil {
		return err
	}
	return sc.wait(c, it)
}

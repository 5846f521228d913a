package pebble

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/series"
)

// maxIterators is how many iterators a scan has at most. All days of a bucket
// have different ones, and all periods of the index in four years, so that rows are
// read day by day without seeks where they are neighbours. The last one is for
// noDay.
const maxIterators = 257

// A place is where an iterator is in a day. It only goes forward.
type place struct {
	iter *pebble.Iterator // nil until it is needed
	// day is that of the place, if it is set.
	day uint32
	set bool
	// state is that of the iterator, if there was a seek.
	sought bool
	state  pebble.IterValidityState
	// missed counts the times that steps have not led to a key.
	missed int

	lower, upper []byte // of the day
}

const (
	// stepsBeforeSeek is how many cells goTo passes one by one: a seek costs about
	// as much.
	stepsBeforeSeek = 20
	// fewSteps is how many it passes while that was in vain, but for one time in
	// retrySteps, because rows that lie apart may be followed by neighbours.
	fewSteps   = 2
	retrySteps = 16
)

// goTo goes forward to the first cell at or after key and says whether there is
// one. It may say no if there is none before limit: what is deleted behind limit
// need not be passed.
func (p *place) goTo(key, limit []byte) bool {
	if !p.sought || !p.step(key, limit) {
		p.sought = true
		p.state = p.iter.SeekGEWithLimit(key, limit)
	}
	return p.state == pebble.IterValid
}

// next goes to the next cell, likewise.
func (p *place) next(limit []byte) bool {
	p.state = p.iter.NextWithLimit(limit)
	return p.state == pebble.IterValid
}

// step goes forward by some cells and says whether it came to what goTo wants.
func (p *place) step(key, limit []byte) bool {
	steps := fewSteps
	if p.missed%retrySteps == 0 {
		steps = stepsBeforeSeek
	}
	for i := 0; p.state == pebble.IterAtLimit || p.state == pebble.IterValid && bytes.Compare(p.iter.Key(), key) < 0; i++ {
		if i == steps {
			p.missed++
			return false
		}
		if p.next(limit); p.state == pebble.IterAtLimit {
			return true
		}
	}
	return true
}

// place returns that of a day. Another day may take it over.
func (sc *scanner) place(day uint32) (p *place, err error) {
	p = &sc.places[day%(maxIterators-1)]
	if day == noDay {
		p = &sc.places[maxIterators-1]
	}
	switch {
	case p.iter != nil:
	case !sc.taken:
		p.iter, sc.taken = sc.first, true
	default:
		if p.iter, err = sc.first.Clone(pebble.CloneOptions{}); err != nil {
			return nil, err
		}
	}
	if !p.set || p.day != day {
		p.day, p.set, p.sought, p.missed = day, true, false, 0
		p.lower = appendHead(p.lower[:0], sc.table.first, day)
		p.upper = appendHeadLimit(p.upper[:0], sc.table.first, day)
		p.iter.SetBounds(p.lower, p.upper)
	}
	return p, nil
}

// rewind makes all places seek.
func (sc *scanner) rewind() {
	for i := range sc.places {
		sc.places[i].sought = false
	}
}

// close closes all iterators.
func (sc *scanner) close() (err error) {
	if !sc.taken {
		err = sc.first.Close()
	}
	for i := range sc.places {
		p := &sc.places[i]
		if p.iter != nil {
			err = errors.Join(err, p.iter.Close())
		}
		p.iter, p.set = nil, false
	}
	sc.first, sc.taken = nil, false
	return err
}

// A cursor is a row of a range in one day.
type cursor struct {
	day uint32
	row []byte // the head and the row of stored keys
	// upper sorts after the stored keys of the range in this day.
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

// scanRows delivers the rows of r, whose cells lie in these days. It merges the
// days: the next row is the least that any of them has.
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
		p, err := sc.place(day)
		if err != nil {
			return err
		}
		c := sc.cursors[i]
		c.day = day
		c.upper = appendUpper(c.upper[:0], sc.table.first, day, r)
		c.row = appendLower(c.row[:0], sc.table.first, day, r)
		p.goTo(c.row, c.upper)
		if err := sc.wait(c, p); err != nil {
			return err
		}
	}
	return nil
}

// wait enters c, which has come to p, among those that wait, unless it is at its
// end.
func (sc *scanner) wait(c *cursor, p *place) error {
	if p.state != pebble.IterValid {
		return p.iter.Error()
	}
	key := p.iter.Key()
	if bytes.Compare(key, c.upper) >= 0 {
		return nil
	}
	c.row = append(c.row[:0], key[:splitRow(key)]...)
	at, _ := slices.BinarySearchFunc(sc.waiting, c, sc.compare)
	sc.waiting = slices.Insert(sc.waiting, at, c)
	return nil
}

// readCursor reads what the row of c has in its day, and moves c on.
func (sc *scanner) readCursor(c *cursor) error {
	p, err := sc.place(c.day)
	if err != nil {
		return err
	}
	sc.row = append(sc.row[:0], c.row...)
	if err := sc.readRow(p, c.upper); err != nil {
		return err
	}
	if err := sc.leaveRow(p, c.upper); err != nil {
		return err
	}
	return sc.wait(c, p)
}

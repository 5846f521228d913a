package pebble

import (
	"bytes"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
)

// A rowReader collects the cells of a row, from one day after the other.
type rowReader struct {
	families []columnRange
	row      []byte // what stored keys of the row begin with, in the day that is read

	cells []bucketstore.Cell
	// mixed is set if cells are not in the order of families.
	mixed bool
	space arena

	seek    []byte             // space for a stored key
	ordered []bucketstore.Cell // space for cells
}

// begin forgets the cells of the last row.
func (r *rowReader) begin() {
	r.cells = r.cells[:0]
	r.mixed = false
	r.space.reset()
}

// readRow collects the cells of the row in the day of p. The place is then after
// those, in the row or at a later one, or at its end if there is none before
// limit, which is not in the row.
func (r *rowReader) readRow(p *place, limit []byte) error {
	for i := range r.families {
		c := &r.families[i]
		r.seek = append(append(r.seek[:0], r.row...), c.start...)
		if !p.goTo(r.seek, limit) || !bytes.HasPrefix(p.iter.Key(), r.row) {
			break
		}
		if err := r.readColumns(p, c, limit); err != nil {
			return err
		}
	}
	// An iterator that fails looks as if it were at its end: the rest of the row
	// may be missing.
	return p.iter.Error()
}

// readColumns collects the cells of c from p on.
func (r *rowReader) readColumns(p *place, c *columnRange, limit []byte) error {
	for more := true; more && bytes.HasPrefix(p.iter.Key(), r.row); more = p.next(limit) {
		column := p.iter.Key()[len(r.row):]
		if bytes.Compare(column, c.limit) >= 0 {
			return nil
		}
		stored, err := p.iter.ValueAndErr()
		if err != nil {
			return err
		}
		if err := r.collect(c, column[len(c.family)+1:], stored); err != nil {
			return err
		}
	}
	return nil
}

// leaveRow goes to the first cell of the next row.
func (r *rowReader) leaveRow(p *place, limit []byte) error {
	r.seek = appendAfterRow(r.seek[:0], r.row)
	p.goTo(r.seek, limit)
	return p.iter.Error()
}

func (r *rowReader) collect(c *columnRange, qualifier, stored []byte) error {
	t, value, err := parseCell(stored)
	if err != nil {
		return fmt.Errorf("row %q: %w", r.row, err)
	}
	if t < c.cutoff {
		return nil
	}
	if n := len(r.cells); n > 0 && r.cells[n-1].Family > c.family {
		r.mixed = true
	}
	r.cells = append(r.cells, bucketstore.Cell{
		Family: c.family, Qualifier: r.space.copy(qualifier), Time: t, Value: r.space.copy(value),
	})
	return nil
}

// order puts the cells of several days in the order of families. Within a family
// they are in order already, as the days are.
func (r *rowReader) order() {
	if !r.mixed {
		return
	}
	r.ordered = r.ordered[:0]
	for i := range r.families {
		for _, c := range r.cells {
			if c.Family == r.families[i].family {
				r.ordered = append(r.ordered, c)
			}
		}
	}
	r.cells, r.ordered = r.ordered, r.cells
}

// An arena holds copies of bytes, which stay where they are until the reset.
type arena struct{ block []byte }

// minBlock is the smallest block of an arena in bytes.
const minBlock = 4 << 10

// copy returns a copy of b. When the block is full the older copies keep it
// alive, and the next one is large enough for rows of this size.
func (a *arena) copy(b []byte) []byte {
	if len(b) > cap(a.block)-len(a.block) {
		a.block = make([]byte, 0, max(2*cap(a.block), len(b), minBlock))
	}
	start := len(a.block)
	a.block = append(a.block, b...)
	return a.block[start:len(a.block):len(a.block)]
}

// reset makes all copies invalid.
func (a *arena) reset() { a.block = a.block[:0] }

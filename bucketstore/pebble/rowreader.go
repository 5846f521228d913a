package pebble

import (
	"bytes"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
)

// A rowReader collects the cells of a row, day by day and layer by layer. ~
type rowReader struct {
	families []string // those that are read, in order
	row      []byte   // what stored keys of the row begin with, in the day that is read

	cells []bucketstore.Cell
	// mixed is set if cells are not in order of families.
	mixed bool
	space arena

	seek    []byte             // space for a stored key
	ordered []bucketstore.Cell // space for cells
}

// begin starts a new row.
func (r *rowReader) begin() {
	r.cells = r.cells[:0]
	r.mixed = false
	r.space.reset()
}

// readRow collects the cells of columns of the row in the day of it, which is then behind these
// cells: in the row, at a later one, or at its end if there is none before limit, which is
// not in the row.
func (r *rowReader) readRow(it *dayIter, columns []columnRange, limit []byte) error {
	for i := range columns {
		c := &columns[i]
		r.seek = append(append(r.seek[:0], r.row...), c.start...)
		if !it.goTo(r.seek, limit) || !bytes.HasPrefix(it.iter.Key(), r.row) {
			break
		}
		if err := r.readColumns(it, c, limit); err != nil {
			return err
		}
	}
	// A failed iterator looks as if it were at its end: the rest of the row may be missing.
	return it.iter.Error()
}

// readColumns collects the cells of c, beginning at it.
func (r *rowReader) readColumns(it *dayIter, c *columnRange, limit []byte) error {
	for more := true; more && bytes.HasPrefix(it.iter.Key(), r.row); more = it.next(limit) {
		column := it.iter.Key()[len(r.row):]
		if bytes.Compare(column, c.limit) >= 0 {
			return nil
		}
		stored, err := it.iter.ValueAndErr()
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
func (r *rowReader) leaveRow(it *dayIter, limit []byte) error {
	r.seek = appendAfterRow(r.seek[:0], r.row)
	it.goTo(r.seek, limit)
	return it.iter.Error()
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

// order sorts the cells of several days or layers by family. Within a family they are in
// order already, as the days are.
func (r *rowReader) order() {
	if !r.mixed {
		return
	}
	r.ordered = r.ordered[:0]
	for _, family := range r.families {
		for _, c := range r.cells {
			if c.Family == family {
				r.ordered = append(r.ordered, c)
			}
		}
	}
	r.cells, r.ordered = r.ordered, r.cells
}

// An arena holds copies of bytes. They stay valid until reset.
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

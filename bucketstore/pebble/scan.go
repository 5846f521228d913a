package pebble

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Scan implements bucketstore.Store. All rows are seen as of the instant at
// which Scan was called. Files that compactions replace stay on the disk until
// it returns.
func (s *Store) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	t, err := s.table(req.Table)
	if err != nil {
		return err
	}
	sc := s.scanners.Get().(*scanner)
	defer s.rest(sc)
	if err := sc.prepare(t, req.Families, s.now()); err != nil {
		return fmt.Errorf("scan %s: %w", req.Table, err)
	}
	if len(sc.families) == 0 || len(req.Rows) == 0 {
		return ctx.Err()
	}
	if sc.iter, err = s.db.NewIter(nil); err != nil {
		return fmt.Errorf("scan %s: %w", req.Table, err)
	}
	err = sc.scan(ctx, req, fn)
	if closeErr := sc.iter.Close(); err == nil && closeErr != nil {
		return fmt.Errorf("scan %s: %w", req.Table, closeErr)
	}
	return err
}

// rest keeps sc for later use, unless a large row has made it large.
func (s *Store) rest(sc *scanner) {
	sc.iter = nil
	if cap(sc.space.block) <= maxPooled {
		s.scanners.Put(sc)
	}
}

// A scanner reads rows. Its buffers grow to what the largest row needs.
type scanner struct {
	iter     *pebble.Iterator
	first    byte // of the table
	families []columnRange
	// single is set while the range is one row: seeks then ask Bloom filters, and
	// the iterator ends with the row.
	single bool

	row   []byte // the stored key of the row, end mark included
	seek  []byte // space for a stored key
	upper []byte // the same
	cells []bucketstore.Cell
	space arena
}

// A columnRange is a part of a row: what follows the row in stored keys lies in
// [start, limit).
type columnRange struct {
	family       string
	start, limit []byte
	// cutoff is the least time of a cell that has not expired.
	cutoff int64
}

// prepare sets the columns to read, without those that cannot hold any.
func (sc *scanner) prepare(t *table, families []bucketstore.FamilyRange, now time.Time) error {
	sc.first = t.first
	sc.families = sc.families[:0]
	for _, fr := range families {
		family, err := t.family(fr.Family)
		if err != nil {
			return err
		}
		if (series.RowRange{Start: fr.Start, Limit: fr.Limit}).IsEmpty() {
			continue
		}
		r := columnRange{family: family.Name, cutoff: cutoff(family, now)}
		r.start = appendColumn(nil, family.Name, fr.Start)
		if len(fr.Limit) == 0 {
			r.limit = appendColumnLimit(nil, family.Name)
		} else {
			r.limit = appendColumn(nil, family.Name, fr.Limit)
		}
		sc.families = append(sc.families, r)
	}
	return nil
}

func (sc *scanner) scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	rows := 0
	for _, r := range req.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.IsEmpty() {
			continue
		}
		for valid := sc.enter(r); valid; {
			if err := ctx.Err(); err != nil {
				return err
			}
			var row bucketstore.Row
			var err error
			if row, valid, err = sc.readRow(); err != nil {
				return fmt.Errorf("scan %s: %w", req.Table, err)
			}
			if len(row.Cells) == 0 {
				continue
			}
			if err := fn(row); err != nil {
				return err
			}
			if rows++; rows == req.Limit {
				return nil
			}
		}
		if err := sc.iter.Error(); err != nil {
			return fmt.Errorf("scan %s: %w", req.Table, err)
		}
	}
	return nil
}

// enter goes to the first cell of r that may be asked for and says whether
// there is one.
func (sc *scanner) enter(r series.RowRange) bool {
	sc.single = isSingle(r)
	if sc.single {
		sc.seek = appendRow(sc.seek[:0], sc.first, r.Start)
		sc.upper = append(sc.upper[:0], sc.seek...)
		sc.upper[len(sc.upper)-1] = afterEnd
		sc.iter.SetBounds(sc.seek, sc.upper)
		sc.seek = append(sc.seek, sc.families[0].start...)
		return sc.iter.SeekPrefixGE(sc.seek)
	}
	sc.seek = appendBound(sc.seek[:0], sc.first, r.Start)
	if len(r.Limit) == 0 {
		sc.upper = append(sc.upper[:0], sc.first+1)
	} else {
		sc.upper = appendBound(sc.upper[:0], sc.first, r.Limit)
	}
	sc.iter.SetBounds(sc.seek, sc.upper)
	return sc.iter.SeekGE(sc.seek)
}

// isSingle says whether r holds the key r.Start and no other.
func isSingle(r series.RowRange) bool {
	return len(r.Limit) == len(r.Start)+1 && r.Limit[len(r.Start)] == 0 && bytes.HasPrefix(r.Limit, r.Start)
}

// readRow reads the row that the iterator is in and goes to the next one. valid
// says whether there is one. The row is valid until the next call.
func (sc *scanner) readRow() (row bucketstore.Row, valid bool, err error) {
	key := sc.iter.Key()
	sc.row = append(sc.row[:0], key[:splitRow(key)]...)
	sc.cells = sc.cells[:0]
	sc.space.reset()
	valid = true
	for i := 0; i < len(sc.families) && valid; i++ {
		if valid, err = sc.readColumns(&sc.families[i]); err != nil {
			return row, false, err
		}
	}
	if valid && sc.inRow() {
		valid = sc.leaveRow()
	}
	if !valid {
		// An iterator that fails looks as if it were at its end: the rest of the row
		// may be missing.
		if err := sc.iter.Error(); err != nil {
			return row, false, err
		}
	}
	if len(sc.cells) == 0 {
		return row, valid, nil
	}
	if row.Key, err = parseRow(sc.seek[:0], sc.row); err != nil {
		return row, false, err
	}
	row.Cells = sc.cells
	return row, valid, nil
}

// inRow says whether the iterator is still in the current row.
func (sc *scanner) inRow() bool { return bytes.HasPrefix(sc.iter.Key(), sc.row) }

// readColumns collects the cells of r in the current row. valid says whether
// the iterator is at a cell still, in this row or in a later one.
func (sc *scanner) readColumns(r *columnRange) (valid bool, err error) {
	valid = sc.skipTo(r.start)
	for valid && sc.inRow() {
		column := sc.iter.Key()[len(sc.row):]
		if bytes.Compare(column, r.limit) >= 0 {
			break
		}
		stored, err := sc.iter.ValueAndErr()
		if err != nil {
			return false, err
		}
		if err := sc.collect(r, column[len(r.family)+1:], stored); err != nil {
			return false, err
		}
		valid = sc.iter.Next()
	}
	return valid, nil
}

func (sc *scanner) collect(r *columnRange, qualifier, stored []byte) error {
	t, value, err := parseCell(stored)
	if err != nil {
		return fmt.Errorf("row %q: %w", sc.row, err)
	}
	if t < r.cutoff {
		return nil
	}
	sc.cells = append(sc.cells, bucketstore.Cell{
		Family: r.family, Qualifier: sc.space.copy(qualifier), Time: t, Value: sc.space.copy(value),
	})
	return nil
}

// stepsBeforeSeek is how many cells skipTo passes one by one: a seek costs about
// as much.
const stepsBeforeSeek = 4

// skipTo goes forward to the first cell of the current row whose column is not
// before start, or out of the row.
func (sc *scanner) skipTo(start []byte) (valid bool) {
	for range stepsBeforeSeek {
		if !sc.inRow() || bytes.Compare(sc.iter.Key()[len(sc.row):], start) >= 0 {
			return true
		}
		if !sc.iter.Next() {
			return false
		}
	}
	sc.seek = append(append(sc.seek[:0], sc.row...), start...)
	if sc.single {
		return sc.iter.SeekPrefixGE(sc.seek)
	}
	return sc.iter.SeekGE(sc.seek)
}

// leaveRow goes to the first cell of the next row.
func (sc *scanner) leaveRow() (valid bool) {
	if sc.single {
		return false
	}
	sc.seek = append(sc.seek[:0], sc.row...)
	sc.seek[len(sc.seek)-1] = afterEnd
	return sc.iter.SeekGE(sc.seek)
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

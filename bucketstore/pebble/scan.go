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

// Scan implements bucketstore.Store. All rows are seen as of the instant at which Scan was
// called. Until it returns, files that compactions replace stay on the disk.
func (s *Store) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	t, err := s.table(req.Table)
	if err != nil {
		return err
	}
	sc := s.scanners.Get().(*scanner)
	err = s.scan(ctx, sc, t, req, fn)
	s.recycle(sc) // after a panic of fn the scanner is not reused
	return readError(err)
}

// scan is Scan with a scanner of the pool.
func (s *Store) scan(ctx context.Context, sc *scanner, t *table, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) (err error) {
	if err := sc.prepare(t, req.Families, s.now()); err != nil {
		return fmt.Errorf("scan %s: %w", req.Table, err)
	}
	if len(sc.layers) == 0 || len(req.Rows) == 0 {
		return ctx.Err()
	}
	if sc.first, err = s.db.NewIter(nil); err != nil {
		return fmt.Errorf("scan %s: %w", req.Table, err)
	}
	// The days are loaded after the iterator is opened, so that none is missed.
	if t.calendar() != nil {
		for i := range sc.layers {
			sc.layers[i].exist = sc.layers[i].days.all()
		}
	}
	defer func() {
		if closeErr := sc.close(); err == nil && closeErr != nil {
			err = fmt.Errorf("scan %s: %w", req.Table, closeErr)
		}
	}()
	return sc.scan(ctx, req, fn)
}

// recycle returns sc to the pool, unless a large row has made it large.
func (s *Store) recycle(sc *scanner) {
	if cap(sc.space.block) <= maxPooled {
		s.scanners.Put(sc)
	}
}

// A scanner reads rows. Its buffers grow to what the largest row needs.
type scanner struct {
	headSize int // of stored keys of the table
	// layers are those of the requested families.
	splitter
	// columns are the requested parts of rows, for each of layers.
	columns [maxLayers][]columnRange

	first *pebble.Iterator // all others are clones of it
	taken bool             // first has a slot
	iters [daySlots + maxLayers]dayIter
	// cursors has one for each day of a range. waiting holds those that are not at their
	// end, by row and day. least is space for some of them.
	cursors, waiting, least []*cursor

	limit []byte // space for a stored key
	rowReader
}

// A columnRange is a part of a row: the bytes after the row in stored keys are in [start,
// limit).
type columnRange struct {
	family       string
	start, limit []byte
	// cutoff is the least time of a cell that has not expired.
	cutoff int64
}

// prepare sets the columns to read, without empty ones.
func (sc *scanner) prepare(t *table, families []bucketstore.FamilyRange, now time.Time) error {
	sc.headSize = t.headSize()
	sc.layers, sc.families = sc.layers[:0], sc.families[:0]
	for i := range sc.columns {
		sc.columns[i] = sc.columns[i][:0]
	}
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
		n := sc.layer(t.layerOf(family.Name))
		sc.layers[n].deltas.include(fr)
		sc.columns[n] = append(sc.columns[n], r)
		sc.families = append(sc.families, family.Name)
	}
	return nil
}

// layer returns the position of l among sc.layers, to which it is added.
func (sc *scanner) layer(l *layer) int {
	for n := range sc.layers {
		if sc.layers[n].layer == l {
			return n
		}
	}
	sc.layers = append(sc.layers, layerDays{layer: l, deltas: noDeltas()})
	return len(sc.layers) - 1
}

func (sc *scanner) scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	out := delivery{limit: req.Limit, fn: fn}
	for i, r := range req.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && !isBehind(r, req.Rows[i-1]) {
			sc.rewind() // Iterators only go forward. The contract promises order, so this never happens.
		}
		if r.IsEmpty() {
			continue
		}
		for part, days := range sc.split(r) {
			if err := sc.scanPart(ctx, part, days, &out); err != nil {
				return fmt.Errorf("scan %s: %w", req.Table, err)
			}
			if out.ended {
				return out.err
			}
		}
	}
	return nil
}

// isBehind says whether all of r is behind all of before.
func isBehind(r, before series.RowRange) bool {
	return len(before.Limit) > 0 && bytes.Compare(r.Start, before.Limit) >= 0
}

// scanPart delivers the rows of r. Their cells lie in these days.
func (sc *scanner) scanPart(ctx context.Context, r series.RowRange, days []partition, out *delivery) error {
	if isSingle(r) {
		return sc.scanRow(r.Start, days, out)
	}
	return sc.scanRows(ctx, r, days, out)
}

// scanRow delivers the row key, if it has any requested cell.
func (sc *scanner) scanRow(key []byte, days []partition, out *delivery) error {
	sc.begin()
	for _, p := range days {
		it, err := sc.dayIter(p)
		if err != nil {
			return err
		}
		sc.row = appendRow(appendHead(sc.row[:0], sc.layers[p.layer].first, p.day), key)
		sc.limit = appendAfterRow(sc.limit[:0], sc.row)
		if err := sc.readRow(it, sc.columns[p.layer], sc.limit); err != nil {
			return err
		}
	}
	return sc.deliver(out)
}

// A delivery passes rows to fn.
type delivery struct {
	limit int
	fn    func(bucketstore.Row) error
	rows  int
	// ended is set when no more rows are wanted, with the error of fn, if any.
	ended bool
	err   error
}

// deliver passes the row to fn, unless it is empty.
func (sc *scanner) deliver(out *delivery) error {
	if len(sc.cells) == 0 {
		return nil
	}
	sc.order()
	key, err := parseRow(sc.seek[:0], sc.row[sc.headSize:])
	if err != nil {
		return err
	}
	out.err = out.fn(bucketstore.Row{Key: key, Cells: sc.cells})
	out.rows++
	out.ended = out.err != nil || out.rows == out.limit
	return nil
}

// isSingle says whether r holds the key r.Start and no other.
func isSingle(r series.RowRange) bool {
	return len(r.Limit) == len(r.Start)+1 && r.Limit[len(r.Start)] == 0 && bytes.HasPrefix(r.Limit, r.Start)
}

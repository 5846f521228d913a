package bigtable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"cloud.google.com/go/bigtable"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// maxRowSetSize is how many bytes of keys one request names. Bigtable takes 512 KB, filter
// and framing included.
const maxRowSetSize = 400 << 10

// Scan implements bucketstore.Store. If there are more keys than one request may name, it
// sends several, one after another. The client resumes a broken stream after the last
// complete row.
func (s *Store) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	t, err := s.table(req.Table)
	if err != nil {
		return err
	}
	filter, err := t.filter(req.Families, s.emulated, req.Limit > 0)
	if err != nil || filter == nil {
		return err
	}
	r := &rowReader{ctx: ctx, families: req.Families, fn: fn}
	for rows := range rowSets(req.Rows) {
		opts := []bigtable.ReadOption{bigtable.RowFilter(filter)}
		if req.Limit > 0 {
			opts = append(opts, bigtable.LimitRows(int64(req.Limit-r.rows)))
		}
		if err := s.read(ctx, req.Table, rows, r, opts); err != nil || r.stopped(req.Limit) {
			return err
		}
	}
	return nil
}

// errIdle ends a request that has waited too long for a row.
var errIdle = fmt.Errorf("no row for too long: %w", context.DeadlineExceeded)

// read sends one request. An error of the callback is returned unchanged.
func (s *Store) read(ctx context.Context, table bucketstore.Table, rows bigtable.RowSet, r *rowReader, opts []bigtable.ReadOption) error {
	// The stream may last as long as its reader likes. Only the waits for the server are
	// bounded.
	ctx = withCall(ctx, table, s.callTimeout)
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.idle = time.AfterFunc(s.callTimeout, func() { cancel(errIdle) })
	defer r.idle.Stop()
	r.timeout = s.callTimeout

	rows0, size0 := r.rows, r.size
	err := s.tables[table].rows.ReadRows(reading, rows, r.row, opts...)
	s.metrics.addRead(table, r.rows-rows0, r.size-size0, err == nil)
	switch {
	case r.err != nil:
		return r.err
	case err == nil:
		return nil
	case errors.Is(context.Cause(reading), errIdle):
		err = fmt.Errorf("%w (%w)", errIdle, err)
	default:
		err = callError(ctx, err)
	}
	return fmt.Errorf("scan %s: %w", s.tables[table].name, err)
}

// A rowReader passes the client's rows to the callback of a Scan. Its buffers are reused
// for each row.
type rowReader struct {
	ctx      context.Context
	families []bucketstore.FamilyRange
	fn       func(bucketstore.Row) error
	// idle fires unless it is stopped or reset within timeout.
	idle    *time.Timer
	timeout time.Duration

	// rows and size are how many rows were read, and their bytes.
	rows, size int
	err        error
	key        []byte
	qualifiers []byte
	cells      []bucketstore.Cell
}

// stopped says whether a Scan has reached its limit.
func (r *rowReader) stopped(limit int) bool { return limit > 0 && r.rows >= limit }

// row is the client's callback. It says whether to go on.
func (r *rowReader) row(row bigtable.Row) bool {
	// The client delivers the rest of a message even if the context has ended.
	if r.err = r.ctx.Err(); r.err != nil {
		return false
	}
	r.rows++
	r.size += rowSize(row)
	r.fill(row)
	if len(r.cells) == 0 {
		return true
	}
	r.idle.Stop()
	r.err = r.fn(bucketstore.Row{Key: r.key, Cells: r.cells})
	r.idle.Reset(r.timeout)
	return r.err == nil
}

// rowSize returns the bytes of the key, and of the columns and values that were sent.
func rowSize(row bigtable.Row) (size int) {
	size = len(row.Key())
	for _, items := range row {
		for i := range items {
			size += len(items[i].Column) + len(items[i].Value)
		}
	}
	return size
}

// fill sets key and cells from row. The client's map holds each family in order of
// qualifiers.
func (r *rowReader) fill(row bigtable.Row) {
	r.key, r.qualifiers, r.cells = r.key[:0], r.qualifiers[:0], r.cells[:0]
	for i := range r.families {
		f := &r.families[i]
		first := len(r.cells)
		for _, item := range row[f.Family] {
			if len(r.key) == 0 {
				r.key = append(r.key, item.Row...)
			}
			r.addCell(f, item, first)
		}
	}
}

// addCell appends a cell of f unless it was not requested: filters pass more. The emulator
// can return the same cell twice.
func (r *rowReader) addCell(f *bucketstore.FamilyRange, item bigtable.ReadItem, first int) {
	// The client names a column family:qualifier.
	qualifier := item.Column[len(f.Family)+1:]
	if qualifier < string(f.Start) || len(f.Limit) > 0 && qualifier >= string(f.Limit) {
		return
	}
	if last := len(r.cells) - 1; last >= first && string(r.cells[last].Qualifier) == qualifier {
		return
	}
	start := len(r.qualifiers)
	r.qualifiers = append(r.qualifiers, qualifier...)
	r.cells = append(r.cells, bucketstore.Cell{
		Family:    f.Family,
		Qualifier: r.qualifiers[start:len(r.qualifiers):len(r.qualifiers)],
		Time:      int64(item.Timestamp) / 1000,
		Value:     item.Value,
	})
}

// rowSets divides ranges into the row sets of requests. If all are single rows it makes
// lists of keys, which take half the bytes.
func rowSets(ranges []series.RowRange) iter.Seq[bigtable.RowSet] {
	return func(yield func(bigtable.RowSet) bool) {
		for len(ranges) > 0 {
			n := countRequest(ranges)
			// An empty set means every row of the table.
			if set := rowSet(ranges[:n]); set != nil && !yield(set) {
				return
			}
			ranges = ranges[n:]
		}
	}
}

// countRequest returns how many ranges go into one request.
func countRequest(ranges []series.RowRange) int {
	size := 0
	for i, r := range ranges {
		size += len(r.Start) + rowOverhead
		if _, ok := singleRow(r); !ok { // a list of keys names each one once
			size += len(r.Limit)
		}
		if size > maxRowSetSize && i > 0 {
			return i
		}
	}
	return len(ranges)
}

// rowSet converts ranges for the client. It returns nil if they hold no row.
func rowSet(ranges []series.RowRange) bigtable.RowSet {
	var keys bigtable.RowList
	for _, r := range ranges {
		key, ok := singleRow(r)
		if !ok {
			return rangeSet(ranges)
		}
		keys = append(keys, string(key))
	}
	return keys
}

// rangeSet converts ranges of any kind for the client, or returns nil.
func rangeSet(ranges []series.RowRange) bigtable.RowSet {
	var set bigtable.RowRangeList
	for _, r := range ranges {
		if r.IsEmpty() {
			continue
		}
		if key, ok := singleRow(r); ok {
			// With an open end, the client would resume after the row with an empty range.
			set = append(set, bigtable.NewClosedRange(string(key), string(key)))
			continue
		}
		set = append(set, bigtable.NewRange(string(r.Start), string(r.Limit)))
	}
	if set == nil {
		return nil
	}
	return set
}

// singleRow returns the only key in r, if there is exactly one. No row has the empty key.
func singleRow(r series.RowRange) (key []byte, ok bool) {
	n := len(r.Start)
	if n == 0 || len(r.Limit) != n+1 || r.Limit[n] != 0 || string(r.Limit[:n]) != string(r.Start) {
		return nil, false
	}
	return r.Start, true
}

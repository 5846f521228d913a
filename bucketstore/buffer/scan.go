package buffer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// errLimit ends a scan that has found enough.
var errLimit = errors.New("limit")

// Scan implements bucketstore.Store. What is open and on its way to the store is
// copied first, the store is read after: what is sealed meanwhile is seen twice,
// which changes nothing, and not never.
func (b *Buffer) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	wanted := slices.IndexFunc(req.Families, func(f bucketstore.FamilyRange) bool { return f.Family == series.FamilyChunk })
	if req.Table != bucketstore.Metric || wanted < 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	open := b.openRows(req.Rows)
	if len(open) == 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	m := merger{open: open, chunks: req.Families[wanted], encoder: chunkEncoder{open: true}, limit: req.Limit, fn: fn}
	err := b.Store.Scan(ctx, req, m.row)
	if err == nil {
		err = m.openBefore(nil)
	}
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// An openRow is the chunks of one row that are in memory. They are copies: what
// they share with the series only grows behind what they see.
type openRow struct {
	key    []byte
	chunks []openChunk
}

// openRows returns what is in memory of rows in these ranges, in order of keys.
func (b *Buffer) openRows(ranges []series.RowRange) (rows []openRow) {
	var wide, general []series.RowRange
	for part := range slices.Chunk(ranges, 256) { // writers wait meanwhile
		b.mu.RLock()
		for _, r := range part {
			found, kind := b.openRowsOf(r)
			rows = append(rows, found...)
			switch kind {
			case rangeOfSeries:
				wide = append(wide, r)
			case rangeOfAny:
				general = append(general, r)
			}
		}
		b.mu.RUnlock()
	}
	if len(wide) > 0 {
		b.mu.RLock()
		for r := range b.amidst {
			rows = r.rowsIn(b.cfg.Schema, rows, wide)
		}
		b.mu.RUnlock()
	}
	if len(general) > 0 {
		rows = b.openRowsIn(rows, general)
	}
	slices.SortStableFunc(rows, func(a, b openRow) int { return bytes.Compare(a.key, b.key) })
	// What was found twice was copied twice: either will do.
	return slices.CompactFunc(rows, func(a, b openRow) bool { return bytes.Equal(a.key, b.key) })
}

// A rangeKind says of which series there may be rows in a range.
type rangeKind int

const (
	rangeOfRow    rangeKind = iota // of one
	rangeOfSeries                  // of one, and of those in Buffer.amidst
	rangeOfAny
)

// openRowsOf returns what is in memory of the one series of which r holds rows,
// unless it is a rangeOfAny, with mu held.
func (b *Buffer) openRowsOf(r series.RowRange) (rows []openRow, kind rangeKind) {
	key, first, err := b.cfg.Schema.ParseRowKey(nil, r.Start)
	if err != nil || len(r.Limit) == 0 || r.Limit[len(r.Limit)-1] != 0 {
		return nil, rangeOfAny
	}
	end := r.Limit[:len(r.Limit)-1]
	last := first
	if !bytes.Equal(end, r.Start) {
		var other []byte
		if other, last, err = b.cfg.Schema.ParseRowKey(nil, end); err != nil || !bytes.Equal(other, key) || last < first || len(b.cfg.Schema.ResourceLabels()) > 0 {
			return nil, rangeOfAny
		}
		kind = rangeOfSeries
	}
	if s, found := b.refs[string(key)]; found {
		rows = s.rows(b.cfg.Schema, rows, func(base int64) bool { return first <= base && base <= last })
	}
	return rows, kind
}

// openRowsIn appends what is in memory in these ranges, which are ascending. It
// looks at all series, from the last to the first, as forgetIdle moves them: so
// it sees some twice and misses none that was there at the beginning.
func (b *Buffer) openRowsIn(rows []openRow, ranges []series.RowRange) []openRow {
	b.mu.RLock()
	last := len(b.order)
	b.mu.RUnlock()
	for last > 0 {
		b.mu.RLock()
		last = min(last, len(b.order))
		first := max(0, last-sweepAtOnce)
		for _, r := range b.order[first:last] {
			rows = r.rowsIn(b.cfg.Schema, rows, ranges)
		}
		b.mu.RUnlock()
		last = first
	}
	return rows
}

// rowsIn appends the rows of r in these ranges, which are ascending, that have
// something in memory.
func (r *ref) rowsIn(schema series.Schema, rows []openRow, ranges []series.RowRange) []openRow {
	if r.isIdle() {
		return rows
	}
	first := len(rows)
	rows = r.rows(schema, rows, func(int64) bool { return true })
	found := slices.DeleteFunc(rows[first:], func(row openRow) bool { return !contains(ranges, row.key) })
	return rows[:first+len(found)]
}

// contains says whether key lies in one of these ranges, which are ascending and
// do not overlap.
func contains(ranges []series.RowRange, key []byte) bool {
	after := sort.Search(len(ranges), func(i int) bool { return bytes.Compare(ranges[i].Start, key) > 0 })
	return after > 0 && ranges[after-1].Contains(key)
}

// rows appends the rows of r in wanted bases that have something in memory.
func (r *ref) rows(schema series.Schema, rows []openRow, wanted func(base int64) bool) []openRow {
	first := len(rows)
	add := func(c openChunk) {
		base, _ := series.Split(max(c.window, 0))
		if c.n == 0 || !wanted(base) {
			return
		}
		key := schema.AppendRowKey(nil, view(r.key), base)
		for i := first; i < len(rows); i++ {
			if bytes.Equal(rows[i].key, key) {
				rows[i].chunks = append(rows[i].chunks, c)
				return
			}
		}
		rows = append(rows, openRow{key, []openChunk{c}})
	}
	for _, s := range r.sealed {
		add(s.openChunk)
	}
	for _, c := range r.open {
		add(c)
	}
	return rows
}

// A merger puts rows in memory and rows of the store in one order.
type merger struct {
	open    []openRow
	chunks  bucketstore.FamilyRange
	encoder chunkEncoder
	limit   int
	seen    int
	fn      func(bucketstore.Row) error
}

// row takes a row of the store.
func (m *merger) row(row bucketstore.Row) error {
	if err := m.openBefore(row.Key); err != nil {
		return err
	}
	if len(m.open) > 0 && bytes.Equal(m.open[0].key, row.Key) {
		cells, err := m.cells(m.open[0])
		if err != nil {
			return err
		}
		row.Cells, m.open = mergeCells(row.Cells, cells), m.open[1:]
	}
	return m.deliver(row)
}

// openBefore delivers the rows in memory before limit, all if it is nil.
func (m *merger) openBefore(limit []byte) error {
	for len(m.open) > 0 && (limit == nil || bytes.Compare(m.open[0].key, limit) < 0) {
		open := m.open[0]
		m.open = m.open[1:]
		cells, err := m.cells(open)
		if err != nil {
			return err
		}
		if len(cells) == 0 {
			continue
		}
		if err := m.deliver(bucketstore.Row{Key: open.key, Cells: cells}); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) deliver(row bucketstore.Row) error {
	if m.limit > 0 && m.seen == m.limit {
		return errLimit
	}
	m.seen++
	return m.fn(row)
}

// cells returns those of the chunks of a row that are asked for, in order.
func (m *merger) cells(row openRow) (cells []bucketstore.Cell, err error) {
	m.encoder.reset()
	for i := range row.chunks {
		encoded, err := m.encoder.encode(&row.chunks[i])
		if err != nil {
			return nil, err
		}
		for _, c := range encoded {
			if (series.RowRange{Start: m.chunks.Start, Limit: m.chunks.Limit}).Contains(c.Qualifier) {
				cells = append(cells, c)
			}
		}
	}
	slices.SortFunc(cells, compareCells)
	return cells, nil
}

func compareCells(a, b bucketstore.Cell) int {
	if a.Family != b.Family {
		if a.Family < b.Family {
			return -1
		}
		return 1
	}
	return bytes.Compare(a.Qualifier, b.Qualifier)
}

// mergeCells returns the cells of both, in order; those in memory win.
func mergeCells(stored, open []bucketstore.Cell) []bucketstore.Cell {
	merged := make([]bucketstore.Cell, 0, len(stored)+len(open))
	for len(stored) > 0 && len(open) > 0 {
		switch c := compareCells(stored[0], open[0]); {
		case c < 0:
			merged, stored = append(merged, stored[0]), stored[1:]
		case c > 0:
			merged, open = append(merged, open[0]), open[1:]
		default:
			merged, stored, open = append(merged, open[0]), stored[1:], open[1:]
		}
	}
	return append(append(merged, stored...), open...)
}

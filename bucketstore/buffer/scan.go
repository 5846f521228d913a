package buffer

import (
	"bytes"
	"context"
	"errors"
	"slices"

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
	m := merger{open: open, chunks: req.Families[wanted], encoder: chunkEncoder{plain: true}, limit: req.Limit, fn: fn}
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
	var general []series.RowRange
	for part := range slices.Chunk(ranges, 256) { // writers wait meanwhile
		b.mu.RLock()
		for _, r := range part {
			found, ok := b.openRowsOf(r)
			if rows = append(rows, found...); !ok {
				general = append(general, r)
			}
		}
		b.mu.RUnlock()
	}
	if len(general) > 0 {
		rows = append(rows, b.openRowsIn(general)...)
	}
	slices.SortFunc(rows, func(a, b openRow) int { return bytes.Compare(a.key, b.key) })
	return rows
}

// openRowsOf returns what is in memory of a range that holds rows of one series,
// with mu held. ok is false if it is not such a range.
func (b *Buffer) openRowsOf(r series.RowRange) (rows []openRow, ok bool) {
	key, first, err := b.cfg.Schema.ParseRowKey(nil, r.Start)
	if err != nil || len(r.Limit) == 0 || r.Limit[len(r.Limit)-1] != 0 {
		return nil, false
	}
	end := r.Limit[:len(r.Limit)-1]
	last := first
	if !bytes.Equal(end, r.Start) {
		var other []byte
		if other, last, err = b.cfg.Schema.ParseRowKey(nil, end); err != nil || !bytes.Equal(other, key) || last < first || len(b.cfg.Schema.ResourceLabels()) > 0 {
			return nil, false
		}
		// Between two rows of a series there may be others, if a label looks like a
		// base. They have the key and a comma in front.
		if b.labelsLikeBases {
			return nil, false
		}
	}
	if s, found := b.refs[string(key)]; found {
		rows = s.rows(b.cfg.Schema, rows, func(base int64) bool { return first <= base && base <= last })
	}
	return rows, true
}

// openRowsIn looks at all series.
func (b *Buffer) openRowsIn(ranges []series.RowRange) (rows []openRow) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, r := range b.refs {
		rows = r.rows(b.cfg.Schema, rows, func(int64) bool { return true })
	}
	return slices.DeleteFunc(rows, func(row openRow) bool {
		return !slices.ContainsFunc(ranges, func(r series.RowRange) bool { return r.Contains(row.key) })
	})
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
	for i := range row.chunks {
		encoded, err := m.encoder.encode(&row.chunks[i])
		if err != nil {
			return nil, err
		}
		for _, c := range encoded {
			q := string(c.Qualifier)
			if q >= string(m.chunks.Start) && (len(m.chunks.Limit) == 0 || q < string(m.chunks.Limit)) {
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

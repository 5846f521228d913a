package buffer

import (
	"bytes"
	"context"
	"slices"
	"sort"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Scan implements bucketstore.Store. It copies the chunks in memory first and reads the
// store after. So a chunk that is stored meanwhile is seen twice, which changes nothing,
// and never missed.
func (b *Buffer) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	wanted := slices.IndexFunc(req.Families, func(f bucketstore.FamilyRange) bool { return f.Family == series.FamilyChunk })
	if req.Table == bucketstore.Metric && slices.ContainsFunc(req.Families, func(f bucketstore.FamilyRange) bool { return rollup.ResolutionOf(f.Family) != rollup.Raw }) {
		return b.scanRollups(ctx, req, fn)
	}
	if req.Table != bucketstore.Metric || wanted < 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	open := b.openRows(req.Rows)
	open = b.retries.addTo(open, req.Rows)
	if len(open) == 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	return bucketstore.ScanOver(ctx, b.Store, req, &openCells{open: open, chunks: req.Families[wanted]}, fn)
}

// ScanOpen calls fn with the chunks of rows of METRIC that are in memory, for other adapters. It is Scan without the rows of the store,
// and without a limit.
func (b *Buffer) ScanOpen(rows []series.RowRange, chunks bucketstore.FamilyRange, fn func(bucketstore.Row) error) error {
	return bucketstore.EachOver(&openCells{open: b.retries.addTo(b.openRows(rows), rows), chunks: chunks}, fn)
}

// An openRow holds the chunks of one row that are in memory. They are copies; what they
// share with the series never changes.
type openRow struct {
	key    []byte
	chunks []openChunk
	// cells are chunks that the store did not take.
	cells []bucketstore.Cell
}

// openRows gathers rows in memory.
type openRows struct {
	schema series.Schema
	rows   []openRow
	space  []byte // for raw samples
	// key and end are memory for the series keys in the bounds of a range.
	key, end []byte
}

// copyRaw copies the raw samples of the rows from first on, with Buffer.mu held.
func (o *openRows) copyRaw(first int) {
	for _, row := range o.rows[first:] {
		for i := range row.chunks {
			c := &row.chunks[i]
			if cap(o.space)-len(o.space) < len(c.raw) {
				o.space = make([]byte, 0, max(len(c.raw), min(max(2*cap(o.space), 1<<10), 64<<10)))
			}
			at := len(o.space)
			o.space = append(o.space, c.raw...)
			c.raw = o.space[at:len(o.space):len(o.space)]
		}
	}
}

// openRows returns the rows in memory in these ranges, in order of keys.
func (b *Buffer) openRows(ranges []series.RowRange) []openRow {
	var wide, general []series.RowRange
	o := openRows{schema: b.cfg.Schema}
	for part := range slices.Chunk(ranges, 256) { // not all at once, because writers wait
		b.mu.RLock()
		for _, r := range part {
			switch b.openRowsOf(&o, r) {
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
		for r := range b.interleaved {
			o.addSeriesIn(r, wide)
		}
		b.mu.RUnlock()
	}
	if len(general) > 0 {
		b.eachSeries(b.mu.RLocker(), func(r *ref) { o.addSeriesIn(r, general) })
	}
	slices.SortStableFunc(o.rows, func(a, b openRow) int { return bytes.Compare(a.key, b.key) })
	// A row that was found twice was copied twice: either copy is right.
	return slices.CompactFunc(o.rows, func(a, b openRow) bool { return bytes.Equal(a.key, b.key) })
}

// A rangeKind says which series may have rows in a range.
type rangeKind int

const (
	rangeOfRow    rangeKind = iota // one series
	rangeOfSeries                  // one series, and those in Buffer.interleaved
	rangeOfAny
)

// openRowsOf adds the rows in memory of the one series in r, unless r is a rangeOfAny, with
// mu held.
func (b *Buffer) openRowsOf(o *openRows, r series.RowRange) rangeKind {
	var first, last int64
	var err error
	if o.key, first, err = b.cfg.Schema.ParseRowKey(o.key[:0], r.Start); err != nil || len(r.Limit) == 0 || r.Limit[len(r.Limit)-1] != 0 {
		return rangeOfAny
	}
	end := r.Limit[:len(r.Limit)-1]
	kind := rangeOfRow
	last = first
	if !bytes.Equal(end, r.Start) {
		if o.end, last, err = b.cfg.Schema.ParseRowKey(o.end[:0], end); err != nil || !bytes.Equal(o.end, o.key) || last < first || len(b.cfg.Schema.ResourceLabels()) > 0 {
			return rangeOfAny
		}
		kind = rangeOfSeries
	}
	if s, found := b.refs[string(o.key)]; found {
		old := len(o.rows)
		o.addSeries(s, func(base int64) bool { return first <= base && base <= last })
		o.copyRaw(old)
	}
	return kind
}

// addSeriesIn adds the rows of r in these ranges that are in memory. The ranges are
// ascending. Buffer.mu is held.
func (o *openRows) addSeriesIn(r *ref, ranges []series.RowRange) {
	if r.isIdle() {
		return
	}
	old := len(o.rows)
	o.addSeries(r, func(int64) bool { return true })
	found := slices.DeleteFunc(o.rows[old:], func(row openRow) bool { return !contains(ranges, row.key) })
	o.rows = o.rows[:old+len(found)]
	o.copyRaw(old)
}

// contains says whether key lies in one of these ranges, which are ascending and do not
// overlap.
func contains(ranges []series.RowRange, key []byte) bool {
	after := sort.Search(len(ranges), func(i int) bool { return bytes.Compare(ranges[i].Start, key) > 0 })
	return after > 0 && ranges[after-1].Contains(key)
}

// addSeries adds the rows of r in memory whose bases are wanted. Their raw samples are not
// copied yet.
func (o *openRows) addSeries(r *ref, wanted func(base int64) bool) {
	first := len(o.rows)
	add := func(c openChunk) {
		base, _ := series.Split(max(c.window, 0))
		if c.n == 0 || !wanted(base) {
			return
		}
		key := o.schema.AppendRowKey(nil, viewString(r.key), base)
		for i := first; i < len(o.rows); i++ {
			if bytes.Equal(o.rows[i].key, key) {
				o.rows[i].chunks = append(o.rows[i].chunks, c)
				return
			}
		}
		o.rows = append(o.rows, openRow{key: key, chunks: []openChunk{c}})
	}
	for s := range r.allSealed {
		add(s.openChunk)
	}
	for c := range r.open {
		add(*c)
	}
}

// openCells are rows in memory as cells: a bucketstore.Overlay.
type openCells struct {
	open    []openRow
	chunks  bucketstore.FamilyRange
	encoder chunkEncoder
	// space are the cells of the previous row.
	space []bucketstore.Cell
}

// Key implements bucketstore.Overlay.
func (o *openCells) Key() []byte {
	if len(o.open) == 0 {
		return nil
	}
	return o.open[0].key
}

// Take implements bucketstore.Overlay.
func (o *openCells) Take() ([]bucketstore.Cell, error) {
	row := o.open[0]
	o.open = o.open[1:]
	return o.cells(row)
}

// cells returns the requested cells of the chunks of a row, in order. They are valid until
// the next call.
func (o *openCells) cells(row openRow) (cells []bucketstore.Cell, err error) {
	o.encoder.reset()
	cells = o.space[:0]
	for i := range row.chunks {
		if cells, err = o.encoder.appendOpen(cells, &row.chunks[i]); err != nil {
			return nil, err
		}
	}
	o.space = cells
	cells = append(cells, row.cells...)
	wanted := series.RowRange{Start: o.chunks.Start, Limit: o.chunks.Limit}
	cells = slices.DeleteFunc(cells, func(c bucketstore.Cell) bool { return !wanted.Contains(c.Qualifier) })
	if !slices.IsSortedFunc(cells, bucketstore.CompareCells) {
		slices.SortFunc(cells, bucketstore.CompareCells)
	}
	return cells, nil
}

package reader

import (
	"context"
	"sync"

	"github.com/promtable/promtable/bucketstore"
)

// gatherBytes is how many bytes of rows are merged at once with Query.Compute: some tens of thousands of samples, or about half a
// millisecond.
const gatherBytes = 64 << 10

// gathered are copies of rows, which are merged when the store is not waited for.
type gathered struct {
	rows []gatheredRow
	// cells are those of the rows, and space the bytes of them.
	cells []bucketstore.Cell
	space []byte
}

// A gatheredRow is the row of a builder and a base. Its cells are those of gathered from first up to limit.
type gatheredRow struct {
	slot         int
	base         int64
	key          []byte
	first, limit int
}

// gatherings are those that no section uses.
var gatherings = sync.Pool{New: func() any { return &gathered{space: make([]byte, 0, gatherBytes)} }}

// add adds the row of a slot.
func (g *gathered) add(slot int, base int64, row bucketstore.Row) {
	first := len(g.cells)
	for _, c := range row.Cells {
		c.Qualifier, c.Value = g.copy(c.Qualifier), g.copy(c.Value)
		g.cells = append(g.cells, c)
	}
	g.rows = append(g.rows, gatheredRow{slot, base, g.copy(row.Key), first, len(g.cells)})
}

// copy copies bytes into space. What was copied before keeps its memory when that grows.
func (g *gathered) copy(b []byte) []byte {
	at := len(g.space)
	g.space = append(g.space, b...)
	return g.space[at:len(g.space):len(g.space)]
}

// clear removes all rows.
func (g *gathered) clear() {
	clear(g.cells)
	g.rows, g.cells, g.space = g.rows[:0], g.cells[:0], g.space[:0]
}

// takeRow merges a row of p, or copies it to be merged by flush.
func (sec *section) takeRow(ctx context.Context, p part, row bucketstore.Row) error {
	slot, base, ok, err := sec.slotOf(p, row.Key)
	if err != nil || !ok {
		return err
	}
	compute := sec.s.r.query.Compute
	if compute == nil {
		return sec.addRow(p, slot, base, row)
	}
	if bytes := sizeOf(row); len(sec.gathered.space)+bytes > gatherBytes {
		if err := sec.flush(ctx, p); err != nil {
			return err
		}
		if bytes > gatherBytes {
			return compute(ctx, func() error { return sec.addRow(p, slot, base, row) })
		}
	}
	sec.gathered.add(slot, base, row)
	return nil
}

// flush merges the rows that were copied.
func (sec *section) flush(ctx context.Context, p part) error {
	g := sec.gathered
	if g == nil || len(g.rows) == 0 {
		return nil
	}
	defer g.clear()
	return sec.s.r.query.Compute(ctx, func() error {
		for _, row := range g.rows {
			if err := sec.addRow(p, row.slot, row.base, bucketstore.Row{Key: row.key, Cells: g.cells[row.first:row.limit]}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sizeOf returns how many bytes the copy of a row takes.
func sizeOf(row bucketstore.Row) int {
	bytes := len(row.Key)
	for i := range row.Cells {
		bytes += len(row.Cells[i].Qualifier) + len(row.Cells[i].Value)
	}
	return bytes
}

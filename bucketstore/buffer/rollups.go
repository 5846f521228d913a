package buffer

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// scanRollups leaves out the rollups of days of which samples are in memory: they are of those that are
// stored. It looks at memory first, as Scan does. Chunks in memory are not shown.
func (b *Buffer) scanRollups(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	open := b.retries.addTo(b.openRows(req.Rows), req.Rows)
	if len(open) == 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	var kept []bucketstore.Cell
	return b.Store.Scan(ctx, req, func(row bucketstore.Row) error {
		i, found := slices.BinarySearchFunc(open, row.Key, func(o openRow, key []byte) int { return bytes.Compare(o.key, key) })
		if !found {
			return fn(row)
		}
		_, base, err := b.cfg.Schema.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		kept = kept[:0]
		for _, c := range row.Cells {
			if rollup.ResolutionOf(c.Family) == rollup.Raw || !open[i].hasDay(rollup.DayOfCell(base, c.Qualifier), base) {
				kept = append(kept, c)
			}
		}
		if row.Cells = kept; len(kept) == 0 {
			return nil
		}
		return fn(row)
	})
}

// hasDay says whether chunks of the row have samples of a day. Base is that of the row.
func (o *openRow) hasDay(day, base int64) bool {
	return slices.ContainsFunc(o.chunks, func(c openChunk) bool { return c.hasDay(day) }) ||
		slices.ContainsFunc(o.cells, func(c bucketstore.Cell) bool {
			first, last := binary.BigEndian.Uint32(c.Qualifier), binary.BigEndian.Uint32(c.Qualifier[series.QualifierSize:])
			return day == rollup.DayOf(base+int64(first)) || day == rollup.DayOf(base+int64(last)) // it meets two days at most
		})
}

// hasDay says whether c, which is not empty, has samples of a day. A window may meet two.
func (c *openChunk) hasDay(day int64) bool {
	switch first, last := rollup.DayOf(c.window), rollup.DayOf(c.end()); {
	case day == last:
		return true
	case day != first:
		return false
	}
	return slices.ContainsFunc(c.allPoints(nil), func(p point) bool { return rollup.DayOf(p.t) == day })
}

package buffer

import (
	"bytes"
	"context"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/rollup"
)

// scanRollups leaves out the rollups of days of which samples are in memory: they are of those that are
// stored. It looks at memory first, as Scan does. Chunks in memory are not shown.
func (b *Buffer) scanRollups(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	open := b.retries.addTo(b.openRows(req.Rows), req.Rows)
	if len(open) == 0 {
		return b.Store.Scan(ctx, req, fn)
	}
	return bucketstore.ScanWithoutDays(ctx, b.Store, b.cfg.Schema, req, func(key []byte) func(day, base int64) bool {
		i, found := slices.BinarySearchFunc(open, key, func(o openRow, key []byte) int { return bytes.Compare(o.key, key) })
		if !found {
			return nil
		}
		return open[i].hasDay
	}, fn)
}

// hasDay says whether chunks of the row have samples of a day. Base is that of the row.
func (o *openRow) hasDay(day, base int64) bool {
	return slices.ContainsFunc(o.chunks, func(c openChunk) bool { return c.hasDay(day) }) ||
		bucketstore.ChunksHaveDay(o.cells, day, base)
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

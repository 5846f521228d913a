package bucketstore

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// ScanWithoutDays scans METRIC and leaves out the rollups of days of which there are samples that are not stored: they are of those that are. find returns
// what says so for the row with a key, or nil if all its samples are stored.
func ScanWithoutDays(ctx context.Context, store Store, schema series.Schema, req ScanRequest, find func(key []byte) (hasDay func(day, base int64) bool), fn func(Row) error) error {
	var kept []Cell
	return store.Scan(ctx, req, func(row Row) error {
		hasDay := find(row.Key)
		if hasDay == nil {
			return fn(row)
		}
		_, base, err := schema.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		kept = kept[:0]
		for _, c := range row.Cells {
			if rollup.ResolutionOf(c.Family) == rollup.Raw || !hasDay(rollup.DayOfCell(base, c.Qualifier), base) {
				kept = append(kept, c)
			}
		}
		if row.Cells = kept; len(kept) == 0 {
			return nil
		}
		return fn(row)
	})
}

// ChunksHaveDay says whether chunks may have samples of a day, by their qualifiers. base is that of their row. A chunk meets two days at most. One whose
// qualifier is too short may have samples of any.
func ChunksHaveDay(chunks []Cell, day, base int64) bool {
	return slices.ContainsFunc(chunks, func(c Cell) bool {
		if len(c.Qualifier) < 2*series.QualifierSize {
			return true
		}
		first, last := binary.BigEndian.Uint32(c.Qualifier), binary.BigEndian.Uint32(c.Qualifier[series.QualifierSize:])
		return day == rollup.DayOf(base+int64(first)) || day == rollup.DayOf(base+int64(last))
	})
}

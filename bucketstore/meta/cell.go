package meta

import (
	"bytes"
	"context"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A cell is the one cell of a META row.
type cell struct {
	// value is nil if the row does not exist.
	value []byte
	// time is when it was written, in milliseconds.
	time int64
}

// scanCells calls fn with the key and the cell of each row of META in these rows.
// The key is valid during the call.
func scanCells(ctx context.Context, store bucketstore.Store, rows series.RowRange, fn func(key []byte, c cell) error) error {
	return store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{rows},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		return fn(row.Key, cell{value: bytes.Clone(row.Cells[0].Value), time: row.Cells[0].Time})
	})
}

// readCell returns the cell of the row with this key.
func readCell(ctx context.Context, store bucketstore.Store, key string) (found cell, err error) {
	err = scanCells(ctx, store, series.SingleRow([]byte(key)), func(_ []byte, c cell) error {
		found = c
		return nil
	})
	return found, err
}

// compareAndSet replaces the cell of a row if it is still old, and says whether it
// was. After an error it may have happened or not.
func compareAndSet(ctx context.Context, store bucketstore.Store, key string, old cell, value []byte, now int64) (set bool, err error) {
	qualifier := []byte(series.QualifierMeta)
	return store.CheckAndApply(ctx, bucketstore.Meta,
		bucketstore.Condition{Family: series.FamilyMeta, Qualifier: qualifier, Value: old.value, Absent: old.value == nil},
		bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: qualifier,
			Time:  max(now, old.time), // an older cell would not be seen
			Value: value,
		}}})
}

// overwrite replaces the cell of a row, or removes it if value is nil. The cell
// before is deleted in the same mutation: versions that are not collected yet
// count towards the size of a row.
func overwrite(ctx context.Context, store bucketstore.Store, key string, value []byte, now int64) error {
	qualifier := []byte(series.QualifierMeta)
	ops := []bucketstore.Op{{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: qualifier}}
	if value != nil {
		ops = append(ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: qualifier, Time: now, Value: value})
	}
	return store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{{Key: []byte(key), Ops: ops}})
}

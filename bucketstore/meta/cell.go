package meta

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A Cell is the one cell of a META row.
type Cell struct {
	// Value is nil if the row does not exist.
	Value []byte
	// Time is when the cell was written, in milliseconds.
	Time int64
}

// ScanCells calls fn with the key and the cell of each row of META in rows, in order of
// keys. The key is valid during the call, the cell for ever. An error from fn ends the scan
// and is returned unchanged.
func ScanCells(ctx context.Context, store bucketstore.Store, rows series.RowRange, fn func(key []byte, c Cell) error) error {
	return ScanRanges(ctx, store, []series.RowRange{rows}, fn)
}

// ScanRanges is ScanCells for several ranges, which are ascending and do not overlap.
func ScanRanges(ctx context.Context, store bucketstore.Store, rows []series.RowRange, fn func(key []byte, c Cell) error) error {
	return store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     rows,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		return fn(row.Key, Cell{Value: bytes.Clone(row.Cells[0].Value), Time: row.Cells[0].Time})
	})
}

// ReadCell returns the cell of the row with this key. A missing row is no error.
func ReadCell(ctx context.Context, store bucketstore.Store, key string) (found Cell, err error) {
	err = ScanCells(ctx, store, series.SingleRow([]byte(key)), func(_ []byte, c Cell) error {
		found = c
		return nil
	})
	return found, err
}

// ReadJSON returns the cell of the row with this key, and what it says: the zero value if there is no such row. The error is
// series.ErrCorrupt if it cannot be parsed.
func ReadJSON[T any](ctx context.Context, store bucketstore.Store, key string) (c Cell, found T, err error) {
	if c, err = ReadCell(ctx, store, key); err == nil && c.Value != nil {
		err = ParseJSON([]byte(key), c.Value, &found)
	}
	return c, found, err
}

// ParseJSON parses the value of a cell in the row with this key. The error is series.ErrCorrupt.
func ParseJSON(key, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, key, err)
	}
	return nil
}

// CompareAndSet replaces the cell of a row with next if it is still old. Like Overwrite it deletes the
// old cell in the same mutation. It returns whether it did. After an error the row may have next or not.
func CompareAndSet(ctx context.Context, store bucketstore.Store, key string, old, next Cell) (set bool, err error) {
	return compareAndApply(ctx, store, old, overwrite(key, next))
}

// CompareAndDelete deletes the cell of a row if it is still old, which must exist. It
// returns whether it did. After an error the row may exist or not.
func CompareAndDelete(ctx context.Context, store bucketstore.Store, key string, old Cell) (deleted bool, err error) {
	return compareAndApply(ctx, store, old, overwrite(key, Cell{}))
}

func compareAndApply(ctx context.Context, store bucketstore.Store, old Cell, mut bucketstore.Mutation) (bool, error) {
	return store.CheckAndApply(ctx, bucketstore.Meta,
		bucketstore.Condition{Family: series.FamilyMeta, Qualifier: []byte(series.QualifierMeta), Value: old.Value, Absent: old.Value == nil},
		mut)
}

// SetCell returns the mutation that sets the cell of a row. Older versions stay until the
// store collects them.
func SetCell(key string, c Cell) bucketstore.Mutation {
	return bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{setOp(c)}}
}

func setOp(c Cell) bucketstore.Op {
	return bucketstore.Op{
		Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: []byte(series.QualifierMeta), Time: c.Time, Value: c.Value,
	}
}

// Overwrite sets the cell of a row to value, or deletes it if value is nil. It deletes the
// previous cell in the same mutation: versions that are not collected yet count towards the
// size of a row. now is in milliseconds.
func Overwrite(ctx context.Context, store bucketstore.Store, key string, value []byte, now int64) error {
	return store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{overwrite(key, Cell{value, now})})
}

// overwrite returns the mutation that deletes the cell of a row, whatever its time, and then
// sets it to c, unless that has no value.
func overwrite(key string, c Cell) bucketstore.Mutation {
	ops := []bucketstore.Op{{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(series.QualifierMeta)}}
	if c.Value != nil {
		ops = append(ops, setOp(c))
	}
	return bucketstore.Mutation{Key: []byte(key), Ops: ops}
}

// A Holding says which process has the lease of a work. It is the first part of the JSON of its row.
type Holding struct {
	// Holder names the holder, for operators.
	Holder string `json:"holder"`
	// Token is random and identifies the holder; empty if there is none.
	Token string `json:"token"`
	// Expires is when the lease ends, by the clock of the holder, in milliseconds.
	Expires int64 `json:"expires"`
}

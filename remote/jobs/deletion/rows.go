package deletion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// rows calls fn with the rows of targets that may have samples in the range of a record, some
// at a time, with the cells there, and returns how many there are. fn says whether it has
// enough; then rows calls after.
func (x *Executor) rows(ctx context.Context, rec *record, targets []target, fn func(ctx context.Context, rec *record, base int64, scan scanRows) error) (n int, err error) {
	byBase := make(map[int64][]series.RowRange)
	var bases []int64
	for _, t := range targets {
		for _, base := range t.bases {
			if !rec.overlaps(base, base+series.Period) {
				continue
			}
			if byBase[base] == nil {
				bases = append(bases, base)
			}
			byBase[base] = append(byBase[base], series.SingleRow(x.records.cfg.Schema.AppendRowKey(nil, t.key, base)))
			n++
		}
	}
	slices.Sort(bases)
	for _, base := range bases {
		ranges := byBase[base]
		slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
		families := jobs.FamiliesIn(base, max(base, rec.Start), min(base+series.Period, rec.Limit))
		scan := func(ctx context.Context, after []byte, fn func(bucketstore.Row) error) error {
			for len(ranges) > 0 && after != nil && bytes.Compare(ranges[0].Start, after) <= 0 {
				ranges = ranges[1:]
			}
			ctx, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
			defer cancel()
			return x.cfg.Store.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: ranges, Families: families}, fn)
		}
		if err := fn(ctx, rec, base, scan); err != nil {
			return n, err
		}
	}
	return n, nil
}

// A scanRows calls fn with the rows after a key, or with all.
type scanRows func(ctx context.Context, after []byte, fn func(bucketstore.Row) error) error

// errFull ends a scan when a batch is full.
var errFull = errors.New("batch is full")

// remove removes what a record deletes of rows of the bucket at base.
func (x *Executor) remove(ctx context.Context, rec *record, base int64, scan scanRows) error {
	records := []*record{rec}
	for after, more := []byte(nil), true; more; {
		var muts []bucketstore.Mutation
		size, ops := 0, 0
		err := scan(ctx, after, func(row bucketstore.Row) error {
			key := bytes.Clone(row.Key)
			after = key
			for _, part := range x.operations(base, row.Cells, records) {
				muts = append(muts, bucketstore.Mutation{Key: key, Ops: part})
				ops += len(part)
				for i := range part {
					size += len(part[i].Qualifier) + len(part[i].Value)
				}
			}
			if ops >= batchOps || size >= batchBytes {
				return errFull
			}
			return nil
		})
		if more = errors.Is(err, errFull); err != nil && !more {
			return fmt.Errorf("read rows of a deletion: %w", err)
		}
		if err := x.apply(ctx, bucketstore.Metric, muts); err != nil {
			return fmt.Errorf("remove deleted samples: %w", err)
		}
	}
	return nil
}

// operations returns how to remove what records delete of a row. Each part is one mutation, in
// their order: what replaces a chunk is set with its deletion.
func (x *Executor) operations(base int64, cells []bucketstore.Cell, records []*record) (parts [][]bucketstore.Op) {
	var ops []bucketstore.Op
	removed := 0
	for i := range cells {
		c := &cells[i]
		deleted, left, err := x.filter.cell(base, c, records)
		if err != nil {
			x.records.metrics.unreadable.Inc()
			level.Warn(x.cfg.Logger).Log("msg", "a damaged chunk of which a part is deleted is left as it is", "err", err)
		}
		if !deleted || err != nil {
			continue
		}
		removed++
		for _, l := range left {
			ops = append(ops, l.SetOp())
		}
		op := bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: c.Family, Qualifier: bytes.Clone(c.Qualifier)}
		if c.Family == series.FamilyLate { // a later one may have come
			op.Kind, op.Time = bucketstore.DeleteColumnBefore, c.Time+1
		}
		if ops = append(ops, op); len(ops) >= batchOps {
			parts, ops = append(parts, ops), nil
		}
	}
	if len(ops) > 0 {
		parts = append(parts, ops)
	}
	if removed > 0 {
		x.records.metrics.rows.Inc()
		x.records.metrics.cells.Add(float64(removed))
	}
	return parts
}

// apply applies mutations, if writes are admitted.
func (x *Executor) apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if err := x.cfg.Admit(); err != nil {
		return err
	}
	return bucketstore.ApplyInOrder(ctx, x.cfg.Store, table, muts, jobs.WriteTimeout)
}

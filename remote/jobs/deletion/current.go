package deletion

import (
	"context"
	"fmt"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// current writes the latest sample that is left of targets to CURRENT where that has a deleted one.
func (x *Executor) current(ctx context.Context, rec *record, targets []target) error {
	var ranges []series.RowRange
	for _, t := range targets {
		ranges = append(ranges, series.SingleRow(t.key))
	}
	reading, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
	defer cancel()
	found := make(map[string]int64)
	err := x.cfg.Store.Scan(reading, bucketstore.ScanRequest{
		Table: bucketstore.Current, Rows: ranges, Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, func(row bucketstore.Row) error {
		if t := row.Cells[0].Time; rec.has(t) {
			found[string(row.Key)] = t
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read CURRENT: %w", err)
	}
	var muts []bucketstore.Mutation
	for _, t := range targets {
		at, ok := found[string(t.key)]
		if !ok {
			continue
		}
		last, err := x.latest(ctx, t)
		if err != nil {
			return err
		}
		// A later sample that was written since the read stays.
		column := bucketstore.Op{Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent)}
		remove, set := column, column
		remove.Kind, remove.Time = bucketstore.DeleteColumnBefore, at+1
		set.Kind, set.Time, set.Value = bucketstore.SetCell, last.Time, last.Value
		mut := bucketstore.Mutation{Key: t.key, Ops: []bucketstore.Op{remove}}
		if last.Value != nil {
			mut.Ops = append(mut.Ops, set)
		}
		muts = append(muts, mut)
	}
	if err := x.apply(ctx, bucketstore.Current, muts); err != nil {
		return fmt.Errorf("write CURRENT: %w", err)
	}
	return nil
}

// latest returns the latest sample of a series that is not deleted, as a cell, or one without a
// value.
func (x *Executor) latest(ctx context.Context, t target) (last bucketstore.Cell, err error) {
	store := x.records.Filter(x.cfg.Store)
	for _, base := range slices.Backward(t.bases) {
		reading, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
		err := store.Scan(reading, bucketstore.ScanRequest{
			Table:    bucketstore.Metric,
			Rows:     []series.RowRange{series.SingleRow(x.records.cfg.Schema.AppendRowKey(nil, t.key, base))},
			Families: jobs.FamiliesIn(base, base, base+series.Period),
		}, func(row bucketstore.Row) error { return lastOf(base, row.Cells, &last) })
		cancel()
		if err != nil || last.Value != nil {
			return last, err
		}
	}
	return last, nil
}

// lastOf sets last to the last sample of a row of METRIC, if there is one.
func lastOf(base int64, cells []bucketstore.Cell, last *bucketstore.Cell) error {
	var samples merge.Row
	if err := addCells(&samples, base, base, base+series.Period, cells); err != nil {
		return err
	}
	for {
		switch samples.Next() {
		case merge.Floats:
			ts, vs := samples.Floats()
			last.Time, last.Value = ts[len(ts)-1], cell.AppendFloat(nil, vs[len(vs)-1])
		case merge.Value:
			t, v, err := samples.Value()
			if err != nil {
				return err
			}
			last.Time, last.Value = t, cell.Append(nil, v)
		default:
			return samples.Err()
		}
	}
}

// addCells begins a row whose samples in [start, limit) are wanted, in milliseconds.
func addCells(samples *merge.Row, base, start, limit int64, cells []bucketstore.Cell) error {
	samples.Reset(base, start, limit, merge.Options{})
	for _, c := range cells {
		switch c.Family {
		case series.FamilyExemplar:
		case series.FamilyChunk:
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return err
			}
			samples.AddChunk(sealed)
		default:
			if err := samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Package indexrows is the INDEX table of a store, as package index reads and writes it.
package indexrows

import (
	"context"
	"slices"
	"sync"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Rows is the INDEX table of a store. It is safe for concurrent use.
type Rows struct {
	store bucketstore.Store
	// spaces recycles *space: many new series with many rows each come at once.
	spaces sync.Pool
}

type space struct {
	muts []bucketstore.Mutation
	ops  []bucketstore.Op
}

// New returns the INDEX table of store.
func New(store bucketstore.Store) *Rows {
	return &Rows{store: store, spaces: sync.Pool{New: func() any { return new(space) }}}
}

// PutRows writes rows, see package index.
func (r *Rows) PutRows(ctx context.Context, rows []index.Row) error {
	s := r.spaces.Get().(*space)
	muts, ops := slices.Grow(s.muts[:0], len(rows)), slices.Grow(s.ops[:0], len(rows))
	qualifier := []byte(series.QualifierIndex)
	for i, row := range rows {
		ops = append(ops, bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyIndex,
			Qualifier: qualifier,
			Time:      row.Time,
			Value:     row.Value,
		})
		muts = append(muts, bucketstore.Mutation{Key: row.Key, Ops: ops[i : i+1 : i+1]})
	}
	err := r.store.Apply(ctx, bucketstore.Index, muts)
	clear(muts)
	clear(ops)
	s.muts, s.ops = muts, ops
	r.spaces.Put(s)
	return err
}

// ScanRows reads rows, see package index. The error is that of the store, or of fn.
func (r *Rows) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
	req := bucketstore.ScanRequest{
		Table:    bucketstore.Index,
		Rows:     ranges,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyIndex}},
		Limit:    limit,
	}
	return r.store.Scan(ctx, req, func(row bucketstore.Row) error {
		return fn(row.Key, row.Cells[0].Value)
	})
}

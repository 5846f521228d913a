package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

const (
	// aheadInterval is how often series are written to the next index period,
	// which is hours away.
	aheadInterval = time.Minute
	// aheadTimeout bounds one such write.
	aheadTimeout = 5 * time.Minute
)

// runAhead writes the queued series to the next index period at an interval, until
// ctx ends.
func (e *Engine) runAhead(ctx context.Context) {
	ticker := time.NewTicker(aheadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := e.writeAhead(ctx); err != nil && ctx.Err() == nil {
			level.Warn(e.cfg.Logger).Log("msg", "series not written to the next index period, trying again", "err", err)
		}
	}
}

func (e *Engine) writeAhead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	return bucketstore.Patiently(ctx, func() error { return e.index.WriteAhead(ctx) }) // between two calls no live write waits for it
}

func newIndex(cfg Config) *index.Index {
	return index.New(index.Config{
		Schema:        cfg.Schema,
		ParallelLists: cfg.ParallelLists,
		AtomicPuts:    cfg.AtomicApply,
		WrittenSeries: cfg.WrittenSeries,
		MaxMemory:     cfg.IndexMemory,
		SoleWriter:    cfg.SoleWriter,
		Refresh:       cfg.IndexRefresh,
		Now:           cfg.Now,
		Registerer:    cfg.Registerer,
	}, newIndexRows(cfg.Store))
}

// indexRows is the INDEX table of a store, with the methods that package index calls.
type indexRows struct {
	store bucketstore.Store
	// spaces recycles *indexSpace: many new series with many rows each come at once.
	spaces *sync.Pool
}

type indexSpace struct {
	muts []bucketstore.Mutation
	ops  []bucketstore.Op
}

func newIndexRows(store bucketstore.Store) indexRows {
	return indexRows{store, &sync.Pool{New: func() any { return new(indexSpace) }}}
}

func (r indexRows) PutRows(ctx context.Context, rows []index.Row) error {
	space := r.spaces.Get().(*indexSpace)
	muts, ops := slices.Grow(space.muts[:0], len(rows)), slices.Grow(space.ops[:0], len(rows))
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
	space.muts, space.ops = muts, ops
	r.spaces.Put(space)
	return err
}

func (r indexRows) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
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

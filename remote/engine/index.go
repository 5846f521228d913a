package engine

import (
	"context"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/indexrows"
)

const (
	// prewriteInterval is how often series are written to the next index period,
	// which is hours away.
	prewriteInterval = time.Minute
	// prewriteTimeout bounds one such write.
	prewriteTimeout = 5 * time.Minute
)

// runPrewrite writes the queued series to the next index period at an interval, until
// ctx ends.
func (e *Engine) runPrewrite(ctx context.Context) {
	ticker := time.NewTicker(prewriteInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := e.prewrite(ctx); err != nil && ctx.Err() == nil {
			level.Warn(e.cfg.Logger).Log("msg", "series not written to the next index period, trying again", "err", err)
		}
	}
}

func (e *Engine) prewrite(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prewriteTimeout)
	defer cancel()
	return bucketstore.RetryOverloaded(ctx, func() error { return e.index.Prewrite(ctx) }) // between two calls no live write waits for it
}

func newIndex(cfg Config) *index.Index {
	traits := cfg.Store.Traits()
	return index.New(index.Config{
		Schema:        cfg.Schema,
		ParallelLists: traits.ParallelScans,
		AtomicPuts:    traits.AtomicApply,
		WrittenSeries: cfg.WrittenSeries,
		MaxMemory:     cfg.IndexMemory,
		Exclusive:     !traits.Shared,
		Refresh:       cfg.IndexRefresh,
		Now:           cfg.Now,
		Limits:        cfg.WriteLimits,
		Registerer:    cfg.Registerer,
		Indexed:       cfg.Fleet.Indexed,
		Sync:          cfg.Fleet.Sync,
		Told:          cfg.Fleet.Told,
	}, indexrows.New(cfg.Store))
}

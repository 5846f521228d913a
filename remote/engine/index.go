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
	}, indexrows.New(cfg.Store))
}

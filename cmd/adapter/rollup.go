package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// openDays reads which days have rollups. rows is the store beneath all others.
func (a *adapter) openDays(ctx context.Context, rows bucketstore.Store) (err error) {
	a.days, err = downsample.Open(ctx, downsample.Config{
		Store: rows, Schema: a.schema, Tenants: a.tenantSchemas(), Now: a.o.now, Logger: a.logger,
	})
	return err
}

func (o *options) rollupFlags(app *kingpin.Application) {
	app.Flag("rollup.enabled", "Make rollups while serving. Of several adapters on Bigtable only one does at a time. Without it, adapter compact has to make them.").
		Default("true").BoolVar(&o.rollups)
	app.Flag("rollup.rows-per-second", "Maximum number of rows a second that are read to make rollups.").
		Default(fmt.Sprint(downsample.DefaultRowsPerSecond)).Float64Var(&o.rollupRows)
}

func (o *options) checkRollups() error {
	if o.rollupRows <= 0 {
		return fmt.Errorf("--rollup.rows-per-second=%g: give it a positive value, or leave it out for the default", o.rollupRows)
	}
	return nil
}

// resolutions returns those of the rollups that are made.
func (o *options) resolutions() (made []rollup.Resolution) {
	keep := o.retention.keep()
	for _, r := range rollup.Downsampled {
		if keep[r] != timeline.Off {
			made = append(made, r)
		}
	}
	return made
}

// release makes the rollups of samples before cut final, and returns up to which time they are.
func (a *adapter) release(ctx context.Context, cut int64) (int64, error) {
	if a.maker == nil { // at the start, or another process makes rollups
		return a.days.Released(), nil
	}
	return a.maker.Release(ctx, cut)
}

// openMaker opens what makes rollups. store is what the engine reads: the buffer, if there is one.
func (a *adapter) openMaker(store bucketstore.Store) {
	cfg := downsample.MakerConfig{
		Timeline:   a.retention,
		Registerer: a.reg,
	}
	own := ""
	if b, ok := store.(*buffer.Buffer); ok {
		own = b.ID()
		cfg.Flush = func(ctx context.Context) error { return flushAll(ctx, b) }
	}
	if store.Traits().Shared {
		cfg.Logs = func(ctx context.Context) ([]meta.Log, error) { return otherLogs(ctx, a.meta, own) }
	}
	a.maker = newMaker(a.o, a.days, a.clock, cfg)
}

// flushAll stores all samples that a buffer holds. It fails if the store does not take some rows of them.
func flushAll(ctx context.Context, b *buffer.Buffer) error {
	err := b.Flush(ctx)
	failing := slices.DeleteFunc(b.FailingRows(), func(r bucketstore.FailingRow) bool { return r.Table != bucketstore.Metric })
	if err == nil && len(failing) > 0 {
		err = fmt.Errorf("the store does not take %d rows, the first is %q: %v", len(failing), failing[0].Key, failing[0].Err)
	}
	return err
}

// newMaker returns what makes rollups, or nil if none are made. clock may be nil.
func newMaker(o *options, days *downsample.Days, clock *seal.Clock, cfg downsample.MakerConfig) *downsample.Maker {
	if cfg.Resolutions = o.resolutions(); len(cfg.Resolutions) == 0 {
		return nil
	}
	cfg.RowsPerSecond, cfg.Holder = o.rollupRows, processName()
	if clock != nil {
		cfg.ClockErr = clock.TimeErr
	}
	return downsample.NewMaker(days, cfg)
}

// startRollups makes rollups until ctx ends.
func (a *adapter) startRollups(ctx context.Context) *sync.WaitGroup {
	var running sync.WaitGroup
	running.Go(func() { a.days.Run(ctx) })
	if a.maker != nil {
		running.Go(func() { a.maker.Run(ctx) })
	}
	return &running
}

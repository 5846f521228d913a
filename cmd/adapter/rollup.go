package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/downsample"
	"github.com/promtable/promtable/bucketstore/retention"
	"github.com/promtable/promtable/series/rollup"
)

// openDays reads which days have rollups. rows is the store beneath all others.
func (a *adapter) openDays(ctx context.Context, rows bucketstore.Store) (err error) {
	a.days, err = downsample.Open(ctx, downsample.Config{
		Store: rows, Schema: a.schema, Now: time.Now, Sole: a.o.backend == backendEmbedded, Logger: a.logger,
	})
	return err
}

// rollupResolutions are the resolutions of rollups, as package bucketstore has them.
var rollupResolutions = [...]bucketstore.Resolution{bucketstore.FiveMinutes, bucketstore.OneHour}

// resolutions returns those of the rollups that are made.
func (o *options) resolutions() (made []rollup.Resolution) {
	keep := o.retention.keep()
	for i, r := range rollup.Resolutions {
		if keep[rollupResolutions[i]] != retention.Off {
			made = append(made, r)
		}
	}
	return made
}

// sources says of which times there are samples and rollups.
func (a *adapter) sources(now time.Time) rollup.Sources {
	s, keep := rollup.Sources{RawFrom: a.retention.RawCut(now), Until: a.days.Made()}, a.o.retention.keep()
	for i, of := range rollupResolutions {
		if s.From[i] = a.retention.Cut(of, now); keep[of] == retention.Off {
			s.From[i] = math.MaxInt64
		}
	}
	return s
}

// release makes the rollups of samples before cut final, and returns up to which time they are.
func (a *adapter) release(ctx context.Context, cut int64) (int64, error) {
	if a.maker == nil { // at the start
		return a.days.Released(), nil
	}
	return a.maker.Release(ctx, cut)
}

// openMaker opens what makes rollups, if any are made.
func (a *adapter) openMaker(appender bucketstore.Appender) (err error) {
	resolutions := a.o.resolutions()
	if len(resolutions) == 0 {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	cfg := downsample.MakerConfig{
		Resolutions: resolutions,
		Horizon:     func() int64 { return a.retention.Horizon(bucketstore.Raw) },
		Holder:      fmt.Sprintf("%s:%d", host, os.Getpid()),
		Registerer:  a.reg,
	}
	if b, ok := appender.(*buffer.Buffer); ok {
		cfg.Flush = b.Flush
	}
	if a.clock != nil {
		cfg.InDoubt = a.clock.Err
	}
	a.maker, err = downsample.NewMaker(a.days, cfg)
	return err
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

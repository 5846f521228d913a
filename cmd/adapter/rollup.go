package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/downsample"
	"github.com/promtable/promtable/series/rollup"
)

// openDays reads which days have rollups. rows is the store beneath all others.
func (a *adapter) openDays(ctx context.Context, rows bucketstore.Store) (err error) {
	a.days, err = downsample.Open(ctx, downsample.Config{
		Store: rows, Schema: a.schema, Now: time.Now, Sole: a.o.backend == backendEmbedded, Logger: a.logger,
	})
	return err
}

// sources says of which times there are samples and rollups.
func (a *adapter) sources(now time.Time) rollup.Sources {
	return rollup.Sources{
		RawFrom: a.retention.Cut(now),
		Until:   a.days.Made(),
	}
}

// startRollups makes rollups until ctx ends. rows is the store beneath all others.
func (a *adapter) startRollups(ctx context.Context, appender bucketstore.Appender) (*sync.WaitGroup, error) {
	var running sync.WaitGroup
	running.Go(func() { a.days.Run(ctx) })
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	cfg := downsample.MakerConfig{
		Resolutions: rollup.Resolutions[:],
		Horizon:     a.retention.Horizon,
		Holder:      fmt.Sprintf("%s:%d", host, os.Getpid()),
		Registerer:  a.reg,
	}
	if b, ok := appender.(*buffer.Buffer); ok {
		cfg.Flush = b.Flush
	}
	if a.clock != nil {
		cfg.InDoubt = a.clock.Err
	}
	maker, err := downsample.NewMaker(a.days, cfg)
	if err != nil {
		return nil, err
	}
	running.Go(func() { maker.Run(ctx) })
	return &running, nil
}

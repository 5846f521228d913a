package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	collectorsversion "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/common/version"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/selfscrape"
	"github.com/promtable/promtable/remote/ui"
	"github.com/promtable/promtable/series"
)

// openTimeout bounds the start: reaching the store, creating tables, checking
// the schema.
const openTimeout = 2 * time.Minute

// retention is how long samples are kept: for ever.
const retention = 0

// run serves until ctx ends, then stops in order: no new requests, those under
// way finish, what is in memory goes to the store, the store closes.
func run(ctx context.Context, o *options, logger log.Logger) (err error) {
	schema, err := series.NewSchema(o.resourceLabels, false)
	if err != nil {
		return fmt.Errorf("--schema.resource-label: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectorsversion.NewCollector("adapter"),
	)
	server, err := listen(o, logger, reg)
	if err != nil {
		return err
	}
	defer server.close()

	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	rows, err := openStore(opening, o, logger, reg)
	if err != nil {
		return err
	}
	store, appender, err := openAppender(ctx, o, schema, rows, logger, reg)
	defer func() { err = errors.Join(err, closing("close the store", store.Close())) }()
	if err != nil {
		return err
	}
	clock := newClock(o, rows, appender, logger, reg)
	e, err := openEngine(opening, o, schema, store, appender, logger, reg)
	if err != nil {
		return err
	}
	defer func() {
		flushing, cancel := context.WithTimeout(context.Background(), o.shutdownTimeout)
		defer cancel()
		err = errors.Join(err, closing("flush", e.Close(flushing)))
	}()

	queries, err := newAPI(o, e, schema, logger, reg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("end queries", queries.Close())) }()

	page, err := ui.New()
	if err != nil {
		return err
	}

	serving, stop := context.WithCancel(ctx)
	scraping := startSelfScrape(serving, o, e, server.instance(), logger, reg)
	defer scraping.Wait()
	defer stop()
	sealing, err := startSealing(serving, o, schema, rows, clock, logger, reg)
	if err != nil {
		return err
	}
	defer sealing.Wait()
	defer stop()
	return server.serve(ctx, handlers{protocols: newRemote(o, e, logger, reg), queries: queries, page: page})
}

func closing(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// openStore opens the store of the chosen backend.
func openStore(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer) (bucketstore.Store, error) {
	tables := bucketstore.Tables(retention)
	if o.backend == backendEmbedded {
		level.Info(logger).Log("msg", "opening the embedded store", "path", o.path)
		return pebble.Open(pebble.Config{Dir: o.path, Tables: tables, Now: time.Now, Logger: logger, Registerer: reg})
	}
	level.Info(logger).Log("msg", "opening Bigtable", "project", o.project, "instance", o.instance)
	return bigtable.Open(ctx, bigtable.Config{
		Project:      o.project,
		Instance:     o.instance,
		AppProfile:   o.appProfile,
		TablePrefix:  o.tablePrefix,
		Connections:  o.connections,
		CreateTables: o.createTables,
		Tables:       tables,
		Logger:       logger,
		Registerer:   reg,
	})
}

// openAppender returns what takes samples for store, and the store that shows
// them: with a buffer they are not in store at first. It returns when the log of
// the buffer is replayed, which takes what it takes.
func openAppender(ctx context.Context, o *options, schema series.Schema, store bucketstore.Store, logger log.Logger, reg prometheus.Registerer) (bucketstore.Store, bucketstore.Appender, error) {
	if !o.buffered {
		if err := buffer.CheckEmpty(o.bufferPath); err != nil {
			return store, nil, fmt.Errorf("%w: start once with --buffer.enabled, and stop", err)
		}
		appender, err := newDirect(store, schema)
		return store, appender, err
	}
	cfg := bufferConfig(o)
	cfg.Store = store
	cfg.Schema = schema
	cfg.Logger = logger
	cfg.Registerer = reg
	cfg.Die = func(err error) {
		level.Error(logger).Log("msg", "the log of the buffer failed; the process ends so that nothing is answered that may be lost", "err", err)
		os.Exit(1)
	}
	b, err := buffer.Open(ctx, cfg)
	if err != nil {
		return store, nil, err
	}
	return b, b, nil
}

// bufferConfig is what flags say about the buffer.
func bufferConfig(o *options) buffer.Config {
	cfg := buffer.Config{
		Dir:           o.bufferPath,
		FsyncInterval: o.fsyncInterval,
		MaxLogBytes:   int(o.bufferLog.Base2Bytes),
		MaxOpenBytes:  int(o.bufferMemory.Base2Bytes),
	}
	if o.backend == backendEmbedded {
		cfg.SealSpread = embeddedSpread
	}
	return cfg
}

// embeddedSpread is over how long series are sealed after a window of 2.3 hours.
// An embedded store takes what comes, and so less is in memory; on Bigtable all is
// paid for that it can take at most, and it is spread over the whole window.
const embeddedSpread = 15 * time.Minute

// newDirect returns what stores each sample in store at once.
func newDirect(store bucketstore.Store, schema series.Schema) (bucketstore.Appender, error) {
	if b, ok := store.(*bigtable.Store); ok {
		return b.NewAppender(schema, time.Now, nil)
	}
	return bucketstore.NewDirect(store, schema, time.Now, nil), nil
}

// bigtableParallel is how many scans of one read, and of one selector, run side by
// side where each waits for a network.
const bigtableParallel = 4

// openEngine opens the engine on store.
func openEngine(ctx context.Context, o *options, schema series.Schema, store bucketstore.Store, appender bucketstore.Appender, logger log.Logger, reg prometheus.Registerer) (*engine.Engine, error) {
	cfg := o.engine
	cfg.Store = store
	cfg.Appender = appender
	cfg.Schema = schema
	cfg.Now = time.Now
	cfg.Logger = logger
	cfg.Registerer = reg
	cfg.Limits.MaxSeriesBytes = o.remote.MaxFrameBytes
	if o.backend == backendBigtable {
		cfg.ParallelScans, cfg.ParallelLists = bigtableParallel, bigtableParallel
	} else {
		cfg.AtomicApply = true
	}
	return engine.Open(ctx, cfg)
}

// newRemote returns the handlers of the protocols.
func newRemote(o *options, e *engine.Engine, logger log.Logger, reg prometheus.Registerer) *remote.Handler {
	cfg := o.remote
	cfg.Engine = e
	cfg.Now = time.Now
	cfg.Logger = logger
	cfg.Registerer = reg
	cfg.MaxSamples = unbounded(o.engine.Limits.MaxSamples)
	cfg.MaxFrameBytes = unbounded(cfg.MaxFrameBytes)
	return remote.New(cfg)
}

// newAPI returns Prometheus' HTTP API.
func newAPI(o *options, e *engine.Engine, schema series.Schema, logger log.Logger, reg *prometheus.Registry) (*api.API, error) {
	cfg := o.api
	cfg.Engine = e
	cfg.Now = time.Now
	cfg.Logger = logger
	cfg.Registerer = reg
	cfg.Gatherer = reg
	cfg.Retention = "for ever"
	cfg.Status = api.Status{
		Version:        version.Version,
		Backend:        o.backend,
		Location:       o.path,
		Format:         engine.FormatVersion,
		ResourceLabels: schema.ResourceLabels(),
		Tables:         bucketstore.Tables(retention),
		TablePrefix:    o.tablePrefix,
	}
	switch o.backend {
	case backendEmbedded:
		cfg.ActiveQueries = filepath.Join(o.path, "queries")
	case backendBigtable:
		cfg.Status.Location = o.project + "/" + o.instance
	}
	return api.New(cfg)
}

// unbounded turns a flag of which 0 is no bound into a limit of package remote,
// where 0 is the default.
func unbounded(limit int) int {
	const more = 1 << 48 // than any machine holds, and products of it do not overflow
	if limit == 0 {
		return more
	}
	return limit
}

// startSelfScrape stores the adapter's own metrics until ctx ends, if that is
// wanted. Whoever closes the engine waits first.
func startSelfScrape(ctx context.Context, o *options, e *engine.Engine, instance string, logger log.Logger, reg prometheus.Gatherer) *sync.WaitGroup {
	var running sync.WaitGroup
	if o.selfScrape <= 0 {
		return &running
	}
	scraper := selfscrape.New(selfscrape.Config{
		Gatherer: reg,
		Appender: e,
		Job:      "adapter",
		Instance: instance,
		Interval: o.selfScrape,
		Now:      time.Now,
		Logger:   logger,
	})
	running.Go(func() { scraper.Run(ctx) })
	return &running
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	collectorsversion "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/common/version"
	"github.com/prometheus/prometheus/config"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/disk"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/boards"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/fleet"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/drop"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/remote/limits"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/reload"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/remote/selfscrape"
	"github.com/promtable/promtable/remote/ui"
	"github.com/promtable/promtable/remote/write"
	"github.com/promtable/promtable/series"
)

const (
	// storeTimeout bounds the creation of tables and, for a command that does not serve, also
	// the time until the store is reached. Later steps have their own deadlines, except for
	// the replay of the log, which may take any time.
	storeTimeout = 2 * time.Minute
	// reopenInterval is when to try again to reach the store.
	reopenInterval = 3 * time.Second
)

// run serves until ctx ends. Then it stops in order: it accepts no new requests, waits for
// the running ones, flushes memory to the store and closes the store. The server answers
// from the first moment on that the adapter is alive.
func run(ctx context.Context, o *options, logger log.Logger) (err error) {
	a, err := newAdapter(o, logger)
	if err != nil {
		return err
	}
	if o.blockFile != "" {
		if a.blocked, err = queries.OpenBlockFile(o.blockFile, logger, a.reg); err != nil {
			return fmt.Errorf("--query.block-file: %w", err)
		}
	}
	if o.otlpFile != "" {
		if a.otlp, err = write.OpenOTLPFile(o.otlpFile, logger, a.reg); err != nil {
			return fmt.Errorf("--otlp.config-file: %w", err)
		}
	}
	if o.limitsFile != "" {
		cfg := limits.Config{Path: o.limitsFile, Tenancy: o.tenancy.enabled, Now: o.now, Logger: logger, Registerer: a.reg}
		if a.limits, err = limits.Open(cfg); err != nil {
			return fmt.Errorf("--limits.file: %w", err)
		}
	}
	stopTracing, err := o.startTracing(logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTracing()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if a.server, err = listen(o, logger, a.reg); err != nil {
		return err
	}
	defer a.server.close()
	a.server.reloadOnSignal(ctx)
	a.server.start(cancel)

	var served handlers
	if o.prepare != nil {
		err = o.prepare(ctx)
	}
	if err == nil {
		served, err = a.open(ctx)
	}
	if err == nil {
		err = a.server.serve(ctx, served)
	} else {
		a.server.close()
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			level.Info(logger).Log("msg", "stopped before the adapter was ready", "during", err)
			err = nil
		}
	}
	err = errors.Join(err, a.close())
	if failure := context.Cause(ctx); errors.Is(failure, errServing) {
		return errors.Join(failure, err)
	}
	return err
}

// An adapter is the parts of a serving process.
type adapter struct {
	o      *options
	logger log.Logger
	reg    *prometheus.Registry
	schema series.Schema
	server *server
	// admit refuses writes while the local disk has little space.
	admit func() error
	// meta is the META table of the store.
	meta *meta.Store
	// transfers has the imports of other processes, and heals.
	transfers *history.Transfers
	// retention knows from when on samples are kept.
	retention *retention.Retention
	// rules know what rules cut of some series.
	rules *retention.Rules
	// days knows which days have rollups.
	days *downsample.Days
	// maker is nil if no rollups are made.
	maker *downsample.Maker
	// records are the samples that are deleted.
	records *deletion.Records
	// kept are the tables with the ages to which they keep cells.
	kept []bucketstore.TableSpec
	// clock is compared with those of other adapters. It is nil on the embedded store.
	clock *seal.Clock
	// lastTime is the latest time that a clock had before the start, if that is known.
	lastTime time.Time
	// failingRows returns the rows that the store does not take. It is nil without a
	// buffer.
	failingRows func() []bucketstore.FailingRow
	// lateNotes tell the sealer of late cells. They are nil with a buffer and on the embedded
	// store.
	lateNotes *seal.LateNotes
	// logs are those of other adapters. It is nil on the embedded store.
	logs *logWatch
	// adopter takes the logs of other adapters that have died. It is nil if the log is not in Bigtable.
	adopter *adopter
	// fleet asks other adapters on the store. It is nil on the embedded store. fleetServer serves them at --fleet.listen-address, if that is given.
	fleet       *fleet.Fleet
	fleetServer func(http.Handler)
	// fleetAddress is what META says of --fleet.listen-address.
	fleetAddress string
	// results is nil if results of queries are not cached.
	results *resultcache.Cache
	// blocked has the rules of queries that are blocked. It is nil if no file has any.
	blocked *queries.BlockFile
	// otlp is how OTLP metrics become series. It is nil without a file that says it.
	otlp *reload.File[config.OTLPConfig]
	// limits are nil without a file that says them.
	limits *limits.File
	// snapshots is nil with Bigtable.
	snapshots *snapshots
	// closers end what open has opened. The last one is called first.
	closers []func() error
}

func newAdapter(o *options, logger log.Logger) (*adapter, error) {
	schema, err := newSchema(o)
	if err != nil {
		return nil, err
	}
	a := &adapter{o: o, logger: logger, reg: prometheus.NewRegistry(), schema: schema, transfers: history.NewTransfers(o.now)}
	a.reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectorsversion.NewCollector("adapter"),
	)
	return a, nil
}

func newSchema(o *options) (series.Schema, error) {
	schema, err := series.NewSchema(o.resourceLabels)
	if err != nil {
		return schema, fmt.Errorf("--schema.resource-label: %w", err)
	}
	if o.tenancy.enabled {
		schema = schema.WithTenants()
	}
	return schema, nil
}

// open opens the parts of the adapter, from the store up, and starts the background work.
// It takes as long as the replay of the log.
func (a *adapter) open(ctx context.Context) (served handlers, err error) {
	if bytes := a.o.resultsCache.Base2Bytes; bytes > 0 {
		a.results = resultcache.New(int64(bytes), a.reg)
	}
	at, err := a.openEngine(ctx, opening{serves: true})
	if err != nil {
		return served, err
	}
	rows, store, e := at.rows, at.store, at.engines
	if a.snapshots = newSnapshots(rows, at.appender, a.logger, a.reg); a.snapshots != nil {
		if err := snapshot.Clean(filepath.Join(a.o.path, snapshotsDir)); err != nil {
			return served, fmt.Errorf("remove snapshots that were not finished: %w", err)
		}
	}
	if a.o.snapshot.bucket != "" {
		if err := a.openBucketWatch(ctx); err != nil {
			return served, err
		}
	}
	a.logs = a.newLogWatch(at.appender)
	slow := request.NewSlowLog(request.SlowConfig{Logger: a.logger, Registerer: a.reg, Now: time.Now, SlowerThan: a.o.slowerThan})
	executor := a.newExecutor(store, e)
	active := queries.NewActive(queries.Config{Now: time.Now, Registerer: a.reg, Blocked: a.blocked, Limits: a.queryLimits()})
	answers, err := newAPI(a, e, executor, slow, active)
	if err != nil {
		return served, err
	}
	a.onClose("end queries", answers.Close)
	page, err := ui.New(ui.Config{TraceURL: a.o.web.traceURL})
	if err != nil {
		return served, err
	}
	sealing, err := a.openForSealing(ctx, rows)
	if err != nil {
		return served, err
	}
	if a.o.rollups {
		a.openMaker(store)
	}
	a.startBackground(ctx, sealing, e, executor, a.newWalker(rows, at.appender), a.newRemover(at))
	rules, err := a.openRuleFiles(ctx, rows, e, answers)
	if err != nil {
		return served, err
	}
	a.server.ruleFiles.Store(rules)
	if err := a.startHealing(ctx, e); err != nil {
		return served, err
	}
	protocols := newRemote(a, e, answers, slow, active)
	served = handlers{
		protocols: fleet.Handler(a.o.fleet.reads == fleet.Allow, a.ofTenants(e.tenants, protocols)),
		queries:   fleet.Handler(a.o.fleet.queries == fleet.Allow, a.ofTenants(e.tenants, answers)),
		page:      page,
		boards: a.ofTenants(e.tenants, boards.Handler(boards.Config{
			Store: rows, Schema: a.schema, Now: a.o.now, ReadOnly: a.o.web.readOnlyBoards || a.o.readOnly,
		})),
	}
	if e.tenants != nil {
		served.tenantNames = e.tenants.Names
	}
	if e.tenants != nil && a.o.tenancy.from == fromLabel {
		served.writes = protocols
	}
	if e.tenants != nil && a.o.adminAPI {
		served.tenants = e.tenants.Admin(request.NewResponder(a.logger, a.o.now))
	}
	return served, nil
}

// startBackground starts what runs beside requests, until close. sealing is the store of the
// sealer.
func (a *adapter) startBackground(ctx context.Context, sealing bucketstore.Store, e engines, executor *deletion.Executor, walker *retention.Walker, remover *drop.Remover) {
	ctx, stop := context.WithCancel(ctx)
	var running []*sync.WaitGroup
	a.onClose("", func() error {
		stop()
		for _, group := range running {
			group.Wait()
		}
		if a.clock != nil && !a.o.buffered { // a buffer does so when it is empty
			leave(context.Background(), a.clock, a.logger)
		}
		return nil
	})
	var removing sync.WaitGroup
	removing.Go(func() { a.retention.Run(ctx) })
	if a.o.readOnly {
		removing.Go(func() { executor.Watch(ctx) })
	} else {
		removing.Go(func() { executor.Run(ctx) })
		removing.Go(func() { walker.Run(ctx) })
	}
	if remover != nil && !a.o.readOnly {
		removing.Go(func() { remover.Run(ctx) })
	}
	running = append(running, &removing)
	removing.Go(func() { a.logs.run(ctx) })
	if a.adopter != nil {
		removing.Go(func() { a.adopter.run(ctx) })
	}
	if a.fleet != nil {
		removing.Go(func() { a.fleet.Run(ctx) })
	}
	if a.results != nil && a.o.traits().Shared {
		removing.Go(func() { a.results.DropEvery(ctx, commandsSeen) })
	}
	if a.blocked != nil {
		removing.Go(func() { a.blocked.Run(ctx) })
	}
	if a.otlp != nil {
		removing.Go(func() { a.otlp.Run(ctx) })
	}
	if a.limits != nil {
		removing.Go(func() { a.limits.Run(ctx) })
	}
	running = append(running, a.startSelfScrape(ctx, e))
	running = append(running, a.startSealing(ctx, sealing), a.startRollups(ctx))
}

// onClose makes close call fn. what is the prefix of its error.
func (a *adapter) onClose(what string, fn func() error) {
	a.closers = append(a.closers, func() error { return closing(what, fn()) })
}

// queryLimits returns the limits of the queries of tenants, or nil without --limits.file.
func (a *adapter) queryLimits() func(tenant string) queries.Limits {
	if a.limits == nil {
		return nil
	}
	return func(tenant string) queries.Limits { return a.limits.Of(tenant) }
}

// close ends what open has opened, in reverse order.
func (a *adapter) close() (err error) {
	for _, fn := range slices.Backward(a.closers) {
		err = errors.Join(err, fn())
	}
	return err
}

func closing(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// newEngine returns the engine on store of the samples with keys of a schema.
func newEngine(a *adapter, store bucketstore.Store, appender bucketstore.Appender, schema series.Schema) (*engine.Engine, error) {
	o, cfg := a.o, a.o.engine
	cfg.Store = store
	if a.fleet != nil {
		cfg.Store = a.fleet.Wrap(store)
		cfg.Fleet = engine.Fleet{Indexed: a.fleet.Indexed, Sync: a.fleet.Sync, Told: a.fleet.Told, Join: a.fleet.Join}
	}
	cfg.Appender = a.days.Appender(appender)
	if a.admit == nil {
		a.admit = newWatch(o, a.logger, a.reg).Admit
	}
	cfg.Admit = a.admit
	cfg.Schema = schema
	if a.limits != nil {
		cfg.WriteLimits = a.limits.Of(schema.Tenant())
	}
	cfg.Now = a.o.now
	cfg.LastTime = a.lastTime
	cfg.Timeline = a.retention.View
	if a.records != nil {
		cfg.Deletions = a.records.Of(schema)
	}
	cfg.Logger = a.logger
	cfg.Registerer = a.reg
	cfg.IndexMemory = int(o.indexMemory.Base2Bytes)
	cfg.Days = a.days
	cfg.Written, cfg.WrittenBetween = a.written(schema.Tenant())
	if cfg.MaxFuture == 0 {
		cfg.MaxFuture = engine.Unbounded
	}
	cfg.Limits = reader.Limits{
		MaxSeries:      unbounded(cfg.Limits.MaxSeries),
		MaxSamples:     unbounded(cfg.Limits.MaxSamples),
		MaxSeriesBytes: unbounded(o.remote.MaxFrameBytes),
	}
	if total := o.totalMemory.Base2Bytes; total > 0 { // the batches of all take up to a quarter of it
		cfg.BatchBytes = max(1, int(total)/(16*o.api.MaxConcurrent))
	}
	return engine.New(cfg)
}

// written returns what is called with the samples that a tenant has written, and with the times of those of history.
func (a *adapter) written(tenant string) (written func([]bucketstore.Sample), between func(mint, maxt int64)) {
	written = func(samples []bucketstore.Sample) {
		if a.results != nil {
			a.results.Written(tenant, samples)
		}
		if a.fleetServer != nil {
			a.fleet.Written(tenant, samples)
		}
		a.ruleFiles().written(tenant, samples)
	}
	between = func(mint, maxt int64) {
		if a.results != nil {
			a.results.WrittenBetween(tenant, mint, maxt)
		}
		if a.fleetServer != nil {
			a.fleet.WrittenBetween(tenant, mint, maxt)
		}
		a.ruleFiles().writtenBetween(tenant, mint, maxt)
	}
	return written, between
}

// newWatch returns the watch over the free space of the local disk. Without a store or a log
// on it, there is nothing to watch.
func newWatch(o *options, logger log.Logger, reg prometheus.Registerer) *disk.Watch {
	var paths []string
	if o.traits().OnDisk {
		paths = append(paths, o.path)
	}
	if o.hasDiskLog() {
		paths = append(paths, o.bufferPath)
	}
	return disk.New(disk.Config{
		Paths: paths, MinFree: uint64(o.minFree.Base2Bytes), Usage: o.diskUsage, Stat: os.Stat, Now: time.Now, Logger: logger, Registerer: reg,
	})
}

// newRemote returns the handlers of the protocols.
func newRemote(a *adapter, e engines, answers *api.API, slow *request.SlowLog, active *queries.Active) *remote.Handler {
	o, cfg := a.o, a.o.remote
	cfg.Engine, cfg.Rows, cfg.Writer = e, e, e.writer
	if a.otlp != nil {
		cfg.OTLP.Settings = func() config.OTLPConfig {
			settings, _ := a.otlp.Value()
			return settings
		}
	}
	cfg.Queries, cfg.SlowLog, cfg.Active, cfg.Memory = answers, slow, active, answers.Memory()
	cfg.NodeSeconds = o.kind().nodeSeconds
	cfg.Now = o.now
	cfg.Logger = a.logger
	cfg.Registerer = a.reg
	cfg.Transfers = a.transfers
	if o.adminAPI {
		cfg.History = e.history
	}
	cfg.MaxSamples = unbounded(o.engine.Limits.MaxSamples)
	cfg.MaxFrameBytes = unbounded(cfg.MaxFrameBytes)
	h := remote.New(cfg)
	a.onClose("end writes", h.Close)
	return h
}

// newAPI returns Prometheus' HTTP API.
func newAPI(a *adapter, e engines, executor *deletion.Executor, slow *request.SlowLog, active *queries.Active) (*api.API, error) {
	o, cfg := a.o, a.o.api
	cfg.SlowLog, cfg.Active = slow, active
	cfg.MaxMemory, cfg.MaxTotalMemory = unbounded(int(o.queryMemory.Base2Bytes)), unbounded(int(o.totalMemory.Base2Bytes))
	cfg.Engine = e
	cfg.Results = a.results
	if a.fleet != nil {
		cfg.Confirm = a.fleet.Confirm
	}
	if o.adminAPI {
		cfg.Admin = deleter{e, executor}
		if a.snapshots != nil {
			cfg.Snapshots, cfg.DataDir = a.snapshots, o.path
		}
		if len(o.ruleFiles.files) > 0 {
			cfg.Backfill = a.backfill
		}
	}
	cfg.Rules = func(ctx context.Context) v1.RulesRetriever { return a.ruleFiles().of(ctx) }
	cfg.Alertmanagers = func() v1.AlertmanagerRetriever { return a.ruleFiles().alertmanagers() }
	cfg.Now = o.now
	cfg.Logger = a.logger
	cfg.Registerer = a.reg
	cfg.Gatherer = a.reg
	cfg.Retention = o.retention.text()
	cfg.Cut = a.retention.Latest
	cfg.Missing = a.logs.missing
	if a.limits != nil {
		cfg.LimitsUsed = func(ctx context.Context) map[string]float64 { return a.limits.Of(scope.Of(ctx)).Used(o.now()) }
	}
	cfg.Resolutions = a.resolutions
	cfg.Status = api.Status{
		Version:        version.Version,
		Backend:        o.backend,
		Format:         meta.FormatVersion,
		ResourceLabels: a.schema.ResourceLabels(),
		Tables:         a.kept,
		TablePrefix:    o.tablePrefix,
		FailingRows:    a.failingOf(),
		SelfScrape:     api.SelfScrape{Job: selfScrapeJob, Instance: a.server.instance(), IntervalSeconds: max(0, o.selfScrape.Seconds())},
	}
	o.kind().status(o, &cfg.Status)
	if o.traits().OnDisk {
		cfg.ActiveQueries = filepath.Join(o.path, "queries")
	}
	return api.New(cfg)
}

// unbounded turns a flag in which 0 is no limit into a limit of a Config in which 0 is the
// default.
func unbounded(limit int) int {
	const more = 1 << 48 // more than any machine holds, and products of it do not overflow
	if limit == 0 {
		return more
	}
	return limit
}

// selfScrapeJob is the label job of the adapter's own metrics.
const selfScrapeJob = "adapter"

// startSelfScrape stores the adapter's own metrics until ctx ends, if that is enabled. The
// caller waits for it before it closes the engine.
func (a *adapter) startSelfScrape(ctx context.Context, e engines) *sync.WaitGroup {
	var running sync.WaitGroup
	if a.o.selfScrape <= 0 {
		return &running
	}
	scraper := selfscrape.New(selfscrape.Config{
		Gatherer: a.reg,
		Appender: e,
		Job:      selfScrapeJob,
		Instance: a.server.instance(),
		Interval: a.o.selfScrape,
		Now:      time.Now,
		Logger:   a.logger,
	})
	running.Go(func() { scraper.Run(e.own(ctx)) })
	return &running
}

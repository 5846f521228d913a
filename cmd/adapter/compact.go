package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/remote/timeline"
)

// The subcommands. The default is commandServe.
const (
	commandServe   = "serve"
	commandCompact = "compact"
)

// sealInterval is how often a serving adapter looks for rows to seal.
const sealInterval = time.Minute

// sealOptions are the flags about sealing.
type sealOptions struct {
	enabled       bool
	rowsPerSecond float64
	workers       int
	// interval is the flag of compact. 0 is once.
	interval time.Duration
}

// commands adds the subcommands, and the flags that belong to one of them.
func (o *options) commands(app *kingpin.Application) {
	app.Command(commandServe, "Serve. This is the default command.").Default()
	compact := app.Command(commandCompact, "Seal raw cells in Bigtable to chunks, and make rollups, without serving. Ends when all that is due is done. The embedded store must be closed; it only needs rollups.")
	compact.Flag("interval", "On Bigtable, do not end, but seal again at this interval.").DurationVar(&o.seal.interval)
	o.logCommands(app)
	o.deleteCommand(app)
	o.importCommand(app)
	o.checkCommand(app)
	o.schemaCommand(app)
	o.estimateCommand(app)
	o.demoCommand(app)
	o.snapshotCommands(app)
	o.exportCommand(app)
	o.dumpCommand(app)
	o.copyCommand(app)
	o.healCommand(app)
	o.exemplarCommand(app)
	o.retentionCommand(app)
	o.tenantCommands(app)
	o.doctorCommand(app)
	o.backfillCommand(app)
	o.relabelCommand(app)
}

func (o *options) sealFlags(app *kingpin.Application) {
	app.Flag("seal.enabled", "Seal raw cells in Bigtable to chunks while serving. Of several adapters only one seals at a time. "+
		"Not with a buffer.").Default("true").BoolVar(&o.seal.enabled)
	app.Flag("seal.rows-per-second", "Maximum number of rows a second that are read for sealing.").
		Default(fmt.Sprint(seal.DefaultRowsPerSecond)).Float64Var(&o.seal.rowsPerSecond)
	app.Flag("seal.workers", "How many batches of 200 rows are sealed at the same time.").
		Default(fmt.Sprint(seal.DefaultWorkers)).IntVar(&o.seal.workers)
}

// checkSeal sets the default of sealing, and checks its flags. A buffer and a sealer
// exclude each other, see seal.Clock: the sealer's chunk would win over a sample that the
// buffer received before and stores after. The sealer would have little to do anyway,
// because a buffer writes chunks.
func (o *options) checkSeal() error {
	if !o.given["seal.enabled"] {
		o.seal.enabled = o.traits().Shared && !o.buffered
	}
	switch {
	case o.traits().Shared && o.buffered && o.command == commandCompact:
		return errors.New("compact is for samples that were written without a buffer: leave --buffer.enabled out")
	case o.traits().Shared && o.buffered && o.seal.enabled:
		return errors.New("--seal.enabled is for samples that are written without a buffer, which makes chunks itself: leave it out, or --buffer.enabled")
	case !o.traits().Shared && o.seal.interval != 0:
		return errors.New("--interval is for Bigtable: add --storage.backend=bigtable, or leave it out, because compact keeps the embedded store from serving")
	case !o.traits().Shared && o.command == commandCompact && len(o.resolutions()) == 0:
		return errors.New("compact makes rollups, and --retention.resolution-5m and --retention.resolution-1h are off")
	case !o.traits().Shared && o.seal.enabled:
		return errors.New("--seal.enabled is for Bigtable: add --storage.backend=bigtable, or leave it out")
	case o.seal.rowsPerSecond <= 0:
		return fmt.Errorf("--seal.rows-per-second=%g: give it a positive value, or leave it out for the default", o.seal.rowsPerSecond)
	case o.seal.interval < 0:
		return errors.New("--interval is negative")
	}
	return nil
}

// forSealing returns the options of the store that a sealer uses: those of o, with the app
// profile for sealing if there is one.
func (o *options) forSealing() *options {
	sealing := *o
	if o.sealAppProfile != "" {
		sealing.appProfile = o.sealAppProfile
	}
	return &sealing
}

// compactEmbedded makes all rollups that are due in a closed embedded store, and then deletes the samples that only waited for them.
func compactEmbedded(ctx context.Context, o *options, logger log.Logger) (err error) {
	a, err := newAdapter(o.forExisting(), logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	at, err := a.openEngine(ctx, opening{noEngine: true})
	if err != nil {
		return err
	}
	a.openMaker(at.store)
	if err := a.maker.Once(ctx); err != nil {
		if ctx.Err() != nil {
			level.Info(logger).Log("msg", "stopped; the next compact continues from here")
			return nil
		}
		return err
	}
	if err := a.retention.Advance(ctx); err != nil {
		return err
	}
	level.Info(logger).Log("msg", "all rollups that were due are made")
	return nil
}

// compact seals all that is due, once or at an interval until ctx ends.
func compact(ctx context.Context, o *options, logger log.Logger) (err error) {
	if !o.traits().Shared {
		return compactEmbedded(ctx, o, logger)
	}
	a, err := newAdapter(o, logger)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, o.forSealing(), logger, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the store", store.Close())) }()
	a.meta, err = meta.Open(ctx, store, a.schema, time.Now) // it refuses another schema
	if err == nil {
		err = a.meta.Init(ctx)
	}
	if err != nil {
		return err
	}

	a.records, err = deletion.Open(ctx, deletion.Config{Meta: a.meta, Schema: a.schema, Now: time.Now, Logger: logger})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	a.clock = newClock(o, store, nil, logger, nil)
	defer func() { leave(context.WithoutCancel(ctx), a.clock, logger) }()
	var comparing sync.WaitGroup
	comparing.Go(func() { a.clock.Run(running) })
	defer comparing.Wait()
	defer stop()
	sealer := a.newSealer(store)
	maker, err := a.compactRollups(ctx, store)
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "sealing begins in half an hour at most, once clocks are compared and no other adapter seals")
	if o.seal.interval > 0 {
		if maker != nil {
			comparing.Go(func() { maker.Run(running) })
		}
		sealer.Run(ctx, o.seal.interval)
		return nil
	}
	err = sealer.Once(ctx)
	if maker != nil && (err == nil || errors.Is(err, seal.ErrBuffer)) { // rollups are made beside buffers
		err = errors.Join(err, maker.Once(ctx))
		maker.Leave(context.WithoutCancel(ctx))
	}
	switch {
	case ctx.Err() != nil:
		level.Info(logger).Log("msg", "stopped; the next compact continues from here")
	case errors.Is(err, jobs.ErrHeld), errors.Is(err, downsample.ErrHeld):
		level.Info(logger).Log("msg", "nothing to do", "reason", err)
	case err != nil:
		return err
	default:
		level.Info(logger).Log("msg", "all that was due is sealed, and its rollups are made")
	}
	return nil
}

// compactRollups returns what makes the rollups of a store without serving, or nil if none are made.
func (a *adapter) compactRollups(ctx context.Context, store bucketstore.Store) (*downsample.Maker, error) {
	days, err := downsample.Open(ctx, downsample.Config{Store: store, Schema: a.schema, Tenants: a.tenantSchemas(), Now: a.o.now, Logger: a.logger})
	if err != nil {
		return nil, err
	}
	horizons, err := a.meta.Horizons(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := retention.OpenRules(ctx, a.o.rulesConfig(a.meta, a.schema, a.logger))
	if err != nil {
		return nil, err
	}
	times := timeline.New(timeline.Config{StoreAge: storeAges(a.o.keptTables(store))})
	times.SetHorizons(horizons)
	times.SetRules(rules)
	return newMaker(a.o, days, a.clock, downsample.MakerConfig{Timeline: times}), nil
}

// newClock returns the clock of a process that writes to a store on Bigtable or seals it,
// or nil: one adapter has the embedded store alone. store holds the rows. appender takes
// samples, or is nil. With a buffer the clock keeps its mark until the buffer is empty. If
// the process dies before, the next start on its log takes over the mark.
func newClock(o *options, store bucketstore.Store, appender bucketstore.Appender, logger log.Logger, reg prometheus.Registerer) *seal.Clock {
	if !store.Traits().Shared {
		return nil
	}
	cfg := seal.ClockConfig{Store: store, Now: o.now, MaxFuture: o.engine.MaxFuture, Logger: logger, Registerer: reg}
	b, buffered := appender.(*buffer.Buffer)
	if buffered {
		cfg.Buffered, cfg.ID = true, b.ID()
	}
	clock := seal.NewClock(cfg)
	if buffered {
		b.OnEmpty(func(ctx context.Context) { leave(ctx, clock, logger) })
	}
	return clock
}

// leave deletes our mark from META. If that fails other adapters count this process as
// running for an hour.
func leave(ctx context.Context, clock *seal.Clock, logger log.Logger) {
	if err := clock.Leave(ctx); err != nil {
		level.Warn(logger).Log("msg", "cannot remove this process from META: other adapters count it as running for an hour", "err", err)
	}
}

// processName names this process as the holder of a lease, for operators.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// newSealer returns what seals the rows of store.
func (a *adapter) newSealer(store bucketstore.Store) *seal.Sealer {
	return seal.New(seal.Config{
		Store:         bucketstore.Retrying(store),
		Tenants:       a.tenantSchemas(),
		Now:           time.Now,
		Holder:        processName(),
		RowsPerSecond: a.o.seal.rowsPerSecond,
		Workers:       a.o.seal.workers,
		Held:          a.records.Covered,
		Clock:         a.clock,
		Logger:        a.logger,
		Registerer:    a.reg,
	})
}

// startSealing compares clocks until ctx ends, and seals the rows of store if that is
// enabled. store holds the rows; it is not a buffer. An adapter that does not seal still
// shows its clock, and its buffer, to those that do.
func (a *adapter) startSealing(ctx context.Context, store bucketstore.Store) *sync.WaitGroup {
	var running sync.WaitGroup
	if a.clock == nil {
		return &running
	}
	if a.o.seal.enabled {
		sealer := a.newSealer(store)
		running.Go(func() { sealer.Run(ctx, sealInterval) })
	}
	if a.lateNotes != nil {
		running.Go(func() { a.lateNotes.Run(ctx) })
	}
	running.Go(func() { a.clock.Run(ctx) })
	return &running
}

// openForSealing returns the store of the sealer: rows, or the same store through the app
// profile for sealing. The metrics of rows count the requests of both.
func (a *adapter) openForSealing(ctx context.Context, rows bucketstore.Store) (bucketstore.Store, error) {
	if a.o.sealAppProfile == "" || !a.o.seal.enabled {
		return rows, nil
	}
	sealing := a.o.forSealing()
	sealing.createTables = false // they exist
	store, err := openStore(ctx, sealing, a.logger, a.reg, nil)
	if err != nil {
		return nil, fmt.Errorf("open the store for sealing: %w", err)
	}
	a.onClose("close the store of the sealer", store.Close)
	return store, nil
}

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
	"github.com/promtable/promtable/bucketstore/deletion"
	"github.com/promtable/promtable/bucketstore/downsample"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/retention"
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
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
	o.retentionCommand(app)
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
		o.seal.enabled = o.backend == backendBigtable && !o.buffered
	}
	switch {
	case o.backend == backendBigtable && o.buffered && o.command == commandCompact:
		return errors.New("compact is for samples that were written without a buffer: leave --buffer.enabled out")
	case o.backend == backendBigtable && o.buffered && o.seal.enabled:
		return errors.New("--seal.enabled is for samples that are written without a buffer, which makes chunks itself: leave it out, or --buffer.enabled")
	case o.backend != backendBigtable && o.seal.interval != 0:
		return errors.New("--interval is for Bigtable: add --storage.backend=bigtable, or leave it out, because compact keeps the embedded store from serving")
	case o.backend != backendBigtable && o.command == commandCompact && len(o.resolutions()) == 0:
		return errors.New("compact makes rollups, and --retention.resolution-5m and --retention.resolution-1h are off")
	case o.backend != backendBigtable && o.seal.enabled:
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
	_, store, err := a.openEngine(ctx)
	if err != nil {
		return err
	}
	if err := a.openMaker(store); err != nil {
		return err
	}
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
	if o.backend == backendEmbedded {
		return compactEmbedded(ctx, o, logger)
	}
	schema, err := newSchema(o)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, o.forSealing(), logger, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the store", store.Close())) }()
	about, err := meta.Open(ctx, store, schema, time.Now) // it refuses another schema
	if err == nil {
		err = about.Init(ctx)
	}
	if err != nil {
		return err
	}

	records, err := deletion.Open(ctx, deletion.Config{Meta: about, Schema: schema, Now: time.Now, Shared: true, Logger: logger})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	clock := newClock(o, store, nil, logger, nil)
	defer func() { leave(context.WithoutCancel(ctx), clock, logger) }()
	var comparing sync.WaitGroup
	comparing.Go(func() { clock.Run(running) })
	defer comparing.Wait()
	defer stop()
	sealer, err := newSealer(o, schema, store, clock, records, logger, nil)
	if err != nil {
		return err
	}
	maker, err := compactRollups(ctx, o, schema, store, about, clock, logger)
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "sealing begins when clocks are compared and its turn has come, in half an hour at most")
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
	case errors.Is(err, seal.ErrHeld), errors.Is(err, downsample.ErrHeld):
		level.Info(logger).Log("msg", "nothing to do", "reason", err)
	case err != nil:
		return err
	default:
		level.Info(logger).Log("msg", "all that was due is sealed, and its rollups are made")
	}
	return nil
}

// compactRollups returns what makes the rollups of a store without serving, or nil if none are made.
func compactRollups(ctx context.Context, o *options, schema series.Schema, store bucketstore.Store, about *meta.Store, clock *seal.Clock, logger log.Logger) (*downsample.Maker, error) {
	days, err := downsample.Open(ctx, downsample.Config{Store: store, Schema: schema, Now: o.now, Logger: logger})
	if err != nil {
		return nil, err
	}
	horizons, err := about.Horizons(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := retention.OpenRules(ctx, o.rulesConfig(about, schema, logger))
	if err != nil {
		return nil, err
	}
	age := storeAges(o.keptTables(store))[bucketstore.Raw]
	deleted := func() int64 {
		if age <= 0 {
			return horizons[bucketstore.Raw]
		}
		return max(horizons[bucketstore.Raw], o.now().Add(-age).UnixMilli())
	}
	return newMaker(o, days, clock, downsample.MakerConfig{Horizon: deleted, Cuts: keyCuts(rules)})
}

// newClock returns the clock of a process that writes to a store on Bigtable or seals it,
// or nil: one adapter has the embedded store alone. store holds the rows. appender takes
// samples, or is nil. With a buffer the clock keeps its mark until the buffer is empty. If
// the process dies before, the next start on its log takes over the mark.
func newClock(o *options, store bucketstore.Store, appender bucketstore.Appender, logger log.Logger, reg prometheus.Registerer) *seal.Clock {
	if o.backend != backendBigtable {
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
		level.Warn(logger).Log("msg", "other adapters count this process as running for an hour", "err", err)
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

func newSealer(o *options, schema series.Schema, store bucketstore.Store, clock *seal.Clock, records *deletion.Records, logger log.Logger, reg prometheus.Registerer) (*seal.Sealer, error) {
	return seal.New(seal.Config{
		Store:         bucketstore.Patient(store),
		Schema:        schema,
		Now:           time.Now,
		Holder:        processName(),
		RowsPerSecond: o.seal.rowsPerSecond,
		Workers:       o.seal.workers,
		Held:          records.Covered,
		Clock:         clock,
		Logger:        logger,
		Registerer:    reg,
	})
}

// startSealing compares clocks until ctx ends, and seals the rows of store if that is
// enabled. store holds the rows; it is not a buffer. An adapter that does not seal still
// shows its clock, and its buffer, to those that do.
func (a *adapter) startSealing(ctx context.Context, store bucketstore.Store) (*sync.WaitGroup, error) {
	var running sync.WaitGroup
	if a.clock == nil {
		return &running, nil
	}
	if a.o.seal.enabled {
		sealer, err := newSealer(a.o, a.schema, store, a.clock, a.records, a.logger, a.reg)
		if err != nil {
			return nil, err
		}
		running.Go(func() { sealer.Run(ctx, sealInterval) })
	}
	if a.lateNotes != nil {
		running.Go(func() { a.lateNotes.Run(ctx) })
	}
	running.Go(func() { a.clock.Run(ctx) })
	return &running, nil
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

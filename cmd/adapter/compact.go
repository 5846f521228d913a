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
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
)

// The subcommands. The default is commandServe.
const (
	commandServe   = "serve"
	commandCompact = "compact"
)

// sealInterval is how often a process that serves looks for something to seal.
const sealInterval = time.Minute

// sealOptions are the flags about sealing.
type sealOptions struct {
	enabled       bool
	rowsPerSecond float64
	// interval is that of compact. 0 is once.
	interval time.Duration
}

// commands adds the subcommands, and the flags that belong to one of them.
func (o *options) commands(app *kingpin.Application) {
	app.Command(commandServe, "Serve. This is what is done without a command.").Default()
	compact := app.Command(commandCompact, "Seal raw cells in Bigtable to chunks, without serving: what is due now, then end.")
	compact.Flag("interval", "Do not end, but look for more at this interval.").DurationVar(&o.seal.interval)
	o.logCommands(app)
}

func (o *options) sealFlags(app *kingpin.Application) {
	o.given["seal.enabled"] = new(bool)
	app.Flag("seal.enabled", "Seal raw cells in Bigtable to chunks while serving; of several adapters one does it at a time. "+
		"Not with a buffer.").Default("true").
		IsSetByUser(o.given["seal.enabled"]).BoolVar(&o.seal.enabled)
	app.Flag("seal.rows-per-second", "Rows that are read a second at most, to be sealed.").
		Default(fmt.Sprint(seal.DefaultRowsPerSecond)).Float64Var(&o.seal.rowsPerSecond)
}

// checkSeal fills in what backend and buffer decide about sealing. A buffer and a
// sealer exclude each other: a sample that the buffer took before the sealer read
// a row, and stores after, would lose to the sealer's chunk, whose stamp is later
// and which does not know it, see seal.Clock. Nor has the sealer much to do there:
// all that a buffer writes is chunks.
func (o *options) checkSeal() error {
	if !*o.given["seal.enabled"] {
		o.seal.enabled = o.backend == backendBigtable && !o.buffered
	}
	switch {
	case o.backend == backendBigtable && o.buffered && o.command == commandCompact:
		return errors.New("compact is for samples that were written without a buffer: leave --buffer.enabled out")
	case o.backend == backendBigtable && o.buffered && o.seal.enabled:
		return errors.New("--seal.enabled is for samples that are written without a buffer, which makes chunks itself: leave it out, or --buffer.enabled")
	case o.backend != backendBigtable && o.command == commandCompact:
		return errors.New("compact is for Bigtable: add --storage.backend=bigtable; the embedded store needs none")
	case o.backend != backendBigtable && o.seal.enabled:
		return errors.New("--seal.enabled is for Bigtable: add --storage.backend=bigtable, or leave it out")
	case o.seal.rowsPerSecond <= 0:
		return fmt.Errorf("--seal.rows-per-second=%g: give it a positive value, or leave it out for the default", o.seal.rowsPerSecond)
	case o.seal.interval < 0:
		return errors.New("--interval is negative")
	}
	return nil
}

// compact seals what is due, once, or again and again until ctx ends.
func compact(ctx context.Context, o *options, logger log.Logger) (err error) {
	schema, err := newSchema(o)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, o, logger, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the store", store.Close())) }()
	about, err := meta.Open(ctx, store, schema, time.Now) // which refuses rows that are keyed in another way
	if err == nil {
		err = about.Init(ctx)
	}
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
	sealer, err := newSealer(o, schema, store, clock, logger, nil)
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "sealing begins when clocks are compared and its turn has come, in half an hour at most")
	if o.seal.interval > 0 {
		sealer.Run(ctx, o.seal.interval)
		return nil
	}
	switch err := sealer.Once(ctx); {
	case ctx.Err() != nil:
		level.Info(logger).Log("msg", "told to stop; the next one goes on from here")
	case errors.Is(err, seal.ErrHeld):
		level.Info(logger).Log("msg", "nothing to do", "reason", err)
	case err != nil:
		return err
	default:
		level.Info(logger).Log("msg", "all that was due is sealed")
	}
	return nil
}

// newClock returns what compares clocks over store, the one that holds the rows, or
// nil if it is that of one adapter. appender is what takes samples, nil if nothing
// does: a buffer says that it is there until nothing is left in it, and the next
// start on its log goes on with that if the process dies before.
func newClock(o *options, store bucketstore.Store, appender bucketstore.Appender, logger log.Logger, reg prometheus.Registerer) *seal.Clock {
	if o.backend != backendBigtable {
		return nil
	}
	cfg := seal.ClockConfig{Store: store, Now: time.Now, MaxFuture: o.engine.MaxFuture, Logger: logger, Registerer: reg}
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

// leave takes our mark away from META. If that fails others take this process for
// one that runs, for an hour.
func leave(ctx context.Context, clock *seal.Clock, logger log.Logger) {
	if err := clock.Leave(ctx); err != nil {
		level.Warn(logger).Log("msg", "others take this process for one that runs, for an hour", "err", err)
	}
}

func newSealer(o *options, schema series.Schema, store bucketstore.Store, clock *seal.Clock, logger log.Logger, reg prometheus.Registerer) (*seal.Sealer, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return seal.New(seal.Config{
		Store:         bucketstore.Patient(store),
		Schema:        schema,
		Now:           time.Now,
		Holder:        fmt.Sprintf("%s:%d", host, os.Getpid()),
		RowsPerSecond: o.seal.rowsPerSecond,
		Clock:         clock,
		Logger:        logger,
		Registerer:    reg,
	})
}

// startSealing compares clocks and seals the rows of store until ctx ends, if that
// is wanted: store is the one that holds the rows, not a buffer before it. An
// adapter that does not seal still shows its clock, and that it has a buffer, to
// those that do.
func startSealing(ctx context.Context, o *options, schema series.Schema, store bucketstore.Store, clock *seal.Clock, logger log.Logger, reg prometheus.Registerer) (*sync.WaitGroup, error) {
	var running sync.WaitGroup
	if clock == nil {
		return &running, nil
	}
	if !o.seal.enabled {
		running.Go(func() { clock.Run(ctx) })
		return &running, nil
	}
	sealer, err := newSealer(o, schema, store, clock, logger, reg)
	if err != nil {
		return nil, err
	}
	running.Go(func() { clock.Run(ctx) })
	running.Go(func() { sealer.Run(ctx, sealInterval) })
	return &running, nil
}

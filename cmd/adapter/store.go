package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// errStore marks an error of openEngine about the store itself, which an adapter may hold that serves.
type errStore struct{ error }

func (e errStore) Unwrap() error { return e.error }

// An opening says what a store is opened for. The zero value is for a command that reads and writes.
type opening struct {
	// serves waits for a store that cannot be reached, and bounds how long the end may take.
	serves bool
	// readOnly opens an existing store to read samples only. No file of an embedded store changes, unless its log holds samples: these are
	// stored first, as at a start.
	readOnly bool
	// dry stores no samples.
	dry bool
	// noEngine leaves out the engine.
	noEngine bool
}

// opened is an open store, and the engine on it. store is what is read: with a buffer, not all samples are in rows.
type opened struct {
	rows, store bucketstore.Store
	appender    bucketstore.Appender
	// engine is that of a command, or of a store without tenants. engines are those that serve.
	engine  *engine.Engine
	engines engines
}

// openEngine opens the store and an engine on it, without background work. What the log holds is in the store then. close closes both. An
// error is an errStore if the store itself cannot be opened.
func (a *adapter) openEngine(ctx context.Context, how opening) (at opened, err error) {
	if how.readOnly && !a.o.traits().Shared {
		holds, err := buffer.HoldsSamples(a.o.bufferPath)
		a.o.readOnly = err == nil && !holds // the error comes again when the log is opened
	}
	var waiting func(error)
	if how.serves {
		waiting = a.server.waitFor
	}
	if at.rows, err = openStore(ctx, a.o, a.logger, a.reg, waiting); err != nil {
		return at, errStore{err}
	}
	if how.serves { // others are answered until the buffer is empty
		a.fleetAddress, err = a.listenForFleet()
	}
	if err == nil {
		at.store, at.appender, err = a.openAppender(ctx, at.rows)
	} else {
		at.store = at.rows
	}
	a.onClose("close the store", at.store.Close)
	if err != nil || how.noEngine {
		return at, err
	}
	if err := a.openFleet(at.appender); err != nil {
		return at, err
	}
	if b, ok := at.appender.(*buffer.Buffer); ok && how.serves {
		if err := b.WaitJoined(ctx); err != nil {
			return at, err
		}
	}
	if how.dry {
		at.store = dryStore{at.store}
	}
	var closeEngines func(context.Context) error
	if a.schema.Tenancy() && how.serves {
		if at.engines, err = a.openTenants(ctx, at); err == nil {
			closeEngines = at.engines.tenants.Close
		}
	} else {
		var schema series.Schema
		if schema, err = a.commandSchema(ctx); err == nil {
			at.engine, err = newEngine(a, at.store, at.appender, schema)
		}
		if err == nil {
			at.engines, closeEngines = a.oneEngine(at.engine), at.engine.Close
		}
	}
	if err != nil {
		return at, err
	}
	a.onClose("flush", func() error {
		ctx := context.WithoutCancel(ctx)
		if how.serves {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.o.shutdownTimeout)
			defer cancel()
		}
		return closeEngines(ctx)
	})
	return at, nil
}

// forExisting returns the options of a command that makes no store: those of o, but a store that is not there is refused.
func (o *options) forExisting() *options {
	existing := *o
	existing.createTables, existing.existing = false, true
	return &existing
}

// openStore opens the store of the chosen backend. As long as the store cannot be reached it
// tries again, and calls waiting with the reason, and with nil at the end. If waiting is nil
// it gives up after storeTimeout.
func openStore(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer, waiting func(error)) (bucketstore.Store, error) {
	level.Info(logger).Log("msg", "opening the store", "backend", o.backend, "location", o.location())
	if waiting == nil {
		waiting = func(error) {}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.storeTimeout)
		defer cancel()
	}
	for {
		store, err := o.kind().open(ctx, o, logger, reg)
		if !errors.Is(err, bucketstore.ErrUnreachable) || ctx.Err() != nil {
			waiting(nil)
			return store, err
		}
		level.Warn(logger).Log("msg", "the store cannot be reached, trying again", "interval", reopenInterval, "err", err)
		waiting(err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-time.After(reopenInterval):
		}
	}
}

// openAppender returns the Appender over rows, and the Store for reads: with a buffer,
// samples are not in rows at first. It checks the schema, and that the log of the buffer
// belongs to this store, before the log is replayed.
func (a *adapter) openAppender(ctx context.Context, rows bucketstore.Store) (bucketstore.Store, bucketstore.Appender, error) {
	terms, err := newTerms(ctx, a.o, a.schema, rows, a.logger)
	if err != nil {
		return rows, nil, err
	}
	a.meta = terms.Store
	if a.o.readOnly {
		return a.openReading(ctx, rows, terms)
	}
	if err := a.checkShared(ctx, a.meta, rows); err != nil { // before a log is bound and replayed
		return rows, nil, err
	}
	if err := a.openDays(ctx, rows); err != nil {
		return rows, nil, err
	}
	if !a.o.buffered {
		if a.o.command == commandServe { // commands write no raw cells
			if err := a.checkFleetless(ctx, a.meta); err != nil {
				return rows, nil, err
			}
		}
		if err := checkNoLog(ctx, a.o, terms); err != nil {
			return rows, nil, err
		}
		if err := a.openRemoval(ctx, rows); err != nil {
			return rows, nil, err
		}
		a.clock = newClock(a.o, rows, nil, a.logger, a.reg)
		rows = bucketstore.Isolate(a.days.Counted(rows), a.o.now) // also for exemplars
		direct := bucketstore.NewDirect(rows, a.schema, a.o.now, a.clock.RawFrom)
		direct.OnArrival(a.records.Arrival)
		if a.clock != nil {
			if a.lastTime, err = a.clock.Latest(ctx); err != nil {
				return rows, nil, err
			}
			a.lateNotes = seal.NewLateNotes(rows, a.schema, a.o.now, a.logger)
			direct.OnLate(a.lateNotes.Add)
		}
		return rows, direct, nil
	}
	if a.o.command == commandServe {
		check := a.checkFleetless
		if a.fleetAddress != "" {
			check = a.checkSettings
		}
		if err := check(ctx, a.meta); err != nil {
			return rows, nil, err
		}
	}
	if a.o.hasRowLog() && a.fleetAddress == "" {
		return rows, nil, errors.New("--buffer.log=bigtable is for an adapter that serves: this command needs a log on the disk, or --url")
	}
	dir, err := bindLog(ctx, a.o, terms, rows)
	if err != nil {
		return rows, nil, err
	}
	if err := a.openRemoval(ctx, rows); err != nil {
		return rows, nil, errors.Join(err, dir.Close())
	}
	cfg, err := a.replayConfig(ctx, rows)
	if err != nil {
		return rows, nil, errors.Join(err, dir.Close())
	}
	cfg.Address, cfg.Settings = a.fleetAddress, a.o.fleetSettings()
	cfg.Registerer = a.reg
	cfg.Die = func(err error) {
		msg := "the log of the buffer failed; the process ends, to acknowledge no sample that may be lost"
		if errors.Is(err, syscall.ENOSPC) {
			msg = "the log of the buffer failed: the disk is full; the process ends, to acknowledge no sample that may be lost. Free some space and start again"
		}
		level.Error(a.logger).Log("msg", msg, "path", a.o.bufferPath, "err", err)
		os.Exit(1)
	}
	b, err := buffer.Open(ctx, dir, cfg)
	if err != nil {
		return rows, nil, adviseLog(a.o, err)
	}
	if err := a.records.SetBuffer(ctx, b); err != nil {
		return b, nil, err
	}
	if a.o.hasRowLog() {
		terms.Discard = ""
		a.adopter = newAdopter(a, &buffer.Adopter{Terms: terms, Rows: rows, Own: b.ID(), Config: func(ctx context.Context) (buffer.Config, error) {
			if err := a.records.Poll(ctx); err != nil {
				return buffer.Config{}, err
			}
			return a.replayConfig(ctx, rows)
		}})
	}
	a.clock = newClock(a.o, rows, b, a.logger, a.reg)
	a.failingRows = b.FailingRows
	a.lastTime = time.UnixMilli(b.LastStamp())
	return b, b, nil
}

// replayConfig returns the configuration of a buffer on rows with what a replay needs: what is kept, and the deletions.
func (a *adapter) replayConfig(ctx context.Context, rows bucketstore.Store) (buffer.Config, error) {
	cfg := bufferConfig(a.o)
	cfg.Store = a.days.Counted(rows)
	if rows.Traits().Shared { // for the makers of other adapters
		cfg.Closed = a.days.Refused
	}
	cfg.Cut = a.retention.Horizon(rollup.Raw)
	rules, err := a.retention.KeyRules(ctx)
	if err != nil {
		return cfg, err
	}
	cfg.LaterCut, cfg.LatestCut = rules.KeyCut, rules.Latest()
	cfg.Barriers = a.records.Barriers()
	cfg.Schema, cfg.Logger = a.schema, a.logger
	return cfg, nil
}

// openReading is openAppender for a store that is only read.
func (a *adapter) openReading(ctx context.Context, rows bucketstore.Store, terms buffer.Terms) (bucketstore.Store, bucketstore.Appender, error) {
	if err := adviseLog(a.o, terms.CheckBinding(ctx, a.o.bufferPath)); err != nil {
		return rows, nil, err
	}
	if err := a.openDays(ctx, rows); err != nil {
		return rows, nil, err
	}
	return rows, bucketstore.NewDirect(rows, a.schema, a.o.now, nil), a.openRemoval(ctx, rows)
}

// bufferConfig returns the configuration of the buffer from flags.
func bufferConfig(o *options) buffer.Config {
	cfg := buffer.Config{
		Now:           o.now,
		FsyncInterval: o.fsyncInterval,
		MaxLogBytes:   int(o.bufferLog.Base2Bytes),
		MaxOpenBytes:  int(o.bufferMemory.Base2Bytes),
	}
	cfg.SealSpread = o.kind().sealSpread
	if o.hasRowLog() {
		cfg.GroupInterval = groupInterval
	}
	return cfg
}

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
	"github.com/prometheus/common/version"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/remote/engine"
)

// errStore marks an error of openEngine about the store itself, which an adapter may hold that serves.
type errStore struct{ error }

func (e errStore) Unwrap() error { return e.error }

// openEngine opens the store and an engine on it, as for serving, without background work. What the log holds is in the store then.
func (a *adapter) openEngine(ctx context.Context) (*engine.Engine, bucketstore.Store, error) {
	rows, err := openStore(ctx, a.o, a.logger, a.reg, nil)
	if err != nil {
		return nil, nil, errStore{err}
	}
	store, appender, err := a.openAppender(ctx, rows)
	a.onClose("close the store", store.Close)
	if err != nil {
		return nil, nil, err
	}
	e, err := newEngine(a, store, appender)
	if err == nil {
		a.onClose("flush", func() error { return e.Close(context.WithoutCancel(ctx)) })
	}
	return e, store, err
}

// openForReading opens an existing store and an engine on it, to read samples only. No file of an embedded store changes, unless its log holds
// samples: these are stored first, as at a start.
func (a *adapter) openForReading(ctx context.Context) (*engine.Engine, error) {
	if holds, err := buffer.HoldsSamples(a.o.bufferPath); err != nil || holds || !a.o.isEmbedded() { // an error is that of openEngine, too
		e, _, err := a.openEngine(ctx)
		return e, err
	}
	a.o.readOnly = true
	rows, err := openStore(ctx, a.o, a.logger, a.reg, nil)
	if err != nil {
		return nil, errStore{err}
	}
	a.onClose("close the store", rows.Close)
	terms, err := newTerms(ctx, a.o, a.schema, rows, a.logger)
	if err != nil {
		return nil, err
	}
	a.meta = terms.Store
	if err := adviseLog(a.o, terms.CheckBinding(ctx, a.o.bufferPath)); err != nil {
		return nil, err
	}
	if err := a.openDays(ctx, rows); err != nil {
		return nil, err
	}
	if err := a.openRemoval(ctx, rows); err != nil {
		return nil, err
	}
	e, err := newEngine(a, rows, bucketstore.NewDirect(rows, a.schema, a.o.now, nil))
	if err == nil {
		a.onClose("end reading", func() error { return e.Close(context.WithoutCancel(ctx)) })
	}
	return e, err
}

// forExisting returns the options of a command that makes no store: those of o, but a directory without one is refused.
func (o *options) forExisting() *options {
	existing := *o
	existing.existing = true
	return &existing
}

// openStore opens the store of the chosen backend. As long as the store cannot be reached it
// tries again, and calls waiting with the reason, and with nil at the end. If waiting is nil
// it gives up after storeTimeout.
func openStore(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer, waiting func(error)) (bucketstore.Store, error) {
	tables := o.tables()
	if o.backend == backendEmbedded {
		if err := snapshot.CheckRestored(o.path); err != nil {
			return nil, err
		}
		level.Info(logger).Log("msg", "opening the embedded store", "path", o.path)
		return pebble.Open(pebble.Config{Dir: o.path, Existing: o.existing, ReadOnly: o.readOnly, Tables: tables, Now: time.Now, Logger: logger, Registerer: reg,
			MinFree: uint64(o.minFree.Base2Bytes)})
	}
	level.Info(logger).Log("msg", "opening Bigtable", "project", o.project, "instance", o.instance)
	if waiting == nil {
		waiting = func(error) {}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.storeTimeout)
		defer cancel()
	}
	for {
		store, err := openBigtable(ctx, o, logger, reg, tables)
		if !errors.Is(err, bigtable.ErrUnreachable) || ctx.Err() != nil {
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

// openBigtable opens the store on Bigtable, once.
func openBigtable(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer, tables []bucketstore.TableSpec) (bucketstore.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, o.storeTimeout)
	defer cancel()
	cfg := bigtableConfig(o, tables)
	cfg.Logger, cfg.Registerer = logger, reg
	store, err := bigtable.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return store, nil
}

// bigtableConfig returns the configuration of the store on Bigtable from flags.
func bigtableConfig(o *options, tables []bucketstore.TableSpec) bigtable.Config {
	return bigtable.Config{
		Project:       o.project,
		Instance:      o.instance,
		AppProfile:    o.appProfile,
		TablePrefix:   o.tablePrefix,
		Connections:   o.connections,
		CreateTables:  o.createTables,
		DirectAccess:  o.directAccess,
		ClientMetrics: o.clientMetrics,
		UserAgent:     "promtable/" + version.Version,
		Tables:        tables,
		ReachTimeout:  o.reachTimeout,
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
	if err := a.checkShared(ctx, a.meta, rows); err != nil { // before a log is bound and replayed
		return rows, nil, err
	}
	if err := a.openDays(ctx, rows); err != nil {
		return rows, nil, err
	}
	if !a.o.buffered {
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
	dir, err := bindLog(ctx, a.o, terms)
	if err != nil {
		return rows, nil, err
	}
	if err := a.openRemoval(ctx, rows); err != nil {
		return rows, nil, errors.Join(err, dir.Close())
	}
	cfg := bufferConfig(a.o)
	cfg.Store = a.days.Counted(rows)
	if a.o.backend == backendBigtable { // for the makers of other adapters
		cfg.Closed = a.days.Refused
	}
	cfg.Cut = a.retention.Horizon(bucketstore.Raw)
	cuts := a.rules.Known()
	cfg.LaterCut, cfg.LatestCut = cuts.KeyCut, cuts.Latest()
	cfg.Barriers = a.records.Barriers()
	cfg.Schema = a.schema
	cfg.Logger = a.logger
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
	a.clock = newClock(a.o, rows, b, a.logger, a.reg)
	a.failingRows = b.FailingRows
	a.lastTime = time.UnixMilli(b.LastStamp())
	return b, b, nil
}

// bufferConfig returns the configuration of the buffer from flags.
func bufferConfig(o *options) buffer.Config {
	cfg := buffer.Config{
		Now:           o.now,
		FsyncInterval: o.fsyncInterval,
		MaxLogBytes:   int(o.bufferLog.Base2Bytes),
		MaxOpenBytes:  int(o.bufferMemory.Base2Bytes),
	}
	if o.backend == backendEmbedded {
		cfg.SealSpread = embeddedSpread
	}
	return cfg
}

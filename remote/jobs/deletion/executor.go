package deletion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
)

const (
	// interval is how often Run looks for deletions.
	interval = time.Minute
	// defaultRowsPerSecond is that of package seal.
	defaultRowsPerSecond = 2000
	// seriesAtOnce is how many series are deleted between two notes of the progress.
	seriesAtOnce = 100
	// batchOps and batchBytes are the size at which mutations are sent. A row has no more
	// operations in one mutation.
	batchOps   = 10_000
	batchBytes = 4 << 20
)

// A FindSeries calls fn with the key of each series that matches and may have samples before limit,
// in milliseconds, and with the bases of its rows, ascending. fn keeps what it is given.
type FindSeries func(ctx context.Context, matchers []*labels.Matcher, limit int64, fn func(key []byte, bases []int64)) error

// FindIn returns the Find of an ExecutorConfig in a store without tenants.
func FindIn(find FindSeries) func(tenant string) (FindSeries, error) {
	return func(string) (FindSeries, error) { return find, nil }
}

// A Timeline is that of package timeline.
type Timeline interface {
	// Closed returns the end of the last day of which no samples are taken, in milliseconds, as META has it now.
	Closed(ctx context.Context) (int64, error)
	// KeyRules says the same of single series.
	KeyRules(ctx context.Context) (timeline.KeyRules, error)
}

// ExecutorConfig says what an Executor works on. Records, Store and Find are required.
type ExecutorConfig struct {
	Records *Records
	// Store holds the rows. What counts writes to days counts those of the executor if they go
	// through it. A buffer shows what is in its memory, too.
	Store bucketstore.Store
	// Find returns what finds the series of a tenant, which is empty in a store without tenants.
	Find func(tenant string) (FindSeries, error)
	// Admit, if set, is asked before samples are removed, which takes space at first. After its error
	// nothing more is removed until the next turn.
	Admit func() error
	// Timeline, if set, says of which days no rollup is made any more, or only from samples that are final. Up to there the
	// executor removes buckets of rollups, too. It is asked anew for each batch.
	Timeline Timeline
	// Flush, if set, writes what waits in memory to CURRENT. It is called when a deletion is
	// new, so that nothing from before it is written later.
	Flush func(ctx context.Context) error
	// Holder names the process, for operators.
	Holder string
	// RowsPerSecond bounds how many rows are read. 0 is 2000.
	RowsPerSecond float64
	// Logger may be nil.
	Logger log.Logger
}

// An Executor removes what is deleted from the store. It is safe for concurrent use.
type Executor struct {
	cfg     ExecutorConfig
	records *Records
	// sleep is replaced by tests.
	sleep jobs.Sleep

	// working guards the fields below. It is a lock that a context can end.
	working chan struct{}
	lease   *jobs.Lease[state]
	pace    *jobs.Pace
	filter  filter
	// flushed are the stamps of deletions for which CURRENT was flushed, by ID.
	flushed map[string]int64
}

// A state is the row META/delete, as JSON.
type state struct {
	meta.Holding
	// ID and Stamp are those of the deletion in work, After is the key of the last series that
	// is done.
	ID    string `json:"id,omitempty"`
	Stamp int64  `json:"stamp,omitempty"`
	After []byte `json:"after,omitempty"`
}

// NewExecutor returns an executor, which does nothing before Run, Advance or Finish.
func NewExecutor(cfg ExecutorConfig) *Executor {
	if cfg.RowsPerSecond <= 0 {
		cfg.RowsPerSecond = defaultRowsPerSecond
	}
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Admit == nil {
		cfg.Admit = func() error { return nil }
	}
	if cfg.Flush == nil {
		cfg.Flush = func(context.Context) error { return nil }
	}
	x := &Executor{cfg: cfg, records: cfg.Records, sleep: bucketstore.Sleep, working: make(chan struct{}, 1)}
	x.lease = jobs.NewLease(cfg.Store, series.MetaDelete, cfg.Records.cfg.Now, cfg.Holder, func(s *state) *meta.Holding { return &s.Holding })
	x.pace = jobs.NewPace(cfg.RowsPerSecond, cfg.Records.cfg.Now, func(ctx context.Context, d time.Duration) error { return x.sleep(ctx, d) })
	return x
}

// Run calls Advance at an interval until ctx ends, and logs errors.
func (x *Executor) Run(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	if x.records.cfg.Meta.Traits().Shared { // also while Advance works
		ended.Go(func() { x.Watch(ctx) })
	}
	x.loop(ctx, "deleted samples are not removed yet, trying again", x.Advance)
}

// Watch reads the deletions of other adapters until ctx ends, and removes nothing.
func (x *Executor) Watch(ctx context.Context) {
	x.loop(ctx, "deletions not read, trying again", x.records.Poll)
}

// loop calls work at an interval, and logs its errors with msg.
func (x *Executor) loop(ctx context.Context, msg string, work func(context.Context) error) {
	jobs.Loop{Interval: interval, Sleep: x.sleep, Work: work, Failed: func(err error) {
		if errors.Is(err, errWaiting) {
			level.Info(x.cfg.Logger).Log("msg", "deleted samples are hidden and not removed yet", "reason", err)
			return
		}
		x.records.metrics.failures.Inc()
		level.Warn(x.cfg.Logger).Log("msg", msg, "err", err)
	}}.Run(ctx)
}

// Finish calls Advance until nothing is left to remove, or ctx ends.
func (x *Executor) Finish(ctx context.Context) error {
	for {
		err := x.Advance(ctx)
		if err == nil || !errors.Is(err, errWaiting) {
			return err
		}
		if x.sleep(ctx, time.Second) != nil {
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// Advance removes from the store what is deleted, as far as that may begin.
func (x *Executor) Advance(ctx context.Context) error {
	select {
	case x.working <- struct{}{}:
		defer func() { <-x.working }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := x.records.Poll(ctx); err != nil {
		return err
	}
	if len(x.records.pending()) > 0 {
		if err := x.cfg.Admit(); err != nil {
			return err
		}
	}
	if err := x.flushCurrent(ctx); err != nil {
		return err
	}
	if err := x.records.pass(ctx); err != nil {
		return fmt.Errorf("empty the buffer of what is deleted: %w", err)
	}
	var waiting error
	var ready []*record
	for _, rec := range x.records.known.Load().all {
		if err := x.dropFinished(ctx, rec); err != nil {
			return err
		}
		if rec.Done > 0 || rec.foreign {
			continue
		}
		switch err := x.records.ready(ctx, rec); {
		case err == nil:
			ready = append(ready, rec)
		case errors.Is(err, errWaiting):
			waiting = err
		default:
			return err
		}
	}
	if len(ready) == 0 {
		return waiting
	}
	return errors.Join(x.deleteAll(ctx, ready), waiting)
}

// flushCurrent flushes CURRENT if there are new deletions.
func (x *Executor) flushCurrent(ctx context.Context) error {
	stamps, isNew := make(map[string]int64), false
	for _, rec := range x.records.pending() {
		stamps[rec.ID] = rec.Stamp
		isNew = isNew || x.flushed[rec.ID] != rec.Stamp
	}
	if isNew {
		if err := x.cfg.Flush(ctx); err != nil {
			return fmt.Errorf("flush CURRENT: %w", err)
		}
	}
	x.flushed = stamps
	return nil
}

// dropFinished removes a record that nothing needs any more.
func (x *Executor) dropFinished(ctx context.Context, rec *record) error {
	if !rec.isFinished(x.records.cfg.Now().UnixMilli()) {
		return nil
	}
	return x.records.cfg.Meta.RemoveDeletion(ctx, &rec.Deletion)
}

// deleteAll removes what records delete, under the lease.
func (x *Executor) deleteAll(ctx context.Context, records []*record) error {
	err := x.lease.Run(ctx, nil, func(ctx context.Context) error {
		// If another process was in the middle of a record, that one comes first.
		if i := slices.IndexFunc(records, func(r *record) bool { return r.ID == x.lease.State.ID }); i > 0 {
			first := records[i]
			copy(records[1:], records[:i])
			records[0] = first
		}
		for _, rec := range records {
			if err := x.delete(ctx, rec); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, jobs.ErrHeld) {
		return fmt.Errorf("%w for the process that removes deleted samples: %w", errWaiting, err)
	}
	return errors.Join(err, x.records.Poll(context.WithoutCancel(ctx)))
}

// A target is a series from which samples are deleted.
type target struct {
	key   []byte
	bases []int64
}

// delete removes what a record deletes, and marks it as done.
func (x *Executor) delete(ctx context.Context, rec *record) error {
	if at := &x.lease.State; at.ID != rec.ID || at.Stamp != rec.Stamp {
		*at = state{Holding: at.Holding, ID: rec.ID, Stamp: rec.Stamp}
	}
	started := x.records.cfg.Now()
	targets, err := x.find(ctx, rec)
	if err != nil {
		return err
	}
	level.Info(x.cfg.Logger).Log("msg", "removing deleted samples", "id", rec.ID, "series", len(targets))
	for part := range slices.Chunk(targets, seriesAtOnce) {
		n, err := x.rows(ctx, rec, part, x.remove)
		if err == nil { // after the samples: what is closed from now on is made without them
			err = x.removeRollups(ctx, rec, part)
		}
		if err == nil {
			err = x.current(ctx, rec, part)
		}
		if err != nil {
			return err
		}
		x.lease.State.After = part[len(part)-1].key
		if err := x.lease.Keep(ctx); err != nil {
			return err
		}
		if err := x.pace.Wait(ctx, n); err != nil {
			return err
		}
	}
	if err := x.records.cfg.Meta.Of(rec.schema).ForgetImported(ctx, rec.Start, rec.Limit); err != nil {
		return err
	}
	done := rec.Deletion
	done.Done = x.records.cfg.Now().UnixMilli()
	put, err := x.records.cfg.Meta.PutDeletion(ctx, &done)
	if err != nil || !put { // raised meanwhile: the next call begins again
		return err
	}
	level.Info(x.cfg.Logger).Log("msg", "deleted samples are removed", "id", rec.ID, "series", len(targets), "took", x.records.cfg.Now().Sub(started))
	return x.dropFinished(ctx, &record{Deletion: done})
}

// find returns the series of a record that are not done, in order of their keys.
func (x *Executor) find(ctx context.Context, rec *record) (targets []target, err error) {
	find, err := x.cfg.Find(rec.Tenant)
	if err == nil {
		err = find(ctx, rec.matchers, rec.Limit, func(key []byte, bases []int64) {
			if bytes.Compare(key, x.lease.State.After) > 0 {
				targets = append(targets, target{key, bases})
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("find the series of deletion %s: %w", rec.ID, err)
	}
	slices.SortFunc(targets, func(a, b target) int { return bytes.Compare(a.key, b.key) })
	return targets, nil
}

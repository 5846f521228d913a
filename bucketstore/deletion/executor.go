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
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
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
	// readTimeout and writeTimeout bound one request.
	readTimeout  = 2 * time.Minute
	writeTimeout = time.Minute
)

// A FindSeries calls fn with the key of each series that matches and may have samples before limit,
// in milliseconds, and with the bases of its rows, ascending. fn keeps what it is given.
type FindSeries func(ctx context.Context, matchers []*labels.Matcher, limit int64, fn func(key []byte, bases []int64)) error

// ExecutorConfig says what an Executor works on. Records, Store and Find are required.
type ExecutorConfig struct {
	Records *Records
	// Store holds the rows. What counts writes to days counts those of the executor if they go
	// through it. A buffer shows what is in its memory, too.
	Store bucketstore.Store
	Find  FindSeries
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
	sleep func(ctx context.Context, d time.Duration) error

	// working guards the fields below. It is a lock that a context can end.
	working chan struct{}
	lease   *meta.Lease
	state   state
	filter  filter
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
	x := &Executor{cfg: cfg, records: cfg.Records, sleep: sleep, working: make(chan struct{}, 1)}
	x.lease = meta.NewLease(cfg.Store, series.MetaDelete, cfg.Records.cfg.Now, cfg.Holder, &x.state, &x.state.Holding)
	return x
}

// sleep waits, and returns early with its error when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run calls Advance at an interval until ctx ends, and logs errors.
func (x *Executor) Run(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	ended.Go(func() { x.poll(ctx) })
	for ctx.Err() == nil {
		switch err := x.Advance(ctx); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errWaiting):
			level.Info(x.cfg.Logger).Log("msg", "deleted samples are hidden and not removed yet", "reason", err)
		default:
			x.records.metrics.failures.Inc()
			level.Warn(x.cfg.Logger).Log("msg", "deleted samples are not removed yet, trying again", "err", err)
		}
		if x.sleep(ctx, interval) != nil {
			return
		}
	}
}

// poll learns of the deletions of other processes, also while Advance works.
func (x *Executor) poll(ctx context.Context) {
	for x.records.cfg.Shared && x.sleep(ctx, interval) == nil {
		if err := x.records.Poll(ctx); err != nil && ctx.Err() == nil {
			x.records.metrics.failures.Inc()
			level.Warn(x.cfg.Logger).Log("msg", "deletions not read, trying again", "err", err)
		}
	}
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
	if err := x.records.pass(ctx); err != nil {
		return fmt.Errorf("empty the buffer of what is deleted: %w", err)
	}
	var waiting error
	var ready []*record
	for _, rec := range x.records.known.Load().all {
		if err := x.dropOver(ctx, rec); err != nil {
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

// dropOver removes a record that nothing needs any more.
func (x *Executor) dropOver(ctx context.Context, rec *record) error {
	if !rec.isOver(x.records.cfg.Now().UnixMilli()) {
		return nil
	}
	return x.records.cfg.Meta.RemoveDeletion(ctx, &rec.Deletion)
}

// deleteAll removes what records delete, under the lease.
func (x *Executor) deleteAll(ctx context.Context, records []*record) error {
	x.state = state{}
	if err := x.lease.Read(ctx); err != nil {
		return err
	}
	// One process has the embedded store: a holder of the lease is gone.
	if x.records.cfg.Shared && x.lease.IsHeld() {
		return fmt.Errorf("%w for %s, which removes deleted samples", errWaiting, x.state.Holder)
	}
	if err := x.lease.Renew(ctx); err != nil {
		return err
	}
	// If another process was in the middle of a record, that one comes first.
	slices.SortStableFunc(records, func(a, b *record) int {
		switch {
		case (a.ID == x.state.ID) == (b.ID == x.state.ID):
			return 0
		case a.ID == x.state.ID:
			return -1
		}
		return 1
	})
	var err error
	for _, rec := range records {
		if err = x.delete(ctx, rec); err != nil {
			break
		}
	}
	if released := x.lease.Release(context.WithoutCancel(ctx)); err == nil {
		err = released
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
	if x.state.ID != rec.ID || x.state.Stamp != rec.Stamp {
		x.state = state{Holding: x.state.Holding, ID: rec.ID, Stamp: rec.Stamp}
	}
	begun := x.records.cfg.Now()
	targets, err := x.find(ctx, rec)
	if err != nil {
		return err
	}
	level.Info(x.cfg.Logger).Log("msg", "removing deleted samples", "id", rec.ID, "series", len(targets))
	for part := range slices.Chunk(targets, seriesAtOnce) {
		partBegun := x.records.cfg.Now()
		n, err := x.rows(ctx, rec, part, x.remove)
		if err == nil {
			err = x.current(ctx, rec, part)
		}
		if err != nil {
			return err
		}
		x.state.After = part[len(part)-1].key
		if err := x.lease.Keep(ctx); err != nil {
			return err
		}
		wait := time.Duration(float64(n)/x.cfg.RowsPerSecond*float64(time.Second)) - x.records.cfg.Now().Sub(partBegun)
		if err := x.sleep(ctx, wait); err != nil {
			return err
		}
	}
	done := rec.Deletion
	done.Done = x.records.cfg.Now().UnixMilli()
	put, err := x.records.cfg.Meta.PutDeletion(ctx, &done)
	if err != nil || !put { // raised meanwhile: the next call begins again
		return err
	}
	level.Info(x.cfg.Logger).Log("msg", "deleted samples are removed", "id", rec.ID, "series", len(targets), "took", x.records.cfg.Now().Sub(begun))
	return x.dropOver(ctx, &record{Deletion: done})
}

// find returns the series of a record that are not done, in order of their keys.
func (x *Executor) find(ctx context.Context, rec *record) (targets []target, err error) {
	err = x.cfg.Find(ctx, rec.matchers, rec.Limit, func(key []byte, bases []int64) {
		if bytes.Compare(key, x.state.After) > 0 {
			targets = append(targets, target{key, bases})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find the series of deletion %s: %w", rec.ID, err)
	}
	slices.SortFunc(targets, func(a, b target) int { return bytes.Compare(a.key, b.key) })
	return targets, nil
}

// rows calls fn with the rows of targets that may have samples in the range of a record, some
// at a time, with the cells there, and returns how many there are. fn says whether it has
// enough; then rows calls after.
func (x *Executor) rows(ctx context.Context, rec *record, targets []target, fn func(ctx context.Context, rec *record, base int64, scan scanRows) error) (n int, err error) {
	byBase := make(map[int64][]series.RowRange)
	var bases []int64
	for _, t := range targets {
		for _, base := range t.bases {
			if !rec.overlaps(base, base+series.Period) {
				continue
			}
			if byBase[base] == nil {
				bases = append(bases, base)
			}
			byBase[base] = append(byBase[base], series.SingleRow(x.records.cfg.Schema.AppendRowKey(nil, t.key, base)))
			n++
		}
	}
	slices.Sort(bases)
	for _, base := range bases {
		ranges := byBase[base]
		slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
		families := familiesIn(base, max(base, rec.Start), min(base+series.Period, rec.Limit))
		scan := func(ctx context.Context, after []byte, fn func(bucketstore.Row) error) error {
			for len(ranges) > 0 && after != nil && bytes.Compare(ranges[0].Start, after) <= 0 {
				ranges = ranges[1:]
			}
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			return x.cfg.Store.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: ranges, Families: families}, fn)
		}
		if err := fn(ctx, rec, base, scan); err != nil {
			return n, err
		}
	}
	return n, nil
}

// A scanRows calls fn with the rows after a key, or with all.
type scanRows func(ctx context.Context, after []byte, fn func(bucketstore.Row) error) error

// familiesIn returns the cells of a row that may have samples in [start, limit), which lies in
// the bucket at base.
func familiesIn(base, start, limit int64) (families []bucketstore.FamilyRange) {
	var from, chunksFrom, to []byte
	if start > base {
		from, chunksFrom = series.AppendQualifier(nil, uint32(start-base)), chunk.AppendStart(nil, uint32(start-base))
	}
	if limit < base+series.Period {
		to = series.AppendQualifier(nil, uint32(limit-base))
	}
	families = append(families,
		bucketstore.FamilyRange{Family: series.FamilyChunk, Start: chunksFrom, Limit: to},
		bucketstore.FamilyRange{Family: series.FamilyExemplar, Start: from, Limit: to})
	for _, family := range series.RawFamilies {
		families = append(families, bucketstore.FamilyRange{Family: family, Start: from, Limit: to})
	}
	return families
}

// errFull ends a scan when a batch is full.
var errFull = errors.New("batch is full")

// remove removes what a record deletes of rows of the bucket at base.
func (x *Executor) remove(ctx context.Context, rec *record, base int64, scan scanRows) error {
	records := []*record{rec}
	for after, more := []byte(nil), true; more; {
		var muts []bucketstore.Mutation
		size, ops := 0, 0
		err := scan(ctx, after, func(row bucketstore.Row) error {
			key := bytes.Clone(row.Key)
			after = key
			for _, part := range x.operations(base, row.Cells, records) {
				muts = append(muts, bucketstore.Mutation{Key: key, Ops: part})
				ops += len(part)
				for i := range part {
					size += len(part[i].Qualifier) + len(part[i].Value)
				}
			}
			if ops >= batchOps || size >= batchBytes {
				return errFull
			}
			return nil
		})
		if more = errors.Is(err, errFull); err != nil && !more {
			return fmt.Errorf("read rows of a deletion: %w", err)
		}
		if err := x.apply(ctx, bucketstore.Metric, muts); err != nil {
			return fmt.Errorf("remove deleted samples: %w", err)
		}
	}
	return nil
}

// operations returns how to remove what records delete of a row. Each part is one mutation, in
// their order: what replaces a chunk is set with its deletion.
func (x *Executor) operations(base int64, cells []bucketstore.Cell, records []*record) (parts [][]bucketstore.Op) {
	var ops []bucketstore.Op
	removed := 0
	for i := range cells {
		c := &cells[i]
		deleted, left, err := x.filter.cell(base, c, records)
		if err != nil {
			x.records.metrics.unreadable.Inc()
			level.Warn(x.cfg.Logger).Log("msg", "a damaged chunk of which a part is deleted is left as it is", "err", err)
		}
		if !deleted || err != nil {
			continue
		}
		removed++
		for _, l := range left {
			ops = append(ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: l.Family, Qualifier: l.Qualifier, Time: l.Time, Value: l.Value})
		}
		op := bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: c.Family, Qualifier: bytes.Clone(c.Qualifier)}
		if c.Family == series.FamilyLate { // a later one may have come
			op.Kind, op.Time = bucketstore.DeleteColumnBefore, c.Time+1
		}
		if ops = append(ops, op); len(ops) >= batchOps {
			parts, ops = append(parts, ops), nil
		}
	}
	if len(ops) > 0 {
		parts = append(parts, ops)
	}
	if removed > 0 {
		x.records.metrics.rows.Inc()
		x.records.metrics.cells.Add(float64(removed))
	}
	return parts
}

// apply applies mutations. Those of one row follow each other, and are applied one after the other.
func (x *Executor) apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	for len(muts) > 0 {
		n := 1
		for n < len(muts) && !bytes.Equal(muts[n].Key, muts[n-1].Key) {
			n++
		}
		err := bucketstore.Patiently(ctx, func() error {
			// By the wall clock: it passes while the machine is suspended.
			ctx, cancel := context.WithDeadline(ctx, time.Now().Add(writeTimeout).Round(0))
			defer cancel()
			return x.cfg.Store.Apply(ctx, table, muts[:n])
		})
		if err != nil {
			return err
		}
		muts = muts[n:]
	}
	return nil
}

// current writes the latest sample that is left of targets to CURRENT where that has a deleted one.
func (x *Executor) current(ctx context.Context, rec *record, targets []target) error {
	var ranges []series.RowRange
	for _, t := range targets {
		ranges = append(ranges, series.SingleRow(t.key))
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found := make(map[string]int64)
	err := x.cfg.Store.Scan(reading, bucketstore.ScanRequest{
		Table: bucketstore.Current, Rows: ranges, Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, func(row bucketstore.Row) error {
		if t := row.Cells[0].Time; rec.has(t) {
			found[string(row.Key)] = t
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read CURRENT: %w", err)
	}
	var muts []bucketstore.Mutation
	for _, t := range targets {
		at, ok := found[string(t.key)]
		if !ok {
			continue
		}
		last, err := x.latest(ctx, t)
		if err != nil {
			return err
		}
		// A later sample that was written since the read stays.
		column := bucketstore.Op{Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent)}
		remove, set := column, column
		remove.Kind, remove.Time = bucketstore.DeleteColumnBefore, at+1
		set.Kind, set.Time, set.Value = bucketstore.SetCell, last.Time, last.Value
		mut := bucketstore.Mutation{Key: t.key, Ops: []bucketstore.Op{remove}}
		if last.Value != nil {
			mut.Ops = append(mut.Ops, set)
		}
		muts = append(muts, mut)
	}
	if err := x.apply(ctx, bucketstore.Current, muts); err != nil {
		return fmt.Errorf("write CURRENT: %w", err)
	}
	return nil
}

// latest returns the latest sample of a series that is not deleted, as a cell, or one without a
// value.
func (x *Executor) latest(ctx context.Context, t target) (last bucketstore.Cell, err error) {
	store := x.records.Filter(x.cfg.Store)
	for _, base := range slices.Backward(t.bases) {
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		err := store.Scan(reading, bucketstore.ScanRequest{
			Table:    bucketstore.Metric,
			Rows:     []series.RowRange{series.SingleRow(x.records.cfg.Schema.AppendRowKey(nil, t.key, base))},
			Families: familiesIn(base, base, base+series.Period),
		}, func(row bucketstore.Row) error { return lastOf(base, row.Cells, &last) })
		cancel()
		if err != nil || last.Value != nil {
			return last, err
		}
	}
	return last, nil
}

// lastOf sets last to the last sample of a row of METRIC, if there is one.
func lastOf(base int64, cells []bucketstore.Cell, last *bucketstore.Cell) error {
	var samples merge.Row
	if err := addCells(&samples, base, base, base+series.Period, cells); err != nil {
		return err
	}
	for {
		switch samples.Next() {
		case merge.Floats:
			ts, vs := samples.Floats()
			last.Time, last.Value = ts[len(ts)-1], cell.AppendFloat(nil, vs[len(vs)-1])
		case merge.Value:
			t, v, err := samples.Value()
			if err != nil {
				return err
			}
			last.Time, last.Value = t, cell.Append(nil, v)
		default:
			return samples.Err()
		}
	}
}

// addCells begins a row whose samples in [start, limit) are wanted, in milliseconds.
func addCells(samples *merge.Row, base, start, limit int64, cells []bucketstore.Cell) error {
	samples.Reset(base, start, limit, merge.Options{})
	for _, c := range cells {
		switch c.Family {
		case series.FamilyExemplar:
		case series.FamilyChunk:
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return err
			}
			samples.AddChunk(sealed)
		default:
			if err := samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

package pebble

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Apply implements bucketstore.Store. All mutations are one batch: they become visible at
// one instant, and durable together, perhaps a moment later. Memory holds them twice. A
// large batch of new cells costs a few fsyncs instead of one, and much less of everything
// else.
func (s *Store) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	var n needs
	for i := range muts {
		if err := t.check(muts[i]); err != nil {
			return fmt.Errorf("apply to %s: %w", table, err)
		}
		n.add(t, &muts[i])
	}
	if err := s.mayWrite(ctx); err != nil {
		return err
	}
	switch {
	case s.isIngestible(t, muts):
		return s.ingest(ctx, t, muts)
	case n.cells:
		return s.applyAlone(ctx, newEncoder(t, s.db.NewIndexedBatch()), muts)
	case n.days:
		return s.applyAlone(ctx, newEncoder(t, s.db.NewBatch()), muts)
	}
	return s.applyBlind(ctx, t, muts)
}

// mayWrite returns why a write must not begin.
func (s *Store) mayWrite(ctx context.Context) error {
	if s.readOnly {
		return errReadOnly
	}
	return ctx.Err()
}

// needs says what mutations depend on: on cells, or on the set of days.
type needs struct{ cells, days bool }

func (n *needs) add(t *table, mut *bucketstore.Mutation) {
	for i := range mut.Ops {
		switch mut.Ops[i].Kind {
		case bucketstore.DeleteColumnBefore:
			n.cells = true
		case bucketstore.DeleteFamily:
			n.days = n.days || t.calendar() != nil
		}
	}
}

// applyBlind writes mutations that do not depend on stored data.
func (s *Store) applyBlind(ctx context.Context, t *table, muts []bucketstore.Mutation) error {
	e := newEncoder(t, s.db.NewBatch())
	err := e.addMutations(muts)
	return s.commit(ctx, s.columns.RLocker(), e, func() error { return err })
}

// applyAlone writes mutations that depend on stored data, while no other writer runs.
func (s *Store) applyAlone(ctx context.Context, e *encoder, muts []bucketstore.Mutation) error {
	return s.commit(ctx, &s.columns, e, func() error { return e.addMutations(muts) })
}

// commit calls fill under a lock, which may add to the batch of e, makes the batch visible, and waits until it is durable. After an error of
// fill the batch is dropped.
func (s *Store) commit(ctx context.Context, lock sync.Locker, e *encoder, fill func() error) error {
	lock.Lock()
	if err := fill(); err != nil {
		lock.Unlock()
		return errors.Join(err, e.batch.Close())
	}
	e.addWritten()
	s.publish(e.batch)
	lock.Unlock()
	return s.waitDurable(ctx, e.batch)
}

// CheckAndApply implements bucketstore.Store.
func (s *Store) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (applied bool, err error) {
	t, err := s.table(table)
	if err != nil {
		return false, err
	}
	family, err := t.family(cond.Family)
	if err == nil {
		err = t.check(mut)
	}
	if err != nil {
		return false, fmt.Errorf("check and apply to %s: %w", table, err)
	}
	if err := s.mayWrite(ctx); err != nil {
		return false, err
	}
	e := newEncoder(t, s.db.NewIndexedBatch())
	err = s.commit(ctx, &s.columns, e, func() error {
		holds, err := e.holds(cond, mut.Key, cutoff(family, s.now()))
		if err == nil && !holds {
			err = errNotHeld
		}
		if err != nil {
			return err
		}
		return e.addMutation(mut)
	})
	if errors.Is(err, errNotHeld) {
		return false, nil
	}
	return err == nil, err
}

// errNotHeld says that a condition does not hold.
var errNotHeld = errors.New("the condition does not hold")

// Drop implements bucketstore.Store. It costs one tombstone, or one for each day.
// Compactions free the space.
func (s *Store) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if err := s.mayWrite(ctx); err != nil {
		return err
	}
	if rows.IsEmpty() {
		return nil
	}
	e := newEncoder(t, s.db.NewBatch())
	return s.commit(ctx, s.columns.RLocker(), e, func() error {
		whole := splitter{layers: t.wholeLayers()}
		for part, days := range whole.split(rows) {
			for _, p := range days {
				first := whole.layers[p.layer].first
				if err := e.batch.DeleteRange(appendLower(nil, first, p.day, part), appendUpper(nil, first, p.day, part), nil); err != nil {
					return fmt.Errorf("drop %s: %w", rows, err)
				}
			}
		}
		return nil
	})
}

// publish writes batch, whose days are recorded, to the log and makes it visible. It does
// not wait for the disk. If the log fails Pebble panics. An HTTP handler would recover the
// panic and leave every later write waiting, so publish ends the process.
func (s *Store) publish(batch *pebble.Batch) {
	defer func() {
		if r := recover(); r != nil {
			err, ok := r.(error)
			if !ok {
				err = fmt.Errorf("%v", r)
			}
			s.guard.die("write-ahead log", err)
		}
	}()
	if err := s.db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		s.guard.die("write-ahead log", err)
	}
}

// waitDurable waits for the fsync of a published batch and closes it. It returns early when
// ctx ends; the batch stays published.
func (s *Store) waitDurable(ctx context.Context, batch *pebble.Batch) error {
	start := time.Now()
	done := make(chan error, 1)
	s.waiting.Go(func() {
		if err := batch.SyncWait(); err != nil {
			s.guard.die("write-ahead log", err)
		}
		s.metrics.commits.Observe(time.Since(start).Seconds())
		done <- batch.Close()
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the disk: %w", ctx.Err())
	}
}

// check returns an error unless t accepts all operations of mut.
func (t *table) check(mut bucketstore.Mutation) error {
	for i := range mut.Ops {
		op := &mut.Ops[i]
		family, err := t.family(op.Family)
		if err != nil {
			return err
		}
		if op.Kind > bucketstore.Add || op.Time < 0 {
			return fmt.Errorf("row %q: operation %d with time %d", mut.Key, op.Kind, op.Time)
		}
		if err := family.CheckOp(op); err != nil {
			return fmt.Errorf("row %q: %w", mut.Key, err)
		}
	}
	return nil
}

// An encoder adds mutations to a batch.
type encoder struct {
	batch *pebble.Batch // nil if cells are only encoded
	table *table
	// written is the days in which the batch has cells, in order, for each layer.
	written [maxLayers][]uint32

	// bucket is the bucket of the current row, if the table has days.
	bucket bucket
	// row and key are space for stored keys. The layer and day in row are those of the last
	// column.
	row, key []byte
}

func newEncoder(t *table, batch *pebble.Batch) *encoder {
	return &encoder{batch: batch, table: t}
}

// addWritten adds the days of the batch to those that exist, before it becomes visible.
func (e *encoder) addWritten() {
	for _, l := range e.table.layers {
		l.days.addWritten(e.written[l.number])
	}
}

// addMutations adds all of muts.
func (e *encoder) addMutations(muts []bucketstore.Mutation) error {
	for i := range muts {
		if err := e.addMutation(muts[i]); err != nil {
			return err
		}
	}
	return nil
}

// addMutation adds mut. If mut reads cells the batch must be indexed. If mut depends on the
// set of days no other writer may run.
func (e *encoder) addMutation(mut bucketstore.Mutation) error {
	e.enter(mut.Key)
	for i := range mut.Ops {
		if err := e.addOp(&mut.Ops[i]); err != nil {
			return fmt.Errorf("row %q: %w", mut.Key, err)
		}
	}
	return nil
}

// enter makes key the current row.
func (e *encoder) enter(key []byte) {
	if c := e.table.calendar(); c != nil {
		e.bucket = c.bucketOf(key)
	}
	e.row = appendRow(appendHead(e.row[:0], e.table.layers[0].first, noDay), key)
}

// setDay sets the layer and the day in e.row to those of the column and returns them.
func (e *encoder) setDay(family string, qualifier []byte) (l *layer, day uint32) {
	l = e.table.layerOf(family)
	if l.calendar == nil {
		return l, 0
	}
	day = e.bucket.in(l.calendar).day(qualifier)
	e.row[0] = l.first
	putDay(e.row, day)
	return l, day
}

// setWrittenDay is setDay for a column that is written.
func (e *encoder) setWrittenDay(op *bucketstore.Op) {
	if l, day := e.setDay(op.Family, op.Qualifier); l.calendar != nil {
		e.written[l.number] = insertDay(e.written[l.number], day)
	}
}

// columnSize is the size of the stored key of a column of the current row.
func (e *encoder) columnSize(op *bucketstore.Op) int {
	return len(e.row) + len(op.Family) + 1 + len(op.Qualifier)
}

func (e *encoder) addOp(op *bucketstore.Op) error {
	switch op.Kind {
	case bucketstore.SetCell, bucketstore.Add: // the merger adds
		e.setWrittenDay(op)
		merge := e.batch.MergeDeferred(e.columnSize(op), timeSize+len(op.Value))
		appendColumn(append(merge.Key[:0], e.row...), op.Family, op.Qualifier)
		putCell(merge.Value, op.Time, op.Value)
		return merge.Finish()
	case bucketstore.DeleteColumn:
		return e.batch.Delete(e.column(op.Family, op.Qualifier), nil)
	case bucketstore.DeleteColumnBefore:
		t, _, held, err := e.get(e.column(op.Family, op.Qualifier))
		if err != nil || !held || t >= op.Time {
			return err
		}
		return e.batch.Delete(e.key, nil)
	case bucketstore.DeleteFamily:
		return e.deleteFamily(op.Family)
	}
	return fmt.Errorf("unknown operation %d", op.Kind)
}

// deleteFamily deletes a family of the current row in all days, those of this batch
// included.
func (e *encoder) deleteFamily(family string) error {
	l := e.table.layerOf(family)
	if l.calendar == nil {
		return e.deleteColumns(family)
	}
	bucket := e.bucket.in(l.calendar)
	days := slices.Clone(bucket.days(l.days.all(), allDeltas()))
	for _, day := range bucket.days(e.written[l.number], allDeltas()) {
		days = insertDay(days, day)
	}
	e.row[0] = l.first
	for _, day := range days {
		putDay(e.row, day)
		if err := e.deleteColumns(family); err != nil {
			return err
		}
	}
	return nil
}

// deleteColumns deletes the columns of a family that follow e.row.
func (e *encoder) deleteColumns(family string) error {
	e.key = appendColumn(append(e.key[:0], e.row...), family, nil)
	limit := appendColumnLimit(append([]byte(nil), e.row...), family)
	return e.batch.DeleteRange(e.key, limit, nil)
}

// column returns the stored key of a column of the current row, in e.key.
func (e *encoder) column(family string, qualifier []byte) []byte {
	e.setDay(family, qualifier)
	e.key = appendColumn(append(e.key[:0], e.row...), family, qualifier)
	return e.key
}

// get returns the cell under a stored key, as the batch leaves it so far.
func (e *encoder) get(key []byte) (t int64, value []byte, held bool, err error) {
	stored, closer, err := e.batch.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil, false, nil
	}
	if err != nil {
		return 0, nil, false, readError(err)
	}
	t, value, err = parseCell(append([]byte(nil), stored...))
	return t, value, true, errors.Join(err, closer.Close())
}

// holds says whether cond holds in the row key. An expired cell counts as absent.
func (e *encoder) holds(cond bucketstore.Condition, key []byte, cutoff int64) (bool, error) {
	e.enter(key)
	t, value, held, err := e.get(e.column(cond.Family, cond.Qualifier))
	if err != nil {
		return false, fmt.Errorf("check row %q: %w", key, err)
	}
	held = held && t >= cutoff
	if cond.Absent {
		return !held, nil
	}
	return held && string(value) == string(cond.Value), nil
}

package pebble

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Apply implements bucketstore.Store. All mutations are one batch: they become
// visible and durable together, and memory holds them twice.
func (s *Store) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	reads := false
	for i := range muts {
		if err := t.check(muts[i]); err != nil {
			return fmt.Errorf("apply to %s: %w", table, err)
		}
		reads = reads || readsCells(muts[i])
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if reads {
		return s.applyReading(ctx, t, muts)
	}
	return s.applyBlind(ctx, t, muts)
}

// applyBlind writes mutations that do not depend on what is stored.
func (s *Store) applyBlind(ctx context.Context, t *table, muts []bucketstore.Mutation) error {
	e := encoder{batch: s.db.NewBatch(), first: t.first}
	for i := range muts {
		if err := e.add(muts[i]); err != nil {
			return errors.Join(err, e.batch.Close())
		}
	}
	s.columns.RLock()
	s.publish(e.batch)
	s.columns.RUnlock()
	return s.waitDurable(ctx, e.batch)
}

// applyReading writes mutations that do.
func (s *Store) applyReading(ctx context.Context, t *table, muts []bucketstore.Mutation) error {
	e := encoder{batch: s.db.NewIndexedBatch(), first: t.first}
	s.columns.Lock()
	for i := range muts {
		if err := e.add(muts[i]); err != nil {
			s.columns.Unlock()
			return errors.Join(err, e.batch.Close())
		}
	}
	s.publish(e.batch)
	s.columns.Unlock()
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
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e := encoder{batch: s.db.NewIndexedBatch(), first: t.first}
	s.columns.Lock()
	holds, err := e.holds(cond, mut.Key, cutoff(family, s.now()))
	if err == nil && holds {
		err = e.add(mut)
	}
	if err != nil || !holds {
		s.columns.Unlock()
		return false, errors.Join(err, e.batch.Close())
	}
	s.publish(e.batch)
	s.columns.Unlock()
	if err := s.waitDurable(ctx, e.batch); err != nil {
		return false, err
	}
	return true, nil
}

// Drop implements bucketstore.Store. It costs one tombstone; the space is free
// again when compactions have passed over it.
func (s *Store) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if rows.IsEmpty() {
		return nil
	}
	batch := s.db.NewBatch()
	lower, upper := rangeBounds(t.first, rows)
	if err := batch.DeleteRange(lower, upper, nil); err != nil {
		return errors.Join(fmt.Errorf("drop %s: %w", rows, err), batch.Close())
	}
	s.columns.RLock()
	s.publish(batch)
	s.columns.RUnlock()
	return s.waitDurable(ctx, batch)
}

// publish writes batch to the log and makes it visible. It does not wait for
// the disk. When the log fails Pebble panics; whoever serves HTTP would catch
// that and leave every later write waiting, so it ends the process here.
func (s *Store) publish(batch *pebble.Batch) {
	defer func() {
		if r := recover(); r != nil {
			s.guard.die("write-ahead log", fmt.Errorf("%v", r))
		}
	}()
	if err := s.db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		s.guard.die("write-ahead log", err)
	}
}

// waitDurable waits for the fsync of a published batch and closes it. It stops
// to wait when ctx ends; what was published stays.
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

// check says whether t takes all operations of mut.
func (t *table) check(mut bucketstore.Mutation) error {
	for i := range mut.Ops {
		op := &mut.Ops[i]
		if _, err := t.family(op.Family); err != nil {
			return err
		}
		if op.Kind > bucketstore.DeleteFamily || op.Time < 0 {
			return fmt.Errorf("row %q: operation %d with time %d", mut.Key, op.Kind, op.Time)
		}
	}
	return nil
}

func readsCells(mut bucketstore.Mutation) bool {
	for i := range mut.Ops {
		if mut.Ops[i].Kind == bucketstore.DeleteColumnBefore {
			return true
		}
	}
	return false
}

// An encoder adds mutations to a batch.
type encoder struct {
	batch *pebble.Batch
	first byte // of the table
	// row and key are space for stored keys.
	row, key []byte
}

// add adds mut. The batch is indexed if mut reads cells.
func (e *encoder) add(mut bucketstore.Mutation) error {
	e.row = appendRow(e.row[:0], e.first, mut.Key)
	for i := range mut.Ops {
		if err := e.addOp(&mut.Ops[i]); err != nil {
			return fmt.Errorf("row %q: %w", mut.Key, err)
		}
	}
	return nil
}

func (e *encoder) addOp(op *bucketstore.Op) error {
	switch op.Kind {
	case bucketstore.SetCell:
		merge := e.batch.MergeDeferred(len(e.row)+len(op.Family)+1+len(op.Qualifier), timeSize+len(op.Value))
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
		e.key = appendColumn(append(e.key[:0], e.row...), op.Family, nil)
		limit := appendColumnLimit(append([]byte(nil), e.row...), op.Family)
		return e.batch.DeleteRange(e.key, limit, nil)
	}
	return fmt.Errorf("unknown operation %d", op.Kind)
}

// column returns the stored key of a column of the current row, in e.key.
func (e *encoder) column(family string, qualifier []byte) []byte {
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
		return 0, nil, false, err
	}
	t, value, err = parseCell(append([]byte(nil), stored...))
	return t, value, true, errors.Join(err, closer.Close())
}

// holds says whether cond holds in the row key. A cell that has expired is
// none.
func (e *encoder) holds(cond bucketstore.Condition, key []byte, cutoff int64) (bool, error) {
	e.row = appendRow(e.row[:0], e.first, key)
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

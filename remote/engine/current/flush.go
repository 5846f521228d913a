package current

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	// flushTimeout bounds one flush to CURRENT.
	flushTimeout = 30 * time.Second
	// flushRows is how many rows of a flush are written at once. Those are no longer
	// pending, even if the flush ends early.
	flushRows = 10_000
)

// run flushes at the interval, and staleness markers at once, until ctx ends.
func (t *Table) run(ctx context.Context, interval time.Duration) {
	defer close(t.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var some []*slot // nil is all
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.wake:
			some = t.takeStale()
		}
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := t.flush(flushing, some); err != nil && ctx.Err() == nil {
			level.Warn(t.logger).Log("msg", "current samples not in CURRENT yet, trying again", "err", err)
		}
		cancel()
	}
}

// Flush writes all pending samples to CURRENT. What could not be written stays
// pending.
func (t *Table) Flush(ctx context.Context) error { return t.flush(ctx, nil) }

// flush writes the pending samples of these series, no two the same, or all if
// some is nil. What could not be written stays pending.
func (t *Table) flush(ctx context.Context, some []*slot) error {
	select {
	case t.flushing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a flush in progress: %w", ctx.Err())
	}
	defer func() { <-t.flushing }()
	if some == nil {
		some = t.pendingSlots()
	}
	var taken []takenSample
	for part := range slices.Chunk(some, flushRows) {
		taken = t.takePending(taken[:0], part)
		if err := t.writeRows(ctx, taken); err != nil {
			return err
		}
	}
	return nil
}

// takenSample is a copy of a pending sample, for a flush.
type takenSample struct {
	at *slot
	sample
}

// writeRows writes samples to CURRENT; then they are not pending.
func (t *Table) writeRows(ctx context.Context, taken []takenSample) error {
	if len(taken) == 0 {
		return nil
	}
	if err := t.store.Apply(ctx, bucketstore.Current, t.rows(taken)); err != nil {
		t.metrics.flushes.WithLabelValues(resultFailed).Inc()
		return fmt.Errorf("write %d rows of CURRENT: %w", len(taken), err)
	}
	t.metrics.flushes.WithLabelValues(resultOK).Inc()
	t.metrics.rows.Add(float64(len(taken)))
	t.setWritten(taken)
	return nil
}

// rows returns the rows of samples. Where the store keeps versions, each first deletes the
// older cells: they count towards the size of the row until they are collected. The newest
// sample still wins, however late an older one arrives.
func (t *Table) rows(taken []takenSample) []bucketstore.Mutation {
	perRow := 1
	if t.keepsVersions {
		perRow = 2
	}
	muts, ops := make([]bucketstore.Mutation, len(taken)), make([]bucketstore.Op, 0, perRow*len(taken))
	values := make([]byte, 0, 8*len(taken))
	qualifier := []byte(series.QualifierCurrent)
	for i := range taken {
		s := &taken[i]
		var value []byte
		value, values = s.appendValue(values)
		op := bucketstore.Op{Family: series.FamilyCurrent, Qualifier: qualifier, Time: s.T}
		first := len(ops)
		if t.keepsVersions {
			op.Kind = bucketstore.DeleteColumnBefore
			ops = append(ops, op)
		}
		op.Kind, op.Value = bucketstore.SetCell, value
		ops = append(ops, op)
		muts[i] = bucketstore.Mutation{Key: []byte(s.at.key), Ops: ops[first:len(ops):len(ops)]}
	}
	return muts
}

// appendValue returns the value of s as it is stored, which may be in space, and space.
func (s *sample) appendValue(space []byte) (value, grown []byte) {
	if s.Value != nil {
		return s.Value, space
	}
	first := len(space)
	space = cell.Append(space, cell.Value{Start: s.ST, Float: s.V})
	return space[first:len(space):len(space)], space
}

// pendingSlots returns the series that have a pending sample, for a flush of all.
// It drops those that had none the last time either.
func (t *Table) pendingSlots() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := make([]*slot, 0, t.pending)
	for _, at := range t.slots {
		switch {
		case at.pending:
			pending = append(pending, at)
		case at.idle:
			t.dropSlot(at)
		default:
			at.idle = true
		}
	}
	return pending
}

// takePending appends copies of the pending samples of these series to taken. They
// stay pending, visible to readers, until they are written.
func (t *Table) takePending(taken []takenSample, some []*slot) []takenSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range some {
		if at.pending {
			taken = append(taken, takenSample{at, at.sample()})
		}
	}
	return taken
}

// setWritten makes these samples not pending, unless a later one came meanwhile.
func (t *Table) setWritten(written []takenSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range written {
		at := written[i].at
		if !at.pending || !at.sample().same(written[i].sample) {
			continue
		}
		at.pending = false
		if t.pending--; len(t.slots)-t.pending > t.limit {
			t.dropSlot(at)
		}
	}
	t.metrics.pending.Set(float64(t.pending))
}

// takeStale returns the slots whose staleness markers wait, and empties their list.
func (t *Table) takeStale() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale := t.stale
	t.stale = nil
	for _, at := range stale {
		at.stale = false
	}
	return append([]*slot{}, stale...) // not nil, which would be all
}

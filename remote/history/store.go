package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// Store is a Target in this process.
type Store struct {
	Engine *engine.Engine
	Meta   *meta.Store
}

// Done implements Target.
func (s *Store) Done(ctx context.Context, id string) ([]string, error) {
	return s.Meta.Imported(ctx, id)
}

// SetDone implements Target.
func (s *Store) SetDone(ctx context.Context, id string, parts ...meta.Part) error {
	return s.Meta.NoteImported(ctx, id, parts...)
}

// Rolled implements Target.
func (s *Store) Rolled(ctx context.Context) (int64, error) { return s.Engine.Rolled(ctx) }

// NewWriter implements Target.
func (s *Store) NewWriter(ctx context.Context, u Unit) (Writer, error) {
	open := s.Engine.History
	if u.Rolled {
		open = s.Engine.HistoryRollups
	}
	w, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &storeWriter{Writer: w, unit: u}, nil
}

// temporary makes a Temporary of an error about samples that a deletion covers: when it is finished, they can be stored.
func temporary(err error) error {
	if errors.Is(err, backfill.ErrPending) {
		return &Temporary{err}
	}
	return err
}

// A storeWriter writes to a backfill.Writer.
type storeWriter struct {
	*backfill.Writer
	unit Unit
	it   chunks.Iterator
}

// Write implements Writer. The rollup of a part of a day would be in the way of that of all of it, so none is made if the series cannot be
// read to its end.
func (w *storeWriter) Write(ctx context.Context, s storage.ChunkSeries) error {
	ls := s.Labels().WithoutEmpty()
	to, err := w.Series(ls)
	if err := cmp.Or(engine.CheckLabels(ls), err); err != nil {
		return &RefusedError{[]Refusal{{ls.Hash(), request.ErrorText(err)}}}
	}
	w.it = s.Iterator(w.it)
	var damage error
	add := func(c chunks.Meta) error {
		err := temporary(w.append(ctx, to, c))
		if errors.Is(err, backfill.ErrSamples) {
			damage, err = err, nil
		}
		return err
	}
	var read []chunks.Meta
	for w.it.Next() {
		if w.unit.Rolled {
			read = append(read, w.it.At())
		} else if err := add(w.it.At()); err != nil {
			return err
		}
	}
	failed := w.it.Err()
	if failed == nil {
		slices.SortStableFunc(read, func(a, b chunks.Meta) int { return cmp.Compare(a.MinTime, b.MinTime) })
		for _, c := range read {
			if err := add(c); err != nil {
				return err
			}
		}
	}
	if err := temporary(to.Close(ctx)); err != nil {
		return err
	}
	if failed != nil {
		damage = failed
	}
	if damage != nil && temporaryOf(damage) == nil {
		damage = &DamageError{damage}
	}
	return damage
}

// append appends what a chunk has of the unit.
func (w *storeWriter) append(ctx context.Context, to *backfill.Series, c chunks.Meta) error {
	if stored, ok := c.Chunk.(*storedChunk); ok {
		base, _ := series.Split(c.MinTime)
		stored.cell.Time = c.MinTime
		return to.AppendStored(ctx, base, stored.cell, w.unit.Start, w.unit.Limit)
	}
	aggregates, ok := c.Chunk.(*aggregateChunk)
	if !ok {
		return to.AppendChunk(ctx, c.Chunk, w.unit.Start, w.unit.Limit)
	}
	all, err := aggregates.aggregates()
	if errors.Is(err, errHistograms) {
		to.LeaveOut(all, w.unit.Start, w.unit.Limit)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", backfill.ErrSamples, err)
	}
	return to.AppendAggregates(ctx, aggregates.resolution(), all, w.unit.Start, w.unit.Limit)
}

package backfill

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// AppendStored adds what a cell of another store holds in [start, limit), in milliseconds: a chunk, an exemplar or a rollup of the row of a base, or a current
// sample. Chunks ascend, and what is written of a window has the latest of their stamps. A rollup is of the whole day, and is taken where Config.Rollups is set. The
// cell may be kept. The errors are those of Append.
func (s *Series) AppendStored(ctx context.Context, base int64, c bucketstore.Cell, start, limit int64) error {
	if s.w.err == nil && s.w.size >= splitBatches*s.w.cfg.BatchBytes {
		if err := s.w.Flush(ctx); err != nil {
			return err
		}
	}
	switch c.Family {
	case series.FamilyChunk:
		return s.appendSealed(ctx, base, c, start, limit)
	case series.FamilyExemplar:
		return s.appendExemplar(base, c, start, limit)
	case series.FamilyCurrent:
		return s.appendCurrent(c)
	}
	return s.appendRollup(base, c, start, limit)
}

func (s *Series) badCell(c bucketstore.Cell, err error) error {
	return fmt.Errorf("%w: series %s: cell of family %q with %d bytes: %v", ErrSamples, s.labels, c.Family, len(c.Value), err)
}

// appendSealed adds the samples of a chunk.
func (s *Series) appendSealed(ctx context.Context, base int64, c bucketstore.Cell, start, limit int64) error {
	sealed, err := chunk.Parse(c.Qualifier, c.Value)
	if err != nil {
		return s.badCell(c, err)
	}
	if open, isOpen := s.open(); isOpen && s.w.partOf(base+int64(sealed.First)) != s.w.partOf(open) {
		if err := s.seal(); err != nil {
			return err
		}
	}
	s.stamp = max(s.stamp, sealed.Stamp)
	row := &s.w.stored
	row.Reset(base, start, limit, merge.Options{})
	row.AddChunk(sealed)
	for {
		switch row.Next() {
		case merge.Floats:
			times, values := row.Floats()
			err = s.Append(ctx, times, values)
		case merge.Value:
			var t int64
			var v cell.Value
			if t, v, err = row.Value(); err == nil {
				err = s.AppendValue(ctx, t, v)
			} else {
				err = s.badCell(c, err)
			}
		default:
			if err := row.Err(); err != nil {
				return s.badCell(c, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// appendExemplar adds an exemplar. Where only rollups are kept there are none.
func (s *Series) appendExemplar(base int64, c bucketstore.Cell, start, limit int64) error {
	x, err := cell.ParseExemplar(base, c.Qualifier, c.Value, &s.w.builder)
	if err != nil {
		return s.badCell(c, err)
	}
	if x.Ts < max(start, s.bounds.From) || x.Ts >= min(limit, s.bounds.Until+1) || s.w.cfg.Rollups != nil {
		return nil
	}
	if err := s.pending(x.Ts, x.Ts+1); err != nil {
		return err
	}
	s.addOp(x.Ts, x.Ts, bucketstore.Op{Kind: bucketstore.SetCell, Family: c.Family, Qualifier: c.Qualifier, Time: x.Ts, Value: c.Value})
	s.w.counts.Exemplars++
	return nil
}

// appendCurrent adds the current sample of a series, at the time of the cell, to the batch. Config.Current may lose it until a later sample comes, and of a series that
// has ended none does.
func (s *Series) appendCurrent(c bucketstore.Cell) error {
	if _, err := cell.Parse(c.Value); err != nil {
		return s.badCell(c, err)
	}
	if c.Time < 0 || c.Time > s.bounds.Until {
		return s.badCell(c, fmt.Errorf("its time is %d", c.Time))
	}
	if s.w.cfg.Rollups != nil || c.Time < s.bounds.From {
		return nil
	}
	if err := s.pending(c.Time, c.Time+1); err != nil {
		return err
	}
	w, row := s.w, "\x00"+string(s.key) // which is no key of METRIC
	at, ok := w.rows[row]
	if !ok {
		at = len(w.currentMuts)
		w.rows[row] = at
		w.currentMuts = append(w.currentMuts, bucketstore.Mutation{Key: s.key})
	}
	m := &w.currentMuts[at]
	m.Ops = append(m.Ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent), Time: c.Time, Value: c.Value})
	w.size += len(s.key) + len(c.Value) + opBytes
	return nil
}

// appendRollup adds the rollup of a day, if its resolution is kept that long.
func (s *Series) appendRollup(base int64, c bucketstore.Cell, start, limit int64) error {
	r := rollup.ResolutionOf(c.Family)
	if r == rollup.Raw || s.w.cfg.Rollups == nil || s.taken {
		return s.badCell(c, errors.New("where samples are kept, or beside samples"))
	}
	day := rollup.DayOfCell(base, c.Qualifier)
	first, last := max(day+1, base), min(day+rollup.Day, base+series.Period-1)
	if first >= limit || last < start || day < s.w.cfg.Rollups.From[r] {
		return nil
	}
	s.points.Reset(0, rollup.Windows{})
	if err := s.points.AppendCell(r, day, c.Value, day, day+rollup.Day); err != nil && !errors.Is(err, rollup.ErrSamples) {
		return s.badCell(c, err)
	}
	var samples int64
	if n := len(s.points.Numbers); n > 0 {
		samples = int64(s.points.Numbers[n-1])
	}
	if last > s.bounds.Until {
		s.w.counts.Future += samples
		return nil
	}
	if err := s.pending(first, last+1); err != nil {
		return err
	}
	if first != s.rolledFrom { // another resolution has the same samples
		s.rolledFrom = first
		s.w.counts.Samples += samples
		s.w.counts.Rolled += samples
	}
	row, _ := series.Split(first)
	qualifier := series.AppendQualifier(nil, rollup.Qualifier(day, row))
	s.addOp(first, last, bucketstore.Op{Kind: bucketstore.SetCell, Family: c.Family, Qualifier: qualifier, Time: day + rollup.Day, Value: c.Value})
	s.addEntry(last)
	return nil
}

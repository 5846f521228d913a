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

// appendCurrent gives the current sample of a series, at the time of the cell, to Config.Current.
func (s *Series) appendCurrent(c bucketstore.Cell) error {
	v, err := cell.Parse(c.Value)
	if err != nil || c.Time < 0 || c.Time > s.bounds.Until {
		return s.badCell(c, fmt.Errorf("at %d: %v", c.Time, err))
	}
	if s.w.cfg.Current == nil || c.Time < s.bounds.From {
		return nil
	}
	if err := s.pending(c.Time, c.Time+1); err != nil {
		return err
	}
	sample := bucketstore.Sample{Ref: keyRef(s.key), T: c.Time, V: v.Float}
	if v.Histogram != nil || v.FloatHistogram != nil || v.Start != 0 {
		sample.Value = c.Value
	}
	s.w.current = append(s.w.current, sample)
	s.w.size += len(s.key) + opBytes
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

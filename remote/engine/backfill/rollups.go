package backfill

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// Rollups make a Writer write rollups instead of samples: of days whose samples are not kept any more, and whose rollups are final. All
// samples of a series and a day go to one Series. Of a day of which a row has a rollup already the first one stays, because two cannot be
// merged.
type Rollups struct {
	// From is the first time of which rollups of a resolution are kept, in milliseconds, or math.MaxInt64 if none are made. That of rollup.Raw is of no use.
	From [rollup.NumResolutions]int64
}

// A rolledDay is the samples of a day of a series, in one row.
type rolledDay struct {
	encoder rollup.DayEncoder
	// aggregates has them if only aggregates are there, of buckets of finest and coarser ones.
	aggregates *rollup.AggregateEncoder
	finest     rollup.Resolution
	// histograms are among the samples.
	samples, histograms int64
	first, last         int64
}

func (d *rolledDay) begin(t int64) {
	if d.samples == 0 {
		d.encoder.Begin(rollup.DayOf(t), rollup.Downsampled)
		d.first = t
	}
}

func (d *rolledDay) addFloats(times []int64, values []float64) {
	d.begin(times[0])
	d.encoder.AddFloats(times, values)
	d.samples += int64(len(times))
	d.last = times[len(times)-1]
}

func (d *rolledDay) add(t int64, v cell.Value) error {
	d.begin(t)
	d.samples++
	if v.Histogram != nil || v.FloatHistogram != nil {
		d.histograms++
	}
	d.last = t
	return d.encoder.Add(t, v)
}

// AppendAggregates adds what another system keeps of the buckets of a resolution, in order of time: of those that end in [start, limit), in milliseconds.
// The others only tell from what a counter rises. It needs Config.Rollups, and a series has either aggregates or samples. The errors are those of Append.
func (s *Series) AppendAggregates(ctx context.Context, finest rollup.Resolution, all []rollup.Aggregate, start, limit int64) error {
	d := &s.rolled
	if s.w.cfg.Rollups == nil || d.aggregates == nil && s.taken {
		return fmt.Errorf("%w: series %s: aggregates, where samples are kept or beside samples", ErrSamples, s.labels)
	}
	if d.aggregates == nil {
		d.aggregates, d.finest = new(rollup.AggregateEncoder), finest
	}
	for _, a := range all {
		if a.To < start || a.To >= limit {
			d.aggregates.Add(a)
			continue
		}
		if from, until := s.bounded([]int64{a.To}); from == until {
			continue
		}
		if err := s.begin(ctx, a.To); err != nil {
			return err
		}
		if d.samples == 0 {
			d.aggregates.Begin(rollup.DayOf(a.To))
			d.first = a.To
		}
		if !d.aggregates.Add(a) {
			continue // chunks overlap: the first one is taken
		}
		d.samples += a.Samples
		d.last = a.To
		s.w.counts.Samples += a.Samples
	}
	return nil
}

// LeaveOut counts the samples of aggregates that end in [start, limit) as ones that rollups do not tell.
func (s *Series) LeaveOut(all []rollup.Aggregate, start, limit int64) {
	for _, a := range all {
		if a.To >= start && a.To < limit {
			s.w.counts.Old += a.Samples
		}
	}
}

// append appends the cell at a resolution.
func (d *rolledDay) append(dst []byte, r rollup.Resolution) ([]byte, error) {
	switch {
	case d.aggregates == nil:
		return d.encoder.Append(dst, r)
	case r < d.finest:
		return rollup.AppendSamples(dst), nil // which are not there: a coarser one tells more
	}
	return d.aggregates.Append(dst, r), nil
}

// addRollups adds the rollups of the open day.
func (s *Series) addRollups() error {
	w, d := s.w, &s.rolled
	day := rollup.DayOf(d.first)
	base, _ := series.Split(d.first)
	kept := false
	for _, r := range rollup.Downsampled {
		if day < w.cfg.Rollups.From[r] {
			continue
		}
		kept = true
		at := len(w.space)
		var err error
		if w.space, err = d.append(w.space, r); err != nil {
			return fmt.Errorf("%w: series %s: rollup from %d: %v", ErrSamples, s.labels, d.first, err)
		}
		s.addOp(d.first, d.last, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: r.Family(), Time: day + rollup.Day, Value: w.space[at:len(w.space):len(w.space)],
			Qualifier: series.AppendQualifier(nil, rollup.Qualifier(day, base)),
		})
	}
	if kept {
		s.addEntry(d.last) // a day may lie in two periods
	}
	if kept && (d.aggregates != nil || !d.encoder.IsOfSamples()) {
		w.counts.Rolled += d.samples
	} else {
		w.counts.Samples -= d.samples
		w.counts.Histograms -= d.histograms
		w.counts.Old += d.samples
	}
	d.samples, d.histograms = 0, 0
	return nil
}

// rowsAtOnce is how many rows are read at once.
const rowsAtOnce = 200

// keepFirst takes the rollups of days that have some already out of the batch.
func (w *Writer) keepFirst(ctx context.Context) error {
	rows := make([]series.RowRange, len(w.muts))
	for i, m := range w.muts {
		rows[i] = series.SingleRow(m.Key)
	}
	at := 0
	for some := range slices.Chunk(rows, rowsAtOnce) {
		err := w.cfg.Store.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: some, Families: bucketstore.RollupFamilies()}, func(row bucketstore.Row) error {
			for !bytes.Equal(w.muts[at].Key, row.Key) {
				at++
			}
			for _, c := range row.Cells {
				w.leaveOut(&w.muts[at], c)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the rollups of %d rows: %w", len(some), err)
		}
	}
	w.muts = slices.DeleteFunc(w.muts, func(m bucketstore.Mutation) bool { return len(m.Ops) == 0 })
	return nil
}

// leaveOut takes what is in the way of a cell out of m. A day without samples has an empty cell, which is in the way of none.
func (w *Writer) leaveOut(m *bucketstore.Mutation, c bucketstore.Cell) {
	if len(c.Value) == 0 {
		for i := range m.Ops {
			if op := &m.Ops[i]; op.Family == c.Family && bytes.Equal(op.Qualifier, c.Qualifier) {
				op.Time = max(op.Time, c.Time)
			}
		}
		return
	}
	before := len(m.Ops)
	m.Ops = slices.DeleteFunc(m.Ops, func(op bucketstore.Op) bool { return bytes.Equal(op.Qualifier, c.Qualifier) })
	if len(m.Ops) < before {
		w.counts.Kept++
	}
}

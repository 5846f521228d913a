package backfill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// splitBatches is by how many times a batch may exceed Config.BatchBytes until the samples of a Series are divided between two.
const splitBatches = 2

// A Series takes the samples of a series for its Writer.
type Series struct {
	w      *Writer
	labels labels.Labels
	key    []byte
	// chunks takes the samples of the open window.
	chunks chunk.Splitter
	// rolled is the open day, if only rollups are written.
	rolled rolledDay
	// last is the time of the last sample, taken or not, or math.MinInt64. period is the index period of the last entry, or -1.
	last, period int64
	// bounds are the times that are taken.
	bounds Bounds
	// taken says that there was a sample that was taken.
	taken bool
	// newest is the last one for Config.Current. Its Ref is nil if there is none.
	newest bucketstore.Sample
	// stamp is that of the chunks of the open window. It is 0 but for those that AppendStored takes.
	stamp int64
	// points and rolledFrom are scratch space of appendRollup, and when the last day begins that it took.
	points     rollup.Points
	rolledFrom int64
}

// Series returns what takes the samples of the series with these labels. Of one series there may be several, one after the other or
// at once: their samples are merged when they are read. The error is that of series.Schema.AppendSeriesKey.
func (w *Writer) Series(ls labels.Labels) (*Series, error) {
	key, err := w.cfg.Schema.AppendSeriesKey(nil, ls)
	if err != nil {
		return nil, fmt.Errorf("series %s: %w", ls, err)
	}
	s := &Series{w: w, labels: ls, key: key, last: math.MinInt64, period: -1, bounds: w.cfg.Bounds}
	s.chunks.Seal = s.addChunk
	if w.cfg.From != nil {
		s.bounds.From = max(s.bounds.From, w.cfg.From(ls))
	}
	return s, nil
}

// Append adds floats, whose times, in milliseconds, ascend and are later than all before. It keeps neither slice. The error is an ErrSamples
// if they are not, and else that of the store or the index, after which the Writer does nothing more.
func (s *Series) Append(ctx context.Context, times []int64, values []float64) error {
	if s.rolled.aggregates != nil {
		return s.besideAggregates()
	}
	for _, t := range times {
		if t <= s.last {
			return s.outOfOrder(t)
		}
		s.last = t
	}
	from, until := s.bounded(times)
	times, values = times[from:until], values[from:until]
	for len(times) > 0 {
		if err := s.begin(ctx, times[0]); err != nil {
			return err
		}
		n := min(len(times), chunk.MaxSamples)
		if part := s.w.partOf(times[0]); s.w.partOf(times[n-1]) != part {
			n = sort.Search(n, func(i int) bool { return s.w.partOf(times[i]) != part })
		}
		if s.w.cfg.Rollups != nil {
			s.rolled.addFloats(times[:n], values[:n])
		} else if err := s.chunks.AddFloats(times[:n], values[:n]); err != nil {
			return err
		}
		s.w.counts.Samples += int64(n)
		if t := times[n-1]; s.isCurrent(t) {
			s.newest = bucketstore.Sample{Ref: keyRef(s.key), T: t, V: values[n-1]}
		}
		times, values = times[n:], values[n:]
	}
	return nil
}

// AppendValue adds a histogram, or a float with a start timestamp. It may keep what v refers to. The errors are those of Append.
func (s *Series) AppendValue(ctx context.Context, t int64, v cell.Value) error {
	if s.rolled.aggregates != nil {
		return s.besideAggregates()
	}
	if t <= s.last {
		return s.outOfOrder(t)
	}
	s.last = t
	if from, until := s.bounded([]int64{t}); from == until {
		return nil
	}
	isHistogram := v.Histogram != nil || v.FloatHistogram != nil
	if isHistogram && !isValid(v) {
		s.w.counts.Invalid++
		return nil
	}
	if err := s.begin(ctx, t); err != nil {
		return err
	}
	add := s.chunks.Add
	if s.w.cfg.Rollups != nil {
		add = s.rolled.add
	}
	switch err := add(t, v); {
	case errors.Is(err, ErrPending):
		return err
	case err != nil:
		return fmt.Errorf("%w: series %s: sample at %d: %v", ErrSamples, s.labels, t, err)
	}
	s.w.counts.Samples++
	if s.isCurrent(t) {
		s.newest = bucketstore.Sample{Ref: keyRef(s.key), T: t, Value: cell.Append(nil, v)}
	}
	if isHistogram {
		s.w.counts.Histograms++
	}
	return nil
}

// isCurrent says whether a sample at t is one for Config.Current, if it is the last one.
func (s *Series) isCurrent(t int64) bool {
	return s.w.cfg.Current != nil && s.w.cfg.Rollups == nil && t >= s.w.cfg.CurrentFrom
}

// isValid says whether a histogram can be stored.
func isValid(v cell.Value) bool {
	if v.Histogram != nil {
		return v.Histogram.Validate() == nil
	}
	return v.FloatHistogram.Validate() == nil
}

func (s *Series) besideAggregates() error {
	return fmt.Errorf("%w: series %s: samples beside aggregates", ErrSamples, s.labels)
}

func (s *Series) outOfOrder(t int64) error {
	return fmt.Errorf("%w: series %s: time %d after %d", ErrSamples, s.labels, t, s.last)
}

// bounded returns which of ascending times are taken, and counts the others.
func (s *Series) bounded(times []int64) (from, until int) {
	b, w := s.bounds, s.w
	if n := len(times); n == 0 || times[0] >= max(b.From, 0) && times[n-1] <= min(b.Until, series.MaxTime) {
		return 0, n
	}
	after := func(t int64) int { at, _ := slices.BinarySearch(times, t); return at }
	negative, beyond := after(0), after(series.MaxTime+1)
	from, until = max(negative, after(b.From)), min(beyond, after(b.Until+1))
	from = min(from, until)
	w.counts.Invalid += int64(negative + len(times) - beyond)
	w.counts.Old += int64(from - min(negative, from))
	w.counts.Future += int64(max(beyond, until) - until)
	return from, until
}

// A part is what is encoded together: a window, or a day in a row, by its start, and the start of the row.
type part struct{ start, base int64 }

// partOf returns that of a time.
func (w *Writer) partOf(t int64) part {
	if w.cfg.Rollups == nil {
		return part{series.WindowOf(t), 0}
	}
	base, _ := series.Split(t)
	return part{rollup.DayOf(t), base}
}

// begin seals the open window if a sample at t is of another one, and writes the batch if it is large.
func (s *Series) begin(ctx context.Context, t int64) error {
	if !s.taken {
		s.taken = true
		s.w.counts.Series++
	}
	if open, isOpen := s.open(); isOpen && s.w.partOf(t) != s.w.partOf(open) {
		if err := s.seal(); err != nil {
			return err
		}
	}
	if s.w.size < splitBatches*s.w.cfg.BatchBytes {
		return nil
	}
	return s.w.Flush(ctx)
}

// open returns the time of the first sample of the open window, if there is one.
func (s *Series) open() (t int64, ok bool) {
	if s.rolled.samples > 0 {
		return s.rolled.first, true
	}
	return s.chunks.First()
}

// Close adds what is left of the series to the batch, releases its memory, and writes the batch if it is full. Nothing may be appended
// after it.
func (s *Series) Close(ctx context.Context) error {
	err := s.seal()
	s.chunks = chunk.Splitter{Seal: s.addChunk}
	if err == nil && s.newest.Ref != nil {
		s.w.current = append(s.w.current, s.newest)
		s.w.size += len(s.key) + opBytes
		s.newest = bucketstore.Sample{}
	}
	if err != nil || s.w.size < s.w.cfg.BatchBytes {
		return err
	}
	return s.w.Flush(ctx)
}

// seal adds the chunks or the rollups of what is open to the batch.
func (s *Series) seal() error {
	if s.w.err != nil {
		return s.w.err
	}
	if s.rolled.samples > 0 {
		day := rollup.DayOf(s.rolled.first)
		if err := s.pending(day+1, day+rollup.Day+1); err != nil {
			return err
		}
		return s.addRollups()
	}
	err := s.chunks.Flush()
	s.stamp = 0
	return err
}

// pending returns the error of Config.Pending for samples in [start, limit).
func (s *Series) pending(start, limit int64) error {
	if s.w.cfg.Pending == nil {
		return nil
	}
	if err := s.w.cfg.Pending(s.key, start, limit); err != nil {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}

// addChunk adds a chunk to the batch.
func (s *Series) addChunk(encoding byte, first, last int64, data []byte) error {
	if err := s.pending(first, last+1); err != nil {
		return err
	}
	w := s.w
	var c bucketstore.Cell
	c, w.space = bucketstore.AppendChunkCell(w.space, chunk.Sealed{Encoding: encoding, Stamp: s.stamp, Data: data}, first, last)
	s.addOp(first, last, c.SetOp())
	return nil
}

// addOp adds an operation for samples from first to last to the batch.
func (s *Series) addOp(first, last int64, op bucketstore.Op) {
	w := s.w
	if len(w.muts) == 0 {
		w.mint, w.maxt = first, last
	}
	w.mint, w.maxt = min(w.mint, first), max(w.maxt, last)
	m := w.row(s.key, first)
	m.Ops = append(m.Ops, op)
	w.size += len(op.Qualifier) + len(op.Value) + opBytes
	w.counts.Bytes += int64(len(op.Qualifier) + len(op.Value))
	s.addEntry(first) // a window lies in one period
}

// addEntry adds an index entry to the batch, if t is of another period than the last one.
func (s *Series) addEntry(t int64) {
	w := s.w
	if period := series.PeriodOf(t); period != s.period {
		// The start of the period, so that the series is not prewritten to the next one.
		w.entries = append(w.entries, index.Entry{Key: s.key, Labels: s.labels, T: period})
		w.size += s.labels.Len() * len(s.key) // in each row of the index
		s.period = period
	}
}

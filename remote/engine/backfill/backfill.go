// Package backfill writes history: samples of series, in order of time, as sealed chunks, beside what senders
// write meanwhile. A buffer would make the same chunks, but only of what it logs first.
//
// The rules:
//
//   - Index before samples. The index rows of a chunk are durable before the chunk.
//   - A chunk has stamp 0. Where a sender has written a sample of the same time, that one stays, in whatever order
//     both were written. Of two samples of history, readers choose by the qualifier of their chunks.
//   - A chunk lies in one window, and has up to dense.MaxSamples floats.
//   - The store counts: it is what downsample.Days.Counted returns. Rollups of days that were made before are made again.
//   - It does not know which days are closed, or beyond the retention: the caller leaves out their samples.
//   - To write the same samples again, from the same sample on, is harmless: they make the same cells. So what was
//     interrupted is begun again.
//   - A Writer holds a batch and one window of each series that is not closed, whatever it writes.
package backfill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

const (
	// DefaultBatchBytes is about how many bytes are written at once. The embedded store makes a table of its own of so many.
	DefaultBatchBytes = 5 << 20
	// opBytes is what an operation takes in memory beside its bytes.
	opBytes = 100
	// writeTimeout bounds the write of a batch, index rows and chunks each.
	writeTimeout = time.Minute
)

// ErrSamples marks samples that a Writer does not take: their times do not ascend or are out of bounds.
var ErrSamples = errors.New("these samples cannot be stored")

// Config says where a Writer writes. All but BatchBytes is required.
type Config struct {
	// Store takes chunks. It counts writes to days that may have rollups, see downsample.Days.Counted. Where the store may be overloaded
	// it waits, see bucketstore.Patient.
	Store bucketstore.Store
	// Index takes series.
	Index *index.Index
	// Schema is that of the store, and of the tenant.
	Schema series.Schema
	// BatchBytes is about how many bytes are written at once. 0 is DefaultBatchBytes.
	BatchBytes int
}

// A Writer writes samples of history. It is not safe for concurrent use; several may have the same store and index.
type Writer struct {
	cfg Config
	// entries and muts are the batch. rows are the positions in muts by key, space holds the cells.
	entries []index.Entry
	muts    []bucketstore.Mutation
	rows    map[string]int
	space   []byte
	// size is about how many bytes the batch takes.
	size int
	// key and encoded are scratch space.
	key, encoded []byte
	err          error
}

// New returns a Writer with an empty batch.
func New(cfg Config) *Writer {
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = DefaultBatchBytes
	}
	return &Writer{cfg: cfg, rows: make(map[string]int)}
}

// A Series takes the samples of a series for its Writer.
type Series struct {
	w      *Writer
	labels labels.Labels
	key    []byte
	// times and values are those of the open window.
	times  []int64
	values []float64
	// last is the time of the last sample, period the index period of the last entry, both -1 at first.
	last, period int64
}

// Series returns what takes the samples of the series with these labels. Of one series there may be several, one after the other or
// at once: their samples are merged when they are read. The error is that of series.Schema.AppendSeriesKey.
func (w *Writer) Series(ls labels.Labels) (*Series, error) {
	key, err := w.cfg.Schema.AppendSeriesKey(nil, ls)
	if err != nil {
		return nil, fmt.Errorf("series %s: %w", ls, err)
	}
	return &Series{w: w, labels: ls, key: key, last: -1, period: -1}, nil
}

// Append adds samples, whose times, in milliseconds, ascend and are later than all before. It keeps neither slice. The error is an ErrSamples
// if they are not, and else that of the store or the index, after which the Writer does nothing more.
func (s *Series) Append(ctx context.Context, times []int64, values []float64) error {
	for i, t := range times {
		if t <= s.last || t > series.MaxTime {
			return fmt.Errorf("%w: series %s: time %d after %d", ErrSamples, s.labels, t, s.last)
		}
		if n := len(s.times); n > 0 && (series.WindowOf(t) != series.WindowOf(s.times[0]) || n == dense.MaxSamples) {
			if err := s.seal(ctx); err != nil {
				return err
			}
		}
		s.times, s.values, s.last = append(s.times, t), append(s.values, values[i]), t
	}
	return nil
}

// Close adds what is left of the series to the batch, and releases its memory. Nothing may be appended after it.
func (s *Series) Close(ctx context.Context) error {
	err := s.seal(ctx)
	s.times, s.values = nil, nil
	return err
}

// seal adds a chunk of the open window to the batch, and writes the batch if it is full.
func (s *Series) seal(ctx context.Context) error {
	w := s.w
	if len(s.times) == 0 || w.err != nil {
		return w.err
	}
	first, last := s.times[0], s.times[len(s.times)-1]
	w.encoded = dense.Append(w.encoded[:0], s.times, s.values)
	s.times, s.values = s.times[:0], s.values[:0]
	var c bucketstore.Cell
	c, w.space = bucketstore.AppendChunkCell(w.space, chunk.EncodingDense, 0, first, last, w.encoded)
	m := w.row(s.key, first)
	m.Ops = append(m.Ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: c.Family, Qualifier: c.Qualifier, Time: c.Time, Value: c.Value})
	w.size += len(c.Qualifier) + len(c.Value) + opBytes
	if period := series.PeriodOf(first); period != s.period { // a window lies in one
		w.entries = append(w.entries, index.Entry{Key: s.key, Labels: s.labels, T: first})
		w.size += s.labels.Len() * len(s.key) // in each row of the index
		s.period = period
	}
	if w.size < w.cfg.BatchBytes {
		return nil
	}
	return w.Flush(ctx)
}

// row returns the mutation of a row: a row is only once in a batch.
func (w *Writer) row(seriesKey []byte, t int64) *bucketstore.Mutation {
	base, _ := series.Split(t)
	w.key = w.cfg.Schema.AppendRowKey(w.key[:0], seriesKey, base)
	at, ok := w.rows[string(w.key)]
	if !ok {
		at = len(w.muts)
		key := bytes.Clone(w.key)
		w.rows[string(key)] = at
		w.muts = append(w.muts, bucketstore.Mutation{Key: key})
		w.size += 2*len(key) + opBytes
	}
	return &w.muts[at]
}

// Flush writes the batch: when it returns without an error, all that was sealed is durable. What is left of open series is not sealed; Close
// does that. After an error the Writer does nothing more and returns it again; some of the batch may have been written.
func (w *Writer) Flush(ctx context.Context) error {
	if w.err == nil {
		w.err = w.write(ctx)
	}
	return w.err
}

func (w *Writer) write(ctx context.Context) error {
	if len(w.muts) == 0 {
		return ctx.Err()
	}
	slices.SortFunc(w.muts, func(a, b bucketstore.Mutation) int { return bytes.Compare(a.Key, b.Key) })
	if len(w.entries) > 0 {
		indexing, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		if err := w.cfg.Index.Write(indexing, w.entries); err != nil {
			return fmt.Errorf("index %d series, the first %s: %w", len(w.entries), w.entries[0].Labels, err)
		}
	}
	storing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := w.cfg.Store.Apply(storing, bucketstore.Metric, w.muts); err != nil {
		return fmt.Errorf("store chunks of %d rows, %s: %w", len(w.muts), w.failed(err), err)
	}
	clear(w.entries)
	clear(w.muts)
	clear(w.rows)
	w.entries, w.muts, w.space, w.size = w.entries[:0], w.muts[:0], w.space[:0], 0
	return nil
}

// failed names the row that the store did not take, or the first of all.
func (w *Writer) failed(err error) string {
	var some *bucketstore.RowsError
	if errors.As(err, &some) {
		for i := range w.muts {
			if some.Failed[i] != nil {
				return fmt.Sprintf("not that of %s", w.muts[i].Key)
			}
		}
	}
	return fmt.Sprintf("the first of %s", w.muts[0].Key)
}

// Package backfill writes history: samples of series, in order of time, as sealed chunks, beside what senders
// write meanwhile. A buffer would make the same chunks, but only of what it logs first.
//
//	Writer   batches of rows, the index first   backfill.go
//	Series   samples to the chunks of windows   series.go
//	         chunks of Prometheus to samples    chunk.go
//	Rollups  of days whose samples are gone     rollups.go
//	         cells of another store             stored.go
//
// The rules:
//
//   - Index before samples. The index rows of a chunk are durable before the chunk.
//   - A chunk has stamp 0. Where a sender has written a sample of the same time, that one stays, in whatever order
//     both were written. Of two samples of history, readers choose by the qualifier of their chunks. What is copied of another
//     store has the stamps that it has there.
//   - A chunk lies in one window. It is one of those that chunk.Splitter makes.
//   - The store counts: it is what downsample.Days.Counted returns. Rollups of days that were made before are made again.
//   - Samples outside of Config.Bounds are left out, and counted: those that are not kept, and those that no sender could write.
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
	"github.com/promtable/promtable/series/merge"
)

const (
	// DefaultBatchBytes is about how many bytes are written at once. The embedded store makes a table of its own of so many.
	DefaultBatchBytes = 5 << 20
	// opBytes is what an operation takes in memory beside its bytes.
	opBytes = 100
	// writeTimeout bounds the write of a batch, index rows and chunks each.
	writeTimeout = time.Minute
)

// ErrSamples marks samples that a Writer does not take: their times do not ascend or are out of bounds, or their chunk is damaged. The
// Writer goes on with other series.
var ErrSamples = errors.New("these samples cannot be stored")

// ErrPending says that samples cannot be written now, as a deletion covers them that is not finished.
var ErrPending = errors.New("a deletion is not finished")

// Config says where a Writer writes. Store, Index and Schema are required.
type Config struct {
	// Store takes chunks. It counts writes to days that may have rollups, see downsample.Days.Counted. Where the store may be overloaded
	// it waits, see bucketstore.Retrying.
	Store bucketstore.Store
	// Index takes series.
	Index *index.Index
	// Schema is that of the store, and of the tenant.
	Schema series.Schema
	// Bounds are the times of samples that are taken. The zero value takes all that can be stored.
	Bounds Bounds
	// From, if set, returns the time before which no samples of a series are taken, in milliseconds, beside Bounds.
	From func(ls labels.Labels) int64
	// Pending, if set, returns an error that names a deletion which is not finished and covers samples of a series in [start, limit), in
	// milliseconds. It makes an ErrPending.
	Pending func(seriesKey []byte, start, limit int64) error
	// Around, if set, is called for each batch, and calls write, which stores it. Its error is that of the batch.
	Around func(ctx context.Context, write func() error) error
	// Rollups, if set, says that only rollups of the samples are written.
	Rollups *Rollups
	// Current, if set, is called with the last sample of each series, once it is stored, unless it is before CurrentFrom, in milliseconds. It keeps no reference to
	// the samples.
	Current     func(samples []bucketstore.Sample)
	CurrentFrom int64
	// Written, if set, is called when a batch is stored, or some of it, and reads may find it: it has samples at some of the times from mint to maxt, in
	// milliseconds, inclusive.
	Written func(mint, maxt int64)
	// BatchBytes is about how many bytes are written at once. 0 is DefaultBatchBytes.
	BatchBytes int
}

// Bounds are times in milliseconds, both inclusive.
type Bounds struct {
	// From is the first time that is kept, Until the last that a sender may write. An Until of 0 is series.MaxTime.
	From, Until int64
}

// Counts are what became of samples.
type Counts struct {
	// Series is how many series had samples that were taken, once for each Series of a Writer.
	Series int64 `json:"series"`
	// Samples are those that were taken, histograms among them.
	Samples    int64 `json:"samples"`
	Histograms int64 `json:"histograms"`
	// Rolled are those of which only rollups are kept. Kept is how many days of rows had a rollup already, which stays.
	Rolled int64 `json:"rolled"`
	Kept   int64 `json:"kept"`
	// Exemplars are those that were taken.
	Exemplars int64 `json:"exemplars,omitempty"`
	// Bytes are those of qualifiers and values of chunks.
	Bytes int64 `json:"bytes"`
	// Mutations are the rows of METRIC and INDEX, each once for each batch.
	Mutations int64 `json:"mutations"`
	// Old are the samples before Bounds.From, and those that rollups do not tell where only rollups are kept: of days with start
	// timestamps, or with floats and histograms. Future those after Bounds.Until, Invalid those whose time or value can never be stored,
	// or whose series cannot.
	Old     int64 `json:"old"`
	Future  int64 `json:"future"`
	Invalid int64 `json:"invalid"`
}

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	c.Series += other.Series
	c.Samples += other.Samples
	c.Histograms += other.Histograms
	c.Rolled += other.Rolled
	c.Kept += other.Kept
	c.Exemplars += other.Exemplars
	c.Bytes += other.Bytes
	c.Mutations += other.Mutations
	c.Old += other.Old
	c.Future += other.Future
	c.Invalid += other.Invalid
}

// Negate turns the sign of all counts.
func (c *Counts) Negate() {
	*c = Counts{-c.Series, -c.Samples, -c.Histograms, -c.Rolled, -c.Kept, -c.Exemplars, -c.Bytes, -c.Mutations, -c.Old, -c.Future, -c.Invalid}
}

// A Writer writes samples of history. It is not safe for concurrent use; several may have the same store and index.
type Writer struct {
	cfg Config
	// entries and muts are the batch. rows are the positions in muts by key, space holds the cells.
	entries []index.Entry
	muts    []bucketstore.Mutation
	rows    map[string]int
	space   []byte
	// current has the samples for Config.Current of series that are closed.
	current []bucketstore.Sample
	// currentMuts are rows of CURRENT.
	currentMuts []bucketstore.Mutation
	// size is about how many bytes the batch takes.
	size int
	// mint and maxt are the times of its first and its last sample, if it has any.
	mint, maxt int64
	// key is scratch space, chunk what AppendChunk decodes.
	key    []byte
	chunk  decoded
	counts Counts
	err    error
	// stored and builder are scratch space of AppendStored.
	stored  merge.Row
	builder labels.ScratchBuilder
}

// New returns a Writer with an empty batch.
func New(cfg Config) *Writer {
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = DefaultBatchBytes
	}
	if cfg.Bounds.Until == 0 {
		cfg.Bounds.Until = series.MaxTime
	}
	if cfg.Around == nil {
		cfg.Around = func(_ context.Context, write func() error) error { return write() }
	}
	if cfg.Written == nil {
		cfg.Written = func(int64, int64) {}
	}
	return &Writer{cfg: cfg, rows: make(map[string]int)}
}

// A keyRef is the reference of a series that is not appended to.
type keyRef []byte

// SeriesKey implements bucketstore.Ref.
func (k keyRef) SeriesKey() []byte { return k }

// Counts returns what became of all samples so far. Those that were taken are in the store, or in the batch.
func (w *Writer) Counts() Counts { return w.counts }

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
	if len(w.muts)+len(w.currentMuts) == 0 {
		return ctx.Err()
	}
	slices.SortFunc(w.muts, func(a, b bucketstore.Mutation) int { return bytes.Compare(a.Key, b.Key) })
	if err := w.cfg.Around(ctx, func() error { return w.store(ctx) }); err != nil {
		return err
	}
	clear(w.entries)
	clear(w.muts)
	clear(w.current)
	clear(w.currentMuts)
	clear(w.rows)
	w.entries, w.muts, w.current, w.space, w.size = w.entries[:0], w.muts[:0], w.current[:0], w.space[:0], 0
	w.currentMuts = w.currentMuts[:0]
	return nil
}

// store writes the index rows, then the chunks, and then gives Config.Current what these have.
func (w *Writer) store(ctx context.Context) error {
	if len(w.entries) > 0 {
		indexing, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		rows, err := w.cfg.Index.WriteCounted(indexing, w.entries)
		w.counts.Mutations += int64(rows)
		if err != nil {
			return fmt.Errorf("index %d series, the first %s: %w", len(w.entries), w.entries[0].Labels, err)
		}
	}
	storing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if w.cfg.Rollups != nil {
		if err := w.keepFirst(storing); err != nil || len(w.muts) == 0 {
			return err
		}
	}
	if len(w.muts) > 0 {
		err := w.cfg.Store.Apply(storing, bucketstore.Metric, w.muts)
		w.cfg.Written(w.mint, w.maxt)
		if err != nil {
			return fmt.Errorf("store chunks of %d rows, %s: %w", len(w.muts), w.failed(err), err)
		}
		w.counts.Mutations += int64(len(w.muts))
	}
	if len(w.currentMuts) > 0 {
		if err := w.cfg.Store.Apply(storing, bucketstore.Current, w.currentMuts); err != nil {
			return fmt.Errorf("store %d current samples: %w", len(w.currentMuts), err)
		}
		w.counts.Mutations += int64(len(w.currentMuts))
	}
	if len(w.current) > 0 {
		w.cfg.Current(w.current)
	}
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

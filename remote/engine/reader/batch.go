package reader

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

const (
	// batchBytes is how large one batch of rows should be as chunks, with
	// seriesOverhead for each series. A query holds two batches or more: it reads the next ones
	// while it delivers the current one.
	batchBytes = 8 << 20
	// minBatchBytes is the smallest share of batchBytes if a request has many queries.
	minBatchBytes = 128 << 10
	// splitFactor says when a batch is dropped and read again in smaller ones: if it
	// is so many times as large as it should be.
	splitFactor = 2
	// batchKeyBytes bounds the keys of one batch, because Bigtable refuses requests
	// over 512 KB.
	batchKeyBytes = 512 << 10
	// baseSize is an upper bound of what a row key has beyond the series key.
	baseSize = 16
	// seriesOverhead is added to the chunks of each series, in bytes.
	seriesOverhead = 1 << 10

	firstBatch = 64
	maxBatch   = 8192
)

// A batch is what was read of some series: a builder for each.
type batch struct {
	builders []chunkBuilder
	// spaces are the memory of their decoded samples.
	spaces []*chunk.Space
	// lent is what Query.Lend was called with.
	lent int
}

func newBatch(series int) batch { return batch{builders: make([]chunkBuilder, series)} }

// spaces are those that no batch uses.
var spaces = sync.Pool{New: func() any { return new(chunk.Space) }}

// addSpace adds memory for decoded samples.
func (b *batch) addSpace() *chunk.Space {
	space := spaces.Get().(*chunk.Space)
	b.spaces = append(b.spaces, space)
	return space
}

// release gives the memory of decoded samples to other batches.
func (b *batch) release() {
	for _, space := range b.spaces {
		space.Reset()
		spaces.Put(space)
	}
	b.spaces = nil
}

// errSplit marks a batch that is over splitFactor.
var errSplit = errors.New("batch too large")

// A batchReader reads the rows of series in batches. So memory depends on target and
// not on the size of the answer.
type batchReader struct {
	store  bucketstore.Store
	schema series.Schema
	limits Limits
	// query is named in the error if a limit is exceeded.
	query Query
	// start and limit are the range of samples that is read, half-open.
	start, limit int64

	// target is how large a batch should be, in bytes.
	target int
	// scans is how many scans read a batch at the same time at most. Each of several
	// scans reads least series or more.
	scans, least int
	// ahead is how many batches are read while one is delivered.
	ahead int
	// size is how many series the next batch takes.
	size int
	// widths says how much of a bucket is read at once.
	widths widths
	// samples counts the samples of all batches, also those of other groups of the query.
	samples *atomic.Int64
	// onRange, if set, is called with what was read of each range, in the order of scans.
	onRange func(part, series.RowRange, rowCounts)
	// days, unless nil, notes which rollups were there.
	days foundDays
}

// read reads a batch of the first series of from, and returns a builder for each
// series in it.
func (r *batchReader) read(ctx context.Context, from []index.Series, m metrics) (batch, error) {
	for {
		n := r.cut(from)
		read, err := r.readSeries(ctx, from[:n])
		if errors.Is(err, errSplit) {
			m.batches.WithLabelValues(resultSplit).Inc()
			r.size = max(1, n/4)
			continue
		}
		if err != nil {
			return batch{}, err
		}
		m.batches.WithLabelValues(resultRead).Inc()
		read.lent = r.resize(read.builders)
		if err := r.lend(read.lent); err != nil {
			read.release()
			return batch{}, err
		}
		return read, nil
	}
}

func (r *batchReader) lend(bytes int) error {
	if r.query.Lend == nil {
		return nil
	}
	return r.query.Lend(bytes)
}

// cut returns how many series of from are the next batch.
func (r *batchReader) cut(from []index.Series) int {
	keys := 0
	for n := range from[:min(len(from), r.size)] {
		keys += (len(from[n].Key) + baseSize) * len(from[n].Bases)
		if keys > batchKeyBytes {
			return max(1, n)
		}
	}
	return min(len(from), r.size)
}

// resize computes the size of the next batch from the bytes of this one, which it returns. It grows at
// most fourfold.
func (r *batchReader) resize(builders []chunkBuilder) (bytes int) {
	for i := range builders {
		bytes += builders[i].bytes + builders[i].rollupBytes
	}
	r.size = min(4*len(builders), maxBatch, max(1, r.target*len(builders)/(bytes+len(builders)*seriesOverhead)))
	return bytes
}

// readSeries reads the rows of these series.
func (r *batchReader) readSeries(ctx context.Context, of []index.Series) (batch, error) {
	scan := r.newBatchScan(of)
	bases := basesOf(of)
	if rollups := r.query.Rollups; rollups != nil {
		s := rollupScan{r: r, scan: scan, of: of, plan: rollups.plan, want: rollups.Want}
		if err := s.read(ctx); err != nil {
			return batch{}, err
		}
	} else {
		for part, ok := r.nextPart(bases, r.start, r.limit); ok; part, ok = r.nextPart(bases, part.limit, r.limit) {
			widest, err := scan.run(ctx, part)
			if err != nil {
				return batch{}, err
			}
			r.widths.adjust(part.span(), widest)
		}
	}
	// Each scan looks at the limit alone, and does not see others of the same time.
	if all := r.samples.Add(scan.samples.Load()); !r.query.Passing && all > int64(r.limits.MaxSamples) {
		return batch{}, r.tooManySamples()
	}
	return scan.batch, r.addPrevious(ctx, of, scan.builders)
}

// ranges returns the rows of a batch in p, ascending. The buckets of one series are
// one range. With resource labels in the schema each bucket is a range of its own.
func (r *batchReader) ranges(batch []index.Series, p part) []series.RowRange {
	size := 0
	for i := range batch {
		size += (len(batch[i].Key) + baseSize + 1) * len(batch[i].Bases)
	}
	keys := make([]byte, 0, size) // of all rows, each with the NUL that makes it the limit of its range
	ranges := make([]series.RowRange, 0, len(batch))
	oneRange := len(r.schema.ResourceLabels()) == 0
	var key []byte
	for i := range batch {
		if p.wanted != nil && !p.wanted[i] {
			continue
		}
		key = append(key[:0], batch[i].Key...)
		began := len(ranges)
		for _, base := range batch[i].Bases {
			if !p.has(base) {
				continue
			}
			start := len(keys)
			keys = append(r.schema.AppendRowKey(keys, key, base), 0)
			row := series.RowRange{Start: slices.Clip(keys[start : len(keys)-1]), Limit: slices.Clip(keys[start:])}
			if oneRange && len(ranges) > began {
				ranges[len(ranges)-1].Limit = row.Limit
				continue
			}
			ranges = append(ranges, row)
		}
	}
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	return disjoint(ranges)
}

// disjoint joins ranges that overlap. They can, because a label may look like a base:
// then rows of another series lie between two buckets of a series.
func disjoint(ranges []series.RowRange) []series.RowRange {
	joined := ranges[:0]
	for _, r := range ranges {
		if n := len(joined); n > 0 && bytes.Compare(r.Start, joined[n-1].Limit) < 0 {
			if bytes.Compare(r.Limit, joined[n-1].Limit) > 0 {
				joined[n-1].Limit = r.Limit
			}
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

package reader

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

const (
	// batchBytes is what one batch of rows should come to as chunks, with an
	// allowance for each series. A query holds two: the next is read while one is
	// delivered.
	batchBytes = 8 << 20
	// minBatchBytes is where dividing that between queries ends.
	minBatchBytes = 128 << 10
	// splitFactor says when a batch is given up and read again in smaller ones: if
	// it holds so many times what it should.
	splitFactor = 2
	// batchKeyBytes bounds the keys of one batch: Bigtable takes no request over
	// 512 KB.
	batchKeyBytes = 512 << 10
	// baseSize is more than a row key has beyond the series key.
	baseSize = 16
	// seriesOverhead is the allowance for each series in bytes.
	seriesOverhead = 1 << 10

	firstBatch = 64
	maxBatch   = 8192
)

// errSplit says that a batch holds too much.
var errSplit = errors.New("batch too large")

// A batchReader reads the rows of series, some at a time, so that what is in
// memory follows target and not the answer.
type batchReader struct {
	store  bucketstore.Store
	schema series.Schema
	limits Limits
	// query is named in the error if a limit is exceeded.
	query Query
	// start and limit are the range of samples that is read, half-open.
	start, limit int64

	// target is what a batch should come to in bytes.
	target int
	// scans is how many scans read a batch side by side at most, and least of how
	// many series each of them.
	scans, least int
	// size is how many series the next batch takes.
	size int
	// widths says how much of a bucket is read at once.
	widths widths
	// samples counts what all batches held.
	samples int
	// onRange, if set, is told what each range read has met, in the order of scans.
	onRange func(p part, r series.RowRange, rows, cells int)
}

// read reads a batch of the first of these series and returns a builder for
// each series in it.
func (r *batchReader) read(ctx context.Context, from []index.Series, m metrics) ([]chunkBuilder, error) {
	for {
		n := r.cut(from)
		builders, err := r.readSeries(ctx, from[:n])
		if errors.Is(err, errSplit) {
			m.batches.WithLabelValues(resultSplit).Inc()
			r.size = max(1, n/4)
			continue
		}
		if err != nil {
			return nil, err
		}
		m.batches.WithLabelValues(resultRead).Inc()
		r.resize(builders)
		return builders, nil
	}
}

// cut returns how many of these series make the next batch.
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

// resize makes the next batch as large as this one suggests, at most four times
// as large as this one was.
func (r *batchReader) resize(builders []chunkBuilder) {
	total := len(builders) * seriesOverhead
	for i := range builders {
		total += builders[i].bytes
	}
	r.size = min(4*len(builders), maxBatch, max(1, r.target*len(builders)/total))
}

// readSeries reads the rows of these series.
func (r *batchReader) readSeries(ctx context.Context, batch []index.Series) ([]chunkBuilder, error) {
	scan := r.newBatchScan(batch)
	bases := basesOf(batch)
	for part, ok := r.nextPart(bases, r.start); ok; part, ok = r.nextPart(bases, part.limit) {
		widest, err := scan.run(ctx, part)
		if err != nil {
			return nil, err
		}
		r.widths.learn(part.span(), widest)
	}
	r.samples += int(scan.samples.Load())
	return scan.builders, r.addBefore(ctx, batch, scan.builders)
}

// ranges returns the rows of a batch in p, ascending. The buckets of one series
// are one range, unless resource labels lie between.
func (r *batchReader) ranges(batch []index.Series, p part) []series.RowRange {
	var ranges []series.RowRange
	oneRange := len(r.schema.ResourceLabels()) == 0
	var key []byte
	for i := range batch {
		key = append(key[:0], batch[i].Key...)
		began := len(ranges)
		for _, base := range batch[i].Bases {
			if !p.has(base) {
				continue
			}
			row := series.SingleRow(r.schema.AppendRowKey(make([]byte, 0, len(key)+baseSize), key, base))
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

// disjoint joins ranges that overlap: between two buckets of a series there may
// be rows of another one, whose label looks like a base.
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

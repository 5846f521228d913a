package backfill

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/xor"
)

// decoded is scratch space of AppendChunk.
type decoded struct {
	times  []int64
	values []float64
	iter   chunkenc.Iterator
}

// AppendChunk adds the samples in [start, limit) of a chunk of Prometheus, all of which are later than those before. Times are in
// milliseconds. It keeps nothing of the chunk. A damaged chunk is an ErrSamples.
func (s *Series) AppendChunk(ctx context.Context, c chunkenc.Chunk, start, limit int64) error {
	if c.Encoding() == chunkenc.EncXOR {
		return s.appendXOR(ctx, c, start, limit)
	}
	if err := merge.CheckData(byte(c.Encoding()), c.Bytes()); err != nil {
		return s.damaged(c, err)
	}
	it := c.Iterator(s.w.chunk.iter)
	s.w.chunk.iter = it
	reset := saysReset(c)
	// follows says that the sample before in the chunk was taken.
	for n, follows := 0, false; ; n++ {
		kind := it.Next()
		if kind == chunkenc.ValNone {
			break
		}
		t := it.AtT()
		if t < start || t >= limit {
			follows = false
			continue
		}
		var err error
		v := cell.Value{Start: it.AtST()}
		switch kind {
		case chunkenc.ValHistogram:
			_, v.Histogram = it.AtHistogram(nil)
			v.Histogram.CounterResetHint = hint(v.Histogram.CounterResetHint, v.Histogram.Sum, n == 0 && reset, follows)
			err = s.AppendValue(ctx, t, v)
		case chunkenc.ValFloatHistogram:
			_, v.FloatHistogram = it.AtFloatHistogram(nil)
			v.FloatHistogram.CounterResetHint = hint(v.FloatHistogram.CounterResetHint, v.FloatHistogram.Sum, n == 0 && reset, follows)
			err = s.AppendValue(ctx, t, v)
		default:
			if _, v.Float = it.At(); v.Start != 0 {
				err = s.AppendValue(ctx, t, v)
			} else {
				err = s.Append(ctx, []int64{t}, []float64{v.Float})
			}
		}
		if err != nil {
			return err
		}
		follows = true
	}
	if err := it.Err(); err != nil {
		return s.damaged(c, err)
	}
	return nil
}

// appendXOR is AppendChunk of floats, all at once.
func (s *Series) appendXOR(ctx context.Context, c chunkenc.Chunk, start, limit int64) (err error) {
	d := &s.w.chunk
	if d.times, d.values, err = xor.Decode(c.Bytes(), d.times[:0], d.values[:0]); err != nil {
		return s.damaged(c, err)
	}
	from, until := 0, len(d.times)
	if until == 0 {
		return nil
	}
	if d.times[0] < start || d.times[until-1] >= limit {
		from, _ = slices.BinarySearch(d.times, start)
		until, _ = slices.BinarySearch(d.times, limit)
	}
	if until < from { // they do not ascend
		from, until = 0, len(d.times)
	}
	return s.Append(ctx, d.times[from:until], d.values[from:until])
}

func (s *Series) damaged(c chunkenc.Chunk, err error) error {
	return fmt.Errorf("%w: series %s: chunk of encoding %s with %d bytes: %v", ErrSamples, s.labels, c.Encoding(), len(c.Bytes()), err)
}

// saysReset says whether the header of a chunk tells of a reset of a counter before its first histogram.
func saysReset(c chunkenc.Chunk) bool {
	h, ok := c.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	})
	return ok && h.GetCounterResetHeader() == chunkenc.CounterReset
}

// hint returns whether the counter was reset before a histogram, of what upstream says of it. Upstream ignores the header of the
// chunk, and compares with the histogram before in the chunk.
func hint(of histogram.CounterResetHint, sum float64, reset, follows bool) histogram.CounterResetHint {
	switch {
	case of == histogram.GaugeType || value.IsStaleNaN(sum):
		return of
	case reset:
		return histogram.CounterReset
	case follows:
		return of
	}
	return histogram.UnknownCounterReset
}

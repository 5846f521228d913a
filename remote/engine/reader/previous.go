package reader

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/merge"
)

// maxLookback is how far before a range addPrevious reads, in milliseconds: the default
// lookback of PromQL.
const maxLookback = 5 * 60 * 1000

// addPrevious puts the last histogram before the range in front of each series that
// begins with a histogram, if one chunk can hold both. It tells readers whether the
// counter was reset between the two: the first histogram of a chunk does not. It costs
// one scan of a few cells, and nothing for series of floats.
func (r *batchReader) addPrevious(ctx context.Context, batch []index.Series, builders []chunkBuilder) error {
	search := previousSearch{r: r, slots: make(map[string]int), found: make(map[int]previous)}
	for i := range builders {
		if builders[i].beginsUnknown() {
			search.slots[batch[i].Key] = i
			search.series = append(search.series, batch[i].Identity)
		}
	}
	if len(search.series) == 0 {
		return nil
	}
	for start := max(0, r.query.cut, r.start-maxLookback); start < r.start; {
		base, _ := series.Split(start)
		p := part{start: start, limit: min(r.start, base+series.Period)}
		if err := search.run(ctx, p); err != nil {
			return err
		}
		start = p.limit
	}
	for slot, b := range search.found {
		if err := builders[slot].prepend(b, r.start); err != nil {
			return fmt.Errorf("series %s: %w", series.Abbreviate(batch[slot].Labels), err)
		}
	}
	return nil
}

// previous is the latest sample before a range.
type previous struct {
	t int64
	v cell.Value
}

// A previousSearch looks for the latest samples before a range.
type previousSearch struct {
	r      *batchReader
	series []*index.Identity
	// slots maps series keys to builders, found maps those to what was found.
	slots  map[string]int
	found  map[int]previous
	key    []byte
	reader rowReader
}

// run searches p, which lies in one bucket, after all parts searched before.
func (s *previousSearch) run(ctx context.Context, p part) error {
	base, _ := series.Split(p.start)
	bases := []int64{base}
	batch := make([]index.Series, len(s.series))
	for i, id := range s.series {
		batch[i] = index.Series{Identity: id, Bases: bases}
	}
	var read rowCounts
	err := s.r.store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Metric,
		Rows:     s.r.ranges(batch, p),
		Families: p.families(),
	}, func(row bucketstore.Row) error {
		read.addRow(row)
		return s.addRow(p, row)
	})
	UsageOf(ctx).addRows(read)
	if err != nil {
		return fmt.Errorf("read samples before a range: %w", err)
	}
	return nil
}

// addRow takes the latest sample of a row of p.
func (s *previousSearch) addRow(p part, row bucketstore.Row) (err error) {
	var base int64
	if s.key, base, err = s.r.schema.ParseRowKey(s.key[:0], row.Key); err != nil {
		return err
	}
	slot, ok := s.slots[string(s.key)]
	if !ok || !p.has(base) {
		return nil
	}
	if err := s.reader.reset(base, p.start, p.limit, row.Cells, merge.Options{}); err != nil {
		return fmt.Errorf("row %q: %w", row.Key, err)
	}
	last, ok, err := s.reader.last()
	if err != nil {
		return fmt.Errorf("row %q: %w", row.Key, err)
	}
	if ok {
		s.found[slot] = last
	}
	return nil
}

// last returns the last sample of the row, if there is one.
func (r *rowReader) last() (last previous, ok bool, err error) {
	for {
		switch r.samples.Next() {
		case merge.Floats:
			ts, vs := r.samples.Floats()
			n := len(ts) - 1
			last = previous{ts[n], cell.Value{Float: vs[n]}}
		case merge.Value:
			if last.t, last.v, err = r.samples.Value(); err != nil {
				return last, false, err
			}
		default:
			return last, ok, r.samples.Err()
		}
		ok = true
	}
}

// beginsUnknown says whether the first sample is a histogram that does not tell
// whether the counter was reset before it.
func (b *chunkBuilder) beginsUnknown() bool {
	if len(b.Chunks) == 0 {
		return false
	}
	headed, ok := b.Chunks[0].Chunk.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	})
	return ok && headed.GetCounterResetHeader() == chunkenc.UnknownCounterReset
}

// prepend puts first, which lies before start, in front of the first chunk. It leaves
// the chunk as it is if first is no histogram, or if one chunk cannot hold both. The
// samples are not counted anew.
func (b *chunkBuilder) prepend(first previous, start int64) error {
	again := new(chunkBuilder)
	if !isHistogram(first.v) {
		return nil
	}
	if err := again.append(first.t, first.v); err != nil {
		return err
	}
	it := b.Chunks[0].Chunk.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		t, v := valueAt(it, kind)
		if err := again.append(t, v); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil || again.Chunks[0].MaxTime < start {
		return err
	}
	b.Chunks = append(again.Chunks, b.Chunks[1:]...)
	return nil
}

func isHistogram(v cell.Value) bool { return v.Histogram != nil || v.FloatHistogram != nil }

// valueAt returns the current value of it, and its time.
func valueAt(it chunkenc.Iterator, kind chunkenc.ValueType) (t int64, v cell.Value) {
	v.Start = it.AtST()
	switch kind {
	case chunkenc.ValHistogram:
		t, v.Histogram = it.AtHistogram(nil)
	case chunkenc.ValFloatHistogram:
		t, v.FloatHistogram = it.AtFloatHistogram(nil)
	default:
		t, v.Float = it.At()
	}
	return t, v
}

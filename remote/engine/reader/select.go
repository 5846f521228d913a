package reader

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/remote/spans"
)

// Select finds the series of q. It returns the errors of the index, of the limit on
// series and of the first batch of rows.
//
// The series come sorted by labels.Compare, each once. Each has at least one sample
// inside the range, unless SeriesOnly is set. Its chunks are in time order and do not
// overlap. No sample lies outside the range, with one exception: if a series begins
// with a histogram, its first chunk may begin with the histogram before the range. A
// chunk tells of resets from its second histogram on.
//
// ctx must outlive the set. The next batch is read in the background while one is
// delivered, and where a scan waits for a network, several. A caller may drop a set half-way:
// then these are read to their end, unless ctx ends before.
func (r *Reader) Select(ctx context.Context, q Query) (storage.ChunkSeriesSet, error) {
	finding, span := spans.Start(ctx, "select")
	groups, found, err := r.find(finding, q)
	if err == nil {
		span.Count("series", len(found.Series))
	}
	span.End(err)
	if err != nil {
		return nil, err
	}
	merged := &mergedSet{}
	for i, reader := range r.readers(groups) {
		g := groups[i]
		set := &seriesSet{ctx: ctx, metrics: r.metrics, rest: g.series, reader: reader, passing: q.Passing, inBackground: r.inBackground, cut: g.query.cut}
		if q.SeriesOnly {
			set.reader = nil
		} else if set.fill(); set.err != nil {
			return nil, set.err
		}
		merged.sets, merged.cut = append(merged.sets, set), max(merged.cut, set.cut)
	}
	if len(merged.sets) == 1 {
		return merged.sets[0], nil
	}
	return merged, nil
}

// A seriesSet delivers the series that the index found. It holds the batch
// that is delivered and those that are read meanwhile.
type seriesSet struct {
	ctx     context.Context
	metrics metrics
	// inBackground is that of the Reader.
	inBackground func(context.Context, func(context.Context))
	// reader is nil if SeriesOnly is set. It knows how large batches are, from the last one that was delivered.
	reader *batchReader
	// batch has the builders of read, the series in front of rest. The first of both
	// is delivered next. passing is Query.Passing.
	batch   batch
	read    []index.Series
	rest    []index.Series
	passing bool
	// cut is that of the query.
	cut int64
	// ahead are the batches that are read in the background, of the series in front of rest.
	ahead []reading

	at  storage.ChunkSeries
	err error
}

// A reading is a batch of these series that is read in the background, or of the first of them if they are too many.
type reading struct {
	series []index.Series
	done   <-chan batchRead
}

// A batchRead is what became of reading a batch, and the reader that has read it.
type batchRead struct {
	batch  batch
	reader *batchReader
	err    error
}

// fill takes batches until one has a sample or all are read.
func (s *seriesSet) fill() {
	for s.err == nil && len(s.rest) > 0 && !s.skipEmpty() {
		s.leaveBatch()
		if s.batch, s.err = s.nextBatch(); s.err != nil {
			s.batch, s.rest = batch{}, nil
			return
		}
		n := len(s.batch.builders)
		s.read, s.rest = s.rest[:n], s.rest[n:]
	}
	s.skipEmpty()
}

// leaveBatch gives up the memory of the batch, of which all is delivered.
func (s *seriesSet) leaveBatch() {
	if finish := s.reader.query.Finish; finish != nil {
		finish()
	}
	_ = s.reader.lend(-s.batch.lent)
	s.batch.lent = 0
	if s.passing {
		s.batch.release()
	}
}

// nextBatch waits for what is read in the background, or reads.
func (s *seriesSet) nextBatch() (batch, error) {
	if len(s.ahead) == 0 {
		return s.reader.read(s.ctx, s.rest, s.metrics)
	}
	if err := s.ctx.Err(); err != nil {
		return batch{}, err
	}
	first := s.ahead[0]
	select {
	case <-s.ctx.Done():
		return batch{}, s.ctx.Err()
	case next := <-first.done:
		s.reader.size, s.reader.widths = next.reader.size, next.reader.widths
		if n := len(next.batch.builders); next.err == nil && n < len(first.series) { // the others come before those of later readings
			s.ahead[0] = s.beginReading(first.series[n:])
		} else {
			s.ahead = s.ahead[1:]
		}
		return next.batch, repanic.Rethrow(next.err)
	}
}

// readAhead begins to read the next batches, if there are any.
func (s *seriesSet) readAhead() {
	if len(s.ahead) == s.reader.ahead {
		return
	}
	begun := 0
	for _, r := range s.ahead {
		begun += len(r.series)
	}
	for len(s.ahead) < s.reader.ahead && begun < len(s.rest) {
		n := s.reader.cut(s.rest[begun:])
		s.ahead = append(s.ahead, s.beginReading(s.rest[begun:begun+n]))
		begun += n
	}
}

// beginReading reads a batch of these series in the background. Its goroutine never blocks, because a set may be given up at any time.
func (s *seriesSet) beginReading(of []index.Series) reading {
	done := make(chan batchRead, 1)
	reader, m := *s.reader, s.metrics
	s.inBackground(s.ctx, func(ctx context.Context) {
		next := batchRead{reader: &reader}
		next.err = repanic.Catch(func() (err error) {
			next.batch, err = reader.read(ctx, of, m)
			return err
		})
		done <- next
	})
	return reading{of, done}
}

// skipEmpty drops what has no sample from the front of the batch and says
// whether anything is left.
func (s *seriesSet) skipEmpty() bool {
	for b := s.batch.builders; len(b) > 0 && b[0].samples == 0 && !b[0].hasRollups; b = s.batch.builders {
		s.batch.builders, s.read = b[1:], s.read[1:]
	}
	return len(s.batch.builders) > 0
}

// Next implements storage.ChunkSeriesSet.
func (s *seriesSet) Next() bool {
	if s.reader == nil {
		return s.nextLabels()
	}
	if s.fill(); len(s.batch.builders) == 0 {
		s.leaveBatch()
		return false
	}
	s.readAhead()
	next := &s.batch.builders[0]
	entry := chunkSeries(s.read[0].Labels, next.Chunks)
	s.at = &entry
	if rollups := s.reader.query.Rollups; rollups != nil && !s.reader.query.Kept {
		s.at = &rolledSeries{entry, *next, rollups.plan}
	}
	s.metrics.series.Inc()
	s.metrics.samples.Add(float64(next.samples))
	*next = chunkBuilder{} // the caller's now
	s.batch.builders, s.read = s.batch.builders[1:], s.read[1:]
	return true
}

func (s *seriesSet) nextLabels() bool {
	if len(s.rest) == 0 {
		return false
	}
	entry := chunkSeries(s.rest[0].Labels, nil)
	s.at = &entry
	s.metrics.series.Inc()
	s.rest = s.rest[1:]
	return true
}

// chunkSeries returns a series of these chunks.
func chunkSeries(ls labels.Labels, chks []chunks.Meta) storage.ChunkSeriesEntry {
	return storage.ChunkSeriesEntry{
		Lset:            ls,
		ChunkIteratorFn: func(chunks.Iterator) chunks.Iterator { return storage.NewListChunkSeriesIterator(chks...) },
	}
}

// At implements storage.ChunkSeriesSet. The series stays valid.
func (s *seriesSet) At() storage.ChunkSeries { return s.at }

func (s *seriesSet) Err() error { return s.err }

func (s *seriesSet) Warnings() annotations.Annotations { return nil }

package export

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/bucketstore"
)

// Paced returns a source that gives at most so many samples a second, over all that read from it: it waits between series. 0 is no limit.
func Paced(from Source, perSecond float64) Source {
	if perSecond <= 0 {
		return from
	}
	p := &pacer{perSecond: perSecond, began: time.Now()}
	return func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
		set, err := from(ctx, mint, maxt, ms)
		if err != nil {
			return nil, err
		}
		return &pacedSet{ChunkSeriesSet: set, ctx: ctx, pacer: p}, nil
	}
}

// A pacer counts samples.
type pacer struct {
	perSecond float64
	began     time.Time
	samples   atomic.Int64
}

// wait waits until so many samples are due.
func (p *pacer) wait(ctx context.Context) error {
	due := time.Duration(float64(p.samples.Load()) / p.perSecond * float64(time.Second))
	return bucketstore.Sleep(ctx, due-time.Since(p.began))
}

type pacedSet struct {
	storage.ChunkSeriesSet
	*pacer
	ctx context.Context
	err error
}

func (s *pacedSet) Next() bool {
	if s.err == nil {
		s.err = s.wait(s.ctx)
	}
	return s.err == nil && s.ChunkSeriesSet.Next()
}

func (s *pacedSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.ChunkSeriesSet.Err()
}

func (s *pacedSet) At() storage.ChunkSeries { return pacedSeries{s.ChunkSeriesSet.At(), s.pacer} }

type pacedSeries struct {
	storage.ChunkSeries
	*pacer
}

func (s pacedSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	if old, ok := it.(*pacedIterator); ok {
		it = old.Iterator
	}
	return &pacedIterator{s.ChunkSeries.Iterator(it), s.pacer}
}

type pacedIterator struct {
	chunks.Iterator
	*pacer
}

func (it *pacedIterator) Next() bool {
	if !it.Iterator.Next() {
		return false
	}
	if c := it.At().Chunk; c != nil {
		it.samples.Add(int64(c.NumSamples()))
	}
	return true
}

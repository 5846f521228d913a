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
	p := NewPace(perSecond)
	return func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
		set, err := from(ctx, mint, maxt, ms)
		if err != nil {
			return nil, err
		}
		return p.Set(ctx, set), nil
	}
}

// A Pace bounds how many samples a second are read of all its sets. It is safe for concurrent use.
type Pace struct {
	perSecond float64
	began     time.Time
	samples   atomic.Int64
}

// NewPace returns a pace of so many samples a second. 0 is no limit.
func NewPace(perSecond float64) *Pace { return &Pace{perSecond: perSecond, began: time.Now()} }

// Set returns a set that waits between its series.
func (p *Pace) Set(ctx context.Context, set storage.ChunkSeriesSet) storage.ChunkSeriesSet {
	if p.perSecond <= 0 {
		return set
	}
	return &pacedSet{ChunkSeriesSet: set, ctx: ctx, Pace: p}
}

// wait waits until so many samples are due.
func (p *Pace) wait(ctx context.Context) error {
	due := time.Duration(float64(p.samples.Load()) / p.perSecond * float64(time.Second))
	return bucketstore.Sleep(ctx, due-time.Since(p.began))
}

type pacedSet struct {
	storage.ChunkSeriesSet
	*Pace
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

func (s *pacedSet) At() storage.ChunkSeries { return pacedSeries{s.ChunkSeriesSet.At(), s.Pace} }

type pacedSeries struct {
	storage.ChunkSeries
	*Pace
}

func (s pacedSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	if old, ok := it.(*pacedIterator); ok {
		it = old.Iterator
	}
	return &pacedIterator{s.ChunkSeries.Iterator(it), s.Pace}
}

type pacedIterator struct {
	chunks.Iterator
	*Pace
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

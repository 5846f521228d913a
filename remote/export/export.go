// Package export writes samples for other systems: as blocks of a TSDB, which Prometheus, Thanos and Mimir read, or as OpenMetrics text.
//
//	export.go  what is exported, and where it comes from
//	blocks.go  blocks of a TSDB
//	text.go    OpenMetrics
//	pace.go    a limit on samples a second
//	digest.go  what tells whether two stores have the same
//	missing.go what one series lacks of another
package export

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// A Source returns the series that match, sorted by labels, with samples in [mint, maxt], in milliseconds. Their chunks may have others, too.
type Source func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error)

// A Selection says what is exported.
type Selection struct {
	// Selectors are matchers; a series that any of them selects is exported once.
	Selectors [][]*labels.Matcher
	// Mint and Maxt bound the times, in milliseconds, inclusive.
	Mint, Maxt int64
}

// Progress is how far an export is.
type Progress struct {
	// Series and Samples are what was written. A series counts in each block.
	Series, Samples int64
	// Upto is the time before which all is written, in milliseconds, or 0.
	Upto int64
	// Left are samples that the format cannot hold.
	Left int64
}

// series returns the series of a selection in [mint, maxt], each once, sorted.
func (s Selection) series(ctx context.Context, from Source, mint, maxt int64) (storage.SeriesSet, error) {
	s.Mint, s.Maxt = mint, maxt
	set, err := s.Read(ctx, from)
	if err != nil {
		return nil, err
	}
	return storage.NewSeriesSetFromChunkSeriesSet(set), nil
}

// Read returns the series of the selection, sorted by labels. They may have samples beside its times.
func (s Selection) Read(ctx context.Context, from Source) (storage.ChunkSeriesSet, error) {
	var sets []storage.ChunkSeriesSet
	for _, ms := range s.Selectors {
		set, err := from(ctx, s.Mint, s.Maxt, ms)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	if len(sets) == 1 {
		return sets[0], nil
	}
	same := func(all ...storage.ChunkSeries) storage.ChunkSeries { return all[0] }
	return storage.NewMergeChunkSeriesSet(sets, 0, same), nil
}

// ErrNothing says that the selection has no samples.
var ErrNothing = errors.New("no samples match")

func (s Selection) check() error {
	if len(s.Selectors) == 0 {
		return errors.New("no selector is given")
	}
	if s.Mint > s.Maxt {
		return fmt.Errorf("the end, %d, is before the start, %d", s.Maxt, s.Mint)
	}
	return nil
}

// clipped is a series without the samples outside of [mint, maxt].
type clipped struct {
	storage.Series
	mint, maxt int64
}

func (s clipped) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	if old, ok := it.(*clippedIterator); ok {
		it = old.Iterator
	}
	return &clippedIterator{Iterator: s.Series.Iterator(it), mint: s.mint, maxt: s.maxt}
}

// A clippedIterator ends after maxt, and begins at mint.
type clippedIterator struct {
	chunkenc.Iterator
	mint, maxt int64
	hasBegun   bool
}

func (it *clippedIterator) Next() chunkenc.ValueType {
	if !it.hasBegun && it.mint > math.MinInt64 {
		return it.Seek(it.mint)
	}
	return it.within(it.Iterator.Next())
}

// A timestamp is in milliseconds: with this name go vet does not take Seek for that of io.Seeker.
type timestamp = int64

func (it *clippedIterator) Seek(t timestamp) chunkenc.ValueType {
	it.hasBegun = true
	return it.within(it.Iterator.Seek(max(t, it.mint)))
}

func (it *clippedIterator) within(kind chunkenc.ValueType) chunkenc.ValueType {
	if kind != chunkenc.ValNone && it.AtT() > it.maxt {
		return chunkenc.ValNone
	}
	return kind
}

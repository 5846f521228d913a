package history

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Joined returns a set with each series of an answer of remote read once. Prometheus divides a long series between several frames, and
// upstream's client takes each of them for a series of its own.
func Joined(set storage.ChunkSeriesSet) storage.ChunkSeriesSet {
	return &joinedSet{ChunkSeriesSet: set}
}

// A joinedSet joins neighbours with the same labels.
type joinedSet struct {
	storage.ChunkSeriesSet
	// at is the series, next the one after it, or nil if there is none.
	at, next storage.ChunkSeries
	began    bool
}

func (s *joinedSet) Next() bool {
	if !s.began {
		s.began = true
		s.advance()
	}
	if s.next == nil {
		return false
	}
	first := s.next
	s.at = first
	var parts []storage.ChunkSeries
	for s.advance(); s.next != nil && labels.Equal(s.next.Labels(), first.Labels()); s.advance() {
		if parts == nil {
			parts = append(parts, first)
		}
		parts = append(parts, s.next)
	}
	if parts != nil {
		s.at = &storage.ChunkSeriesEntry{Lset: first.Labels(), ChunkIteratorFn: func(it chunks.Iterator) chunks.Iterator {
			return &joinedIterator{it: first.Iterator(it), rest: parts[1:]}
		}}
	}
	// After an error it is not known whether the last series is whole.
	return s.next != nil || s.Err() == nil
}

func (s *joinedSet) advance() {
	s.next = nil
	if s.ChunkSeriesSet.Next() {
		s.next = s.ChunkSeriesSet.At()
	}
}

func (s *joinedSet) At() storage.ChunkSeries { return s.at }

// A joinedIterator is the chunks of one series after those of another.
type joinedIterator struct {
	it   chunks.Iterator
	rest []storage.ChunkSeries
}

func (i *joinedIterator) Next() bool {
	for !i.it.Next() {
		if i.it.Err() != nil || len(i.rest) == 0 {
			return false
		}
		i.it, i.rest = i.rest[0].Iterator(i.it), i.rest[1:]
	}
	return true
}

func (i *joinedIterator) At() chunks.Meta { return i.it.At() }

func (i *joinedIterator) Err() error { return i.it.Err() }

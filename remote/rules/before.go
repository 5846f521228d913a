package rules

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// A beforeStep hides what some rules have recorded at a step and after it: when a step is evaluated the first time this is not there yet.
type beforeStep struct {
	storage.Queryable
	step int64
	of   []recording
}

// Querier implements storage.Queryable.
func (b *beforeStep) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := b.Queryable.Querier(mint, maxt)
	return hidingQuerier{q, b}, err
}

type hidingQuerier struct {
	storage.Querier
	*beforeStep
}

// Select implements storage.Querier.
func (q hidingQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	set := q.Querier.Select(ctx, sorted, hints, ms...)
	if !slices.ContainsFunc(q.of, func(r recording) bool { return mayMatch(ms, r.name) }) {
		return set
	}
	return hidingSet{set, q.beforeStep}
}

type hidingSet struct {
	storage.SeriesSet
	*beforeStep
}

// At implements storage.SeriesSet.
func (s hidingSet) At() storage.Series {
	at, name := s.SeriesSet.At(), s.SeriesSet.At().Labels().Get(labels.MetricName)
	if !slices.ContainsFunc(s.of, func(r recording) bool { return r.name == name }) {
		return at
	}
	return &storage.SeriesEntry{Lset: at.Labels(), SampleIteratorFn: func(chunkenc.Iterator) chunkenc.Iterator {
		return &untilStep{Iterator: at.Iterator(nil), step: s.step}
	}}
}

// An untilStep ends before a step.
type untilStep struct {
	chunkenc.Iterator
	step int64
	over bool
}

func (it *untilStep) end(kind chunkenc.ValueType) chunkenc.ValueType {
	if it.over || kind == chunkenc.ValNone || it.Iterator.AtT() >= it.step {
		it.over = true
		return chunkenc.ValNone
	}
	return kind
}

// Next implements chunkenc.Iterator.
func (it *untilStep) Next() chunkenc.ValueType { return it.end(it.Iterator.Next()) }

// milliseconds is an int64 that go vet does not take for the offset of an io.Seeker.
type milliseconds = int64

// Seek implements chunkenc.Iterator.
func (it *untilStep) Seek(t milliseconds) chunkenc.ValueType { return it.end(it.Iterator.Seek(t)) }

package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/fleet"
	"github.com/promtable/promtable/remote/queries"
)

// storeError marks an error of the store, which upstream's API could not tell
// from one of the client.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// mark marks err as one of the store, unless it is the client's: a limit, or the end of a query whose context
// is ctx. A store has deadlines of its own, too.
func mark(ctx context.Context, err error) error {
	err = queries.Cause(ctx, err)
	noteLimit(ctx, err)
	isEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil, errors.Is(err, reader.ErrLimit), errors.Is(err, eval.ErrMemory), errors.Is(err, eval.ErrBusy), isEnd && ctx.Err() != nil:
		return err
	}
	return &storeError{err}
}

// markedStorage is the engine with its errors marked, and warnings about samples that a read may lack, see Config.Missing.
type markedStorage struct {
	backend
	missing func(maxt int64) []error
}

// Querier implements storage.Queryable.
func (s markedStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := s.backend.Querier(mint, maxt)
	return markedQuerier{q, maxt, s.missing}, mark(context.Background(), err)
}

type markedQuerier struct {
	storage.Querier
	maxt    int64
	missing func(maxt int64) []error
}

func (q markedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	set := markedSet{SeriesSet: q.Querier.Select(ctx, sorted, hints, ms...), ctx: ctx}
	if q.missing != nil && (hints == nil || hints.Func != "series") { // index rows are in the store before samples are in a log
		maxt := q.maxt
		if hints != nil {
			maxt = hints.End
		}
		set.warnings = q.missing(maxt)
	}
	return set
}

type markedSet struct {
	storage.SeriesSet
	ctx      context.Context
	warnings []error
}

func (s markedSet) Warnings() annotations.Annotations {
	warnings := s.SeriesSet.Warnings()
	for _, warning := range s.warnings {
		warnings.Add(warning)
	}
	return withPartial(s.ctx, warnings)
}

// withPartial adds what a partial answer lacks.
func withPartial(ctx context.Context, warnings annotations.Annotations) annotations.Annotations {
	for _, missing := range fleet.PartialOf(ctx) {
		warnings.Add(fmt.Errorf("%w: %w", annotations.PromQLWarning, missing))
	}
	return warnings
}

func (s markedSet) Err() error { return mark(s.ctx, s.SeriesSet.Err()) }

// LabelValues implements storage.LabelQuerier.
func (q markedQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	values, warnings, err := q.Querier.LabelValues(ctx, name, hints, ms...)
	return values, withPartial(ctx, warnings), mark(ctx, err)
}

func (q markedQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	names, warnings, err := q.Querier.LabelNames(ctx, hints, ms...)
	return names, withPartial(ctx, warnings), mark(ctx, err)
}

// ExemplarQuerier implements storage.ExemplarQueryable.
func (s markedStorage) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	q, err := s.backend.ExemplarQuerier(ctx)
	return markedExemplars{q, ctx}, mark(ctx, err)
}

type markedExemplars struct {
	storage.ExemplarQuerier
	ctx context.Context
}

func (q markedExemplars) Select(start, end int64, selectors ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	results, err := q.ExemplarQuerier.Select(start, end, selectors...)
	return results, mark(q.ctx, err)
}

package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// ErrNotKept marks a question about a time of which nothing is kept any more.
var ErrNotKept = errors.New("nothing is kept of that time")

// A CountQuery asks for counts of the series of the index period that holds a time.
type CountQuery struct {
	// Time is in milliseconds, in [0, series.MaxTime]. Before, unless it is negative, is one in
	// the period to compare with.
	Time, Before int64
	// Top, Focus, Selectors and Hold are those of index.CountQuery.
	Top       int
	Focus     string
	Selectors [][]*labels.Matcher
	Hold      func(bytes int) error
}

// Cardinality counts series, and compares them if that is asked for. The error is ErrLimit if a
// selector matches more than the limits allow, ErrNotKept, or index.ErrSamePeriod.
func (r *Reader) Cardinality(ctx context.Context, q CountQuery) (*index.Cardinality, *index.Comparison, error) {
	for _, t := range []int64{q.Time, q.Before} {
		if err := r.checkKept(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	in := index.CountQuery{Time: q.Time, Top: q.Top, Focus: q.Focus, MaxSeries: r.cfg.Limits.MaxSeries, Hold: q.Hold}
	for _, ms := range q.Selectors {
		in.Selectors = append(in.Selectors, r.storedMatchers(ms))
	}
	var found *index.Cardinality
	var compared *index.Comparison
	var err error
	if q.Before < 0 {
		found, err = r.cfg.Index.Cardinality(ctx, in)
	} else {
		found, compared, err = r.cfg.Index.Compare(ctx, in, q.Before)
	}
	if errors.Is(err, index.ErrTooManySeries) {
		err = limitError("count series: %v: see --read.max-series", err)
	}
	return found, compared, err
}

// checkKept wants the index period that holds t not to be cut whole.
func (r *Reader) checkKept(ctx context.Context, t int64) error {
	cut := r.view(ctx).Found()
	if end := series.PeriodOf(max(t, 0)) + series.IndexPeriod; t >= 0 && end <= cut {
		return fmt.Errorf("%w: its index period ends at %s, and series are kept from %s on", ErrNotKept, utc(end), utc(cut))
	}
	return nil
}

func utc(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339) }

// Metrics returns the metric names of an index period. The error is ErrNotKept if it is cut.
func (r *Reader) Metrics(ctx context.Context, q index.MetricQuery) (*index.Metrics, error) {
	if err := r.checkKept(ctx, q.Time); err != nil {
		return nil, err
	}
	return r.cfg.Index.Metrics(ctx, q)
}

// Extent returns what there is up to now, with up to so many series counted.
func (r *Reader) Extent(ctx context.Context, most int) (index.Extent, error) {
	v := r.view(ctx)
	return r.cfg.Index.Extent(ctx, v.Found(), v.Now.UnixMilli(), most)
}

package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// CurrentSample is the newest sample of a series: V, unless one of the
// histograms is set.
type CurrentSample struct {
	Labels labels.Labels
	T      int64
	V      float64
	H      *histogram.Histogram
	FH     *histogram.FloatHistogram
}

// newCurrentSample decodes a sample, unless it is a staleness marker.
func newCurrentSample(ls labels.Labels, s newestSample) (sample CurrentSample, ok bool, err error) {
	if s.Value == nil {
		return CurrentSample{Labels: ls, T: s.T, V: s.V}, !value.IsStaleNaN(s.V), nil
	}
	v, err := series.ParseValue(s.Value)
	return CurrentSample{ls, s.T, v.Float, v.Histogram, v.FloatHistogram}, err == nil && !isStale(v), err
}

// Current returns the newest sample of each series that any of the selectors
// matches, if its time is at least mint, sorted by metric name, then by
// labels.Compare. Series whose newest sample is a staleness marker are left
// out.
func (e *Engine) Current(ctx context.Context, tenant string, selectors [][]*labels.Matcher, mint int64) ([]CurrentSample, error) {
	found := make(map[string]labels.Labels)
	for _, matchers := range selectors {
		result, err := e.reader.Find(ctx, Query{Tenant: tenant, Matchers: matchers, Mint: mint, Maxt: series.MaxTime})
		if err != nil {
			return nil, err
		}
		for _, s := range result.Series {
			found[s.Key] = s.Labels
		}
	}
	newest, err := e.readNewest(ctx, found)
	if err != nil {
		return nil, err
	}
	current := make([]CurrentSample, 0, len(newest))
	for key, s := range newest {
		if s.T < mint {
			continue
		}
		sample, ok, err := newCurrentSample(found[key], s)
		if err != nil {
			return nil, fmt.Errorf("row %q of CURRENT: %w", key, err)
		}
		if ok {
			current = append(current, sample)
		}
	}
	slices.SortFunc(current, func(a, b CurrentSample) int {
		byName := cmp.Compare(a.Labels.Get(labels.MetricName), b.Labels.Get(labels.MetricName))
		return cmp.Or(byName, labels.Compare(a.Labels, b.Labels))
	})
	return current, nil
}

// readNewest returns the newest samples of these series: those in memory,
// copied first, over those in CURRENT.
func (e *Engine) readNewest(ctx context.Context, found map[string]labels.Labels) (map[string]newestSample, error) {
	newest := make(map[string]newestSample, len(found))
	rows := make([]series.RowRange, 0, len(found))
	for key := range found {
		if s, ok := e.newest.get(key); ok {
			newest[key] = s
		}
		rows = append(rows, series.SingleRow([]byte(key)))
	}
	slices.SortFunc(rows, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	err := e.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Current,
		Rows:     rows,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, func(row bucketstore.Row) error {
		cell := row.Cells[0]
		if have, ok := newest[string(row.Key)]; !ok || have.T < cell.Time {
			newest[string(row.Key)] = newestSample{T: cell.Time, Value: bytes.Clone(cell.Value)}
		}
		return nil
	})
	return newest, err
}

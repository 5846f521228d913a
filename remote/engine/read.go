package engine

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Select is that of reader.Reader.
func (e *Engine) Select(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error) {
	if q.Lend == nil {
		q.Lend = func(bytes int) error { return eval.Lend(ctx, bytes, reader.SelectorName(q.Matchers)) }
	}
	q.Compute = eval.Computing(ctx)
	return e.reader.Select(ctx, q)
}

// Explain answers q like Select, but counts the rows and cells instead of
// returning them.
func (e *Engine) Explain(ctx context.Context, q reader.Query) (*reader.Explanation, error) {
	return e.reader.Explain(ctx, q)
}

// Measure is Explain without the ranges of rows, so that memory does not follow what
// is read. Unless b is nil, buckets are read where they would do.
func (e *Engine) Measure(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error) {
	q.Rollups = rollups(b)
	return e.reader.Measure(ctx, q)
}

// PlanRead is Measure without a look at METRIC: it finds the series, and says what is planned.
func (e *Engine) PlanRead(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error) {
	q.Rollups = rollups(b)
	return e.reader.Plan(ctx, q)
}

// Cardinality is that of reader.Reader. With Hold nil the query of ctx holds the memory that
// the series of selectors take.
func (e *Engine) Cardinality(ctx context.Context, q reader.CountQuery) (*index.Cardinality, *index.Comparison, error) {
	if q.Hold == nil && len(q.Selectors) > 0 {
		q.Hold = holdFound(ctx, q.Selectors[0])
	}
	return e.reader.Cardinality(ctx, q)
}

// MetricNames returns metric names, and the metadata of those that are named, by name.
func (e *Engine) MetricNames(ctx context.Context, q index.MetricQuery) (*index.Metrics, map[string]ingest.Metadata, error) {
	found, err := e.reader.Metrics(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, len(found.Names))
	for i, n := range found.Names {
		names[i] = n.Name
	}
	said, err := e.metadata.ReadMetrics(ctx, names)
	return found, said, err
}

// Extent is that of reader.Reader.
func (e *Engine) Extent(ctx context.Context, most int) (index.Extent, error) {
	return e.reader.Extent(ctx, most)
}

// Current returns the current sample of each series that any of the selectors
// matches, if its time is at least mint, sorted by metric name, then by
// labels.Compare. Series whose current sample is a staleness marker are left out.
func (e *Engine) Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]current.Sample, error) {
	v := e.view(ctx)
	mint = max(mint, v.Raw())
	found := make(map[string]labels.Labels)
	for _, matchers := range selectors {
		result, err := e.reader.Find(ctx, reader.Query{Matchers: matchers, Mint: mint, Maxt: series.MaxTime})
		if err != nil {
			return nil, err
		}
		for _, s := range result.Series {
			found[s.Key] = s.Labels
		}
	}
	rules, err := v.ShownRules(ctx, e.cfg.Schema.Tenant(), mint)
	if err != nil {
		return nil, err
	}
	samples, err := e.current.Read(ctx, found, mint)
	return slices.DeleteFunc(samples, func(s current.Sample) bool { return isCut(rules, s) }), err
}

// view returns the timeline of the request of ctx, if there is one, else that of now.
func (e *Engine) view(ctx context.Context) *timeline.View { return e.cfg.Timeline.Of(ctx, e.cfg.Now) }

// isCut says whether a current sample is of a series that is kept for less long.
func isCut(rules timeline.Rules, s current.Sample) bool {
	return s.T < rules.Latest() && s.T < rules.Of(s.Labels)[rollup.Raw]
}

// Inventory calls fn with the current sample of each series that any of the
// selectors matches, or of all series if there are none. See current.Table.
func (e *Engine) Inventory(ctx context.Context, selectors [][]*labels.Matcher, limit int, fn func(current.Sample) error) (current.Inventory, error) {
	v := e.view(ctx)
	rules, err := v.ShownRules(ctx, e.cfg.Schema.Tenant(), 0)
	if err != nil {
		return current.Inventory{}, err
	}
	shown := func(s current.Sample) bool { return !isCut(rules, s) }
	return e.current.Inventory(ctx, current.InventoryQuery{Selectors: selectors, Mint: v.Raw(), Shown: shown, Limit: limit}, fn)
}

// Metadata is that of metadata.Store: what is stored of a family, or of all.
func (e *Engine) Metadata(ctx context.Context, family string, limit int) ([]ingest.Metadata, error) {
	return e.metadata.Read(ctx, family, limit)
}

// Unread returns what of these no query for samples has read since a time, or since the start if that is later: see reader.Unread.
func (e *Engine) Unread(_ context.Context, since time.Time, metrics, labels []string) (unreadMetrics, unreadLabels []string, from int64, err error) {
	unreadMetrics, unreadLabels, from = e.reader.Unread(since, metrics, labels)
	return unreadMetrics, unreadLabels, from, nil
}

package engine

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
)

// What the rooms of the engine ask and answer.
type (
	Query         = reader.Query
	Limits        = reader.Limits
	Explanation   = reader.Explanation
	ExplainedPart = reader.ExplainedPart
	Usage         = reader.Usage
	Counts        = reader.Counts
	CurrentSample = current.Sample
	Inventory     = current.Inventory
	Metadata      = metadata.Entry
)

// ErrLimit marks a query that asks for more than the limits allow: the fault of
// its sender.
var ErrLimit = reader.ErrLimit

// SelectorName names a selector in a message, cut after 256 bytes.
func SelectorName(ms []*labels.Matcher) string { return reader.SelectorName(ms) }

// SeriesCuts are those of package reader.
type SeriesCuts = reader.SeriesCuts

// What package index counts, and how it is asked.
type (
	Count       = index.Count
	Cardinality = index.Cardinality
	Changes     = index.Changes
	Comparison  = index.Comparison
	CountQuery  = reader.CountQuery
	Extent      = index.Extent
	MetricGroup = index.MetricGroup
	MetricQuery = index.MetricQuery
	Metrics     = index.Metrics
)

// Errors of questions about a period of the index.
var (
	ErrNotKept    = reader.ErrNotKept
	ErrSamePeriod = index.ErrSamePeriod
)

// Select is that of reader.Reader.
func (e *Engine) Select(ctx context.Context, q Query) (storage.ChunkSeriesSet, error) {
	if q.Lend == nil {
		q.Lend = func(bytes int) error { return eval.Lend(ctx, bytes, reader.SelectorName(q.Matchers)) }
	}
	return e.reader.Select(ctx, q)
}

// Explain answers q like Select, but counts the rows and cells instead of
// returning them.
func (e *Engine) Explain(ctx context.Context, q Query) (*Explanation, error) {
	return e.reader.Explain(ctx, q)
}

// Measure is Explain without the ranges of rows, so that memory does not follow what
// is read. Unless b is nil, buckets are read where they would do.
func (e *Engine) Measure(ctx context.Context, q Query, b *eval.Buckets) (*Explanation, error) {
	q.Rollups = rollups(b)
	return e.reader.Measure(ctx, q)
}

// PlanRead is Measure without a look at METRIC: it finds the series, and says what is planned.
func (e *Engine) PlanRead(ctx context.Context, q Query, b *eval.Buckets) (*Explanation, error) {
	q.Rollups = rollups(b)
	return e.reader.Plan(ctx, q)
}

// WithUsage returns a context whose reads u counts.
func WithUsage(ctx context.Context, u *Usage) context.Context { return reader.WithUsage(ctx, u) }

// WithOneCut returns the context of a request that came at now: all that it reads has the cut
// of that time, see Config.
func WithOneCut(ctx context.Context, now time.Time) context.Context {
	return reader.WithOneCut(ctx, now)
}

// Sources are those of reader.Usage.
type Sources = reader.Sources

// UsageOf returns the usage of a context, or nil if there is none.
func UsageOf(ctx context.Context) *Usage { return reader.UsageOf(ctx) }

// Cardinality is that of reader.Reader. With Hold nil the query of ctx holds the memory that
// the series of selectors take.
func (e *Engine) Cardinality(ctx context.Context, q CountQuery) (*Cardinality, *Comparison, error) {
	if q.Hold == nil && len(q.Selectors) > 0 {
		q.Hold = holdFound(ctx, q.Selectors[0])
	}
	return e.reader.Cardinality(ctx, q)
}

// MetricNames returns metric names, and the metadata of those that are named, by name.
func (e *Engine) MetricNames(ctx context.Context, q MetricQuery) (*Metrics, map[string]Metadata, error) {
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
func (e *Engine) Extent(ctx context.Context, most int) (Extent, error) {
	return e.reader.Extent(ctx, most)
}

// Current returns the current sample of each series that any of the selectors
// matches, if its time is at least mint, sorted by metric name, then by
// labels.Compare. Series whose current sample is a staleness marker are left out.
func (e *Engine) Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]CurrentSample, error) {
	mint = max(mint, e.reader.Cut(ctx))
	found := make(map[string]labels.Labels)
	for _, matchers := range selectors {
		result, err := e.reader.Find(ctx, Query{Matchers: matchers, Mint: mint, Maxt: series.MaxTime})
		if err != nil {
			return nil, err
		}
		for _, s := range result.Series {
			found[s.Key] = s.Labels
		}
	}
	cuts, err := e.reader.SeriesCuts(ctx, mint)
	if err != nil {
		return nil, err
	}
	samples, err := e.current.Read(ctx, found, mint)
	return slices.DeleteFunc(samples, func(s CurrentSample) bool { return isCut(cuts, s) }), err
}

// isCut says whether a current sample is of a series that is kept for less long.
func isCut(cuts SeriesCuts, s CurrentSample) bool {
	return s.T < cuts.Latest() && s.T < cuts.Of(s.Labels)[bucketstore.Raw]
}

// Inventory calls fn with the current sample of each series that any of the
// selectors matches, or of all series if there are none. See current.Table.
func (e *Engine) Inventory(ctx context.Context, selectors [][]*labels.Matcher, limit int, fn func(CurrentSample) error) (Inventory, error) {
	cuts, err := e.reader.SeriesCuts(ctx, 0)
	if err != nil {
		return Inventory{}, err
	}
	shown := func(s CurrentSample) bool { return !isCut(cuts, s) }
	return e.current.Inventory(ctx, selectors, e.reader.Cut(ctx), shown, limit, fn)
}

// Metadata is that of metadata.Store: what is stored of a family, or of all.
func (e *Engine) Metadata(ctx context.Context, family string, limit int) ([]Metadata, error) {
	return e.metadata.Read(ctx, family, limit)
}

// FamilyName is that of package metadata.
func FamilyName(name string, kind model.MetricType) string { return metadata.FamilyName(name, kind) }

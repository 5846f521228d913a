package tenancy

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/deletion"
)

// of returns the engine of the one tenant of a context.
func (t *Engines) of(ctx context.Context) (*engine.Engine, error) {
	name, err := one(ctx)
	if err != nil {
		return nil, err
	}
	return t.Engine(ctx, name)
}

// Select is that of the engine of the tenant.
func (t *Engines) Select(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.Select(ctx, q)
}

// Explain is that of the engine of the tenant.
func (t *Engines) Explain(ctx context.Context, q reader.Query) (*reader.Explanation, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.Explain(ctx, q)
}

// Measure is that of the engine of the tenant.
func (t *Engines) Measure(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.Measure(ctx, q, b)
}

// PlanRead is that of the engine of the tenant.
func (t *Engines) PlanRead(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.PlanRead(ctx, q, b)
}

// Cardinality is that of the engine of the tenant.
func (t *Engines) Cardinality(ctx context.Context, q reader.CountQuery) (*index.Cardinality, *index.Comparison, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, nil, err
	}
	return e.Cardinality(ctx, q)
}

// Unread is that of the engine of the tenant.
func (t *Engines) Unread(ctx context.Context, since time.Time, metrics, labels []string) (unreadMetrics, unreadLabels []string, from int64, err error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	return e.Unread(ctx, since, metrics, labels)
}

// MetricNames is that of the engine of the tenant.
func (t *Engines) MetricNames(ctx context.Context, q index.MetricQuery) (*index.Metrics, map[string]ingest.Metadata, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, nil, err
	}
	return e.MetricNames(ctx, q)
}

// Extent is that of the engine of the tenant.
func (t *Engines) Extent(ctx context.Context, most int) (index.Extent, error) {
	e, err := t.of(ctx)
	if err != nil {
		return index.Extent{}, err
	}
	return e.Extent(ctx, most)
}

// Current is that of the engine of the tenant.
func (t *Engines) Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]current.Sample, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.Current(ctx, selectors, mint)
}

// Inventory is that of the engine of the tenant.
func (t *Engines) Inventory(ctx context.Context, selectors [][]*labels.Matcher, limit int, fn func(current.Sample) error) (current.Inventory, error) {
	e, err := t.of(ctx)
	if err != nil {
		return current.Inventory{}, err
	}
	return e.Inventory(ctx, selectors, limit, fn)
}

// Stored is that of the engine of the tenant.
func (t *Engines) Stored(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error {
	e, err := t.of(ctx)
	if err != nil {
		return err
	}
	return e.Stored(ctx, q, fn)
}

// StoredCurrent is that of the engine of the tenant.
func (t *Engines) StoredCurrent(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error {
	e, err := t.of(ctx)
	if err != nil {
		return err
	}
	return e.StoredCurrent(ctx, q, fn)
}

// Metadata is that of the engine of the tenant.
func (t *Engines) Metadata(ctx context.Context, family string, limit int) ([]ingest.Metadata, error) {
	e, err := t.of(ctx)
	if err != nil {
		return nil, err
	}
	return e.Metadata(ctx, family, limit)
}

// Delete is that of the engine of the tenant.
func (t *Engines) Delete(ctx context.Context, mint, maxt int64, matchers []*labels.Matcher) error {
	e, err := t.Writer(ctx)
	if err != nil {
		return err
	}
	return e.Delete(ctx, mint, maxt, matchers)
}

// Append stores samples of the tenant.
func (t *Engines) Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error) {
	e, err := t.Writer(ctx)
	if err != nil {
		return ingest.Stored{}, err
	}
	return e.Append(ctx, batch, rejected)
}

// AppendMetadata stores metadata of the tenant.
func (t *Engines) AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error {
	e, err := t.Writer(ctx)
	if err != nil {
		return err
	}
	return e.AppendMetadata(ctx, batch, rejected)
}

// History returns the target of an import of the tenant.
func (t *Engines) History(ctx context.Context) (*history.Store, error) {
	e, err := t.Writer(ctx)
	if err != nil {
		return nil, err
	}
	return &history.Store{Engine: e, Meta: t.cfg.Meta.Of(e.Schema())}, nil
}

// FindSeries returns what finds the series of a tenant that there is or was, for deletions.
func (t *Engines) FindSeries(name string) (deletion.FindSeries, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.openEngine(name)
	if err != nil {
		return nil, err
	}
	return e.SeriesBefore, nil
}

// Querier implements storage.Queryable. The tenants are those of the context of each call.
func (t *Engines) Querier(mint, maxt int64) (storage.Querier, error) {
	return querier{labelQuerier{t, mint, maxt}}, nil
}

// ChunkQuerier implements storage.ChunkQueryable.
func (t *Engines) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return chunkQuerier{labelQuerier{t, mint, maxt}}, nil
}

// ExemplarQuerier implements storage.ExemplarQueryable.
func (t *Engines) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	tenants, err := tenantsIn(ctx)
	if err != nil {
		return nil, err
	}
	var all mergedExemplars
	for _, name := range tenants {
		e, err := t.Engine(ctx, name)
		if err != nil {
			return nil, err
		}
		q, err := e.ExemplarQuerier(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, ofTenant[storage.ExemplarQuerier]{name, q})
	}
	if len(all) == 1 {
		return all[0].querier, nil
	}
	return all, nil
}

// A labelQuerier is what both queriers have in common.
type labelQuerier struct {
	t          *Engines
	mint, maxt int64
}

type querier struct{ labelQuerier }

// Select implements storage.Querier.
func (q querier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	queriers, err := q.queriers(ctx)
	switch {
	case err != nil:
		return storage.ErrSeriesSet(err)
	case len(queriers) == 1:
		return queriers[0].querier.Select(ctx, sorted, hints, ms...)
	}
	return selectAll(ctx, queriers, hints, ms)
}

type chunkQuerier struct{ labelQuerier }

// Select implements storage.ChunkQuerier.
func (q chunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.ChunkSeriesSet {
	e, err := q.t.of(ctx)
	if err != nil {
		return storage.ErrChunkSeriesSet(err)
	}
	of, err := e.ChunkQuerier(q.mint, q.maxt)
	if err != nil {
		return storage.ErrChunkSeriesSet(err)
	}
	return of.Select(ctx, sorted, hints, ms...)
}

// ofTenant is a querier of one tenant.
type ofTenant[Q any] struct {
	name    string
	querier Q
}

// queriers returns those of the tenants of a context.
func (q labelQuerier) queriers(ctx context.Context) (all []ofTenant[storage.Querier], err error) {
	tenants, err := tenantsIn(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range tenants {
		e, err := q.t.Engine(ctx, name)
		if err != nil {
			return nil, err
		}
		of, err := e.Querier(q.mint, q.maxt)
		if err != nil {
			return nil, err
		}
		all = append(all, ofTenant[storage.Querier]{name, of})
	}
	return all, nil
}

// LabelValues implements storage.LabelQuerier.
func (q labelQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	queriers, err := q.queriers(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case len(queriers) == 1:
		return queriers[0].querier.LabelValues(ctx, name, hints, ms...)
	}
	return mergedLabelValues(ctx, queriers, name, hints, ms)
}

// LabelNames implements storage.LabelQuerier.
func (q labelQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	queriers, err := q.queriers(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case len(queriers) == 1:
		return queriers[0].querier.LabelNames(ctx, hints, ms...)
	}
	return mergedLabelNames(ctx, queriers, hints, ms)
}

// Close implements storage.LabelQuerier.
func (labelQuerier) Close() error { return nil }

var (
	_ storage.Queryable         = (*Engines)(nil)
	_ storage.ChunkQueryable    = (*Engines)(nil)
	_ storage.ExemplarQueryable = (*Engines)(nil)
	_ storage.ExemplarQuerier   = mergedExemplars(nil)
)

package tenancy

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// matching returns those of some tenants that matchers on series.TenantLabel match, and the other matchers.
func matching[Q any](all []ofTenant[Q], ms []*labels.Matcher) (matched []ofTenant[Q], others []*labels.Matcher) {
	matched = slices.Clone(all)
	for _, m := range ms {
		if m.Name != series.TenantLabel {
			others = append(others, m)
			continue
		}
		matched = slices.DeleteFunc(matched, func(of ofTenant[Q]) bool { return !m.Matches(of.name) })
	}
	return matched, others
}

// labelled returns labels with the tenant, in place of any that a sender has written.
func labelled(b *labels.Builder, ls labels.Labels, tenant string) labels.Labels {
	b.Reset(ls)
	return b.Set(series.TenantLabel, tenant).Labels()
}

// selectAll returns the series of several tenants, of one tenant after the other.
func selectAll(ctx context.Context, queriers []ofTenant[storage.Querier], hints *storage.SelectHints, ms []*labels.Matcher) storage.SeriesSet {
	queriers, ms = matching(queriers, ms)
	set := &allSeries{builder: labels.NewBuilder(labels.EmptyLabels())}
	for _, of := range queriers {
		set.waiting = append(set.waiting, ofTenant[storage.SeriesSet]{of.name, of.querier.Select(ctx, true, hints, ms...)})
	}
	if hints == nil || hints.Func != "series" {
		return set
	}
	// Series without samples are merged by upstream's API, which wants them sorted.
	var found []storage.Series
	for set.Next() {
		found = append(found, storage.NewListSeries(set.At().Labels(), nil))
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &sortedSeries{allSeries: set, left: found}
}

// sortedSeries are the series of a set that was read to its end.
type sortedSeries struct {
	*allSeries
	left []storage.Series
	at   storage.Series
}

// Next implements storage.SeriesSet.
func (s *sortedSeries) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

// At implements storage.SeriesSet.
func (s *sortedSeries) At() storage.Series { return s.at }

// allSeries is the series of several tenants. They are read one tenant after the other.
type allSeries struct {
	waiting  []ofTenant[storage.SeriesSet]
	builder  *labels.Builder
	at       storage.Series
	err      error
	warnings annotations.Annotations
}

// Next implements storage.SeriesSet.
func (s *allSeries) Next() bool {
	for s.err == nil && len(s.waiting) > 0 {
		of := s.waiting[0]
		if of.querier.Next() {
			found := of.querier.At()
			s.at = tenantSeries{found, labelled(s.builder, found.Labels(), of.name)}
			return true
		}
		s.err = of.querier.Err()
		s.warnings.Merge(of.querier.Warnings())
		s.waiting = s.waiting[1:]
	}
	return false
}

// At implements storage.SeriesSet.
func (s *allSeries) At() storage.Series { return s.at }

// Err implements storage.SeriesSet.
func (s *allSeries) Err() error { return s.err }

// Warnings implements storage.SeriesSet.
func (s *allSeries) Warnings() annotations.Annotations { return s.warnings }

// A tenantSeries is a series of an engine with other labels. Its samples and buckets are read as those of the engine.
type tenantSeries struct {
	storage.Series
	ls labels.Labels
}

var (
	_ eval.FloatSeries   = tenantSeries{}
	_ rollup.PointSeries = tenantSeries{}
)

// Labels implements storage.Series.
func (s tenantSeries) Labels() labels.Labels { return s.ls }

// AppendFloats implements eval.FloatSeries.
func (s tenantSeries) AppendFloats(ts []int64, vs []float64) ([]int64, []float64, bool, error) {
	if of, ok := s.Series.(eval.FloatSeries); ok {
		return of.AppendFloats(ts, vs)
	}
	return ts, vs, false, nil
}

// Plan implements rollup.PointSeries.
func (s tenantSeries) Plan() *rollup.Plan {
	if of, ok := s.Series.(rollup.PointSeries); ok {
		return of.Plan()
	}
	return nil
}

// HasBuckets implements rollup.PointSeries.
func (s tenantSeries) HasBuckets() bool {
	of, ok := s.Series.(rollup.PointSeries)
	return ok && of.HasBuckets()
}

// AppendPoints implements rollup.PointSeries.
func (s tenantSeries) AppendPoints(p *rollup.Points) error {
	return s.Series.(rollup.PointSeries).AppendPoints(p)
}

// Iterator implements storage.Series.
func (s tenantSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator { return s.Series.Iterator(it) }

// mergedLabelValues returns the values of a label of several tenants, sorted.
func mergedLabelValues(ctx context.Context, queriers []ofTenant[storage.Querier], name string, hints *storage.LabelHints, ms []*labels.Matcher) ([]string, annotations.Annotations, error) {
	queriers, ms = matching(queriers, ms)
	return union(queriers, hints, func(of ofTenant[storage.Querier]) ([]string, annotations.Annotations, error) {
		if name != series.TenantLabel {
			return of.querier.LabelValues(ctx, name, hints, ms...)
		}
		names, warnings, err := of.querier.LabelNames(ctx, &storage.LabelHints{Limit: 1}, ms...)
		if err != nil || len(names) == 0 {
			return nil, warnings, err
		}
		return []string{of.name}, warnings, nil
	})
}

// mergedLabelNames returns the names of the labels of several tenants, sorted.
func mergedLabelNames(ctx context.Context, queriers []ofTenant[storage.Querier], hints *storage.LabelHints, ms []*labels.Matcher) ([]string, annotations.Annotations, error) {
	queriers, ms = matching(queriers, ms)
	return union(queriers, hints, func(of ofTenant[storage.Querier]) ([]string, annotations.Annotations, error) {
		names, warnings, err := of.querier.LabelNames(ctx, hints, ms...)
		if len(names) > 0 {
			names = append(names, series.TenantLabel)
		}
		return names, warnings, err
	})
}

// union returns what is found of several tenants, sorted, each once, up to the limit of hints.
func union(queriers []ofTenant[storage.Querier], hints *storage.LabelHints, find func(ofTenant[storage.Querier]) ([]string, annotations.Annotations, error)) (all []string, warnings annotations.Annotations, err error) {
	for _, of := range queriers {
		found, said, err := find(of)
		warnings.Merge(said)
		if err != nil {
			return nil, warnings, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if hints != nil && hints.Limit > 0 && len(all) > hints.Limit {
		all = all[:hints.Limit]
	}
	return all, warnings, nil
}

// mergedExemplars are the exemplars of several tenants.
type mergedExemplars []ofTenant[storage.ExemplarQuerier]

// Select implements storage.ExemplarQuerier.
func (q mergedExemplars) Select(start, end int64, selectors ...[]*labels.Matcher) (all []exemplar.QueryResult, err error) {
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, of := range q {
		var own [][]*labels.Matcher
		for _, ms := range selectors {
			if matched, others := matching([]ofTenant[storage.ExemplarQuerier]{of}, ms); len(matched) > 0 {
				own = append(own, others)
			}
		}
		if len(own) == 0 {
			continue
		}
		found, err := of.querier.Select(start, end, own...)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			r.SeriesLabels = labelled(b, r.SeriesLabels, of.name)
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
	return all, nil
}

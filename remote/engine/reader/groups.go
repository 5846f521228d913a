package reader

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// A group is the series of a query that have the same cuts, and how they are read.
type group struct {
	query  Query
	series []index.Series
}

// find returns the series of q in groups, each in order of labels: one, but where rules keep some of them for less long.
func (r *Reader) find(ctx context.Context, q Query) (groups []group, found *index.Result, err error) {
	q = r.withCut(ctx, q)
	planned := r.planned(ctx, q)
	if found, err = r.Find(ctx, q); err != nil { // rules may cut samples of some series, so that these need buckets
		return nil, nil, err
	}
	groups = []group{{planned, found.Series}}
	if !q.SeriesOnly {
		first := firstTime(q) - rollup.Day // what is widened to buckets begins up to a day before
		cuts, err := r.view(ctx).ShownRules(ctx, r.cfg.Schema.Tenant(), first)
		if err != nil {
			return nil, nil, err
		}
		if first < cuts.Latest() {
			groups = r.split(ctx, q, cuts, found.Series)
		}
	}
	for _, g := range groups {
		if g.query.Rollups != nil {
			UsageOf(ctx).addPlan(g.query.Rollups.plan)
		}
	}
	return groups, found, nil
}

// firstTime returns the first time that q looks at, in milliseconds.
func firstTime(q Query) int64 {
	first := max(q.Mint, 0)
	if q.Rollups != nil {
		first = min(first, max(q.Rollups.Windows.Start-q.Rollups.Windows.Range, 0))
	}
	return first
}

// split splits series into groups. There is one at least.
func (r *Reader) split(ctx context.Context, q Query, cuts timeline.Rules, found []index.Series) (groups []group) {
	at := make(map[[rollup.NumResolutions]int64]int)
	for _, s := range found {
		later := cuts.Of(s.Labels)
		n, ok := at[later]
		if !ok {
			n = len(groups)
			at[later] = n
			groups = append(groups, group{query: r.laterCut(ctx, q, later)})
		}
		groups[n].series = append(groups[n].series, s)
	}
	if groups == nil {
		groups = []group{{query: r.planned(ctx, q)}}
	}
	for i := range groups {
		groups[i].query.Share = max(q.Share, 1) * len(groups)
	}
	return groups
}

// laterCut returns q for series with these cuts, with a plan.
func (r *Reader) laterCut(ctx context.Context, q Query, later [rollup.NumResolutions]int64) Query {
	q.later, q.cut = later, max(q.cut, later[rollup.Raw])
	return r.planned(ctx, q)
}

// readers returns what reads each of groups. They share the limit on samples.
func (r *Reader) readers(groups []group) (readers []*batchReader) {
	samples := new(atomic.Int64)
	for _, g := range groups {
		reader := r.newBatchReader(g.query)
		reader.samples = samples
		readers = append(readers, reader)
	}
	return readers
}

// A mergedSet delivers the series of groups in order of labels.
type mergedSet struct {
	// sets are those that are not at their end. The first one was delivered last; a new mergedSet has delivered none.
	sets    []*seriesSet
	started bool
	cut     int64
	at      storage.ChunkSeries
	err     error
}

// Next implements storage.ChunkSeriesSet. It asks only the set that was delivered last for its next series: those of the others stay valid.
func (s *mergedSet) Next() bool {
	asked := len(s.sets)
	if s.started {
		asked = min(1, asked)
	}
	s.started = true
	for i := asked - 1; i >= 0; i-- {
		if s.sets[i].Next() {
			continue
		}
		if s.err = s.sets[i].Err(); s.err != nil {
			s.sets = nil
			return false
		}
		s.sets = slices.Delete(s.sets, i, i+1)
	}
	if len(s.sets) == 0 {
		return false
	}
	least := 0
	for i := range s.sets {
		if labels.Compare(s.sets[i].At().Labels(), s.sets[least].At().Labels()) < 0 {
			least = i
		}
	}
	s.sets[0], s.sets[least] = s.sets[least], s.sets[0]
	s.at = s.sets[0].At()
	return true
}

// At implements storage.ChunkSeriesSet.
func (s *mergedSet) At() storage.ChunkSeries { return s.at }

func (s *mergedSet) Err() error { return s.err }

func (s *mergedSet) Warnings() annotations.Annotations { return nil }

// latestCut returns the latest time before which samples of a series are not read, in milliseconds.
func (s *mergedSet) latestCut() int64 { return s.cut }

// latestCut returns the time before which no samples are read, in milliseconds.
func (s *seriesSet) latestCut() int64 { return s.cut }

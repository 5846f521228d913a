package engine

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

var (
	_ storage.Queryable      = (*Engine)(nil)
	_ storage.ChunkQueryable = (*Engine)(nil)
	_ storage.AppendableV2   = (*Engine)(nil)

	_ storage.ExemplarQueryable = (*Engine)(nil)
	_ eval.FloatSeries          = sampleSeries{}
	_ rollup.PointSeries        = sampleSeries{}
)

// Querier implements storage.Queryable. mint and maxt are in milliseconds,
// inclusive.
func (e *Engine) Querier(mint, maxt int64) (storage.Querier, error) {
	return querier{labelQuerier{e, mint, maxt}}, nil
}

// ChunkQuerier implements storage.ChunkQueryable. mint and maxt are in
// milliseconds, inclusive.
func (e *Engine) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return chunkQuerier{labelQuerier{e, mint, maxt}}, nil
}

type querier struct{ labelQuerier }

// Select implements storage.Querier. The series are always sorted.
func (q querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	query := q.query(hints, ms)
	query.Decoded, query.Hold = true, holdFound(ctx, ms)
	query.Finish, query.Passing = eval.Passing(ctx)
	query.Rollups = rollups(eval.BucketsOf(ctx))
	set, err := q.e.Select(ctx, query)
	switch {
	case err != nil:
		return storage.ErrSeriesSet(err)
	case query.SeriesOnly:
		return labelSet{set}
	}
	before, ok := q.e.reader.RollupsOnly(ctx, query.Mint, set)
	if !query.Passing {
		set = &heldSet{ChunkSeriesSet: set, ctx: ctx, query: query}
	}
	found := sampleSet{ChunkSeriesSet: set, mint: query.Mint}
	if ok && !query.Rollups.UsesBuckets() {
		found.warnings.Add(&eval.RollupsOnly{Selector: reader.SelectorName(ms), Before: before})
	}
	return found
}

// rollups asks for buckets, unless b is nil.
func rollups(b *eval.Buckets) *reader.Rollups {
	if b == nil {
		return nil
	}
	return &reader.Rollups{Windows: b.Windows, Want: b.Want, Coarsest: b.Coarsest}
}

// holdFound returns a function that counts what the series of a selector take, so many bytes
// by now, as held by the query of ctx.
func holdFound(ctx context.Context, ms []*labels.Matcher) func(bytes int) error {
	held := 0
	return func(bytes int) error {
		more := max(bytes-held, 0)
		held += more
		return eval.Hold(ctx, more, reader.SelectorName(ms))
	}
}

// A heldSet counts what the query of ctx keeps of its series.
type heldSet struct {
	storage.ChunkSeriesSet
	ctx   context.Context
	query reader.Query
	err   error
}

func (s *heldSet) Next() bool {
	if s.err != nil || !s.ChunkSeriesSet.Next() {
		return false
	}
	held := 0
	for it := s.ChunkSeriesSet.At().Iterator(nil); it.Next(); {
		held += chunk.SizeOf(it.At().Chunk)
	}
	s.err = eval.Hold(s.ctx, held, reader.SelectorName(s.query.Matchers))
	return s.err == nil
}

func (s *heldSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.ChunkSeriesSet.Err()
}

// A sampleSet shows chunks as samples. It leaves out the histogram before mint that Select
// may deliver: the chunk has told of resets by then.
type sampleSet struct {
	storage.ChunkSeriesSet
	mint     int64
	warnings annotations.Annotations
}

// Warnings implements storage.SeriesSet.
func (s sampleSet) Warnings() annotations.Annotations { return s.warnings }

func (s sampleSet) At() storage.Series { return sampleSeries{s.ChunkSeriesSet.At(), s.mint} }

// sampleSeries is a series of a sampleSet.
type sampleSeries struct {
	storage.ChunkSeries
	mint int64
}

// Iterator implements storage.Series.
func (s sampleSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	trimmed, ok := it.(*trimmedIterator)
	if !ok {
		trimmed = new(trimmedIterator)
	}
	*trimmed = trimmedIterator{Iterator: s.merged().Iterator(trimmed.Iterator), mint: s.mint}
	return trimmed
}

// merged returns the chunks one after the other, as upstream puts them together.
func (s sampleSeries) merged() storage.Series {
	var parts []storage.Series
	it := s.ChunkSeries.Iterator(nil) // over a list, so that it cannot fail
	for it.Next() {
		parts = append(parts, &storage.SeriesEntry{Lset: s.Labels(), SampleIteratorFn: it.At().Chunk.Iterator})
	}
	return storage.ChainedSeriesMerge(parts...)
}

// AppendFloats implements eval.FloatSeries.
func (s sampleSeries) AppendFloats(ts []int64, vs []float64) ([]int64, []float64, bool, error) {
	it := s.ChunkSeries.Iterator(nil)
	for it.Next() {
		c := it.At().Chunk
		if decoded, ok := c.(*chunk.Decoded); ok {
			t, v := decoded.Floats()
			ts, vs = append(ts, t...), append(vs, v...)
			continue
		}
		samples := c.Iterator(nil)
		for kind := samples.Next(); kind != chunkenc.ValNone; kind = samples.Next() {
			if kind != chunkenc.ValFloat {
				return ts, vs, false, nil
			}
			t, v := samples.At()
			ts, vs = append(ts, t), append(vs, v)
		}
		if err := samples.Err(); err != nil {
			return ts, vs, false, err
		}
	}
	return ts, vs, true, it.Err()
}

// Plan implements rollup.PointSeries.
func (s sampleSeries) Plan() *rollup.Plan {
	if points, ok := s.ChunkSeries.(rollup.PointSeries); ok {
		return points.Plan()
	}
	return nil
}

func (s sampleSeries) HasBuckets() bool {
	points, ok := s.ChunkSeries.(rollup.PointSeries)
	return ok && points.HasBuckets()
}

func (s sampleSeries) AppendPoints(p *rollup.Points) error {
	return s.ChunkSeries.(rollup.PointSeries).AppendPoints(p)
}

// A trimmedIterator begins at mint. Only a Seek before the first Next finds samples
// before it.
type trimmedIterator struct {
	chunkenc.Iterator
	mint    int64
	started bool
}

func (it *trimmedIterator) Next() chunkenc.ValueType {
	kind := it.Iterator.Next()
	// Not Seek, after which upstream's iterators no longer tell of resets.
	for !it.started && kind != chunkenc.ValNone && it.AtT() < it.mint {
		kind = it.Iterator.Next()
	}
	it.started = true
	return kind
}

// labelSet shows series without chunks as series without samples.
type labelSet struct{ storage.ChunkSeriesSet }

// At implements storage.SeriesSet.
func (s labelSet) At() storage.Series {
	return storage.NewListSeries(s.ChunkSeriesSet.At().Labels(), nil)
}

type chunkQuerier struct{ labelQuerier }

// Select implements storage.ChunkQuerier. The series are always sorted.
func (q chunkQuerier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.ChunkSeriesSet {
	set, err := q.e.Select(ctx, q.query(hints, ms))
	if err != nil {
		return storage.ErrChunkSeriesSet(err)
	}
	return set
}

// labelQuerier is what both queriers have in common.
type labelQuerier struct {
	e          *Engine
	mint, maxt int64
}

// query makes the query of a Select. The times of the hints stand in place of those of the
// querier, as in Prometheus' TSDB: of "x - x offset 1w" each selector reads its own. Of the
// other hints two are used: that no samples are wanted, and then how many series are.
func (q labelQuerier) query(hints *storage.SelectHints, ms []*labels.Matcher) reader.Query {
	query := reader.Query{Matchers: ms, Mint: q.mint, Maxt: q.maxt}
	if hints != nil {
		query.Mint, query.Maxt = hints.Start, hints.End
		query.SeriesOnly, query.Enough = hints.Func == "series", hints.Limit
		query.Grouping = hints.Grouping
	}
	return query
}

// LabelValues implements storage.LabelQuerier. The answer has the granularity
// of an index period.
func (q labelQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	values, err := q.e.reader.LabelValues(ctx, name, q.labelQuery(hints, ms))
	return values, nil, err
}

// LabelNames implements storage.LabelQuerier. The answer has the granularity of
// an index period.
func (q labelQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	names, err := q.e.reader.LabelNames(ctx, q.labelQuery(hints, ms))
	return names, nil, err
}

func (q labelQuerier) labelQuery(hints *storage.LabelHints, ms []*labels.Matcher) reader.Query {
	query := q.query(nil, ms)
	if hints != nil {
		query.Enough = hints.Limit
	}
	return query
}

// Close implements storage.LabelQuerier.
func (labelQuerier) Close() error { return nil }

// ExemplarQuerier implements storage.ExemplarQueryable.
func (e *Engine) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	return exemplarQuerier{ctx, e}, nil
}

type exemplarQuerier struct {
	ctx context.Context
	e   *Engine
}

// Select implements storage.ExemplarQuerier. start and end are in milliseconds,
// inclusive.
func (q exemplarQuerier) Select(start, end int64, selectors ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return q.e.reader.Exemplars(q.ctx, start, end, selectors)
}

// AppenderV2 implements storage.AppendableV2. Everything is stored by Commit.
// The appender takes what Append and AppendMetadata take and refuses the rest.
func (e *Engine) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return NewAppender(ctx, e)
}

// A BatchAppender takes batches: an *Engine, or what chooses one for each series.
type BatchAppender interface {
	Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error)
	AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error
}

// NewAppender returns an appender whose Commit gives all that it was given to e.
func NewAppender(ctx context.Context, e BatchAppender) storage.AppenderV2 {
	return &appender{e: e, ctx: ctx}
}

type appender struct {
	e        BatchAppender
	ctx      context.Context
	batch    []ingest.Series
	metadata []ingest.Metadata
}

// Append implements storage.AppenderV2. What is wrong with a sample is told by
// Commit.
func (a *appender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if n := len(a.batch); n == 0 || !labels.Equal(a.batch[n-1].Labels, ls) {
		a.batch = append(a.batch, ingest.Series{Labels: ls})
	}
	s := &a.batch[len(a.batch)-1]
	switch {
	case h != nil:
		s.Histograms = append(s.Histograms, ingest.Histogram{T: t, ST: st, H: h.Copy()})
	case fh != nil:
		s.Histograms = append(s.Histograms, ingest.Histogram{T: t, ST: st, FH: fh.Copy()})
	default:
		s.Samples = append(s.Samples, ingest.Sample{T: t, V: v, ST: st})
	}
	for _, x := range opts.Exemplars {
		x.HasTs = x.Ts != 0
		s.Exemplars = append(s.Exemplars, x)
	}
	a.addMetadata(ls, opts)
	return ref, nil
}

// addMetadata takes the metadata of a sample, if it is other than that of the
// one before.
func (a *appender) addMetadata(ls labels.Labels, opts storage.AppendV2Options) {
	if opts.Metadata.IsEmpty() {
		return
	}
	m := ingest.Metadata{Family: opts.MetricFamilyName, Metadata: opts.Metadata}
	if m.Family == "" {
		m.Family = ingest.FamilyName(ls.Get(labels.MetricName), m.Type)
	}
	if n := len(a.metadata); n == 0 || a.metadata[n-1] != m {
		a.metadata = append(a.metadata, m)
	}
}

// Commit implements storage.AppenderTransaction. An error says that not all
// was stored; what can be is, even if other samples are invalid. Those are a
// *Rejected.
func (a *appender) Commit() error {
	var rejected ingest.Rejected
	if _, err := a.e.Append(a.ctx, a.batch, &rejected); err != nil {
		return err
	}
	if err := a.e.AppendMetadata(a.ctx, a.metadata, &rejected); err != nil {
		return err
	}
	return rejected.Err()
}

// Rollback implements storage.AppenderTransaction.
func (a *appender) Rollback() error {
	a.batch, a.metadata = nil, nil
	return nil
}

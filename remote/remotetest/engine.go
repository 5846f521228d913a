package remotetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/chunk"
)

var ErrStore = errors.New("the store is down")

// Engine keeps series in memory. It rejects those without a name. Hooks
// that are set replace a method.
type Engine struct {
	mu             sync.Mutex
	Series         []ingest.Series
	Families       []ingest.Metadata
	Appends        int
	CurrentSamples []current.Sample
	Queries        []reader.Query
	// Read is what every explanation says that was read.
	Read reader.Counts
	// Parts are those of every explanation.
	Parts []reader.ExplainedPart

	MetadataErr error

	OnAppend  func(ctx context.Context, batch []ingest.Series) (int, error)
	OnSelect  func(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error)
	OnCurrent func(ctx context.Context, mint int64) error
	OnExplain func(ctx context.Context, q reader.Query) error
}

func (f *Engine) Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	f.mu.Lock()
	f.Appends++
	f.mu.Unlock()
	valid := slices.DeleteFunc(slices.Clone(batch), func(s ingest.Series) bool {
		if s.Labels.Has(labels.MetricName) {
			stored.Samples += len(s.Samples)
			stored.Histograms += len(s.Histograms)
			stored.Exemplars += len(s.Exemplars)
			return false
		}
		rejected.Add(ingest.ReasonLabels, len(s.Samples)+len(s.Histograms)+len(s.Exemplars), errors.New("no metric name: "+s.Labels.String()))
		return true
	})
	if f.OnAppend != nil {
		n, err := f.OnAppend(ctx, valid)
		return ingest.Stored{Samples: n}, err
	}
	for i := range valid { // the samples belong to the caller
		valid[i].Samples = slices.Clone(valid[i].Samples)
	}
	f.mu.Lock()
	f.Series = append(f.Series, valid...)
	f.mu.Unlock()
	return stored, nil
}

// Lookup finds nothing; that is tested with a real engine.
func (f *Engine) Lookup(ingest.WireText) *seriescache.Entry { return nil }

// Symbols has no numbers to give.
func (f *Engine) Symbols() *seriescache.SymbolTable { return nil }

func (f *Engine) AppendMetadata(_ context.Context, batch []ingest.Metadata, _ *ingest.Rejected) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Families = append(f.Families, batch...)
	return f.MetadataErr
}

func (f *Engine) Metadata(context.Context, string, int) ([]ingest.Metadata, error) {
	return f.Families, f.MetadataErr
}

// AppenderV2 is for OTLP, which is tested with a real engine.
func (f *Engine) AppenderV2(context.Context) storage.AppenderV2 { return nil }

func (f *Engine) Select(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Queries = append(f.Queries, q)
	if f.OnSelect != nil {
		return f.OnSelect(ctx, q)
	}
	set := &SeriesSet{}
	for _, s := range f.Series {
		entry := ChunkSeries(s.Labels, InRange(s.Samples, q))
		if q.Decoded {
			entry = decodedSeries(s.Labels, InRange(s.Samples, q))
		}
		if q.SeriesOnly {
			entry = ChunkSeries(s.Labels, nil)
		}
		if matches(s.Labels, q.Matchers) {
			set.Series = append(set.Series, entry)
		}
	}
	slices.SortFunc(set.Series, func(a, b storage.ChunkSeries) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set, nil
}

func (f *Engine) Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]current.Sample, error) {
	if f.OnCurrent != nil {
		if err := f.OnCurrent(ctx, mint); err != nil {
			return nil, err
		}
	}
	var found []current.Sample
	for _, s := range f.CurrentSamples {
		if slices.ContainsFunc(selectors, func(ms []*labels.Matcher) bool { return matches(s.Labels, ms) }) {
			found = append(found, s)
		}
	}
	return found, nil
}

func (f *Engine) Explain(ctx context.Context, q reader.Query) (*reader.Explanation, error) {
	if f.OnExplain != nil {
		if err := f.OnExplain(ctx, q); err != nil {
			return nil, err
		}
	}
	return &reader.Explanation{Selector: q.Matchers[0].String(), Mint: q.Mint, Maxt: q.Maxt, Total: f.Read, Parts: slices.Clone(f.Parts)}, nil
}

// Measure is Explain.
func (f *Engine) Measure(ctx context.Context, q reader.Query, _ *eval.Buckets) (*reader.Explanation, error) {
	return f.Explain(ctx, q)
}

// PlanRead is Explain, but only for the index.
func (f *Engine) PlanRead(ctx context.Context, q reader.Query, _ *eval.Buckets) (*reader.Explanation, error) {
	x, err := f.Explain(ctx, q)
	if err == nil {
		x.Total = reader.Counts{Series: f.Read.Series, IndexRows: f.Read.IndexRows}
	}
	return x, err
}

func matches(ls labels.Labels, ms []*labels.Matcher) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
}

func InRange(samples []ingest.Sample, q reader.Query) []ingest.Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s ingest.Sample) bool { return s.T < q.Mint || s.T > q.Maxt })
}

// ChunkSeries makes one XOR chunk of each 120 samples.
func ChunkSeries(ls labels.Labels, samples []ingest.Sample) storage.ChunkSeries {
	var metas []chunks.Meta
	for part := range slices.Chunk(samples, 120) {
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		if err != nil {
			panic(err)
		}
		for _, s := range part {
			app.Append(0, s.T, s.V)
		}
		metas = append(metas, chunks.Meta{Chunk: c, MinTime: part[0].T, MaxTime: part[len(part)-1].T})
	}
	return &storage.ChunkSeriesEntry{
		Lset:            ls,
		ChunkIteratorFn: func(chunks.Iterator) chunks.Iterator { return storage.NewListChunkSeriesIterator(metas...) },
	}
}

// decodedSeries makes one decoded chunk of each 120 samples.
func decodedSeries(ls labels.Labels, samples []ingest.Sample) storage.ChunkSeries {
	var metas []chunks.Meta
	for part := range slices.Chunk(samples, 120) {
		var ts []int64
		var vs []float64
		for _, s := range part {
			ts, vs = append(ts, s.T), append(vs, s.V)
		}
		b := chunk.Builder{Decoded: new(chunk.Space)}
		b.AppendFloats(nil, ts, vs)
		for _, c := range b.Chunks {
			metas = append(metas, chunks.Meta{Chunk: c.Chunk, MinTime: c.MinTime, MaxTime: c.MaxTime})
		}
	}
	return &storage.ChunkSeriesEntry{
		Lset:            ls,
		ChunkIteratorFn: func(chunks.Iterator) chunks.Iterator { return storage.NewListChunkSeriesIterator(metas...) },
	}
}

// SeriesSet delivers series, then fails with err, if there is one. before, if
// set, runs ahead of the nth.
type SeriesSet struct {
	Series []storage.ChunkSeries
	Fail   error
	Before func(n int) error
	n      int
}

func (s *SeriesSet) Next() bool {
	if s.Before != nil && s.Fail == nil {
		if err := s.Before(s.n); err != nil {
			s.Fail = err
			return false
		}
	}
	s.n++
	return s.n <= len(s.Series)
}

func (s *SeriesSet) At() storage.ChunkSeries { return s.Series[s.n-1] }

func (s *SeriesSet) Err() error { return s.Fail }

func (s *SeriesSet) Warnings() annotations.Annotations { return nil }

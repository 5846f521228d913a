package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

const (
	typeV1 = "application/x-protobuf"
	typeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"

	writtenSamples    = "X-Prometheus-Remote-Write-Samples-Written"
	writtenHistograms = "X-Prometheus-Remote-Write-Histograms-Written"
	writtenExemplars  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

var errStore = errors.New("the store is down")

// fakeEngine keeps series in memory. It rejects those without a name. Hooks
// that are set take the place of a method.
type fakeEngine struct {
	mu       sync.Mutex
	series   []engine.Series
	metadata []engine.Metadata
	appends  int
	current  []engine.CurrentSample
	queries  []engine.Query

	metadataErr error

	onAppend  func(ctx context.Context, batch []engine.Series) (int, error)
	onSelect  func(ctx context.Context, q engine.Query) (storage.ChunkSeriesSet, error)
	onCurrent func(ctx context.Context, mint int64) error
	onExplain func(ctx context.Context, q engine.Query) error
}

func (f *fakeEngine) Append(ctx context.Context, _ string, batch []engine.Series, rejected *engine.Rejected) (stored engine.Stored, err error) {
	f.mu.Lock()
	f.appends++
	f.mu.Unlock()
	valid := slices.DeleteFunc(slices.Clone(batch), func(s engine.Series) bool {
		if s.Labels.Has(labels.MetricName) {
			stored.Samples += len(s.Samples)
			stored.Histograms += len(s.Histograms)
			stored.Exemplars += len(s.Exemplars)
			return false
		}
		rejected.Add(engine.ReasonLabels, len(s.Samples)+len(s.Histograms)+len(s.Exemplars), errors.New("no metric name: "+s.Labels.String()))
		return true
	})
	if f.onAppend != nil {
		n, err := f.onAppend(ctx, valid)
		return engine.Stored{Samples: n}, err
	}
	for i := range valid { // the samples belong to the caller
		valid[i].Samples = slices.Clone(valid[i].Samples)
	}
	f.mu.Lock()
	f.series = append(f.series, valid...)
	f.mu.Unlock()
	return stored, nil
}

// Lookup knows nothing; that is tested with a real engine.
func (f *fakeEngine) Lookup(string, engine.WireText) *engine.CachedSeries { return nil }

// Symbols has no numbers to give.
func (f *fakeEngine) Symbols() *engine.SymbolTable { return nil }

func (f *fakeEngine) AppendMetadata(_ context.Context, _ string, batch []engine.Metadata, _ *engine.Rejected) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.metadata = append(f.metadata, batch...)
	return f.metadataErr
}

func (f *fakeEngine) Metadata(context.Context, string, string, int) ([]engine.Metadata, error) {
	return f.metadata, f.metadataErr
}

// AppenderV2 is for OTLP, which is tested with a real engine.
func (f *fakeEngine) AppenderV2(context.Context) storage.AppenderV2 { return nil }

func (f *fakeEngine) Select(ctx context.Context, q engine.Query) (storage.ChunkSeriesSet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	if f.onSelect != nil {
		return f.onSelect(ctx, q)
	}
	set := &fakeSet{}
	for _, s := range f.series {
		entry := chunkSeries(s.Labels, inRange(s.Samples, q))
		if q.Decoded {
			entry = decodedSeries(s.Labels, inRange(s.Samples, q))
		}
		if q.SeriesOnly {
			entry = chunkSeries(s.Labels, nil)
		}
		if matches(s.Labels, q.Matchers) {
			set.series = append(set.series, entry)
		}
	}
	slices.SortFunc(set.series, func(a, b storage.ChunkSeries) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set, nil
}

func (f *fakeEngine) Current(ctx context.Context, _ string, selectors [][]*labels.Matcher, mint int64) ([]engine.CurrentSample, error) {
	if f.onCurrent != nil {
		if err := f.onCurrent(ctx, mint); err != nil {
			return nil, err
		}
	}
	var found []engine.CurrentSample
	for _, s := range f.current {
		if slices.ContainsFunc(selectors, func(ms []*labels.Matcher) bool { return matches(s.Labels, ms) }) {
			found = append(found, s)
		}
	}
	return found, nil
}

func (f *fakeEngine) Explain(ctx context.Context, q engine.Query) (*engine.Explanation, error) {
	if f.onExplain != nil {
		if err := f.onExplain(ctx, q); err != nil {
			return nil, err
		}
	}
	return &engine.Explanation{Selector: q.Matchers[0].String(), Mint: q.Mint, Maxt: q.Maxt}, nil
}

func matches(ls labels.Labels, ms []*labels.Matcher) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
}

func inRange(samples []engine.Sample, q engine.Query) []engine.Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s engine.Sample) bool { return s.T < q.Mint || s.T > q.Maxt })
}

// chunkSeries makes one XOR chunk of each 120 samples.
func chunkSeries(ls labels.Labels, samples []engine.Sample) storage.ChunkSeries {
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
func decodedSeries(ls labels.Labels, samples []engine.Sample) storage.ChunkSeries {
	var metas []chunks.Meta
	for part := range slices.Chunk(samples, 120) {
		var ts []int64
		var vs []float64
		for _, s := range part {
			ts, vs = append(ts, s.T), append(vs, s.V)
		}
		b := series.ChunkBuilder{Decoded: true}
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

// fakeSet delivers series, then fails with err, if there is one. before, if
// set, runs ahead of the nth.
type fakeSet struct {
	series []storage.ChunkSeries
	err    error
	before func(n int) error
	n      int
}

func (s *fakeSet) Next() bool {
	if s.before != nil && s.err == nil {
		if err := s.before(s.n); err != nil {
			s.err = err
			return false
		}
	}
	s.n++
	return s.n <= len(s.series)
}

func (s *fakeSet) At() storage.ChunkSeries           { return s.series[s.n-1] }
func (s *fakeSet) Err() error                        { return s.err }
func (s *fakeSet) Warnings() annotations.Annotations { return nil }

// serve starts a server for a Handler over eng. change may be nil.
func serve(t testing.TB, eng *fakeEngine, change func(*remote.Config)) (url string, reg *prometheus.Registry) {
	t.Helper()
	reg = prometheus.NewRegistry()
	cfg := remote.Config{Engine: eng, Now: time.Now, Registerer: reg}
	if change != nil {
		change(&cfg)
	}
	srv := httptest.NewServer(remote.New(cfg))
	t.Cleanup(srv.Close)
	return srv.URL, reg
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends body, snappy-compressed, with a content type.
func post(t testing.TB, url, contentType string, body []byte) answer {
	t.Helper()
	return send(t, http.MethodPost, url, http.Header{
		"Content-Type":     {contentType},
		"Content-Encoding": {"snappy"},
	}, snappy.Encode(nil, body))
}

// send makes a request, headers as they are.
func send(t testing.TB, method, url string, header http.Header, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// wantStatus fails the test unless a has this status.
func (a answer) wantStatus(t testing.TB, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d %q, want %d", a.status, a.body, status)
	}
}

// counter returns the value of a counter or gauge, or the count of a
// histogram, whose labels hold these pairs.
func counter(t testing.TB, reg *prometheus.Registry, name string, pairs ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := make(map[string]string)
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			found := true
			for i := 0; i < len(pairs); i += 2 {
				found = found && have[pairs[i]] == pairs[i+1]
			}
			if found {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// wantCounter waits until a counter has a value: some are counted after the
// answer has gone out.
func wantCounter(t testing.TB, reg *prometheus.Registry, want float64, name string, pairs ...string) {
	t.Helper()
	eventually(t, func() bool { return counter(t, reg, name, pairs...) == want }, func() {
		t.Errorf("%s%v = %v, want %v", name, pairs, counter(t, reg, name, pairs...), want)
	})
}

// eventually polls until ok holds, or reports after ten seconds.
func eventually(t testing.TB, ok func() bool, report func()) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			report()
			return
		}
	}
}

// wait waits for an event, but not for ever.
func wait(t testing.TB, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(10 * time.Second):
		t.Fatal("waited ten seconds")
	}
}

func sameSamples(a, b []engine.Sample) bool {
	return slices.EqualFunc(a, b, func(x, y engine.Sample) bool {
		return x.T == y.T && math.Float64bits(x.V) == math.Float64bits(y.V)
	})
}

// awkwardFloats are values whose bits are easily lost.
func awkwardFloats() []float64 {
	return []float64{
		0, math.Copysign(0, -1), 1.5, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64, math.MaxFloat64,
		math.Float64frombits(0x7ff8000000000001), // a NaN
		math.Float64frombits(0x7ff0000000000002), // the staleness marker
		math.Float64frombits(0xfff8000000abcdef), // a NaN with a payload
	}
}

package acceptance

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	config_util "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/e2e/harness"
)

// blockLabel keeps the blocks of the corpus apart in one adapter: it is written
// as the label of a block, selected by an equality matcher, and left out of the
// answers. That is what Prometheus does with an external label, so upstream's
// own read client does the reading half. A fresh adapter for each block would
// take minutes, and metrics of one name in many blocks make the index choose.
const blockLabel = "e2e_block"

// A corpusStorage is Prometheus' storage over remote write and remote read.
// Times lie later in the adapter than in the corpus, by shift milliseconds.
type corpusStorage struct {
	reader   storage.SampleAndChunkQueryable
	writeURL string
	protocol harness.Protocol
	block    string
	shift    int64
}

// newReadClient returns upstream's client, which asks for this type of answer.
func newReadClient(t testing.TB, readURL string, as prompb.ReadRequest_ResponseType) remote.ReadClient {
	t.Helper()
	u, err := url.Parse(readURL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := remote.NewReadClient("e2e", &remote.ClientConfig{
		URL:                   &config_util.URL{URL: u},
		Timeout:               model.Duration(harness.Patience),
		HTTPClientConfig:      config_util.DefaultHTTPClientConfig,
		ChunkedReadLimit:      50_000_000,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{as},
		Headers:               map[string]string{"User-Agent": harness.CurrentPrometheus},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newCorpusStorage returns the storage of one block.
func newCorpusStorage(client remote.ReadClient, writeURL string, p harness.Protocol, block string, shift int64) *corpusStorage {
	noStart := func() (int64, error) { return 0, nil }
	reader := remote.NewSampleAndChunkQueryableClient(client, labels.FromStrings(blockLabel, block), nil, true, noStart)
	return &corpusStorage{reader, writeURL, p, block, shift}
}

func (s *corpusStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := s.reader.Querier(mint+s.shift, maxt+s.shift)
	if err != nil {
		return nil, err
	}
	return shiftedQuerier{q, s.shift}, nil
}

// ChunkQuerier is of no use to PromQL.
func (s *corpusStorage) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) {
	return nil, fmt.Errorf("no chunk querier")
}

// Appender is the older interface, which promqltest does not use.
func (s *corpusStorage) Appender(context.Context) storage.Appender { return nil }

func (s *corpusStorage) StartTime() (int64, error) { return math.MinInt64, nil }
func (s *corpusStorage) Close() error              { return nil }

func (s *corpusStorage) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &corpusAppender{ctx: ctx, storage: s, positions: map[string]int{}}
}

// A corpusAppender gathers samples and sends them as one request.
type corpusAppender struct {
	ctx       context.Context
	storage   *corpusStorage
	series    []harness.SentSeries
	positions map[string]int // in series, by labels
}

func (a *corpusAppender) Append(_ storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	if st != 0 {
		st += a.storage.shift
	}
	t += a.storage.shift
	if h == nil && fh == nil {
		s := a.seriesOf(ls, false)
		s.Points, s.Starts = append(s.Points, harness.PointAt(t, v)), append(s.Starts, st)
		return 0, nil
	}
	s := a.seriesOf(ls, true)
	encoded, err := a.storage.protocol.Histogram(st, t, h, fh)
	s.Histograms = append(s.Histograms, encoded)
	return 0, err
}

// seriesOf returns the series with these labels, good until the next call. One
// may not have both samples and histograms.
func (a *corpusAppender) seriesOf(ls labels.Labels, histograms bool) *harness.SentSeries {
	key := fmt.Sprint(ls, histograms)
	i, ok := a.positions[key]
	if !ok {
		i = len(a.series)
		a.positions[key] = i
		a.series = append(a.series, harness.SeriesOf(labels.NewBuilder(ls).Set(blockLabel, a.storage.block).Labels()))
	}
	return &a.series[i]
}

func (a *corpusAppender) Commit() error {
	resp, err := a.storage.protocol.Send(a.ctx, a.storage.writeURL, a.series)
	if err == nil && resp.Status != http.StatusNoContent {
		err = fmt.Errorf("remote write: %v", resp)
	}
	return err
}

func (a *corpusAppender) Rollback() error { return nil }

// A shiftedQuerier shifts samples back by shift milliseconds and returns them as a list:
// upstream's iterator over a SAMPLES answer is wrong after a seek in a series of floats and
// histograms.
type shiftedQuerier struct {
	storage.Querier
	shift int64
}

func (q shiftedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if hints != nil {
		moved := *hints
		moved.Start, moved.End = hints.Start+q.shift, hints.End+q.shift
		hints = &moved
	}
	// Upstream's remote querier appends to the matchers it is given.
	return shiftedSet{q.Querier.Select(ctx, sorted, hints, slices.Clone(ms)...), q.shift}
}

type shiftedSet struct {
	storage.SeriesSet
	shift int64
}

func (s shiftedSet) At() storage.Series { return shiftedSeries{s.SeriesSet.At(), s.shift} }

type shiftedSeries struct {
	storage.Series
	shift int64
}

func (s shiftedSeries) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	var moved chunks.SampleSlice
	it := s.Series.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		moved = append(moved, newCorpusSample(kind, it, s.shift))
	}
	if err := it.Err(); err != nil {
		panic(err) // a list has no errors to give
	}
	return storage.NewListSeriesIterator(moved)
}

// A corpusSample is a chunks.Sample.
type corpusSample struct {
	t, st int64
	f     float64
	h     *histogram.Histogram
	fh    *histogram.FloatHistogram
}

// newCorpusSample returns the sample that it stands at, shift milliseconds
// earlier.
func newCorpusSample(kind chunkenc.ValueType, it chunkenc.Iterator, shift int64) (s corpusSample) {
	switch kind {
	case chunkenc.ValHistogram:
		s.t, s.h = it.AtHistogram(nil)
	case chunkenc.ValFloatHistogram:
		s.t, s.fh = it.AtFloatHistogram(nil)
	default:
		s.t, s.f = it.At()
	}
	s.t -= shift
	if st := it.AtST(); st != 0 {
		s.st = st - shift
	}
	return s
}

func (s corpusSample) T() int64                      { return s.t }
func (s corpusSample) ST() int64                     { return s.st }
func (s corpusSample) F() float64                    { return s.f }
func (s corpusSample) H() *histogram.Histogram       { return s.h }
func (s corpusSample) FH() *histogram.FloatHistogram { return s.fh }
func (s corpusSample) Copy() chunks.Sample           { return s }

func (s corpusSample) Type() chunkenc.ValueType {
	switch {
	case s.h != nil:
		return chunkenc.ValHistogram
	case s.fh != nil:
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// shiftTo returns the shift that moves the corpus' first sample to t.
func shiftTo(t time.Time) int64 { return t.UnixMilli() }

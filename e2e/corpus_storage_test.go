package e2e

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
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
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
	protocol protocol
	block    string
	shift    int64
}

// newReadClient returns upstream's client, told which answer to ask for.
func newReadClient(t testing.TB, readURL string, as answer) remote.ReadClient {
	t.Helper()
	u, err := url.Parse(readURL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := remote.NewReadClient("e2e", &remote.ClientConfig{
		URL:                   &config_util.URL{URL: u},
		Timeout:               model.Duration(patience),
		HTTPClientConfig:      config_util.DefaultHTTPClientConfig,
		ChunkedReadLimit:      50_000_000,
		AcceptedResponseTypes: []answer{as},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newCorpusStorage returns the storage of one block.
func newCorpusStorage(client remote.ReadClient, writeURL string, p protocol, block string, shift int64) *corpusStorage {
	noStart := func() (int64, error) { return 0, nil }
	reader := remote.NewSampleAndChunkQueryableClient(client, labels.FromStrings(blockLabel, block), nil, true, noStart)
	return &corpusStorage{reader, writeURL, p, block, shift}
}

func (s *corpusStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := s.reader.Querier(mint+s.shift, maxt+s.shift)
	if err != nil || s.shift == 0 {
		return q, err
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
	series    []sentSeries
	positions map[string]int // in series, by labels
}

func (a *corpusAppender) Append(_ storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	if st != 0 {
		st += a.storage.shift
	}
	t += a.storage.shift
	s := a.seriesOf(ls)
	if fh == nil && h != nil {
		fh = h.ToFloat(nil)
	}
	if fh != nil {
		encoded, err := a.storage.protocol.histogram(st, t, fh)
		s.hists = append(s.hists, encoded)
		return 0, err
	}
	s.points, s.starts = append(s.points, at(t, v)), append(s.starts, st)
	return 0, nil
}

// seriesOf returns the series with these labels, good until the next call.
func (a *corpusAppender) seriesOf(ls labels.Labels) *sentSeries {
	key := ls.String()
	i, ok := a.positions[key]
	if !ok {
		i = len(a.series)
		a.positions[key] = i
		a.series = append(a.series, sent(labels.NewBuilder(ls).Set(blockLabel, a.storage.block).Labels()))
	}
	return &a.series[i]
}

// histogram encodes a native histogram.
func (p protocol) histogram(st, t int64, fh *histogram.FloatHistogram) ([]byte, error) {
	if p.name == remoteWrite1().name {
		h := prompb.FromFloatHistogram(t, fh)
		return h.Marshal()
	}
	h := writev2.FromFloatHistogram(st, t, fh)
	return h.Marshal()
}

func (a *corpusAppender) Commit() error {
	resp, err := a.storage.protocol.send(a.ctx, a.storage.writeURL, a.series)
	if err == nil && resp.status != http.StatusNoContent {
		err = fmt.Errorf("remote write: %v", resp)
	}
	return err
}

func (a *corpusAppender) Rollback() error { return nil }

// A shiftedQuerier moves what it finds back, by shift milliseconds.
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

// A shiftedSeries holds floats; the adapter answers with nothing else.
type shiftedSeries struct {
	storage.Series
	shift int64
}

func (s shiftedSeries) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	var moved chunks.SampleSlice
	it := s.Series.Iterator(nil)
	for it.Next() == chunkenc.ValFloat {
		t, v := it.At()
		moved = append(moved, at(t-s.shift, v))
	}
	if err := it.Err(); err != nil {
		panic(err) // a list has no errors to give
	}
	return storage.NewListSeriesIterator(moved)
}

// A point is a chunks.Sample.

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return math.Float64frombits(p.bits) }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// A loadRecorder is a storage that only says what was loaded.
type loadRecorder struct {
	corpusStorage
	histograms, starts bool
}

func (r *loadRecorder) AppenderV2(context.Context) storage.AppenderV2 { return recordingAppender{r} }

type recordingAppender struct{ recorder *loadRecorder }

func (a recordingAppender) Append(_ storage.SeriesRef, _ labels.Labels, st, _ int64, _ float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	a.recorder.histograms = a.recorder.histograms || h != nil || fh != nil
	a.recorder.starts = a.recorder.starts || st != 0
	return 0, nil
}

func (recordingAppender) Commit() error   { return nil }
func (recordingAppender) Rollback() error { return nil }

// shiftTo returns the shift that moves the corpus' first sample to t.
func shiftTo(t time.Time) int64 { return t.UnixMilli() }

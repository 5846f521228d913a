package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	config_util "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
)

const streamedType = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"

var responseTypes = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS}

// readClient is the client that Prometheus uses.
func readClient(t testing.TB, base string, kind prompb.ReadRequest_ResponseType) upstream.ReadClient {
	t.Helper()
	u, err := url.Parse(base + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewReadClient("test", &upstream.ClientConfig{
		URL:                   &config_util.URL{URL: u},
		Timeout:               model.Duration(30 * time.Second),
		ChunkedReadLimit:      50_000_000,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// read answers queries through upstream's client.
func read(t testing.TB, base string, kind prompb.ReadRequest_ResponseType, queries ...*prompb.Query) ([]engine.Series, error) {
	t.Helper()
	set, err := readClient(t, base, kind).ReadMultiple(t.Context(), queries, false)
	if err != nil {
		return nil, err
	}
	var found []engine.Series
	var it chunkenc.Iterator
	for set.Next() {
		s := engine.Series{Labels: set.At().Labels()}
		it = set.At().Iterator(it)
		for it.Next() == chunkenc.ValFloat {
			ts, v := it.At()
			s.Samples = append(s.Samples, engine.Sample{T: ts, V: v})
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, set.Err()
}

// query asks for a range with matchers.
func query(mint, maxt int64, ms ...*prompb.LabelMatcher) *prompb.Query {
	return &prompb.Query{StartTimestampMs: mint, EndTimestampMs: maxt, Matchers: ms}
}

func eq(name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Type: prompb.LabelMatcher_EQ, Name: name, Value: value}
}

func re(name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: name, Value: value}
}

// postRead sends a read request as it is.
func postRead(t testing.TB, base string, req *prompb.ReadRequest) answer {
	t.Helper()
	return post(t, base+"/api/v1/read", typeV1, marshal(t, req))
}

func wantSeries(t testing.TB, got, want []engine.Series) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d series, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !labels.Equal(got[i].Labels, want[i].Labels) || !sameSamples(got[i].Samples, want[i].Samples) {
			t.Errorf("series %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// stock is some series, sorted, with awkward values and labels.
func stock() []engine.Series {
	var awkward, many []engine.Sample
	for i, v := range awkwardFloats() {
		awkward = append(awkward, engine.Sample{T: 1000 + int64(i), V: v})
	}
	for i := range 1000 {
		many = append(many, engine.Sample{T: int64(i) * 15_000, V: float64(i)})
	}
	return []engine.Series{
		{Labels: lset("Zone", "b", "__name__", "up"), Samples: awkward},
		{Labels: lset("__name__", "down", "a.b c", "\x00\n,=#é"), Samples: []engine.Sample{{T: 1000, V: 1}}},
		{Labels: lset("__name__", "up", "job", "a"), Samples: many},
		{Labels: lset("__name__", "up", "job", "b", "long", strings.Repeat("x", 300)), Samples: []engine.Sample{{T: 999, V: 1}, {T: 2000, V: 2}}},
	}
}

// TestRead: what was stored comes back through upstream's client, bit for bit,
// in both kinds of answers.
func TestRead(t *testing.T) {
	all := stock()
	cut := func(s engine.Series, from, to int) engine.Series {
		return engine.Series{Labels: s.Labels, Samples: s.Samples[from:to]}
	}
	var noSamples []engine.Series
	for _, s := range all {
		noSamples = append(noSamples, engine.Series{Labels: s.Labels})
	}
	tests := []struct {
		name    string
		queries []*prompb.Query
		want    []engine.Series
	}{
		{"everything", []*prompb.Query{query(math.MinInt64, math.MaxInt64)}, all},
		{"one series", []*prompb.Query{query(0, 1<<40, eq("job", "a"))}, all[2:3]},
		{"an absent label", []*prompb.Query{query(0, 1<<40, eq("job", ""), eq("__name__", "up"))}, all[:1]},
		{"a regex", []*prompb.Query{query(0, 1<<40, re("a.b c", ".*#."))}, all[1:2]},
		{"both ends inclusive", []*prompb.Query{query(15_000, 45_000, eq("job", "a"))}, []engine.Series{cut(all[2], 1, 4)}},
		{"one instant", []*prompb.Query{query(2000, 2000, eq("job", "b"))}, []engine.Series{cut(all[3], 1, 2)}},
		{"no such series", []*prompb.Query{query(0, 1<<40, eq("__name__", "nothing"))}, nil},
		{"start after end", []*prompb.Query{query(2001, 2000)}, nil},
		{"extremes reversed", []*prompb.Query{query(math.MaxInt64, math.MinInt64)}, nil},
		{"no queries", nil, nil},
	}
	for _, kind := range responseTypes {
		for _, test := range tests {
			t.Run(kind.String()+"/"+test.name, func(t *testing.T) {
				url, _ := serve(t, &fakeEngine{series: all}, nil)
				got, err := read(t, url, kind, test.queries...)
				if err != nil {
					t.Fatal(err)
				}
				wantSeries(t, got, test.want)
			})
		}
		t.Run(kind.String()+"/labels only", func(t *testing.T) {
			eng := &fakeEngine{series: all}
			url, _ := serve(t, eng, nil)
			q := query(500, 5000)
			// Hint times lie wider than the query: they must not widen it.
			q.Hints = &prompb.ReadHints{Func: "series", StartMs: 0, EndMs: 1 << 40, RangeMs: 1 << 30}
			got, err := read(t, url, kind, q)
			if err != nil {
				t.Fatal(err)
			}
			wantSeries(t, got, noSamples)
			if q := eng.queries[0]; !q.SeriesOnly || q.Mint != 500 || q.Maxt != 5000 {
				t.Errorf("the engine was asked %+v", q)
			}
		})
	}
}

// TestReadSamplesAnswer looks at the block itself: one result for each query,
// in order, and the headers.
func TestReadSamplesAnswer(t *testing.T) {
	all := stock()
	url, reg := serve(t, &fakeEngine{series: all}, nil)
	got := postRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{
		query(0, 1<<40, eq("job", "b")),
		query(0, 1<<40, eq("__name__", "nothing")),
		query(5, 4),
		query(0, 1<<40, eq("__name__", "up")),
	}})
	got.wantStatus(t, http.StatusOK)
	if got.header.Get("Content-Type") != typeV1 || got.header.Get("Content-Encoding") != "snappy" {
		t.Errorf("header %v", got.header)
	}
	body, err := snappy.Decode(nil, []byte(got.body))
	if err != nil {
		t.Fatal(err)
	}
	var resp prompb.ReadResponse
	if err := proto.Unmarshal(body, &resp); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, r := range resp.Results {
		sizes = append(sizes, len(r.Timeseries))
	}
	if fmt.Sprint(sizes) != "[1 0 0 3]" {
		t.Errorf("series of the results: %v", sizes)
	}
	wantCounter(t, reg, 4, "adapter_read_queries_total", "response", "samples")
	wantCounter(t, reg, 4, "adapter_read_series_total", "response", "samples")
	wantCounter(t, reg, float64(len(got.body)), "adapter_read_bytes_total", "response", "samples")
}

// frames decodes a streamed answer.
func frames(t testing.TB, body string) (all []*prompb.ChunkedReadResponse) {
	t.Helper()
	r := upstream.NewChunkedReader(strings.NewReader(body), 50_000_000, nil)
	for {
		msg := new(prompb.ChunkedReadResponse)
		switch err := r.NextProto(msg); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, msg)
	}
}

// TestReadStreamedAnswer looks at the frames: one whole series each, queries in
// order, true times.
func TestReadStreamedAnswer(t *testing.T) {
	all := stock()
	url, reg := serve(t, &fakeEngine{series: all}, nil)
	got := postRead(t, url, &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES},
		Queries: []*prompb.Query{
			query(0, 1<<40, eq("job", "a")),
			query(0, 1<<40, eq("__name__", "nothing")),
			query(0, 1<<40, eq("__name__", "up")),
		},
	})
	got.wantStatus(t, http.StatusOK)
	if got.header.Get("Content-Type") != streamedType || got.header.Get("Content-Encoding") != "" {
		t.Errorf("header %v", got.header)
	}
	var text []string
	for _, f := range frames(t, got.body) {
		if len(f.ChunkedSeries) != 1 {
			t.Fatalf("%d series in a frame", len(f.ChunkedSeries))
		}
		s := f.ChunkedSeries[0]
		text = append(text, fmt.Sprintf("%d:%d", f.QueryIndex, len(s.Chunks)))
		for i, c := range s.Chunks {
			if c.Type != prompb.Chunk_XOR || c.MinTimeMs > c.MaxTimeMs || i > 0 && c.MinTimeMs <= s.Chunks[i-1].MaxTimeMs {
				t.Errorf("chunk %d: %s [%d, %d]", i, c.Type, c.MinTimeMs, c.MaxTimeMs)
			}
		}
	}
	if fmt.Sprint(text) != "[0:9 2:1 2:9 2:1]" {
		t.Errorf("frames %v", text)
	}
	wantCounter(t, reg, 3, "adapter_read_queries_total", "response", "streamed")
	wantCounter(t, reg, 4, "adapter_read_series_total", "response", "streamed")
	wantCounter(t, reg, float64(len(got.body)), "adapter_read_bytes_total", "response", "streamed")
}

func TestReadNegotiation(t *testing.T) {
	const samples, streamed = prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS
	url, _ := serve(t, &fakeEngine{series: stock()}, nil)
	for _, test := range []struct {
		name        string
		accept      []prompb.ReadRequest_ResponseType
		status      int
		contentType string
	}{
		{"nothing", nil, 200, typeV1},
		{"samples", []prompb.ReadRequest_ResponseType{samples}, 200, typeV1},
		{"streamed", []prompb.ReadRequest_ResponseType{streamed}, 200, streamedType},
		{"samples first", []prompb.ReadRequest_ResponseType{samples, streamed}, 200, typeV1},
		{"streamed first", []prompb.ReadRequest_ResponseType{streamed, samples}, 200, streamedType},
		{"unknown first", []prompb.ReadRequest_ResponseType{77, streamed}, 200, streamedType},
		{"unknown", []prompb.ReadRequest_ResponseType{77}, 400, "text/plain; charset=utf-8"},
	} {
		for _, q := range []*prompb.Query{query(0, 1<<40), query(0, 1<<40, eq("__name__", "nothing"))} {
			t.Run(fmt.Sprint(test.name, q.Matchers), func(t *testing.T) {
				got := postRead(t, url, &prompb.ReadRequest{AcceptedResponseTypes: test.accept, Queries: []*prompb.Query{q}})
				got.wantStatus(t, test.status)
				if contentType := got.header.Get("Content-Type"); contentType != test.contentType {
					t.Errorf("content type %q, want %q", contentType, test.contentType)
				}
			})
		}
	}
}

// TestReadBadRequest: what the client did wrong is a 400 with a text, before
// the engine is asked for anything.
func TestReadBadRequest(t *testing.T) {
	many := &prompb.ReadRequest{}
	for range 101 {
		many.Queries = append(many.Queries, query(0, 1))
	}
	matchers := query(0, 1)
	for range 10_001 {
		matchers.Matchers = append(matchers.Matchers, eq("a", "b"))
	}
	request := func(q *prompb.Query) []byte {
		return snappy.Encode(nil, marshal(t, &prompb.ReadRequest{Queries: []*prompb.Query{query(0, 1), q}}))
	}
	url, _ := serve(t, &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
		t.Error("the engine was asked")
		return storage.EmptyChunkSeriesSet(), nil
	}}, nil)
	for _, test := range []struct {
		name string
		body []byte
		text string
	}{
		{"empty", nil, "decompress"},
		{"not compressed", []byte("hello, is there anybody?"), "decompress"},
		{"not protobuf", snappy.Encode(nil, []byte("hello, is there anybody?")), "decode read request"},
		{"cut", snappy.Encode(nil, marshal(t, many)[:7]), "decode read request"},
		{"regex", request(query(0, 1, re("a", "("))), "query 1: error parsing regexp"},
		{"regex, start after end", request(query(1, 0, re("a", "("))), "query 1: error parsing regexp"},
		{"matcher type", request(query(0, 1, &prompb.LabelMatcher{Type: 9})), "invalid matcher type"},
		{"many queries", snappy.Encode(nil, marshal(t, many)), "more than 100 queries"},
		{"many empty queries", snappy.Encode(nil, bytes.Repeat([]byte{1<<3 | 2, 0}, 1<<20)), "more than 100 queries"},
		{"many matchers", request(matchers), "more than 10000 matchers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := send(t, http.MethodPost, url+"/read", nil, test.body)
			got.wantStatus(t, http.StatusBadRequest)
			if !strings.Contains(got.body, test.text) {
				t.Errorf("text %q, want %q in it", got.body, test.text)
			}
		})
	}
}

// TestReadPlanFails: all queries are planned before the first byte, so the
// second can still be refused.
func TestReadPlanFails(t *testing.T) {
	for _, kind := range responseTypes {
		for _, test := range []struct {
			name   string
			err    error
			status int
		}{
			{"limit", fmt.Errorf("%w: more than 5 series", engine.ErrLimit), 400},
			{"store", errStore, 503},
			{"deadline", context.DeadlineExceeded, 503},
		} {
			t.Run(kind.String()+"/"+test.name, func(t *testing.T) {
				n := 0
				eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
					if n++; n == 2 {
						return nil, test.err
					}
					return &fakeSet{series: []storage.ChunkSeries{chunkSeries(lset("__name__", "up"), []engine.Sample{{T: 1, V: 1}})}}, nil
				}}
				url, _ := serve(t, eng, nil)
				got := postRead(t, url, &prompb.ReadRequest{
					AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
					Queries:               []*prompb.Query{query(0, 1), query(0, 1)},
				})
				got.wantStatus(t, test.status)
				if !strings.Contains(got.body, test.err.Error()) || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
					t.Errorf("%v %q", got.header, got.body)
				}
			})
		}
	}
}

// TestReadMaxSamples: the limit holds for the whole request, not for a query.
func TestReadMaxSamples(t *testing.T) {
	url, _ := serve(t, &fakeEngine{series: stock()}, func(cfg *remote.Config) { cfg.MaxSamples = 1000 })
	job := func(value string) *prompb.Query { return query(0, 1<<40, eq("job", value)) }
	if _, err := read(t, url, prompb.ReadRequest_SAMPLES, job("a")); err != nil {
		t.Errorf("1000 samples: %v", err)
	}
	got := postRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{job("a"), job("b")}})
	got.wantStatus(t, http.StatusBadRequest)
	if !strings.Contains(got.body, "more than 1000 samples") {
		t.Errorf("text %q", got.body)
	}
}

// TestReadMaxSamplesBytes: many series without samples are bounded as well.
func TestReadMaxSamplesBytes(t *testing.T) {
	eng := &fakeEngine{}
	for i := range 400 {
		eng.series = append(eng.series, engine.Series{Labels: lset("__name__", "up", "i", fmt.Sprint(i), "long", strings.Repeat("x", 3000))})
	}
	url, _ := serve(t, eng, func(cfg *remote.Config) { cfg.MaxSamples = 1 })
	q := query(0, 1)
	q.Hints = &prompb.ReadHints{Func: "series"}
	postRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{q}}).wantStatus(t, http.StatusBadRequest)
}

// bigSeries is n series of about size bytes of chunks each.
func bigSeries(n, samples int) (all []storage.ChunkSeries) {
	data := make([]engine.Sample, samples)
	for i := range data {
		data[i] = engine.Sample{T: int64(i) * 977, V: math.Sqrt(float64(i))}
	}
	for i := range n {
		all = append(all, chunkSeries(lset("__name__", "big", "i", fmt.Sprintf("%06d", i)), data))
	}
	return all
}

func streamedRequest() *prompb.ReadRequest {
	return &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries:               []*prompb.Query{query(0, 1)},
	}
}

// rawRead posts req and returns what could be read of the answer.
func rawRead(t testing.TB, ctx context.Context, base string, req *prompb.ReadRequest) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, marshal(t, req))))
	if err != nil {
		t.Fatal(err)
	}
	return http.DefaultClient.Do(r)
}

// TestReadFrameLimit: a series that does not fit into a frame is a 400 as long
// as nothing is sent, then a broken connection; a frame is never split.
func TestReadFrameLimit(t *testing.T) {
	big := bigSeries(200, 1000)
	small := func(n int) []storage.ChunkSeries { return bigSeries(n, 10) }
	size := frameSize(t, big[0])
	for _, test := range []struct {
		name   string
		series []storage.ChunkSeries
		limit  int
		status int
		broken bool
	}{
		{"fits exactly", big[:1], size, 200, false},
		{"one byte too large", big[:1], size - 1, 400, false},
		{"chunks alone too large", big[:1], size / 2, 400, false},
		{"after a little that is not sent yet", append(small(3), big[0]), size - 1, 400, false},
		{"after much that is sent", append(append(big[:100:100], bigSeries(1, 2000)...), big[0]), size, 200, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
				return &fakeSet{series: test.series}, nil
			}}
			url, reg := serve(t, eng, func(cfg *remote.Config) { cfg.MaxFrameBytes = test.limit })
			resp, err := rawRead(t, t.Context(), url, streamedRequest())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != test.status || test.broken != errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("status %d, error %v, body of %d bytes", resp.StatusCode, err, len(body))
			}
			if test.status == 400 && !strings.Contains(string(body), "does not fit into a frame") {
				t.Errorf("text %q", body)
			}
			if test.broken {
				wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
			}
		})
	}
}

// frameSize is how large the frame of a series is.
func frameSize(t testing.TB, s storage.ChunkSeries) int {
	t.Helper()
	series := &prompb.ChunkedSeries{Labels: prompb.FromLabels(s.Labels(), nil)}
	it := s.Iterator(nil)
	for it.Next() {
		m := it.At()
		series.Chunks = append(series.Chunks, prompb.Chunk{MinTimeMs: m.MinTime, MaxTimeMs: m.MaxTime, Type: prompb.Chunk_XOR, Data: m.Chunk.Bytes()})
	}
	return (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{series}}).Size()
}

// TestReadAbort: a failure in mid-stream never looks like a complete answer;
// before the first byte it is a status.
func TestReadAbort(t *testing.T) {
	for _, test := range []struct {
		name   string
		before int
		kind   prompb.ReadRequest_ResponseType
		status int
		broken bool
	}{
		{"streamed, at once", 0, prompb.ReadRequest_STREAMED_XOR_CHUNKS, 503, false},
		{"streamed, a little late", 1, prompb.ReadRequest_STREAMED_XOR_CHUNKS, 503, false},
		{"streamed, in the middle", 150, prompb.ReadRequest_STREAMED_XOR_CHUNKS, 200, true},
		{"samples, in the middle", 150, prompb.ReadRequest_SAMPLES, 503, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			big := bigSeries(test.before, 1000)
			eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
				return &fakeSet{series: big, before: func(n int) error {
					if n == test.before {
						return errStore
					}
					return nil
				}}, nil
			}}
			url, _ := serve(t, eng, nil)
			req := streamedRequest()
			req.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{test.kind}
			resp, err := rawRead(t, t.Context(), url, req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			if resp.StatusCode != test.status || test.broken != errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("status %d, error %v", resp.StatusCode, err)
			}
			if _, err := read(t, url, test.kind, query(0, 1)); err == nil {
				t.Error("upstream's client noticed nothing")
			}
		})
	}
}

// TestReadClientGone: a client that hangs up in mid-stream ends the query.
func TestReadClientGone(t *testing.T) {
	big := bigSeries(1, 1000)
	reached, cancelled := make(chan struct{}), make(chan struct{})
	eng := &fakeEngine{onSelect: func(ctx context.Context, _ engine.Query) (storage.ChunkSeriesSet, error) {
		set := &fakeSet{}
		set.before = func(n int) error {
			if n == 200 { // some of it is on its way
				close(reached)
				<-ctx.Done()
				close(cancelled)
				return ctx.Err()
			}
			set.series = append(set.series, big[0])
			return nil
		}
		return set, nil
	}}
	url, reg := serve(t, eng, nil)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := rawRead(t, ctx, url, streamedRequest())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go io.Copy(io.Discard, resp.Body)
	<-reached
	cancel()
	<-cancelled
	wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
	wantCounter(t, reg, 0, "adapter_http_requests_in_flight", "handler", "read")
}

// TestReadStuckClient: a client that does not take its answer loses its slot
// when the time is up.
func TestReadStuckClient(t *testing.T) {
	big := bigSeries(1, 20_000)
	eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
		set := &fakeSet{}
		set.before = func(int) error {
			set.series = append(set.series[:0:0], set.series...)
			set.series = append(set.series, big[0])
			return nil // for ever
		}
		return set, nil
	}}
	url, reg := serve(t, eng, func(cfg *remote.Config) {
		cfg.ReadTimeout = 200 * time.Millisecond
		cfg.MaxConcurrentReads = 1
	})
	resp, err := rawRead(t, t.Context(), url, streamedRequest())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // not read
	wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the answer ended as if it were complete")
	}
}

// TestReadTimeout: a query that takes too long is a 503, and so is one that
// finds no slot.
func TestReadTimeout(t *testing.T) {
	entered, ended := make(chan struct{}, 2), make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	eng := &fakeEngine{onSelect: func(ctx context.Context, _ engine.Query) (storage.ChunkSeriesSet, error) {
		entered <- struct{}{}
		<-ctx.Done()
		<-ended
		return nil, ctx.Err()
	}}
	url, _ := serve(t, eng, func(cfg *remote.Config) {
		cfg.MaxConcurrentReads = 1
		cfg.ReadTimeout = 50 * time.Millisecond
	})
	t.Cleanup(end)
	first := make(chan answer, 1)
	go func() { first <- postRead(t, url, streamedRequest()) }()
	wait(t, entered)
	for _, path := range []string{"/federate?match[]=up", "/api/v1/explain?match[]=up"} {
		got := send(t, http.MethodGet, url+path, nil, nil)
		got.wantStatus(t, http.StatusServiceUnavailable)
		if got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	postRead(t, url, streamedRequest()).wantStatus(t, http.StatusServiceUnavailable)
	end()
	(<-first).wantStatus(t, http.StatusServiceUnavailable)
}

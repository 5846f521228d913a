package read_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// TestRead: what was stored comes back through upstream's client, bit for bit,
// in both kinds of answers.
func TestRead(t *testing.T) {
	all := remotetest.Stock()
	cut := func(s ingest.Series, from, to int) ingest.Series {
		return ingest.Series{Labels: s.Labels, Samples: s.Samples[from:to]}
	}
	var noSamples []ingest.Series
	for _, s := range all {
		noSamples = append(noSamples, ingest.Series{Labels: s.Labels})
	}
	tests := []struct {
		name    string
		queries []*prompb.Query
		want    []ingest.Series
	}{
		{"everything", []*prompb.Query{remotetest.Query(math.MinInt64, math.MaxInt64)}, all},
		{"one series", []*prompb.Query{remotetest.Query(0, 1<<40, remotetest.Eq("job", "a"))}, all[2:3]},
		{"an absent label", []*prompb.Query{remotetest.Query(0, 1<<40, remotetest.Eq("job", ""), remotetest.Eq("__name__", "up"))}, all[:1]},
		{"a regex", []*prompb.Query{remotetest.Query(0, 1<<40, remotetest.Re("a.b c", ".*#."))}, all[1:2]},
		{"both ends inclusive", []*prompb.Query{remotetest.Query(15_000, 45_000, remotetest.Eq("job", "a"))}, []ingest.Series{cut(all[2], 1, 4)}},
		{"one instant", []*prompb.Query{remotetest.Query(2000, 2000, remotetest.Eq("job", "b"))}, []ingest.Series{cut(all[3], 1, 2)}},
		{"no such series", []*prompb.Query{remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "nothing"))}, nil},
		{"start after end", []*prompb.Query{remotetest.Query(2001, 2000)}, nil},
		{"extremes reversed", []*prompb.Query{remotetest.Query(math.MaxInt64, math.MinInt64)}, nil},
		{"no queries", nil, nil},
	}
	for _, kind := range remotetest.ResponseTypes {
		for _, test := range tests {
			t.Run(kind.String()+"/"+test.name, func(t *testing.T) {
				url, _ := remotetest.Serve(t, &remotetest.Engine{Series: all}, nil)
				got, err := remotetest.Read(t, url, kind, test.queries...)
				if err != nil {
					t.Fatal(err)
				}
				remotetest.WantSeries(t, got, test.want)
			})
		}
		t.Run(kind.String()+"/labels only", func(t *testing.T) {
			eng := &remotetest.Engine{Series: all}
			url, _ := remotetest.Serve(t, eng, nil)
			q := remotetest.Query(500, 5000)
			// Hint times lie wider than the query: they must not widen it.
			q.Hints = &prompb.ReadHints{Func: "series", StartMs: 0, EndMs: 1 << 40, RangeMs: 1 << 30}
			got, err := remotetest.Read(t, url, kind, q)
			if err != nil {
				t.Fatal(err)
			}
			remotetest.WantSeries(t, got, noSamples)
			if q := eng.Queries[0]; !q.SeriesOnly || q.Mint != 500 || q.Maxt != 5000 {
				t.Errorf("the engine was asked %+v", q)
			}
		})
	}
}

// TestReadSamplesAnswer looks at the block itself: one result for each query,
// in order, and the headers.
func TestReadSamplesAnswer(t *testing.T) {
	all := remotetest.Stock()
	url, reg := remotetest.Serve(t, &remotetest.Engine{Series: all}, nil)
	got := remotetest.PostRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{
		remotetest.Query(0, 1<<40, remotetest.Eq("job", "b")),
		remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "nothing")),
		remotetest.Query(5, 4),
		remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "up")),
	}})
	got.WantStatus(t, http.StatusOK)
	if got.Header.Get("Content-Type") != remotetest.TypeV1 || got.Header.Get("Content-Encoding") != "snappy" {
		t.Errorf("header %v", got.Header)
	}
	body, err := snappy.Decode(nil, []byte(got.Body))
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
	remotetest.WantCounter(t, reg, 4, "adapter_read_queries_total", "response", "samples")
	remotetest.WantCounter(t, reg, 4, "adapter_read_series_total", "response", "samples")
	remotetest.WantCounter(t, reg, float64(len(got.Body)), "adapter_read_bytes_total", "response", "samples")
}

// TestReadStreamedAnswer looks at the frames: one whole series each, queries in
// order, true times.
func TestReadStreamedAnswer(t *testing.T) {
	all := remotetest.Stock()
	url, reg := remotetest.Serve(t, &remotetest.Engine{Series: all}, nil)
	got := remotetest.PostRead(t, url, &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES},
		Queries: []*prompb.Query{
			remotetest.Query(0, 1<<40, remotetest.Eq("job", "a")),
			remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "nothing")),
			remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "up")),
		},
	})
	got.WantStatus(t, http.StatusOK)
	if got.Header.Get("Content-Type") != remotetest.StreamedType || got.Header.Get("Content-Encoding") != "" {
		t.Errorf("header %v", got.Header)
	}
	var text []string
	for _, f := range remotetest.Frames(t, got.Body) {
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
	remotetest.WantCounter(t, reg, 3, "adapter_read_queries_total", "response", "streamed")
	remotetest.WantCounter(t, reg, 4, "adapter_read_series_total", "response", "streamed")
	remotetest.WantCounter(t, reg, float64(len(got.Body)), "adapter_read_bytes_total", "response", "streamed")
}

func TestReadNegotiation(t *testing.T) {
	const samples, streamed = prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS
	url, _ := remotetest.Serve(t, &remotetest.Engine{Series: remotetest.Stock()}, nil)
	for _, test := range []struct {
		name        string
		accept      []prompb.ReadRequest_ResponseType
		status      int
		contentType string
	}{
		{"nothing", nil, 200, remotetest.TypeV1},
		{"samples", []prompb.ReadRequest_ResponseType{samples}, 200, remotetest.TypeV1},
		{"streamed", []prompb.ReadRequest_ResponseType{streamed}, 200, remotetest.StreamedType},
		{"samples first", []prompb.ReadRequest_ResponseType{samples, streamed}, 200, remotetest.TypeV1},
		{"streamed first", []prompb.ReadRequest_ResponseType{streamed, samples}, 200, remotetest.StreamedType},
		{"unknown first", []prompb.ReadRequest_ResponseType{77, streamed}, 200, remotetest.StreamedType},
		{"unknown", []prompb.ReadRequest_ResponseType{77}, 400, "text/plain; charset=utf-8"},
	} {
		for _, q := range []*prompb.Query{remotetest.Query(0, 1<<40), remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "nothing"))} {
			t.Run(fmt.Sprint(test.name, q.Matchers), func(t *testing.T) {
				got := remotetest.PostRead(t, url, &prompb.ReadRequest{AcceptedResponseTypes: test.accept, Queries: []*prompb.Query{q}})
				got.WantStatus(t, test.status)
				if contentType := got.Header.Get("Content-Type"); contentType != test.contentType {
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
		many.Queries = append(many.Queries, remotetest.Query(0, 1))
	}
	matchers := remotetest.Query(0, 1)
	for range 10_001 {
		matchers.Matchers = append(matchers.Matchers, remotetest.Eq("a", "b"))
	}
	request := func(q *prompb.Query) []byte {
		return snappy.Encode(nil, wiretest.Marshal(t, &prompb.ReadRequest{Queries: []*prompb.Query{remotetest.Query(0, 1), q}}))
	}
	url, _ := remotetest.Serve(t, &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
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
		{"cut", snappy.Encode(nil, wiretest.Marshal(t, many)[:7]), "decode read request"},
		{"regex", request(remotetest.Query(0, 1, remotetest.Re("a", "("))), "query 1: error parsing regexp"},
		{"regex, start after end", request(remotetest.Query(1, 0, remotetest.Re("a", "("))), "query 1: error parsing regexp"},
		{"matcher type", request(remotetest.Query(0, 1, &prompb.LabelMatcher{Type: 9})), "invalid matcher type"},
		{"many queries", snappy.Encode(nil, wiretest.Marshal(t, many)), "more than 100 queries"},
		{"many empty queries", snappy.Encode(nil, bytes.Repeat([]byte{1<<3 | 2, 0}, 1<<20)), "more than 100 queries"},
		{"many matchers", request(matchers), "more than 10000 matchers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := remotetest.Send(t, http.MethodPost, url+"/read", nil, test.body)
			got.WantStatus(t, http.StatusBadRequest)
			if !strings.Contains(got.Body, test.text) {
				t.Errorf("text %q, want %q in it", got.Body, test.text)
			}
		})
	}
}

// TestReadPlanFails: all queries are planned before the first byte, so the
// second can still be refused.
func TestReadPlanFails(t *testing.T) {
	for _, kind := range remotetest.ResponseTypes {
		for _, test := range []struct {
			name   string
			err    error
			status int
		}{
			{"limit", fmt.Errorf("%w: more than 5 series", reader.ErrLimit), 400},
			{"store", remotetest.ErrStore, 503},
			{"deadline", context.DeadlineExceeded, 503},
		} {
			t.Run(kind.String()+"/"+test.name, func(t *testing.T) {
				n := 0
				eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
					if n++; n == 2 {
						return nil, test.err
					}
					return &remotetest.SeriesSet{Series: []storage.ChunkSeries{remotetest.ChunkSeries(wiretest.LabelSet("__name__", "up"), []ingest.Sample{{T: 1, V: 1}})}}, nil
				}}
				url, _ := remotetest.Serve(t, eng, nil)
				got := remotetest.PostRead(t, url, &prompb.ReadRequest{
					AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
					Queries:               []*prompb.Query{remotetest.Query(0, 1), remotetest.Query(0, 1)},
				})
				got.WantStatus(t, test.status)
				if !strings.Contains(got.Body, test.err.Error()) || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
					t.Errorf("%v %q", got.Header, got.Body)
				}
			})
		}
	}
}

// TestReadMaxSamples: the limit holds for the whole request, not for a query.
func TestReadMaxSamples(t *testing.T) {
	url, _ := remotetest.Serve(t, &remotetest.Engine{Series: remotetest.Stock()}, func(cfg *remote.Config) { cfg.MaxSamples = 1000 })
	job := func(value string) *prompb.Query { return remotetest.Query(0, 1<<40, remotetest.Eq("job", value)) }
	if _, err := remotetest.Read(t, url, prompb.ReadRequest_SAMPLES, job("a")); err != nil {
		t.Errorf("1000 samples: %v", err)
	}
	got := remotetest.PostRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{job("a"), job("b")}})
	got.WantStatus(t, http.StatusBadRequest)
	if !strings.Contains(got.Body, "more than 1000 samples") {
		t.Errorf("text %q", got.Body)
	}
}

// TestReadMaxSamplesBytes: many series without samples are bounded as well.
func TestReadMaxSamplesBytes(t *testing.T) {
	eng := &remotetest.Engine{}
	for i := range 400 {
		eng.Series = append(eng.Series, ingest.Series{Labels: wiretest.LabelSet("__name__", "up", "i", fmt.Sprint(i), "long", strings.Repeat("x", 3000))})
	}
	url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.MaxSamples = 1 })
	q := remotetest.Query(0, 1)
	q.Hints = &prompb.ReadHints{Func: "series"}
	remotetest.PostRead(t, url, &prompb.ReadRequest{Queries: []*prompb.Query{q}}).WantStatus(t, http.StatusBadRequest)
}

// TestReadFrameLimit: a series that does not fit into a frame is a 400 as long
// as nothing is sent, then a broken connection; a frame is never split.
func TestReadFrameLimit(t *testing.T) {
	big := remotetest.BigSeries(200, 1000)
	small := func(n int) []storage.ChunkSeries { return remotetest.BigSeries(n, 10) }
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
		{"after much that is sent", append(append(big[:100:100], remotetest.BigSeries(1, 2000)...), big[0]), size, 200, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
				return &remotetest.SeriesSet{Series: test.series}, nil
			}}
			url, reg := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.MaxFrameBytes = test.limit })
			resp, err := remotetest.RawRead(t, t.Context(), url, remotetest.StreamedRequest())
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
				remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
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
			big := remotetest.BigSeries(test.before, 1000)
			eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
				return &remotetest.SeriesSet{Series: big, Before: func(n int) error {
					if n == test.before {
						return remotetest.ErrStore
					}
					return nil
				}}, nil
			}}
			url, _ := remotetest.Serve(t, eng, nil)
			req := remotetest.StreamedRequest()
			req.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{test.kind}
			resp, err := remotetest.RawRead(t, t.Context(), url, req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			if resp.StatusCode != test.status || test.broken != errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("status %d, error %v", resp.StatusCode, err)
			}
			if _, err := remotetest.Read(t, url, test.kind, remotetest.Query(0, 1)); err == nil {
				t.Error("upstream's client noticed nothing")
			}
		})
	}
}

// TestReadClientGone: a client that hangs up in mid-stream ends the query.
func TestReadClientGone(t *testing.T) {
	big := remotetest.BigSeries(1, 1000)
	reached, cancelled := make(chan struct{}), make(chan struct{})
	eng := &remotetest.Engine{OnSelect: func(ctx context.Context, _ reader.Query) (storage.ChunkSeriesSet, error) {
		set := &remotetest.SeriesSet{}
		set.Before = func(n int) error {
			if n == 200 { // some of it is on its way
				close(reached)
				<-ctx.Done()
				close(cancelled)
				return ctx.Err()
			}
			set.Series = append(set.Series, big[0])
			return nil
		}
		return set, nil
	}}
	url, reg := remotetest.Serve(t, eng, nil)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := remotetest.RawRead(t, ctx, url, remotetest.StreamedRequest())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go io.Copy(io.Discard, resp.Body)
	<-reached
	cancel()
	<-cancelled
	remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
	remotetest.WantCounter(t, reg, 0, "adapter_http_requests_in_flight", "handler", "read")
}

// TestReadStuckClient: a client that does not take its answer loses its slot
// when the time is up.
func TestReadStuckClient(t *testing.T) {
	big := remotetest.BigSeries(1, 20_000)
	eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
		set := &remotetest.SeriesSet{}
		set.Before = func(int) error {
			set.Series = append(set.Series[:0:0], set.Series...)
			set.Series = append(set.Series, big[0])
			return nil // for ever
		}
		return set, nil
	}}
	url, reg := remotetest.Serve(t, eng, func(cfg *remote.Config) {
		cfg.ReadTimeout = 200 * time.Millisecond
		cfg.MaxConcurrentReads = 1
	})
	resp, err := remotetest.RawRead(t, t.Context(), url, remotetest.StreamedRequest())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // not read
	remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "read", "code", "aborted")
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the answer ended as if it were complete")
	}
}

// TestReadTimeout: a query that takes too long is a 503, and so is one that
// finds no slot.
func TestReadTimeout(t *testing.T) {
	entered, ended := make(chan struct{}, 2), make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	eng := &remotetest.Engine{OnSelect: func(ctx context.Context, _ reader.Query) (storage.ChunkSeriesSet, error) {
		entered <- struct{}{}
		<-ctx.Done()
		<-ended
		return nil, ctx.Err()
	}}
	url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) {
		cfg.MaxConcurrentReads = 1
		cfg.ReadTimeout = 50 * time.Millisecond
	})
	t.Cleanup(end)
	first := make(chan remotetest.Answer, 1)
	go func() { first <- remotetest.PostRead(t, url, remotetest.StreamedRequest()) }()
	remotetest.Wait(t, entered)
	for _, path := range []string{"/federate?match[]=up", "/api/v1/explain?match[]=up"} {
		got := remotetest.Send(t, http.MethodGet, url+path, nil, nil)
		got.WantStatus(t, http.StatusServiceUnavailable)
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	remotetest.PostRead(t, url, remotetest.StreamedRequest()).WantStatus(t, http.StatusServiceUnavailable)
	end()
	(<-first).WantStatus(t, http.StatusServiceUnavailable)
}

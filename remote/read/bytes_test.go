package read_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// bytesQueries asks for nothing, for series without samples, for times of 0 and
// for messages whose lengths take one to three bytes.
func bytesQueries() (all []ingest.Series, queries []*prompb.Query) {
	for _, n := range []int{0, 1, 5, 6, 7, 900, 120_000} {
		s := ingest.Series{Labels: wiretest.LabelSet("__name__", "up", "n", fmt.Sprintf("%06d", n))}
		for i := range n {
			s.Samples = append(s.Samples, ingest.Sample{T: int64(i) * 15_000, V: 1 + float64(i*i%1000)})
		}
		all = append(all, s)
		queries = append(queries, remotetest.Query(0, 1<<40, remotetest.Eq("n", fmt.Sprintf("%06d", n))))
	}
	queries = append(queries, remotetest.Query(0, 1<<40, remotetest.Eq("n", "none")), remotetest.Query(0, 1<<40), remotetest.Query(0, 0), remotetest.Query(30_000, 1<<40, remotetest.Eq("n", "000007")))
	return all, queries
}

// answered is what the fake engine has for q.
func answered(all []ingest.Series, q *prompb.Query) (found []ingest.Series) {
	for _, s := range all {
		if len(q.Matchers) == 0 || s.Labels.Get("n") == q.Matchers[0].Value {
			samples := remotetest.InRange(s.Samples, reader.Query{Mint: q.StartTimestampMs, Maxt: q.EndTimestampMs})
			found = append(found, ingest.Series{Labels: s.Labels, Samples: samples})
		}
	}
	return found
}

// generatedSamples is the answer to queries as the generated encoder writes it.
func generatedSamples(t testing.TB, all []ingest.Series, queries []*prompb.Query) []byte {
	t.Helper()
	var resp prompb.ReadResponse
	for _, q := range queries {
		result := &prompb.QueryResult{}
		for _, s := range answered(all, q) {
			ts := &prompb.TimeSeries{Labels: prompb.FromLabels(s.Labels, nil)}
			for _, sample := range s.Samples {
				ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: sample.T, Value: sample.V})
			}
			result.Timeseries = append(result.Timeseries, ts)
		}
		resp.Results = append(resp.Results, result)
	}
	return wiretest.Marshal(t, &resp)
}

// TestReadSamplesBytes: an answer has the bytes that the generated encoder writes,
// whatever was asked before, so that its buffers are full of something else. A
// time of 0, which that leaves out, is not in it.
func TestReadSamplesBytes(t *testing.T) {
	all, queries := bytesQueries()
	for i := range all {
		for j := range all[i].Samples {
			all[i].Samples[j].T++
		}
	}
	url, _ := remotetest.Serve(t, &remotetest.Engine{Series: all}, nil)
	check := func(queries ...*prompb.Query) {
		t.Helper()
		got := remotetest.PostRead(t, url, &prompb.ReadRequest{Queries: queries})
		got.WantStatus(t, http.StatusOK)
		body, err := snappy.Decode(nil, []byte(got.Body))
		if err != nil {
			t.Fatal(err)
		}
		if want := generatedSamples(t, all, queries); !bytes.Equal(body, want) {
			t.Errorf("%v: %d bytes, want %d, or others", queries, len(body), len(want))
		}
	}
	for _, q := range queries {
		check(q)
		check(q, q)
	}
	check(queries...)
	check()
}

// TestReadStreamedBytes: a streamed answer has the bytes that upstream's writer
// and the generated encoder write.
func TestReadStreamedBytes(t *testing.T) {
	all, queries := bytesQueries()
	all = append(all, ingest.Series{Labels: wiretest.LabelSet("n", "long", "text", strings.Repeat("x", 200_000)), Samples: []ingest.Sample{{T: 0, V: 1}}})
	queries = append(queries, remotetest.Query(0, 1<<40, remotetest.Eq("n", "long")))
	url, _ := remotetest.Serve(t, &remotetest.Engine{Series: all}, func(cfg *remote.Config) { cfg.MaxFrameBytes = 1 << 20 })
	for range 2 { // the second time with buffers that are used again
		got := remotetest.PostRead(t, url, &prompb.ReadRequest{AcceptedResponseTypes: remotetest.ResponseTypes[1:], Queries: queries})
		got.WantStatus(t, http.StatusOK)
		var want bytes.Buffer
		w := upstream.NewChunkedWriter(&want, nil)
		for i, q := range queries {
			for _, s := range answered(all, q) {
				msg := &prompb.ChunkedReadResponse{QueryIndex: int64(i), ChunkedSeries: []*prompb.ChunkedSeries{chunkedSeries(s)}}
				if _, err := w.Write(wiretest.Marshal(t, msg)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got.Body != want.String() {
			t.Errorf("%d bytes, want %d, or others", len(got.Body), want.Len())
		}
	}
}

// chunkedSeries is s as a streamed answer has it.
func chunkedSeries(s ingest.Series) *prompb.ChunkedSeries {
	out := &prompb.ChunkedSeries{Labels: prompb.FromLabels(s.Labels, nil)}
	var cs storage.ChunkSeries = remotetest.ChunkSeries(s.Labels, s.Samples)
	for it := cs.Iterator(nil); it.Next(); {
		m := it.At()
		out.Chunks = append(out.Chunks, prompb.Chunk{MinTimeMs: m.MinTime, MaxTimeMs: m.MaxTime, Type: prompb.Chunk_Encoding(m.Chunk.Encoding()), Data: m.Chunk.Bytes()})
	}
	return out
}

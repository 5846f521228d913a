package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
)

// discard takes an answer and forgets it.
type discard struct {
	header http.Header
	status int
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(s int)   { d.status = s }
func (d *discard) Flush()              {}
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// BenchmarkWrite is a request of 2,000 series, 12 labels and one sample each,
// from its bytes to the call of the engine.
func BenchmarkWrite(b *testing.B) {
	const series = 2000
	all := targets(series)
	for _, bench := range []struct {
		name, contentType string
		body              []byte
	}{
		{"1.0", typeV1, v1(b, all...)},
		{"2.0", typeV2, marshal(b, toV2(all))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			stored := 0
			eng := &fakeEngine{onAppend: func(_ context.Context, batch []engine.Series) (int, error) {
				stored += len(batch)
				return len(batch), nil
			}}
			h := remote.New(remote.Config{Engine: eng, Now: time.Now})
			compressed := snappy.Encode(nil, bench.body)
			b.SetBytes(int64(len(bench.body)))
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/write", bytes.NewReader(compressed))
				r.Header.Set("Content-Type", bench.contentType)
				h.ServeHTTP(&discard{header: http.Header{}}, r)
			}
			b.ReportMetric(float64(stored)/b.Elapsed().Seconds(), "samples/s")
			if stored != b.N*series {
				b.Fatalf("%d samples reached the engine, want %d", stored, b.N*series)
			}
		})
	}
}

// BenchmarkRead is an answer of 1,000 series with 1,200 samples each, from
// their chunks to the bytes of the answer.
func BenchmarkRead(b *testing.B) {
	const series, samples = 1000, 1200
	data := make([]engine.Sample, samples)
	for i := range data {
		data[i] = engine.Sample{T: 1_700_000_000_000 + int64(i)*15_000, V: float64(i / 10)}
	}
	var all []storage.ChunkSeries
	for i := range series {
		all = append(all, chunkSeries(lset("__name__", "up", "instance", fmt.Sprintf("10.0.0.1:%06d", i), "job", "node", "cluster", "production"), data))
	}
	eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
		return &fakeSet{series: all}, nil
	}}
	for _, kind := range responseTypes {
		b.Run(kind.String(), func(b *testing.B) {
			h := remote.New(remote.Config{Engine: eng, Now: time.Now})
			body := snappy.Encode(nil, marshal(b, &prompb.ReadRequest{
				AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
				Queries:               []*prompb.Query{query(0, 1)},
			}))
			sent := 0
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/read", bytes.NewReader(body)))
				sent += w.bytes
			}
			b.ReportMetric(float64(b.N*series*samples)/b.Elapsed().Seconds(), "samples/s")
			b.ReportMetric(float64(sent)/float64(b.N*series*samples), "bytes/sample")
			if sent == 0 {
				b.Fatal("nothing was sent")
			}
		})
	}
}

// BenchmarkFederate is the newest samples of 10,000 series, from the engine to
// the bytes of the text.
func BenchmarkFederate(b *testing.B) {
	const series = 10_000
	eng := &fakeEngine{current: make([]engine.CurrentSample, series)}
	for i := range eng.current {
		ls := lset("__name__", fmt.Sprintf("node_metric_%03d", i/100), "instance", fmt.Sprintf("10.0.0.1:%06d", i%100), "job", "node", "cluster", "production", "device", "eth0")
		eng.current[i] = engine.CurrentSample{Labels: ls, T: 1_700_000_000_000, V: float64(i)}
	}
	h := remote.New(remote.Config{Engine: eng, Now: time.Now})
	target := "/federate?" + url.Values{"match[]": {`{job="node"}`}}.Encode()
	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{header: http.Header{}}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		sent += w.bytes
	}
	b.ReportMetric(float64(b.N*series)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(float64(sent)/float64(b.N*series), "bytes/sample")
	if sent < b.N*series {
		b.Fatalf("%d bytes were sent in %d rounds", sent, b.N)
	}
}

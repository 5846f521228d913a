package write_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series"
)

// TestWriteCachedConcurrently: senders that send the same series again and again,
// at once and in both protocols, each get every sample stored where it belongs.
func TestWriteCachedConcurrently(t *testing.T) {
	const senders, requests = 4, 25
	base, reg := remotetest.ServeStore(t, remotetest.OpenPebble(t))
	var want []ingest.Series
	for i := range 30 { // encodeV2 has room for 127 symbols
		want = append(want, ingest.Series{Labels: wiretest.LabelSet("__name__", "up", "n", fmt.Sprintf("%02d", i))})
	}
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			for n := range requests {
				var batch []ingest.Series
				for i := sender % 2; i < len(want); i += 1 + n%2 {
					at := int64(i*1000 + n*senders + sender)
					batch = append(batch, ingest.Series{Labels: want[i].Labels, Samples: []ingest.Sample{{T: at, V: float64(-at)}}})
				}
				contentType, body := remotetest.TypeV1, wiretest.EncodeV1(t, batch)
				if (n+sender)%3 == 0 {
					contentType, body = remotetest.TypeV2, wiretest.EncodeV2(batch)
				}
				if got := remotetest.Post(t, base+"/api/v1/write", contentType, body); got.Status != http.StatusNoContent {
					t.Errorf("status %d: %s", got.Status, got.Body)
				}
			}
		})
	}
	all.Wait()
	for n := range requests {
		for sender := range senders {
			for i := sender % 2; i < len(want); i += 1 + n%2 {
				at := int64(i*1000 + n*senders + sender)
				want[i].Samples = append(want[i].Samples, ingest.Sample{T: at, V: float64(-at)})
			}
		}
	}
	got, err := remotetest.Read(t, base, remotetest.ResponseTypes[0], remotetest.Query(0, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	remotetest.WantSeries(t, got, want)
	if n := remotetest.Counter(t, reg, "adapter_engine_known_series"); n < float64(len(want)) || n > float64(2*len(want)) {
		t.Errorf("%v series cached of %d in two protocols", n, len(want))
	}
}

// TestWriteCachedMetadata: metadata of cached series are written when
// they change, and counted always.
func TestWriteCachedMetadata(t *testing.T) {
	base, reg := remotetest.ServeStore(t, remotetest.OpenPebble(t))
	rows := 0.0
	for i, help := range []string{"x", "x", "x", "y", "y", "x", "x"} {
		symbols := writev2.NewSymbolTable()
		ts := wiretest.V2Series(&symbols, []writev2.Sample{{Timestamp: int64(i), Value: 1}}, "__name__", "up")
		ts.Metadata = writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize(help)}
		req := &writev2.Request{Timeseries: []writev2.TimeSeries{ts}, Symbols: symbols.Symbols()}
		remotetest.Post(t, base+"/api/v1/write", remotetest.TypeV2, wiretest.Marshal(t, req)).WantStatus(t, http.StatusNoContent)
		if i == 0 || i == 3 || i == 5 {
			rows++
		}
		remotetest.WantCounter(t, reg, rows, "adapter_metadata_rows_total")
		remotetest.WantCounter(t, reg, float64(i+1), "adapter_write_metadata_total")
	}
}

// openIdle opens a handler over an engine that stores nothing.
func openIdle(b *testing.B, store bucketstore.Store) (*remote.Handler, *wiretest.IdleAppender) {
	b.Helper()
	schema, err := series.NewSchema(nil)
	if err != nil {
		b.Fatal(err)
	}
	app := &wiretest.IdleAppender{Appender: bucketstore.NewDirect(store, schema, time.Now, nil)}
	eng, err := engine.New(engine.Config{
		Store: wiretest.IdleStore{Store: store}, Appender: app, Schema: schema, Now: time.Now, CurrentInterval: time.Hour,
		MaxFuture: 10 * time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return remote.New(remote.Config{Engine: eng, Now: time.Now}), app
}

// benchmarkStored sends a request of 2,000 series, 12 labels and one sample
// each, from its bytes to the call of the Appender: cold to an engine that sees
// them for the first time, warm to one that has them cached.
func benchmarkStored(b *testing.B, contentType string, body []byte) {
	const series = 2000
	store := remotetest.OpenPebble(b)
	compressed := snappy.Encode(nil, body)
	send := func(h http.Handler) {
		r := httptest.NewRequest(http.MethodPost, "/write", bytes.NewReader(compressed))
		r.Header.Set("Content-Type", contentType)
		w := &remotetest.Discard{Headers: http.Header{}}
		if h.ServeHTTP(w, r); w.Status != http.StatusNoContent {
			b.Fatalf("status %d", w.Status)
		}
	}
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			h, _ := openIdle(b, store)
			b.StartTimer()
			send(h)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*series), "ns/sample")
	})
	b.Run("warm", func(b *testing.B) {
		h, app := openIdle(b, store)
		send(h)
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			send(h)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*series), "ns/sample")
		if app.Samples != (b.N+1)*series {
			b.Fatalf("%d samples were stored, want %d", app.Samples, (b.N+1)*series)
		}
	})
}

// BenchmarkWriteV1 is a request of remote write 1.0.
func BenchmarkWriteV1(b *testing.B) {
	benchmarkStored(b, remotetest.TypeV1, wiretest.V1(b, wiretest.Targets(2000)...))
}

// BenchmarkWriteV2 is a request of remote write 2.0.
func BenchmarkWriteV2(b *testing.B) {
	benchmarkStored(b, remotetest.TypeV2, wiretest.Marshal(b, wiretest.ToV2(wiretest.Targets(2000))))
}

// BenchmarkWriteHosts is what an exporter on each of 20 hosts has to say, 10,000
// series of 10 labels in 5 requests, to an engine that has them cached: few texts that
// come again and again.
func BenchmarkWriteHosts(b *testing.B) {
	const hosts, metrics, series = 20, 500, 2000
	var all []prompb.TimeSeries
	for i := range hosts * metrics {
		host, metric := i/metrics, i%metrics
		all = append(all, wiretest.V1Series([]prompb.Sample{{Timestamp: 1_700_000_000_000 + int64(i), Value: float64(i)}},
			"__name__", fmt.Sprintf("node_something_%d_total", metric/16), "availability_zone", "europe-west1-b",
			"cluster", "production-europe-west1", "cpu", fmt.Sprint(metric/2%8), "env", "production",
			"instance", fmt.Sprintf("10.0.0.%d:9100", host), "job", "node", "mode", [...]string{"user", "system"}[metric%2],
			"node", fmt.Sprintf("gke-production-pool-%d", host), "region", "europe-west1",
		))
	}
	for name, encode := range map[string]func([]prompb.TimeSeries) (string, []byte){
		"1.0": func(all []prompb.TimeSeries) (string, []byte) { return remotetest.TypeV1, wiretest.V1(b, all...) },
		"2.0": func(all []prompb.TimeSeries) (string, []byte) {
			return remotetest.TypeV2, wiretest.Marshal(b, wiretest.ToV2(all))
		},
	} {
		b.Run(name, func(b *testing.B) {
			h, app := openIdle(b, remotetest.OpenPebble(b))
			send := func(all []prompb.TimeSeries) func() {
				contentType, body := encode(all)
				compressed := snappy.Encode(nil, body)
				return func() {
					r := httptest.NewRequest(http.MethodPost, "/write", bytes.NewReader(compressed))
					r.Header.Set("Content-Type", contentType)
					w := &remotetest.Discard{Headers: http.Header{}}
					if h.ServeHTTP(w, r); w.Status != http.StatusNoContent {
						b.Fatalf("status %d", w.Status)
					}
				}
			}
			var requests []func()
			for part := range slices.Chunk(all, series) {
				requests = append(requests, send(part))
				requests[len(requests)-1]()
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				requests[i%len(requests)]()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*series), "ns/sample")
			if app.Samples != (b.N+len(requests))*series {
				b.Fatalf("%d samples were stored, want %d", app.Samples, (b.N+len(requests))*series)
			}
		})
	}
}

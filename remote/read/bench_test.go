package read_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// BenchmarkRead is an answer of 1,000 series with 1,200 samples each, from
// their chunks to the bytes of the answer.
func BenchmarkRead(b *testing.B) {
	const series, samples = 1000, 1200
	data := make([]ingest.Sample, samples)
	for i := range data {
		data[i] = ingest.Sample{T: 1_700_000_000_000 + int64(i)*15_000, V: float64(i / 10)}
	}
	var all []storage.ChunkSeries
	for i := range series {
		all = append(all, remotetest.ChunkSeries(wiretest.LabelSet("__name__", "up", "instance", fmt.Sprintf("10.0.0.1:%06d", i), "job", "node", "cluster", "production"), data))
	}
	eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
		return &remotetest.SeriesSet{Series: all}, nil
	}}
	for _, kind := range remotetest.ResponseTypes {
		b.Run(kind.String(), func(b *testing.B) {
			h := remote.New(remote.Config{Engine: eng, Now: time.Now})
			body := snappy.Encode(nil, wiretest.Marshal(b, &prompb.ReadRequest{
				AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
				Queries:               []*prompb.Query{remotetest.Query(0, 1)},
			}))
			sent := 0
			b.ReportAllocs()
			for b.Loop() {
				w := &remotetest.Discard{Headers: http.Header{}}
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/read", bytes.NewReader(body)))
				sent += w.Bytes
			}
			b.ReportMetric(float64(b.N*series*samples)/b.Elapsed().Seconds(), "samples/s")
			b.ReportMetric(float64(sent)/float64(b.N*series*samples), "bytes/sample")
			if sent == 0 {
				b.Fatal("nothing was sent")
			}
		})
	}
}

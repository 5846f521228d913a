package write_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// BenchmarkWrite is a request of 2,000 series, 12 labels and one sample each,
// from its bytes to the call of the engine.
func BenchmarkWrite(b *testing.B) {
	const series = 2000
	all := wiretest.Targets(series)
	for _, bench := range []struct {
		name, contentType string
		body              []byte
	}{
		{"1.0", remotetest.TypeV1, wiretest.V1(b, all...)},
		{"2.0", remotetest.TypeV2, wiretest.Marshal(b, wiretest.ToV2(all))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			stored := 0
			eng := &remotetest.Engine{OnAppend: func(_ context.Context, batch []ingest.Series) (int, error) {
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
				h.ServeHTTP(&remotetest.Discard{Headers: http.Header{}}, r)
			}
			b.ReportMetric(float64(stored)/b.Elapsed().Seconds(), "samples/s")
			if stored != b.N*series {
				b.Fatalf("%d samples reached the engine, want %d", stored, b.N*series)
			}
		})
	}
}

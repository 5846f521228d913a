package scale

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/e2e/harness"
)

const (
	streamSeries  = 1000
	streamSamples = 10_000 // of each series
	streamStep    = 15_000 // milliseconds
)

// TestStreamMemory reads ten million samples from the embedded store in one
// streamed answer. The adapter that answers is started anew, so that its peak
// is that of reading. First it reads them in five parts: what one of them takes,
// caches and all, must nearly do for all at once.
func TestStreamMemory(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	began := time.Now()
	mint := writeStream(t, a)
	t.Logf("writing took %v, %d MB at the peak", time.Since(began).Round(time.Second), a.PeakMemory(t)>>20)
	a.Terminate(t)
	a.Rerun(t)
	read := func(n int, matchers ...string) (peak int) {
		began := time.Now()
		size := readStream(t, a, harness.Query{Mint: mint, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, matchers...)}, n)
		peak = a.PeakMemory(t)
		t.Logf("%d samples, %d MB in chunks, took %v, %d MB at the peak", n*streamSamples, size>>20, time.Since(began).Round(time.Second), peak>>20)
		return peak
	}
	fifth := 0
	for i := range 5 {
		part := fmt.Sprintf("0[%d%d].*", 2*i, 2*i+1)
		fifth = read(streamSeries/5, "__name__", "=", "stream", "series", "=~", part)
	}
	// Kept whole, the rest would take at least 16 bytes a sample.
	whole := read(streamSeries, "__name__", "=", "stream")
	if limit := fifth + streamSeries*4/5*streamSamples*16/2; whole > limit {
		t.Errorf("the whole answer took %d MB of memory, more than %d MB", whole>>20, limit>>20)
	}
}

// writeStream fills the store and returns the time of the first sample.
func writeStream(t *testing.T, a *harness.Adapter) (mint int64) {
	const perRequest, points = 50, 1000
	mint = harness.NowMillis() - streamSamples*streamStep
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	values := rand.New(rand.NewPCG(seed, 0))
	for first := 0; first < streamSeries; first += perRequest {
		for from := 0; from < streamSamples; from += points {
			request := make([]harness.SentSeries, perRequest)
			for i := range request {
				request[i] = streamPart(first+i, mint, from, points, values)
			}
			harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), request...)
		}
	}
	return mint
}

// streamPart is a part of a series whose values fill all 64 bits.
func streamPart(series int, mint int64, from, n int, values *rand.Rand) harness.SentSeries {
	s := harness.SentSeries{Labels: []string{"__name__", "stream", "job", "e2e", "series", fmt.Sprintf("%04d", series)}}
	for i := from; i < from+n; i++ {
		s.Points = append(s.Points, harness.PointAt(mint+int64(i)*streamStep, values.NormFloat64()))
	}
	return s
}

// readStream reads a streamed answer without keeping it, wants so many complete
// series, and returns the size of their chunks in bytes.
func readStream(t *testing.T, a *harness.Adapter, q harness.Query, want int) (size int) {
	t.Helper()
	resp, err := harness.PostRead(context.Background(), a.URL("/api/v1/read"), harness.Streamed, q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	series := 0
	err = harness.EachFrame(resp.Body, func(frame *prompb.ChunkedReadResponse) error {
		n := 0
		for _, c := range frame.ChunkedSeries[0].Chunks {
			chunk, err := chunkenc.FromData(chunkenc.EncXOR, c.Data)
			if err != nil {
				return err
			}
			n += chunk.NumSamples()
			size += len(c.Data)
		}
		if series++; n != streamSamples {
			return fmt.Errorf("series %v has %d samples", frame.ChunkedSeries[0].Labels, n)
		}
		return nil
	})
	if err != nil || series != want {
		t.Fatalf("%d series, want %d: %v", series, want, err)
	}
	return size
}

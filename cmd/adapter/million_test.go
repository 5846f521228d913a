//go:build !race

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/series"
)

// discard is a store that discards everything.
type discard struct{ bucketstore.Store }

func (discard) Apply(context.Context, bucketstore.Table, []bucketstore.Mutation) error { return nil }

func (discard) Close() error { return nil }

// TestMillionSeries: with the limits for Bigtable a million series at 15 s become chunks of
// whole windows. Series and limits are a thousandth of that.
func TestMillionSeries(t *testing.T) {
	const (
		scale    = 1000
		count    = 1_000_000 / scale
		interval = 15_000
		// perTarget is how many series have the same times.
		perTarget = 50
		windows   = 5
		// Of the 0.02 row mutations a sample, CURRENT takes 1/60, at a flush in 15 minutes,
		// and INDEX 0.0003.
		most  = 0.02 - 1.0/60 - 0.0003
		start = 40*series.Period + 3*series.Window
	)
	o, err := parseFlags([]string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--buffer.enabled", "--buffer.path=" + t.TempDir(), "--buffer.fsync=1h"})
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64
	now.Store(start)
	reg := prometheus.NewRegistry()
	cfg := bufferConfig(o)
	cfg.SegmentBytes = buffer.DefaultSegmentBytes / scale
	cfg.MaxLogBytes /= scale
	cfg.MaxOpenBytes /= scale
	cfg.Store, cfg.Registerer = discard{}, reg
	cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	cfg.SweepInterval = 10 * time.Millisecond
	dir, err := buffer.OpenDir(o.bufferPath, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := buffer.Open(t.Context(), dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})

	rng := rand.New(rand.NewPCG(1, 1))
	samples := make([]bucketstore.Sample, count)
	for n := range samples {
		samples[n].Ref = b.Ref(realKey(t, n))
	}
	var before, chunks float64 // of the first two windows, and of all after: each is a row
	var openBytes, segments float64
	scrapes := 0
	for at := int64(start); at < start+windows*series.Window; at += interval {
		now.Store(at)
		for n := range samples {
			if samples[n].T = at + int64(n/perTarget%interval); n%2 == 0 {
				samples[n].V += float64(rng.IntN(100))
			} else {
				samples[n].V = float64(rng.IntN(10_000)) / 100
			}
		}
		for n := 0; n < count; n += 500 { // of each target
			if err := b.Append(t.Context(), samples[n:min(n+500, count)]); err != nil {
				t.Fatal(err)
			}
		}
		if at < start+2*series.Window {
			before = metric(t, reg, "adapter_buffer_sealed_chunks_total")
			continue
		}
		scrapes++
		openBytes = max(openBytes, metric(t, reg, "adapter_buffer_open_bytes"))
		segments = max(segments, metric(t, reg, "adapter_buffer_log_segments"))
	}
	chunks = metric(t, reg, "adapter_buffer_sealed_chunks_total") - before
	perSample := chunks / float64(scrapes*count)
	t.Logf("%.0f chunks for %d samples, %.5f each; %.1f bytes of log a sample, up to %g segments; up to %.0f bytes open a series of %d",
		chunks, scrapes*count, perSample, metric(t, reg, "adapter_buffer_log_bytes_total")/metric(t, reg, "adapter_buffer_samples_total"),
		segments, openBytes/count, cfg.MaxOpenBytes/count)
	if perSample > most || chunks < count {
		t.Errorf("%.5f row mutations a sample, want %.5f at most", perSample, most)
	}
}

// realKey is the key of a series with ten realistic labels.
func realKey(t testing.TB, n int) []byte {
	t.Helper()
	key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings(
		"__name__", fmt.Sprintf("http_server_request_duration_seconds_%d", n%50), "cluster", "europe-west1-a", "namespace", "production",
		"job", "http-server", "instance", fmt.Sprintf("10.1.%d.%d:9090", n/50/256, n/50%256), "pod", fmt.Sprintf("http-server-%08x", n/50),
		"container", "server", "method", "GET", "handler", "/api/v1/items", "code", "200"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// metric is the value of a counter or gauge without labels.
func metric(t testing.TB, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

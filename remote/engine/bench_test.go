package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
)

// benchLabels are n label sets as a node exporter has them.
func benchLabels(n int) (sets []labels.Labels) {
	for i := range n {
		sets = append(sets, labels.FromStrings(
			"__name__", "node_cpu_seconds_total",
			"cpu", fmt.Sprint(i%64),
			"instance", fmt.Sprintf("node-%04d.example.com:9100", i/512),
			"job", "node",
			"mode", []string{"idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"}[i/64%8],
		))
	}
	return sets
}

// BenchmarkAppend stores one sample of each of 2,000 series, as a shard of
// Prometheus sends them.
func BenchmarkAppend(b *testing.B) {
	const size = 2000
	f := openFixture(b)
	batch := make([]ingest.Series, size)
	for i, ls := range benchLabels(size) {
		batch[i] = ingest.Series{Labels: ls, Samples: []ingest.Sample{{}}}
	}
	at := int64(someTime)
	step := func() {
		for i := range batch {
			batch[i].Samples[0] = ingest.Sample{T: at, V: float64(at) / 1000}
		}
		f.append(b, batch...)
		at += 15_000
	}
	step() // writes the index
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkSelect reads an hour of 1,000 series.
func BenchmarkSelect(b *testing.B) {
	const size, samples = 1000, 240
	f := openFixture(b)
	for _, ls := range benchLabels(size) {
		f.append(b, one(ls, regular(samples, someTime)...))
	}
	q := reader.Query{Mint: someTime, Maxt: someTime + samples*15_000, Matchers: []*labels.Matcher{match("__name__", "node_cpu_seconds_total")}}
	b.ReportAllocs()
	for b.Loop() {
		set, err := f.Select(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for set.Next() {
			n++
		}
		if n != size || set.Err() != nil {
			b.Fatalf("%d series, %v", n, set.Err())
		}
	}
	b.ReportMetric(float64(b.N)*size*samples/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkLabelCalls asks a million series, of which no sample is ever read,
// for what Grafana asks when a dashboard is opened or edited. Of one metric
// there are 10,000.
func BenchmarkLabelCalls(b *testing.B) {
	const size, metrics = 1_000_000, 100
	f := openFixture(b, func(c *engine.Config) { c.CurrentInterval = time.Hour })
	for at := 0; at < size; {
		var batch []ingest.Series
		for range 10_000 {
			batch = append(batch, ingest.Series{Samples: []ingest.Sample{{T: someTime}}, Labels: labels.FromStrings(
				"__name__", fmt.Sprintf("metric_%02d", at%metrics),
				"instance", fmt.Sprintf("node-%04d.example.com:9100", at/metrics/10),
				"job", "node",
				"mode", fmt.Sprint(at/metrics%10),
			)})
			at++
		}
		f.append(b, batch...)
	}
	querier, err := f.Querier(someTime-3_600_000, someTime)
	if err != nil {
		b.Fatal(err)
	}
	values := func(name string, want int, ms ...*labels.Matcher) func() error {
		return func() error {
			found, _, err := querier.LabelValues(b.Context(), name, nil, ms...)
			if err == nil && len(found) != want {
				err = fmt.Errorf("%d values of %s, want %d", len(found), name, want)
			}
			return err
		}
	}
	for _, call := range []struct {
		name string
		ask  func() error
	}{
		{"metric names", values("__name__", metrics)},
		{"values", values("instance", size/metrics/10)},
		{"values of a metric", values("instance", size/metrics/10, match("__name__", "metric_07"))},
		{"values of a metric and a label", values("instance", size/metrics/10, match("__name__", "metric_07"), match("mode", "3"))},
		{"names", func() error {
			_, _, err := querier.LabelNames(b.Context(), nil)
			return err
		}},
		{"names of a metric", func() error {
			_, _, err := querier.LabelNames(b.Context(), nil, match("__name__", "metric_07"))
			return err
		}},
		{"series of an instance", func() error {
			set := querier.Select(b.Context(), true, &storage.SelectHints{Start: someTime - 3_600_000, End: someTime, Func: "series"}, match("instance", "node-0003.example.com:9100"))
			n := 0
			for set.Next() {
				n++
			}
			if n != metrics*10 {
				return fmt.Errorf("%d series: %v", n, set.Err())
			}
			return set.Err()
		}},
	} {
		b.Run(call.name, func(b *testing.B) {
			f.store.reset()
			for b.Loop() {
				if err := call.ask(); err != nil {
					b.Fatal(err)
				}
			}
			if n := len(f.store.scans(bucketstore.Metric)); n > 0 {
				b.Errorf("%d scans of METRIC", n)
			}
		})
	}
}

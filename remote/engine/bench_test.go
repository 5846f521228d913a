package engine_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine"
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
	batch := make([]engine.Series, size)
	for i, ls := range benchLabels(size) {
		batch[i] = engine.Series{Labels: ls, Samples: []engine.Sample{{}}}
	}
	at := int64(someTime)
	step := func() {
		for i := range batch {
			batch[i].Samples[0] = engine.Sample{T: at, V: float64(at) / 1000}
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
	q := engine.Query{Mint: someTime, Maxt: someTime + samples*15_000, Matchers: []*labels.Matcher{match("__name__", "node_cpu_seconds_total")}}
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

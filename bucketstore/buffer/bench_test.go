package buffer_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// BenchmarkAppend writes one sample of each of 2,000 series at a time, as a
// shard of Prometheus does, until they are in the store. Half are counters, half
// gauges.
func BenchmarkAppend(b *testing.B) {
	const size = 2000
	for name, interval := range map[string]time.Duration{"fsync always": 0, "fsync each second": time.Second} {
		b.Run(name, func(b *testing.B) {
			f := open(b, openPebble(b), func(c *config) { c.FsyncInterval, c.Now = interval, time.Now })
			rng := rand.New(rand.NewPCG(1, 1))
			batch := make([]bucketstore.Sample, size)
			for n := range batch {
				batch[n] = f.sample(n, someTime, 0)
			}
			b.ReportAllocs()
			for b.Loop() {
				for n := range batch {
					if batch[n].T += 15_000; n%2 == 0 {
						batch[n].V += float64(rng.IntN(100))
					} else {
						batch[n].V = float64(rng.IntN(10_000)) / 100
					}
				}
				if err := f.Append(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/sample")
		})
	}
}

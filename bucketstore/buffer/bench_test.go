package buffer_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// BenchmarkAppend writes one sample of each of 2,000 series at a time, as a
// shard of Prometheus does, until they are in the store. Half are counters, half
// gauges.
func BenchmarkAppend(b *testing.B) {
	const size = 2000
	for _, c := range []struct {
		name     string
		interval time.Duration
		late     bool // behind samples of now
	}{{"fsync always", 0, false}, {"fsync each second", time.Second, false}, {"late", 0, true}} {
		b.Run(c.name, func(b *testing.B) {
			f := open(b, openPebble(b), func(cfg *config) { cfg.FsyncInterval, cfg.Now = c.interval, time.Now })
			rng := rand.New(rand.NewPCG(1, 1))
			batch := make([]bucketstore.Sample, size)
			for n := range batch {
				now := time.Now().UnixMilli()
				if c.late {
					f.append(b, f.sample(n, now-series.Window, 1), f.sample(n, now, 1))
				}
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

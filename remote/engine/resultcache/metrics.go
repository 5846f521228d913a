package resultcache

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of a cache.
type metrics struct {
	hits, misses                     prometheus.Counter
	droppedForSpace, droppedByWrites prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Cache) metrics {
	f := promauto.With(reg)
	steps := f.NewCounterVec(prometheus.CounterOpts{
		Name: "adapter_results_cache_steps_total",
		Help: "Closed steps of range queries that can be cached: hit if they were answered from the cache, miss if they were evaluated.",
	}, []string{"result"})
	dropped := f.NewCounterVec(prometheus.CounterOpts{
		Name: "adapter_results_cache_dropped_blocks_total",
		Help: "Blocks of up to 128 steps that left the cache: because it was full, or because samples of their time were written.",
	}, []string{"reason"})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_results_cache_bytes",
		Help: "Approximate bytes of cached results, at most --query.results-cache-bytes.",
	}, func() float64 { return float64(c.heldBytes()) })
	return metrics{
		hits: steps.WithLabelValues("hit"), misses: steps.WithLabelValues("miss"),
		droppedForSpace: dropped.WithLabelValues("full"), droppedByWrites: dropped.WithLabelValues("written"),
	}
}

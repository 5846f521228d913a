package resultcache

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics are those of a cache.
type metrics struct {
	hits, misses                     prometheus.Counter
	droppedForSpace, droppedByWrites prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Cache) metrics {
	f := metricset.New(reg)
	steps := f.CounterVec("adapter_results_cache_steps_total",
		"Closed steps of range queries that can be cached: hit if they were answered from the cache, miss if they were evaluated.", "result")
	dropped := f.CounterVec("adapter_results_cache_dropped_blocks_total",
		"Blocks of up to 128 steps that left the cache: because it was full, or because samples of their time were written.", "reason")
	f.GaugeFunc("adapter_results_cache_bytes", "Approximate bytes of cached results, at most --query.results-cache-bytes.", func() float64 { return float64(c.heldBytes()) })
	return metrics{
		hits: steps.WithLabelValues("hit"), misses: steps.WithLabelValues("miss"),
		droppedForSpace: dropped.WithLabelValues("full"), droppedByWrites: dropped.WithLabelValues("written"),
	}
}

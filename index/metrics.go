package index

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics are those of an Index.
type metrics struct {
	writtenRows prometheus.Counter
	// found, absent and failed count commit marks that were looked up.
	found, absent, failed prometheus.Counter
	// evictedMarks and evictedTexts count what the sets of written rows forgot.
	evictedMarks, evictedTexts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := metricset.New(reg)
	lookups := f.CounterVec("adapter_index_mark_lookups_total",
		"Series in an index period that were not remembered as written, and that the adapter looked up in the index by point reads, by result.", "result")
	evictions := f.CounterVec("adapter_index_evictions_total",
		"What the adapter forgot of the written index because there was no room: series in an index period, and label values and names.", "of")
	return metrics{
		writtenRows: f.Counter("adapter_index_written_rows_total", "Rows written to the index."),
		found:       lookups.WithLabelValues("found"), absent: lookups.WithLabelValues("absent"), failed: lookups.WithLabelValues("failure"),
		evictedMarks: evictions.WithLabelValues("series"), evictedTexts: evictions.WithLabelValues("labels"),
	}
}

// registerKnownSeries registers the gauge of what w remembers.
func registerKnownSeries(reg prometheus.Registerer, w *writer) {
	metricset.New(reg).GaugeFunc("adapter_index_known_series", "Series in an index period that are remembered as written to the index.", func() float64 { return float64(w.numWritten()) })
}

// memoryMetrics are those of the lists in memory.
type memoryMetrics struct {
	// hits, misses and rereads count lists that a query looked for.
	hits, misses, rereads prometheus.Counter
	evicted               prometheus.Counter
}

func newMemoryMetrics(reg prometheus.Registerer, m *memory) memoryMetrics {
	f := metricset.New(reg)
	lookups := f.CounterVec("adapter_index_list_lookups_total",
		"Lists of the index that queries looked for in memory, by result: hit, miss, or reread for one that is older than --index.refresh.", "result")
	gauge := func(name, help string, value func() int) {
		f.GaugeFunc(name, help, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(value())
		})
	}
	gauge("adapter_index_memory_bytes", "Bytes of the index in memory, estimated.", func() int { return m.bytes })
	gauge("adapter_index_memory_lists", "Lists of the index in memory.", func() int { return len(m.lists) })
	gauge("adapter_index_memory_series", "Series in lists of the index in memory.", func() int { return len(m.series) })
	return memoryMetrics{
		hits: lookups.WithLabelValues("hit"), misses: lookups.WithLabelValues("miss"), rereads: lookups.WithLabelValues("reread"),
		evicted: f.Counter("adapter_index_evicted_lists_total", "Lists of the index that were dropped from memory, because it was full."),
	}
}

package index

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	f := promauto.With(reg)
	lookups := f.NewCounterVec(prometheus.CounterOpts{
		Name: "adapter_index_mark_lookups_total",
		Help: "Series in an index period that were not remembered as written, and that the adapter looked up in the index by point reads, by result.",
	}, []string{"result"})
	evictions := f.NewCounterVec(prometheus.CounterOpts{
		Name: "adapter_index_evictions_total",
		Help: "What the adapter forgot of the written index because there was no room: series in an index period, and label values and names.",
	}, []string{"of"})
	return metrics{
		writtenRows: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_index_written_rows_total",
			Help: "Rows written to the index.",
		}),
		found: lookups.WithLabelValues("found"), absent: lookups.WithLabelValues("absent"), failed: lookups.WithLabelValues("failure"),
		evictedMarks: evictions.WithLabelValues("series"), evictedTexts: evictions.WithLabelValues("labels"),
	}
}

// registerKnownSeries registers the gauge of what w remembers.
func registerKnownSeries(reg prometheus.Registerer, w *writer) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_index_known_series",
		Help: "Series in an index period that are remembered as written to the index.",
	}, func() float64 { return float64(w.numWritten()) })
}

package read

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts what readers get.
type metrics struct {
	queries *prometheus.CounterVec
	series  *prometheus.CounterVec
	bytes   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		queries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_queries_total",
			Help: "Queries of remote reads planned, by the kind of the answer.",
		}, []string{"response"}),
		series: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_series_total",
			Help: "Series written into answers, by the kind of the answer.",
		}, []string{"response"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_bytes_total",
			Help: "Bytes of answers: compressed if in one block, of frames if streamed.",
		}, []string{"response"}),
	}
	for _, response := range []string{responseSamples, responseStreamed} {
		m.queries.WithLabelValues(response)
		m.series.WithLabelValues(response)
		m.bytes.WithLabelValues(response)
	}
	return m
}

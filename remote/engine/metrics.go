package engine

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of the engine.
type metrics struct {
	appended       *prometheus.CounterVec
	currentFlushes *prometheus.CounterVec
	currentRows    prometheus.Counter
	currentPending prometheus.Gauge
	currentDropped prometheus.Counter
	metadataRows   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	m := metrics{
		appended: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_engine_appended_samples_total",
			Help: "Samples that passed validation, by result. After a failure the sender sends them again.",
		}, []string{"result"}),
		currentFlushes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_current_flushes_total",
			Help: "Writes of newest samples to CURRENT, of up to 10,000 rows each, by result.",
		}, []string{"result"}),
		currentRows: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_current_rows_written_total",
			Help: "Rows written to CURRENT.",
		}),
		currentPending: f.NewGauge(prometheus.GaugeOpts{
			Name: "adapter_current_pending_series",
			Help: "Series whose newest sample is not yet in CURRENT.",
		}),
		metadataRows: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_metadata_rows_total",
			Help: "Rows of metadata written, one for each metric family whose metadata is new or has changed.",
		}),
		currentDropped: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_current_dropped_total",
			Help: "Samples that CURRENT does not hear of, because too many series wait for it. They are stored all the same.",
		}),
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.appended.WithLabelValues(result)
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.currentFlushes.WithLabelValues(result)
	}
	return m
}

// Values of the label result.
const (
	resultOK     = "success"
	resultFailed = "failure"
)

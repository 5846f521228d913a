package engine

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of the engine.
type metrics struct {
	appended *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	m := metrics{
		appended: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_engine_appended_samples_total",
			Help: "Samples that passed validation, by result. After a failure the sender sends them again.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.appended.WithLabelValues(result)
	}
	return m
}

// Values of the label result.
const (
	resultOK     = "success"
	resultFailed = "failure"
)

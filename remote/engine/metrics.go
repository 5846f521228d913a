package engine

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics are those of the engine.
type metrics struct {
	appended *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := metricset.New(reg)
	return metrics{
		appended: f.Counters("adapter_engine_appended_samples_total",
			"Samples that passed validation, by result. After a failure the sender sends them again.", "result", resultOK, resultFailed),
	}
}

// Values of the label result.
const (
	resultOK     = "success"
	resultFailed = "failure"
)

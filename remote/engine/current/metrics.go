package current

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of a Table.
type metrics struct {
	flushes *prometheus.CounterVec
	rows    prometheus.Counter
	pending prometheus.Gauge
	dropped prometheus.Counter
}

// Values of the label result.
const (
	resultOK     = "success"
	resultFailed = "failure"
)

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	m := metrics{
		flushes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_current_flushes_total",
			Help: "Writes of current samples to CURRENT, of up to 10,000 rows each, by result.",
		}, []string{"result"}),
		rows: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_current_rows_written_total",
			Help: "Rows written to CURRENT.",
		}),
		pending: f.NewGauge(prometheus.GaugeOpts{
			Name: "adapter_current_pending_series",
			Help: "Series whose current sample is not yet in CURRENT.",
		}),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_current_dropped_total",
			Help: "Current samples not written to CURRENT, because too many series are pending. The samples are stored all the same.",
		}),
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.flushes.WithLabelValues(result)
	}
	return m
}

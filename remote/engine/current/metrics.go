package current

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
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
	f := metricset.New(reg)
	return metrics{
		flushes: f.Counters("adapter_current_flushes_total", "Writes of current samples to CURRENT, of up to 10,000 rows each, by result.", "result", resultOK, resultFailed),
		rows:    f.Counter("adapter_current_rows_written_total", "Rows written to CURRENT."),
		pending: f.Gauge("adapter_current_pending_series", "Series whose current sample is not yet in CURRENT."),
		dropped: f.Counter("adapter_current_dropped_total",
			"Current samples not written to CURRENT, because too many series are pending. The samples are stored all the same."),
	}
}

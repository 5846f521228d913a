package seal

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics are the metrics of a sealer.
type metrics struct {
	rows, chunks, rawCells, failures prometheus.Counter
	holds, ratio                     prometheus.Gauge
	// oldest is the start of the oldest window that is not sealed, in milliseconds, or 0
	// before the lease was read.
	oldest atomic.Int64
}

func newMetrics(reg prometheus.Registerer, now func() time.Time) *metrics {
	f := metricset.New(reg)
	m := &metrics{
		rows:     f.Counter("adapter_seal_rows_total", "Rows with sealed windows."),
		chunks:   f.Counter("adapter_seal_chunks_total", "Chunks that were written."),
		rawCells: f.Counter("adapter_seal_raw_cells_total", "Raw cells that were replaced by chunks."),
		failures: f.Counter("adapter_seal_failures_total", "Slots that ended early, and rows that could not be sealed."),
		holds:    f.Gauge("adapter_seal_holds_lease", "1 while this adapter is the one that seals."),
		ratio: f.Gauge("adapter_seal_walked_ratio",
			"Share of the rows that the last slot of the sealer walked. 1 is all of them, or no slot yet."),
	}
	m.ratio.Set(1)
	f.GaugeFunc("adapter_seal_lag_seconds",
		"Age of the start of the oldest window that no slot has sealed. Up to 26,000 is usual: three windows. 0 if it is unknown.", func() float64 {
			oldest := m.oldest.Load()
			if oldest == 0 {
				return 0
			}
			return float64(now().UnixMilli()-oldest) / 1000
		})
	return m
}

// addRow counts a sealed row.
func (m *metrics) addRow(p *plan) {
	m.rows.Inc()
	m.chunks.Add(float64(p.chunks))
	m.rawCells.Add(float64(p.deleted))
}

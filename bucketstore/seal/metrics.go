package seal

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "adapter_seal_" + name, Help: help})
	}
	m := &metrics{
		rows:     counter("rows_total", "Rows with sealed windows."),
		chunks:   counter("chunks_total", "Chunks that were written."),
		rawCells: counter("raw_cells_total", "Raw cells that were replaced by chunks."),
		failures: counter("failures_total", "Turns that ended early, and rows that could not be sealed."),
		holds: f.NewGauge(prometheus.GaugeOpts{
			Name: "adapter_seal_holds_lease",
			Help: "1 while this adapter is the one that seals.",
		}),
		ratio: f.NewGauge(prometheus.GaugeOpts{
			Name: "adapter_seal_walked_ratio",
			Help: "Share of the rows that the last turn of the sealer walked. 1 is all of them, or no turn yet.",
		}),
	}
	m.ratio.Set(1)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_seal_lag_seconds",
		Help: "Age of the start of the oldest window that no turn has sealed. Up to 26,000 is usual: three windows. 0 if it is unknown.",
	}, func() float64 {
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

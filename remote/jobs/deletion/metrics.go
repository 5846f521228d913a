package deletion

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

type metrics struct{ rows, cells, unreadable, failures prometheus.Counter }

func newMetrics(reg prometheus.Registerer, r *Records) *metrics {
	f := metricset.New(reg)
	f.GaugeFunc("adapter_deletion_pending", "Deletions that are hidden from reads and not removed from the store yet.", func() float64 {
		if k := r.known.Load(); k != nil {
			return float64(len(k.pending))
		}
		return 0
	})
	return &metrics{
		rows: f.Counter("adapter_deletion_rows_total", "Rows of METRIC from which deleted cells were removed."),
		cells: f.Counter("adapter_deletion_cells_total",
			"Deleted cells that were removed or replaced by what is left: chunks, raw samples and exemplars."),
		unreadable: f.Counter("adapter_deletion_unreadable_chunks_total",
			"Damaged chunks, of which a part is deleted, that were left as they are."),
		failures: f.Counter("adapter_deletion_failures_total",
			"Attempts to learn of deletions, or to remove what is deleted, that failed and are repeated."),
	}
}

package pebble

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics collects our counters and Pebble's.
type metrics struct {
	// read returns Pebble's metrics; it is set before the collector is registered.
	read func() *pebble.Metrics

	commits      prometheus.Histogram
	stalls       prometheus.Counter
	slowDisk     prometheus.Counter
	swept        prometheus.Counter
	days         prometheus.Counter
	droppedBytes prometheus.Counter
	failures     prometheus.Counter
	damagedReads prometheus.Counter
	damagedFiles prometheus.Gauge

	disk, memory, debt, flushes, compactions *prometheus.Desc
}

func newMetrics() *metrics {
	f := metricset.New(nil) // the collector is registered, while the store is open
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &metrics{
		commits: f.Histogram("adapter_pebble_commit_duration_seconds", "Time from the visibility of a write to its fsync.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)),
		stalls:       f.Counter("adapter_pebble_write_stalls_total", "Times that writes waited for flushes or compactions."),
		slowDisk:     f.Counter("adapter_pebble_slow_disk_operations_total", "Disk operations that took longer than 5 s."),
		swept:        f.Counter("adapter_pebble_swept_cells_total", "Expired cells that were deleted."),
		days:         f.Counter("adapter_pebble_sweep_drops_total", "Days of samples and periods of the index that expired and were deleted as a whole."),
		droppedBytes: f.Counter("adapter_pebble_sweep_dropped_bytes_total", "Bytes that these took on the disk, about."),
		failures:     f.Counter("adapter_pebble_background_failures_total", "Flushes, compactions and other work in the background that failed and is retried."),
		damagedReads: f.Counter("adapter_pebble_damaged_reads_total", "Reads, also those of compactions, that failed because a file is damaged."),
		damagedFiles: f.Gauge("adapter_pebble_damaged_files", "Damaged files that reads have met since the start."),
		disk:         desc("adapter_pebble_disk_bytes", "Size of the database on the disk."),
		memory:       desc("adapter_pebble_memtable_bytes", "Size of the memtables."),
		debt:         desc("adapter_pebble_compaction_debt_bytes", "Estimated bytes that compactions still have to rewrite."),
		flushes:      desc("adapter_pebble_flushes_total", "Flushes of memtables."),
		compactions:  desc("adapter_pebble_compactions_total", "Compactions."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.commits, m.stalls, m.slowDisk, m.swept, m.days, m.droppedBytes, m.failures, m.damagedReads, m.damagedFiles} {
		c.Collect(ch)
	}
	p := m.read()
	gauge := func(desc *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	gauge(m.disk, float64(p.DiskSpaceUsage()))
	gauge(m.memory, float64(p.MemTable.Size))
	gauge(m.debt, float64(p.Compact.EstimatedDebt))
	ch <- prometheus.MustNewConstMetric(m.flushes, prometheus.CounterValue, float64(p.Flush.Count))
	ch <- prometheus.MustNewConstMetric(m.compactions, prometheus.CounterValue, float64(p.Compact.Count))
}

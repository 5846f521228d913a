package buffer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// ReplayMetric is the name of the gauge that says which part of the log has been replayed at the start, from 0 to 1.
const ReplayMetric = "adapter_buffer_replay_progress_ratio"

// metrics are the metrics of a buffer.
type metrics struct {
	samples, groups, logBytes, syncs   prometheus.Counter
	refused                            prometheus.Counter
	sealed, sealFailures, late, replay prometheus.Counter
	replayDropped                      prometheus.Counter
	segments, openBytes, series        prometheus.Gauge
	logSize                            prometheus.Gauge
	replayRatio                        prometheus.Gauge
	failingRows                        *prometheus.GaugeVec
}

// States of failing rows.
const (
	rowRetried = "retried"
	rowRefused = "refused"
)

func newMetrics(cfg Config) *metrics {
	f := metricset.New(cfg.Registerer)
	f.Gauge("adapter_buffer_log_limit_bytes", "Size of the log beyond which chunks are flushed early.").Set(float64(cfg.MaxLogBytes))
	f.Gauge("adapter_buffer_open_limit_bytes", "Bytes of open chunks beyond which some are flushed early.").Set(float64(cfg.MaxOpenBytes))
	return &metrics{
		failingRows: f.Gauges("adapter_buffer_failing_rows",
			"Rows that the store did not take: retried, or refused for ever. They are durable, and readers see them.", "state", rowRetried, rowRefused),
		samples:      f.Counter("adapter_buffer_samples_total", "Samples written to the log."),
		groups:       f.Counter("adapter_buffer_commits_total", "Commits to the log, of one or more requests."),
		refused:      f.Counter("adapter_buffer_refused_commits_total", "Commits that were refused because the disk of the log was full."),
		logBytes:     f.Counter("adapter_buffer_log_bytes_total", "Bytes written to the log."),
		syncs:        f.Counter("adapter_buffer_log_syncs_total", "Fsyncs of the log."),
		sealed:       f.Counter("adapter_buffer_sealed_chunks_total", "Sealed chunks."),
		sealFailures: f.Counter("adapter_buffer_seal_failures_total", "Writes of sealed chunks that failed and were retried."),
		late:         f.Counter("adapter_buffer_late_samples_total", "Samples of older windows than the two latest of their series, or too far ahead, which get chunks of their own."),
		replay:       f.Counter("adapter_buffer_replayed_samples_total", "Samples read from the log at the start."),
		replayDropped: f.Counter("adapter_buffer_replay_dropped_samples_total",
			"Samples of these that were dropped: they are older than samples are kept."),
		segments:    f.Gauge("adapter_buffer_log_segments", "Segments of the log."),
		logSize:     f.Gauge("adapter_buffer_log_size_bytes", "Size of the segments of the log on the disk."),
		openBytes:   f.Gauge("adapter_buffer_open_bytes", "Bytes of open chunks."),
		replayRatio: f.Gauge(ReplayMetric, "Replayed part of the log at the start, from 0 to 1. 1 if there is no log."),
		series:      f.Gauge("adapter_buffer_series", "Series in memory: those with open chunks, and those used lately."),
	}
}

package buffer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "adapter_buffer_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "adapter_buffer_" + name, Help: help})
	}
	failing := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "adapter_buffer_failing_rows",
		Help: "Rows that the store did not take: retried, or refused for ever. They are durable, and readers see them.",
	}, []string{"state"})
	for _, state := range []string{rowRetried, rowRefused} {
		failing.WithLabelValues(state)
	}
	return &metrics{
		failingRows:  failing,
		samples:      counter("samples_total", "Samples written to the log."),
		groups:       counter("commits_total", "Commits to the log, of one or more requests."),
		refused:      counter("refused_commits_total", "Commits that were refused because the disk of the log was full."),
		logBytes:     counter("log_bytes_total", "Bytes written to the log."),
		syncs:        counter("log_syncs_total", "Fsyncs of the log."),
		sealed:       counter("sealed_chunks_total", "Sealed chunks."),
		sealFailures: counter("seal_failures_total", "Writes of sealed chunks that failed and were retried."),
		late:         counter("late_samples_total", "Samples of older windows than the two latest of their series, or too far ahead, which get chunks of their own."),
		replay:       counter("replayed_samples_total", "Samples read from the log at the start."),
		replayDropped: counter("replay_dropped_samples_total",
			"Samples of these that were dropped: they are older than samples are kept."),
		segments:    gauge("log_segments", "Segments of the log."),
		logSize:     gauge("log_size_bytes", "Size of the segments of the log on the disk."),
		openBytes:   gauge("open_bytes", "Bytes of open chunks."),
		replayRatio: gauge("replay_progress_ratio", "Replayed part of the log at the start, from 0 to 1. 1 if there is no log."),
		series:      gauge("series", "Series in memory: those with open chunks, and those used lately."),
	}
}

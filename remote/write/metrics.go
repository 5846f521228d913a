package write

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/ingest"
)

// metrics counts what writers send.
type metrics struct {
	samples    *prometheus.CounterVec
	histograms *prometheus.CounterVec
	exemplars  *prometheus.CounterVec
	failed     *prometheus.CounterVec
	rejected   *prometheus.CounterVec
	metadata   prometheus.Counter
	bodyBytes  prometheus.Counter

	otlpWarnings  *prometheus.CounterVec
	droppedDeltas prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metricset.New(reg)
	byProtocol := func(name, help string) *prometheus.CounterVec {
		return f.Counters(name, help, "protocol", protocolV1.String(), protocolV2.String())
	}
	m := &metrics{
		samples:    byProtocol("adapter_write_samples_total", "Float samples stored, confirmed by the store, by version of the protocol."),
		histograms: byProtocol("adapter_write_histograms_total", "Native histograms stored, confirmed by the store, by version of the protocol."),
		exemplars:  byProtocol("adapter_write_exemplars_total", "Exemplars stored, confirmed by the store, by version of the protocol."),
		failed: byProtocol("adapter_write_failed_samples_total",
			"Samples, histograms and exemplars that the store did not confirm, by version of the protocol. The sender sends them again."),
		rejected: f.CounterVec("adapter_write_rejected_total",
			"Samples, histograms, exemplars and entries of metadata that can never be stored, by reason.", "reason"),
		metadata:  f.Counter("adapter_write_metadata_total", "Entries of metadata of metric families taken, most of which say nothing new."),
		bodyBytes: f.Counter("adapter_write_decoded_bytes_total", "Bytes of write requests after decompression."),
		otlpWarnings: f.Counters("adapter_otlp_translation_warnings_total", "Warnings of the translation of OTLP metrics to series, by category.", "category",
			string(prometheusremotewrite.WarningCategoryEmptyDataPoints), string(prometheusremotewrite.WarningCategoryLabelNameCollision),
			string(prometheusremotewrite.WarningCategoryHistogramZeroCountNonZeroSum), string(prometheusremotewrite.WarningCategoryOther)),
		droppedDeltas: f.Counter("adapter_otlp_dropped_deltas_total",
			"Data points of delta temporality that were not added to a sum: repeated, out of order, or of more streams than --otlp.delta.max-streams."),
	}
	for _, r := range []ingest.Reason{
		ingest.ReasonLabels, ingest.ReasonKeyTooLong, ingest.ReasonTime, ingest.ReasonFuture, ingest.ReasonOld,
		ingest.ReasonHistogram, ingest.ReasonExemplar, ingest.ReasonMetadata, ingest.ReasonMalformed, ingest.ReasonLimit,
		ingest.ReasonRefused,
	} {
		m.rejected.WithLabelValues(string(r))
	}
	return m
}

// count counts what was stored of a write, and what can never be.
func (m *metrics) count(p protocol, stored ingest.Stored, rejected *ingest.Rejected) {
	m.samples.WithLabelValues(p.String()).Add(float64(stored.Samples))
	m.histograms.WithLabelValues(p.String()).Add(float64(stored.Histograms))
	m.exemplars.WithLabelValues(p.String()).Add(float64(stored.Exemplars))
	for reason, n := range rejected.Samples {
		m.rejected.WithLabelValues(string(reason)).Add(float64(n))
	}
}

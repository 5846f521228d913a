package write

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/remote/engine"
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
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	byProtocol := func(name, help string) *prometheus.CounterVec {
		v := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"protocol"})
		v.WithLabelValues(protocolV1.String())
		v.WithLabelValues(protocolV2.String())
		return v
	}
	m := &metrics{
		samples:    byProtocol("adapter_write_samples_total", "Float samples stored, confirmed by the store, by version of the protocol."),
		histograms: byProtocol("adapter_write_histograms_total", "Native histograms stored, confirmed by the store, by version of the protocol."),
		exemplars:  byProtocol("adapter_write_exemplars_total", "Exemplars stored, confirmed by the store, by version of the protocol."),
		failed: byProtocol("adapter_write_failed_samples_total",
			"Samples, histograms and exemplars that the store did not confirm, by version of the protocol. The sender sends them again."),
		rejected: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_write_rejected_total",
			Help: "Samples, histograms, exemplars and entries of metadata that can never be stored, by reason.",
		}, []string{"reason"}),
		metadata: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_write_metadata_total",
			Help: "Entries of metadata of metric families taken, most of which say nothing new.",
		}),
		bodyBytes: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_write_decoded_bytes_total",
			Help: "Bytes of write requests after decompression.",
		}),
	}
	for _, r := range []engine.Reason{
		engine.ReasonLabels, engine.ReasonKeyTooLong, engine.ReasonTime, engine.ReasonFuture, engine.ReasonOld,
		engine.ReasonHistogram, engine.ReasonExemplar, engine.ReasonMetadata, engine.ReasonMalformed,
		engine.ReasonRefused,
	} {
		m.rejected.WithLabelValues(string(r))
	}
	return m
}

// count counts what was stored of a write, and what can never be.
func (m *metrics) count(p protocol, stored engine.Stored, rejected *engine.Rejected) {
	m.samples.WithLabelValues(p.String()).Add(float64(stored.Samples))
	m.histograms.WithLabelValues(p.String()).Add(float64(stored.Histograms))
	m.exemplars.WithLabelValues(p.String()).Add(float64(stored.Exemplars))
	for reason, n := range rejected.Samples {
		m.rejected.WithLabelValues(string(reason)).Add(float64(n))
	}
}

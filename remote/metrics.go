package remote

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/remote/engine"
)

// httpMetrics counts requests of all handlers.
type httpMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newHTTPMetrics(reg prometheus.Registerer) *httpMetrics {
	f := promauto.With(reg)
	return &httpMetrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_http_requests_total",
			Help: "Requests answered, by status code; \"aborted\" if the connection was broken in the middle of the answer.",
		}, []string{"handler", "code"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "adapter_http_request_duration_seconds",
			Help:    "How long requests took, answer included.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 25, 60, 120},
		}, []string{"handler"}),
		inFlight: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "adapter_http_requests_in_flight",
			Help: "Requests that run or wait.",
		}, []string{"handler"}),
	}
}

// instrument counts the requests of next and answers 405 to all methods but
// these.
func (m *httpMetrics) instrument(name string, next http.Handler, methods ...string) http.Handler {
	seconds, inFlight := m.seconds.WithLabelValues(name), m.inFlight.WithLabelValues(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &statusRecorder{ResponseWriter: w}
		code := "aborted" // what remains if next panics
		inFlight.Inc()
		defer func() {
			inFlight.Dec()
			seconds.Observe(time.Since(start).Seconds())
			m.requests.WithLabelValues(name, code).Inc()
		}()
		if allowMethod(rec, r, methods) {
			next.ServeHTTP(rec, r)
		}
		code = strconv.Itoa(rec.code())
	})
}

// statusRecorder remembers the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *statusRecorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// writeMetrics counts what writers send.
type writeMetrics struct {
	samples    *prometheus.CounterVec
	histograms *prometheus.CounterVec
	exemplars  *prometheus.CounterVec
	failed     *prometheus.CounterVec
	rejected   *prometheus.CounterVec
	metadata   prometheus.Counter
	bodyBytes  prometheus.Counter
}

func newWriteMetrics(reg prometheus.Registerer) *writeMetrics {
	f := promauto.With(reg)
	m := &writeMetrics{
		samples: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_write_samples_total",
			Help: "Float samples stored, confirmed by the store, by version of the protocol.",
		}, []string{"protocol"}),
		histograms: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_write_histograms_total",
			Help: "Native histograms stored, confirmed by the store, by version of the protocol.",
		}, []string{"protocol"}),
		exemplars: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_write_exemplars_total",
			Help: "Exemplars stored, confirmed by the store, by version of the protocol.",
		}, []string{"protocol"}),
		failed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_write_failed_samples_total",
			Help: "Samples, histograms and exemplars that the store did not confirm, by version of the protocol. The sender sends them again.",
		}, []string{"protocol"}),
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
	for _, p := range []protocol{protocolV1, protocolV2} {
		m.samples.WithLabelValues(p.String())
		m.histograms.WithLabelValues(p.String())
		m.exemplars.WithLabelValues(p.String())
		m.failed.WithLabelValues(p.String())
	}
	for _, r := range []engine.Reason{
		engine.ReasonLabels, engine.ReasonKeyTooLong, engine.ReasonTime, engine.ReasonFuture,
		engine.ReasonHistogram, engine.ReasonExemplar, engine.ReasonMetadata, engine.ReasonMalformed,
	} {
		m.rejected.WithLabelValues(string(r))
	}
	return m
}

// count counts what was stored of a write, and what can never be.
func (m *writeMetrics) count(p protocol, stored engine.Stored, rejected *engine.Rejected) {
	m.samples.WithLabelValues(p.String()).Add(float64(stored.Samples))
	m.histograms.WithLabelValues(p.String()).Add(float64(stored.Histograms))
	m.exemplars.WithLabelValues(p.String()).Add(float64(stored.Exemplars))
	for reason, n := range rejected.Samples {
		m.rejected.WithLabelValues(string(reason)).Add(float64(n))
	}
}

// readMetrics counts what readers get.
type readMetrics struct {
	queries *prometheus.CounterVec
	series  *prometheus.CounterVec
	bytes   *prometheus.CounterVec
}

func newReadMetrics(reg prometheus.Registerer) *readMetrics {
	f := promauto.With(reg)
	m := &readMetrics{
		queries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_queries_total",
			Help: "Queries of remote reads planned, by the kind of the answer.",
		}, []string{"response"}),
		series: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_series_total",
			Help: "Series written into answers, by the kind of the answer.",
		}, []string{"response"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_read_bytes_total",
			Help: "Bytes of answers: compressed if in one block, of frames if streamed.",
		}, []string{"response"}),
	}
	for _, response := range []string{responseSamples, responseStreamed} {
		m.queries.WithLabelValues(response)
		m.series.WithLabelValues(response)
		m.bytes.WithLabelValues(response)
	}
	return m
}

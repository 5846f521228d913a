package request

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/spans"
)

// allowMethod returns whether the method of r is one of methods. If not, it has
// answered 405.
func allowMethod(w http.ResponseWriter, r *http.Request, methods []string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// Metrics counts requests of all handlers.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	limit    *prometheus.GaugeVec
}

// NewMetrics registers its metrics with reg, where they must not be registered
// yet.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := metricset.New(reg)
	return &Metrics{
		requests: f.CounterVec("adapter_http_requests_total",
			"Requests answered, by status code; \"aborted\" if the connection was broken in the middle of the answer.", "handler", "code"),
		seconds: f.HistogramVec("adapter_http_request_duration_seconds", "How long requests took, answer included.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 25, 60, 120}, "handler"),
		inFlight: f.GaugeVec("adapter_http_requests_in_flight", "Requests that run or wait.", "handler"),
		limit: f.GaugeVec("adapter_http_concurrent_requests_limit",
			"How many requests run at once, at most; others wait. Remote write and OTLP share one limit (write); remote read, federation and explain another (read).", "gate"),
	}
}

// SetLimit says how many requests a gate lets run at once.
func (m *Metrics) SetLimit(gate string, n int) { m.limit.WithLabelValues(gate).Set(float64(n)) }

// Instrument counts the requests of next and answers 405 to all methods but
// these.
func (m *Metrics) Instrument(name string, next http.Handler, methods ...string) http.Handler {
	seconds, inFlight := m.seconds.WithLabelValues(name), m.inFlight.WithLabelValues(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &statusRecorder{ResponseWriter: w}
		code := "aborted" // what remains if next panics
		inFlight.Inc()
		defer func() {
			inFlight.Dec()
			seconds.(prometheus.ExemplarObserver).ObserveWithExemplar(time.Since(start).Seconds(), spans.Exemplar(r.Context()))
			m.requests.WithLabelValues(name, code).Inc()
		}()
		if allowMethod(rec, r, methods) {
			next.ServeHTTP(rec, r)
		}
		code = strconv.Itoa(rec.code())
	})
}

// statusRecorder records the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

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

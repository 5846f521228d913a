package api

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/promtable/promtable/remote/engine/eval"
)

// metrics are those of requests; Prometheus' query engine has its own.
type metrics struct {
	seconds  *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	return metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "adapter_api_request_duration_seconds",
			Help:    "Time that requests to the HTTP API took, by endpoint.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 120},
		}, []string{"endpoint"}),
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_api_requests_total",
			Help: "Requests to the HTTP API, by endpoint and status.",
		}, []string{"endpoint", "code"}),
	}
}

// observeMemory shows what queries hold.
func observeMemory(reg prometheus.Registerer, memory *eval.Memory) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_query_memory_bytes",
		Help: "Bytes of samples and results that PromQL queries hold, at most --query.max-total-memory-bytes.",
	}, func() float64 { return float64(memory.Held()) })
}

// instrument counts the requests of a pattern as those of one endpoint, whatever
// their method.
func (m metrics) instrument(pattern string, next http.Handler) http.Handler {
	_, path, _ := strings.Cut(pattern, " ")
	endpoint := prometheus.Labels{"endpoint": strings.TrimPrefix(path, "/api/v1/")}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(endpoint),
		promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(endpoint), next))
}

package api

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/spans"
)

// metrics are those of requests; Prometheus' query engine has its own.
type metrics struct {
	seconds  *prometheus.HistogramVec
	requests *prometheus.CounterVec
	limited  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := metricset.New(reg)
	return metrics{
		seconds: f.HistogramVec("adapter_api_request_duration_seconds", "Time that requests to the HTTP API took, by endpoint.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 120}, "endpoint"),
		requests: f.CounterVec("adapter_api_requests_total", "Requests to the HTTP API, by endpoint and status.", "endpoint", "code"),
		limited:  f.Counters("adapter_api_limited_requests_total", "Requests to the HTTP API that were refused by a limit, by what it bounds.", "limit", limitKinds...),
	}
}

// observeMemory shows what queries hold.
func observeMemory(reg prometheus.Registerer, memory *eval.Memory) {
	metricset.New(reg).GaugeFunc("adapter_query_memory_bytes",
		"Bytes of samples and results that PromQL queries hold, at most --query.max-total-memory-bytes.", func() float64 { return float64(memory.Held()) })
}

// observeCores shows how long queries wait to compute.
func observeCores(reg prometheus.Registerer, cores *eval.Cores) {
	metricset.New(reg).Collect(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "adapter_query_core_wait_seconds_total",
		Help: "Time for which goroutines of PromQL queries waited for a core: queries leave one to writes.",
	}, func() float64 { return cores.Waited().Seconds() }))
}

// instrument counts the requests of a pattern as those of one endpoint, whatever
// their method.
func (m metrics) instrument(pattern string, next http.Handler) http.Handler {
	_, path, _ := strings.Cut(pattern, " ")
	endpoint := prometheus.Labels{"endpoint": strings.TrimPrefix(path, "/api/v1/")}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(endpoint),
		promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(endpoint), withReachedLimit(m.limited, next)),
		promhttp.WithExemplarFromContext(spans.Exemplar))
}

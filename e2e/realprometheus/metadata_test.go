package realprometheus

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	instrument "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/promtable/promtable/e2e/harness"
)

// startModern serves what came to Prometheus in later years: native histograms,
// exemplars, start timestamps.
func startModern(t testing.TB) string {
	reg := instrument.NewRegistry()
	histogram := instrument.NewHistogramVec(instrument.HistogramOpts{
		Name: "modern_seconds", Help: "A native histogram.", NativeHistogramBucketFactor: 1.1,
	}, []string{"sign"})
	counter := instrument.NewCounter(instrument.CounterOpts{Name: "modern_total", Help: "A counter with \"exemplars\"."})
	gauge := instrument.NewGauge(instrument.GaugeOpts{Name: "modern_bytes", Help: "A gauge.", Unit: "bytes"})
	reg.MustRegister(histogram, counter, gauge)
	expose := promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true, EnableOpenMetricsTextCreatedSamples: true})
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := scrapes.Add(1)
		trace := instrument.Labels{"trace_id": fmt.Sprintf("ä%08x", n)}
		for i := range 5 {
			v := math.Exp(float64((7*n+int64(i))%40) - 20)
			histogram.WithLabelValues("+").(instrument.ExemplarObserver).ObserveWithExemplar(v, trace)
			histogram.WithLabelValues("-").Observe(-v)
		}
		if n%4 == 0 {
			histogram.DeleteLabelValues("-") // a staleness marker, and then a reset
		}
		counter.(instrument.ExemplarAdder).AddWithExemplar(float64(n), trace)
		gauge.Set(float64(n % 3))
		expose.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestPrometheusMetadata lets a Prometheus send metadata by 2.0. Of version
// 3.15.0 that is the type and the unit, and only with labels for these: it does
// not write the metadata of scrapes to the log that it sends from.
func TestPrometheusMetadata(t *testing.T) {
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			r := harness.Receiver{Adapter: harness.StartAdapter(t, b), Backend: b.Name, Protocol: harness.RemoteWrite2()}
			p := harness.StartPrometheus(t, "--enable-feature=type-and-unit-labels")
			modern := harness.Job{Name: "modern", Targets: []string{startModern(t)}, Extra: "    scrape_native_histograms: true\n"}
			p.Configure(t, harness.ScrapeConfig(modern)+harness.WriteConfig([]harness.Receiver{r}))
			for metric, kind := range map[string]string{"modern_seconds": "histogram", "modern_total": "counter", "modern_bytes": "gauge"} {
				harness.Eventually(t, "metadata of "+metric, func() error {
					data, err := harness.GetAPI(r.URL("/api/v1/metadata"), url.Values{"metric": {metric}})
					if err == nil && !strings.Contains(string(data), fmt.Sprintf(`"type":%q`, kind)) {
						err = fmt.Errorf("metadata is %s, want a %s", data, kind)
					}
					return err
				})
			}
		})
	}
}

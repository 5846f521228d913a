package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestTracing: writes and queries are sent as traces where the file says, and belong to the trace of their sender. A wrong file is refused at the start, and named.
func TestTracing(t *testing.T) {
	var mu sync.Mutex
	var sent strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, "no traces", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		sent.Write(body) // names stand in it as they are
	}))
	defer collector.Close()
	path := filepath.Join(t.TempDir(), "tracing.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tracing: {client_type: http, endpoint: '" + collector.Listener.Addr().String() + "', insecure: true, sampling_fraction: 1}\n")
	a := harness.StartAdapter(t, harness.Embedded(t), "--tracing.config.file="+path)
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SomeSeries())
	trace := strings.Repeat("\xab", 16)
	header := map[string]string{"traceparent": fmt.Sprintf("00-%x-%x-01", trace, strings.Repeat("\xcd", 8))}
	if resp := harness.MustGet(t, a.URL("/api/v1/query_range?query=sum(rate({__name__=~'.%2B'}[5m]))&start=1&end=100&step=10"), header); resp.Status != http.StatusOK {
		t.Error(resp)
	}
	scrape := func(accept string) string {
		return harness.MustGet(t, a.URL("/metrics"), map[string]string{"Accept": accept}).Body
	}
	exemplar := fmt.Sprintf(`trace_id="%x"`, trace)
	if text := scrape("application/openmetrics-text; version=1.0.0"); !strings.Contains(text, exemplar) {
		t.Errorf("no exemplar with the trace of a query in %.2000s", text)
	}
	if text := scrape("text/plain"); strings.Contains(text, "trace_id") {
		t.Error("the older format has exemplars")
	}
	families := scrape("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=compact-text")
	if family := regexp.MustCompile(`name: ?"adapter_api_request_duration_seconds".*`).FindString(families); !harness.ContainsAll(family, []string{"positive_span:", "cumulative_count:"}) {
		t.Errorf("the histogram is not both native and with buckets: %.2000s", family)
	}
	a.Terminate(t) // which sends what is left
	mu.Lock()
	defer mu.Unlock()
	if !harness.ContainsAll(sent.String(), []string{"POST /api/v1/write", "append", "GET /api/v1/query_range", "evaluate", "select", trace}) {
		t.Errorf("sent was %q", sent.String())
	}

	write("tracing: {client_type: carrier_pigeon, endpoint: x}\n")
	if code, output := harness.RunAdapter(t, harness.Embedded(t), "--tracing.config.file="+path); code == 0 || !harness.ContainsAll(output, []string{"--tracing.config.file", path, "carrier_pigeon"}) {
		t.Errorf("a wrong file: %d, %s", code, output)
	}
}

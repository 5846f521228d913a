package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// TestOwnHandlersAreMounted: beside Prometheus' API, which could take writes and
// reads itself, the adapter's own handlers do.
func TestOwnHandlersAreMounted(t *testing.T) {
	a := startAdapter(t, embedded(t))
	p := remoteWrite2()
	up := sent(labels.FromStrings("__name__", "up"), at(nowMillis(), 1))
	// Upstream's write handler knows nothing of resource labels, keys and their
	// limit; its read handler has no such counters.
	long := sent(labels.FromStrings("__name__", "up", "long", strings.Repeat("x", 3072)), at(nowMillis(), 1))
	for _, path := range []string{"/api/v1/write", "/write"} {
		resp, err := p.send(context.Background(), a.url(path), []sentSeries{up, long})
		if err != nil || resp.status != http.StatusBadRequest || !strings.Contains(resp.body, "series key too long") {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	for _, path := range []string{"/api/v1/read", "/read"} {
		for _, as := range answers() {
			if found := mustRead(t, a.url(path), as, query{0, nowMillis() + 1000, mustMatchers(t, "__name__", "=", "up")}); len(found) != 1 {
				t.Errorf("%s found %v", path, found)
			}
		}
	}
	text := mustGet(t, a.url("/metrics"), nil).body
	for _, want := range []string{
		`adapter_http_requests_total{code="400",handler="write"} 2`,
		`adapter_read_queries_total{response="samples"} 2`,
		`adapter_read_queries_total{response="streamed"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, "prometheus_remote_read_handler") || strings.Contains(text, "prometheus_api_remote_read_queries") {
		t.Error("upstream's handlers have metrics")
	}
	data, err := api(a.url("/api/v1/query"), url.Values{"query": {"up"}})
	var answer struct{ Result []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil || len(answer.Result) != 1 {
		t.Errorf("PromQL: %s, %v", data, err)
	}
}

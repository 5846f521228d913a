package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestOwnHandlersAreMounted: beside Prometheus' API, which could take writes and
// reads itself, the adapter's own handlers do.
func TestOwnHandlersAreMounted(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := harness.RemoteWrite2()
	up := harness.SeriesOf(labels.FromStrings("__name__", "up"), harness.PointAt(harness.NowMillis(), 1))
	// Upstream's write handler has no resource labels and no limit for keys; its read
	// handler has no such counters.
	long := harness.SeriesOf(labels.FromStrings("__name__", "up", "long", strings.Repeat("x", 3072)), harness.PointAt(harness.NowMillis(), 1))
	for _, path := range []string{"/api/v1/write", "/write"} {
		resp, err := p.Send(context.Background(), a.URL(path), []harness.SentSeries{up, long})
		if err != nil || resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, "series key too long") {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	for _, path := range []string{"/api/v1/read", "/read"} {
		for _, as := range harness.AnswerTypes() {
			if found := harness.MustRead(t, a.URL(path), as, harness.Query{Mint: 0, Maxt: harness.NowMillis() + 1000, Matchers: harness.MustMatchers(t, "__name__", "=", "up")}); len(found) != 1 {
				t.Errorf("%s found %v", path, found)
			}
		}
	}
	text := harness.MustGet(t, a.URL("/metrics"), nil).Body
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
	data, err := harness.GetAPI(a.URL("/api/v1/query"), url.Values{"query": {"up"}})
	var answer struct{ Result []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil || len(answer.Result) != 1 {
		t.Errorf("PromQL: %s, %v", data, err)
	}
}

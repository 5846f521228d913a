package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
)

// found is what the ten series of a selector take without their samples, in bytes.
const found = 10 * 40

// TestQueryMemory: a query that would hold too much is a 422, one that finds no room a 503
// that says when to come back, and both name the flag and the selector. It is so whether the
// query is evaluated while series are read or keeps them.
func TestQueryMemory(t *testing.T) {
	for _, query := range []string{`sum by (n) (rate(up[5m]))`, `up * 2`, `timestamp(up)`} {
		for _, tt := range []struct {
			name   string
			change func(*api.Config)
			status int
			flag   string
		}{
			{"one query", func(c *api.Config) { c.MaxMemory = found + 100 }, http.StatusUnprocessableEntity, "--query.max-memory-bytes"},
			{"all queries", func(c *api.Config) { c.MaxTotalMemory = found + 100 }, http.StatusServiceUnavailable, "--query.max-total-memory-bytes"},
			{"its series", func(c *api.Config) { c.MaxMemory = found - 1 }, http.StatusUnprocessableEntity, "--query.max-memory-bytes"},
		} {
			t.Run(query+", "+tt.name, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				f := serve(t, func(c *api.Config, _ *engine.Config) { tt.change(c); c.Registerer = reg })
				f.fill(t)
				for range 2 { // what a query has held is free after it
					got := f.ask(t, http.MethodGet, "/api/v1/query_range", params("query", query, "start", at(-300), "end", at(0), "step", "60"))
					if got.status != tt.status || !strings.Contains(got.Error, tt.flag) || !strings.Contains(got.Error, "up") {
						t.Errorf("%+v", got)
					}
					got = f.ask(t, http.MethodGet, "/api/v1/query", params("query", `count(up{n="3"})`, "time", at(0)))
					if got.status != http.StatusOK {
						t.Errorf("a small query: %+v", got)
					}
				}
				none := "# HELP adapter_query_memory_bytes Bytes of samples and results that PromQL queries hold, at most --query.max-total-memory-bytes.\n" +
					"# TYPE adapter_query_memory_bytes gauge\nadapter_query_memory_bytes 0\n"
				if err := testutil.GatherAndCompare(reg, strings.NewReader(none), "adapter_query_memory_bytes"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestRetryAfter: a 503 of the API says when to come back.
func TestRetryAfter(t *testing.T) {
	f := serve(t, func(c *api.Config, _ *engine.Config) { c.MaxTotalMemory = 1 })
	f.fill(t)
	resp, err := http.Get(f.url + "/api/v1/query?query=up&time=" + at(0))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, header %v", resp.StatusCode, resp.Header)
	}
}

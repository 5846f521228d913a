package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// An activeQuery is one of the list of active queries.
type activeQuery struct {
	ID, Kind, Query, Client, UserAgent string
	Start, End, Step                   int64
	AgeSeconds                         float64
	HeldBytes, Rows                    int64
}

// TestCancelQuery: a query that takes minutes is listed with what it holds and has read. It ends when it is cancelled, and its client
// is told why.
func TestCancelQuery(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.enable-admin-api", "--query.timeout=1h", "--query.log-slower-than=1ns")
	end := harness.NowMillis()
	var written []harness.SentSeries
	for i := range 300 {
		written = append(written, harness.SeriesOf(labels.FromStrings("__name__", "x", "n", fmt.Sprint(i)), harness.PointAt(end-36*3_600_000, float64(i))))
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), written...)

	// Each of 300 series has 8,640 points in a window, at each of 1,000 steps, and 1,000 windows are sorted between two looks at the context.
	const query = "quantile_over_time(0.5, last_over_time(x[2d])[1d:10s])"
	params := url.Values{"query": {query}, "start": {harness.FormatSeconds(end)}, "end": {harness.FormatSeconds(end + 999_000)}, "step": {"1"}}
	answered := make(chan harness.Response)
	go func() {
		resp, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL("/api/v1/query_range")+"?"+params.Encode(), map[string]string{"User-Agent": "heavy"}, nil)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	var q activeQuery
	harness.Eventually(t, "the query runs, and has read", func() error {
		data, err := harness.GetAPI(a.URL("/api/v1/status/active_queries"), nil)
		var list []activeQuery
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil || len(list) != 1 || list[0].Rows < 300 || list[0].HeldBytes <= 0 {
			return fmt.Errorf("listed is %s, %w", data, err)
		}
		q = list[0]
		return nil
	})
	if q.Kind != "range" || q.Query != query || q.Start != end || q.End != end+999_000 || q.Step != 1000 || q.UserAgent != "heavy" || !strings.HasPrefix(q.Client, "127.0.0.1:") || q.AgeSeconds <= 0 {
		t.Errorf("listed is %+v", q)
	}
	remove := func(id string) harness.Response {
		t.Helper()
		resp, err := harness.RoundTrip(t.Context(), http.MethodDelete, a.URL("/api/v1/status/active_queries/"+id), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := remove(q.ID); resp.Status != http.StatusOK || !strings.Contains(resp.Body, `"cancelled":true`) {
		t.Errorf("cancelled: %s", resp)
	}
	want := `{"status":"error","errorType":"canceled","error":"the query was cancelled by an operator"}`
	if got := <-answered; got.Status != http.StatusUnprocessableEntity || strings.TrimSpace(got.Body) != want || got.Header.Get("Retry-After") != "" {
		t.Errorf("the client gets %s with %v", got, got.Header)
	}
	a.WaitLine(t, `msg="admin request"`, "status=200 id="+q.ID, "of="+q.Client)
	a.WaitLine(t, `msg="slow query" kind=range`, "status=canceled")
	if resp := remove(q.ID); resp.Status != http.StatusNotFound {
		t.Errorf("cancelled again: %s", resp)
	}
	if body := harness.MustGet(t, a.URL("/metrics"), nil).Body; !strings.Contains(body, "\n"+`adapter_cancelled_queries_total{kind="range"} 1`+"\n") {
		t.Error("it is not counted")
	}
}

// TestBlockFile: a query that a rule of the file blocks is refused from the start, and when the file has changed. A start with a
// wrong file is refused; one that goes wrong later changes nothing.
func TestBlockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, flag := harness.Embedded(t), "--query.block-file="+path
	write("= up\n=~ (")
	if code, output := harness.RunAdapter(t, b, flag); code == 0 || !strings.Contains(output, "--query.block-file: file "+path+", line 2: error parsing regexp") {
		t.Errorf("code %d: %s", code, output)
	}
	write("# Too heavy.\n=~ rate\\(.*")
	a := harness.StartAdapter(t, b, flag)
	ask := func(query string) harness.Response {
		return harness.MustGet(t, a.URL("/api/v1/query?query="+url.QueryEscape(query)), nil)
	}
	awaitRule := func(query, rule string) {
		t.Helper()
		harness.Eventually(t, "a rule", func() error {
			if resp := ask(query); resp.Status != http.StatusUnprocessableEntity || !strings.Contains(resp.Body, rule) {
				return fmt.Errorf("%s is answered %s, want %s", query, resp, rule)
			}
			return nil
		})
	}
	awaitRule("rate( x[1m] )", `"errorType":"execution","error":"the query is blocked by line 2 of --query.block-file: Too heavy."`)
	if resp := ask("up"); resp.Status != http.StatusOK {
		t.Errorf("another is answered %s", resp)
	}
	write("= up")
	awaitRule("up", "blocked by line 1 ")
	if resp := ask("rate(x[1m])"); resp.Status != http.StatusOK {
		t.Errorf("without its rule it is answered %s", resp)
	}
	write("up")
	a.WaitLine(t, "level=error", "before stays in force", "line 1: it is no rule")
	awaitRule("up", "blocked by line 1 ")
	if a.Metric(t, "adapter_query_block_file_last_reload_successful") != 0 {
		t.Error("the metric says that all is well")
	}
}

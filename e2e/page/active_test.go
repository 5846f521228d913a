//go:build browser

package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// slowQuery sorts the 8,640 points of a window of each series of sendSlow at each step. A thousand steps of a second take minutes.
const slowQuery = "quantile_over_time(0.5, last_over_time(x[2d])[1d:10s])"

// sendSlow sends what slowQuery reads, and returns the time, in milliseconds.
func sendSlow(t *testing.T, a *harness.Adapter) (now int64) {
	t.Helper()
	now = harness.NowMillis()
	var written []harness.SentSeries
	for i := range 300 {
		written = append(written, harness.SentSeries{Labels: []string{"__name__", "x", "n", fmt.Sprint(i)}, Points: []harness.Point{harness.PointAt(now-36*3_600_000, float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), written...)
	return now
}

// TestPageActiveQueries: the page lists the queries that run, and cancels one when it has asked. It shows the rules that block others.
func TestPageActiveQueries(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte("# Too heavy.\n=~ heavy.*\n= up"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := startPaged(t, "--web.enable-admin-api", "--query.timeout=1h", "--query.block-file="+rules)
	p := newPage(t, a)
	p.open("tab", "status")
	if got := p.rowsOf("Rules of " + rules); !slices.EqualFunc(got, [][]string{{"2", "=~ heavy.*", "Too heavy."}, {"3", "= up", ""}}, slices.Equal) {
		t.Errorf("the rules are %q", got)
	}
	if got := p.texts("p.facts"); !slices.Contains(got, "No queries are running.") {
		t.Errorf("the page says %q", got)
	}

	const query = slowQuery
	end := sendSlow(t, a)
	answered := make(chan harness.Response)
	go func() {
		params := url.Values{"query": {query}, "start": {harness.FormatSeconds(end)}, "end": {harness.FormatSeconds(end + 999_000)}, "step": {"1"}}
		resp, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL("/api/v1/query_range")+"?"+params.Encode(), map[string]string{"User-Agent": "heavy"}, nil)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	row := fmt.Sprintf(`[...%s.querySelectorAll("tr")].find((r) => r.cells[0].innerText === %q)`, shown, query)
	p.await(row + ` !== undefined`) // as the page asks again
	cells := evaluate[[]string](p, `[...`+row+`.cells].map((c) => c.innerText.trim())`)
	if len(cells) != 7 || cells[1] != "Range" || !strings.HasPrefix(cells[5], "127.0.0.1:") || !strings.HasSuffix(cells[5], ", heavy") || cells[6] != "Cancel" {
		t.Errorf("the query is listed as %q", cells)
	}
	open := func() {
		t.Helper()
		evaluate[bool](p, `(() => { `+row+`.querySelector("button").click(); return true })()`)
		if got := evaluate[string](p, `document.querySelector("dialog.confirm").innerText`); !harness.ContainsAll(got, []string{"Cancel this query?", query, "heavy"}) {
			t.Errorf("the page asks %q", got)
		}
	}
	p.eachLook(func(look string) {
		p.open("tab", "status")
		p.await(row + ` !== undefined`)
		p.shoot("active-" + look)
		p.checkContrast("active queries, " + look)
		p.checkAxe("active queries, " + look)
		open()
		p.shoot("active-asked-" + look)
		p.checkAxe("a query to be cancelled, " + look)
		p.answerDialog(":first-child")
	})
	select {
	case resp := <-answered:
		t.Fatalf("a query that is kept ends: %s", resp)
	default:
	}
	open()
	p.answerDialog(":last-child")
	if resp := <-answered; resp.Status != http.StatusUnprocessableEntity || !strings.Contains(resp.Body, "cancelled by an operator") {
		t.Errorf("the client gets %s", resp)
	}
	p.await(row + ` === undefined`)
}

// TestPageRunning: while a query runs what was shown before stays, the page says for how long it has been running, and Cancel ends it in the adapter.
func TestPageRunning(t *testing.T) {
	t.Parallel()
	a := startPaged(t, "--query.timeout=1h")
	end := sendSlow(t, a)
	p := newPage(t, a)
	p.open("expr", "page_gauge", "view", "graph")
	p.checkGaugeRows()
	if got := evaluate[int](p, `document.querySelectorAll(".running").length`); got != 0 {
		t.Errorf("an answer that is there at once is said to be running")
	}
	evaluate[bool](p, fmt.Sprintf(`(() => { history.pushState(null, "", "?" + new URLSearchParams({ tab: "query", view: "graph", range: "999", step: "1s", end: %q, expr: %q })); dispatchEvent(new PopStateEvent("popstate")); return true })()`,
		harness.FormatSeconds(end), slowQuery))
	p.await(`/^Running, \d+\.\d s$/.test(document.querySelector(".running span")?.innerText)`)
	before := evaluate[string](p, `document.querySelector(".running span").innerText`)
	p.await(fmt.Sprintf(`document.querySelector(".running span")?.innerText !== %q`, before))
	p.checkGauges()
	active := func() (all []struct{ Query string }) {
		t.Helper()
		p.mustAsk(a, "/api/v1/status/active_queries", nil, &all)
		return all
	}
	if got := active(); len(got) == 0 {
		t.Error("nothing runs in the adapter")
	}
	p.shoot("running")
	p.checkAxe("running")
	evaluate[bool](p, `(() => { document.querySelector(".running button").click(); return true })()`)
	p.settle()
	p.await(`document.querySelector(".running") === null`)
	if got := evaluate[string](p, `document.querySelector("#query .cancelled").innerText`); got != "Cancelled. What is shown is from before." {
		t.Errorf("the page says %q", got)
	}
	p.checkGauges()
	harness.Eventually(t, "nothing runs in the adapter", func() error {
		if got := active(); len(got) > 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	p.open("expr", "page_gauge * 2")
	if got := evaluate[int](p, `document.querySelectorAll(".cancelled").length`); got != 0 {
		t.Error("another answer is said to be cancelled")
	}
}

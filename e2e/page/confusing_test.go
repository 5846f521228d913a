//go:build browser

package page

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// TestPageTypo: where no metric has a name, those that are called alike are offered, and one click asks for them; in tables and graphs, of the expression that has the
// name and not of another.
func TestPageTypo(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	for _, name := range []string{"http_requests_total", "http_request_size", "grpc_requests_total", "up"} {
		sendMany(t, a, name, 0, 2)
	}
	for _, view := range []string{"table", "graph"} {
		p.open("expr", `sum(rate(htpp_requests_total{n="001"}[5m])) / sum(http_requests_total)`, "view", view)
		said := p.texts("p")
		if !slices.Contains(said, "No metric is called htpp_requests_total. Did you mean http_requests_total or grpc_requests_total?") {
			t.Errorf("%s: %q", view, said)
		}
		p.checkContrast(view)
		p.shoot("typo-" + view)
		p.click("#query .result p button")
		p.wantParameters("expr", `sum(rate(http_requests_total{n="001"}[5m])) / sum(http_requests_total)`, "view", view)
	}
	for _, expr := range []string{"nothing_like_it", "http_requests_total > 100", `{job="x"}`} {
		p.open("expr", expr, "view", "table")
		if got := p.texts("p"); strings.Contains(strings.Join(got, " "), "Did you mean") {
			t.Errorf("%s: the page says %q", expr, got)
		}
	}
}

// TestPageShareLink: a link that is copied shows the same tomorrow: it has the end of the time, and no refresh. Where not all series are shown the highest ones are one click away.
func TestPageShareLink(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	sendMany(t, a, "many", 0, 70)
	p.onOpen(`Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text } } })`)
	p.open("expr", "many", "view", "graph", "range", "900", "refresh", "1m")
	p.eachLook(func(look string) {
		p.open("expr", "many", "view", "graph", "range", "900", "refresh", "1m")
		p.checkContrast(look)
		p.shoot("share-" + look)
	})
	p.click("#query .copy-link")
	p.await(`document.querySelector("#query .copy-link").textContent === "Link copied"`)
	link, err := url.Parse(evaluate[string](p, "window.copied"))
	if err != nil {
		t.Fatal(err)
	}
	end, err := time.Parse(time.RFC3339, link.Query().Get("end"))
	if age := time.Since(end); err != nil || age > time.Minute || age < -2*time.Second || link.Query().Has("refresh") || link.Query().Get("range") != "900" || link.Query().Get("expr") != "many" {
		t.Errorf("the link is %s, %v", link, err)
	}
	p.visit("?" + link.RawQuery)
	if got := p.texts(".facts"); len(got) != 1 || !strings.HasPrefix(got[0], "60 of 70 series shown, ") {
		t.Errorf("the link shows %q", got)
	}
	if got := p.texts("p.more"); !slices.Equal(got, []string{"These are the first in the order of their labels. Show 240 lines Show the 10 highest"}) {
		t.Errorf("beside it stands %q", got)
	}
	p.click("#query .result p.more button:last-child")
	p.wantParameters("expr", "topk(10, many)", "view", "graph")
	if got := p.texts(".facts"); len(got) != 1 || !strings.HasPrefix(got[0], "10 series, ") {
		t.Errorf("the highest are %q", got)
	}
}

// TestPageLongLabels: labels of kilobytes take a few lines of a legend and of a table, are whole in what is copied and saved, and unfold.
func TestPageLongLabels(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	long := strings.Repeat("abcdefghi ", 145) + "end"
	var series []harness.SentSeries
	for _, n := range []string{"1", "2"} {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "wordy", "n", n, "own", n + long, "shared", long}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 1)}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	high := func(selector string) float64 {
		return evaluate[float64](p, `Math.max(...[...document.querySelectorAll("#query .result `+selector+`")].map((e) => e.getBoundingClientRect().height))`)
	}
	p.eachLook(func(look string) {
		p.open("expr", "wordy", "view", "graph")
		if rows, shared := high(".legend tbody tr"), high(".legend .shared"); rows > 160 || shared > 160 {
			t.Errorf("%s: a row of the legend is %v px high, the common labels %v px", look, rows, shared)
		}
		p.shoot("long-graph-" + look)
		p.open("expr", "wordy", "view", "table")
		if rows := high("tbody tr"); rows > 200 {
			t.Errorf("%s: a row of the table is %v px high", look, rows)
		}
		p.shoot("long-table-" + look)
		p.click("#query tbody summary")
		if got := p.texts("tbody details[open] div"); len(got) != 1 || !strings.Contains(got[0], `own="1`+long+`"`) {
			t.Errorf("%s: unfolded is %q", look, got)
		}
	})
	if _, text := p.download(t.TempDir(), "#query .table-tools button:last-child"); strings.Count(text, long) != 4 {
		t.Errorf("saved is %q", text)
	}
}

// TestPageNarrower: a query that meets a limit is told which flag has it, and one that asks for less is a click away.
func TestPageNarrower(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t, "--query.max-samples=50"))
	end := time.UnixMilli(harness.NowMillis() + 5000).UTC().Format(time.RFC3339) // the subquery has a step behind the samples
	p.expect("/api/v1/query_range", 422)
	p.open("expr", "last_over_time(page_many[30m:1s])", "view", "graph", "range", "3600", "end", end)
	if got := p.texts("p.more"); !slices.Equal(got, []string{"Ask for the last 30m Ask with a step twice as long Explain shows what it reads."}) {
		t.Errorf("beside the limit stands %q, %q", got, p.texts(".message"))
	}
	p.expect("/api/v1/query_range", 422)
	p.button("Ask with a step twice as long")
	p.wantParameters("expr", "last_over_time(page_many[30m:1s])", "view", "graph", "range", "3600", "end", end, "step", "30s")
	p.expect("/api/v1/query_range", 422)
	p.button("Ask for the last 30m")
	p.wantParameters("expr", "last_over_time(page_many[30m:1s])", "view", "graph", "range", "1800", "end", end, "step", "30s")

	p = newPage(t, startPaged(t, "--read.max-series=100"))
	p.expect("/api/v1/query", 422)
	p.open("expr", "page_many", "view", "table")
	if got := p.texts(".message"); len(got) != 1 || !strings.Contains(got[0], "more than 100 match: see --read.max-series") {
		t.Errorf("the limit is %q", got)
	}
	if got := p.texts("p.more"); !slices.Equal(got, []string{"Explain shows what it reads."}) {
		t.Errorf("beside it stands %q", got)
	}
}

//go:build browser

package page

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/promtable/promtable/e2e/harness"
)

func TestPageExplain(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open("tab", "explain")
	for _, selector := range []string{`page_gauge{instance="a"}`, `{__name__=~"page_.*", code=""}`, "page_nothing"} {
		// From the second time on the index is in memory, and the answers are the same.
		p.mustAsk(a, "/api/v1/explain", url.Values{"match[]": {selector}}, &[]listedPlan{})
		p.enter("#explain [data-focus]", selector)
		p.wantParameters("tab", "explain", "expr", selector, "view", "graph", "range", "3600")
		p.await(`document.querySelectorAll("#explain details.rows table").length === 2`)
		// The same question again.
		asked := p.asked("/api/v1/explain")
		var plans []listedPlan
		p.mustAsk(a, "/api/v1/explain", asked[len(asked)-1].Query(), &plans)
		p.checkPlan(selector, plans[0])
		p.shoot("explain-" + strconv.Itoa(plans[0].Series))
	}
	p.expect("/api/v1/explain", http.StatusBadRequest)
	p.selectText("#explain [data-focus]")
	p.paste(`{x=~"("}`)
	p.press(kb.Enter, kb.ModifierCtrl)
	p.wantAlert(a, "/api/v1/explain", url.Values{"query": {`{x=~"("}`}})
	// An old link.
	p.open("tab", "explain", "selector", `page_gauge{instance="a"}`)
	p.wantExpressions(`page_gauge{instance="a"}`)
	if tiles := p.tiles(); tiles["Series"] != "1" {
		t.Errorf("an old link shows %v", tiles)
	}
	p.click("#explain button.primary")
	p.wantParameters("expr", `page_gauge{instance="a"}`, "selector", "")
}

// A listedPlan is a plan with the index lists that led to it.
type listedPlan struct {
	harness.Plan
	Lists []struct {
		Matcher  string
		Chosen   bool
		InMemory float64 `json:"in_memory"`
		RowsRead float64 `json:"rows_read"`
	}
}

// checkPlan wants the page to show a plan as it is.
func (p *browserPage) checkPlan(selector string, want listedPlan) {
	p.Helper()
	lists, ranges, tiles := p.rows(0), p.rows(1), p.tiles()
	if len(lists) != len(want.Lists) || len(lists) == 0 || len(ranges) != len(want.Rows) {
		p.Fatalf("%s: %d lists and %d ranges, want %+v", selector, len(lists), len(ranges), want)
	}
	index := 0.0
	for i, row := range lists {
		l := want.Lists[i]
		index += l.RowsRead
		if row[0] != l.Matcher || (row[1] == "yes") != l.Chosen || plain(p, row[2]) != l.InMemory || plain(p, row[3]) != l.RowsRead {
			p.Errorf("%s: list %q, want %+v", selector, row, l)
		}
	}
	for i, row := range ranges {
		r := want.Rows[i]
		if row[0] != r.Start || row[1] != strings.ReplaceAll(r.Limit, "\x00", `\0`) || plain(p, row[3]) != float64(r.Rows) || plain(p, row[4]) != float64(r.Cells) {
			p.Errorf("%s: range %q, want %v", selector, row, r)
		}
	}
	rows, cells := want.Counts()
	for name, n := range map[string]float64{
		"Series": float64(want.Series), "Rows of INDEX read": index, "Rows of METRIC read": float64(rows), "Cells of METRIC read": float64(cells),
	} {
		if plain(p, tiles[name]) != n {
			p.Errorf("%s: %s is %q, want %g", selector, name, tiles[name], n)
		}
	}
}

// treeScript returns the nodes of the tree, in order: how deep, what is written on it, and its sentence.
const treeScript = `[...document.querySelectorAll("#explain .tree summary code, #explain .tree .leaf code")].map((code) => {
	const item = code.closest("li");
	let deep = 0;
	for (let e = item.parentElement.closest("li"); e; e = e.parentElement.closest("li")) { deep++; }
	const said = (name) => item.querySelector(":scope > details > " + name)?.innerText ?? "";
	return { Deep: deep, Expr: code.innerText, Kind: code.parentElement.querySelector(".kind").innerText, Meaning: said(".meaning"), Read: said(".read") };
})`

// A treeNode is a node of the tree of an expression, as the page shows it.
type treeNode struct {
	Deep                      int
	Expr, Kind, Meaning, Read string
}

// pressButton clicks the button of the section that has this text.
func (p *browserPage) pressButton(text string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { [...%s.querySelectorAll("button")].find((b) => b.innerText === %q).click(); return true })()`, shown, text))
}

// TestPageExplainTree: an expression is a tree, each node with its meaning, and selectors with what they read.
func TestPageExplainTree(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	const expr = `histogram_quantile(0.9, sum by (code) (rate(page_requests_total{code!=""}[5m]))) / 2`
	p.eachLook(func(look string) {
		p.open("tab", "explain", "expr", expr)
		tree := evaluate[[]treeNode](p, treeScript)
		var shape []string
		for _, n := range tree {
			shape = append(shape, fmt.Sprint(n.Deep, " ", n.Expr, " (", n.Kind, ")"))
		}
		if want := []string{
			"0 " + expr + " (operator, instant vector)",
			"1 " + strings.TrimSuffix(expr, " / 2") + " (function, instant vector)",
			"2 0.9 (scalar)",
			`2 sum by (code) (rate(page_requests_total{code!=""}[5m])) (aggregation, instant vector)`,
			`3 rate(page_requests_total{code!=""}[5m]) (function, instant vector)`,
			`4 page_requests_total{code!=""}[5m] (range selector, range vector)`,
			"1 2 (scalar)",
		}; !slices.Equal(shape, want) {
			t.Fatalf("the tree is %q, want %q", shape, want)
		}
		for i, want := range map[int]string{
			1: "Evaluated by Prometheus' engine over the streamed part below, because histogram_quantile cannot be streamed.",
			3: "Evaluated while series are read: sum by (code) of rate.",
			4: "Evaluated while series are read, as part of the node above.",
		} {
			if tree[i].Meaning != want {
				t.Errorf("of %s the page says %q, want %q", tree[i].Expr, tree[i].Meaning, want)
			}
		}
		if read := tree[5].Read; !harness.ContainsAll(read, []string{`code!=""`, "1 series, ", " rows of METRIC with ", "The list of "}) {
			t.Errorf("the selector reads %q", read)
		}
		if tiles := p.tiles(); tiles["Series"] != "1" || tiles["Read time"] == "" || plain(t, tiles["Rows of METRIC read"]) == 0 {
			t.Errorf("all of it reads %v", tiles)
		}
		p.checkContrast(look)
		p.shoot("explain-tree-" + look)
	})
	// By keyboard: the first node is closed and opened again.
	evaluate[bool](p, `(() => { document.querySelector("#explain .tree summary").focus(); return true })()`)
	for _, open := range []bool{false, true} {
		p.press(kb.Enter)
		if got := evaluate[bool](p, `document.querySelector("#explain .tree details").open`); got != open {
			t.Errorf("by Enter the node is open: %t", got)
		}
	}
	for _, open := range []bool{false, true} {
		p.pressButton(map[bool]string{false: "Close all", true: "Open all"}[open])
		if got := evaluate[bool](p, `[...document.querySelectorAll("#explain details.node")].every((d) => d.open === `+strconv.FormatBool(open)+`)`); !got {
			t.Errorf("not all nodes are open: %t", open)
		}
	}
	p.enter("#explain [data-focus]", "vector(1) + time()")
	if tree := evaluate[[]treeNode](p, treeScript); len(tree) != 4 || tree[0].Meaning != "Evaluated by Prometheus' engine. It reads no series." {
		t.Errorf("without a selector the tree is %+v", tree)
	}
}

// TestPageExplainError: an error is shown where it is in the expression.
func TestPageExplainError(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.eachLook(func(look string) {
		p.expect("/api/v1/explain", http.StatusBadRequest)
		p.open("tab", "explain", "expr", "sum(page_gauge)\n  + rate(page_gauge)")
		if alerts := p.texts("[role=alert]"); len(alerts) != 1 || !strings.Contains(alerts[0], "Line 2, column 10: ") {
			t.Errorf("the page says %q", alerts)
		}
		if got := p.texts("pre"); len(got) != 1 || got[0] != "  + rate(page_gauge)\n         ^" {
			t.Errorf("the place is shown as %q", got)
		}
		p.checkContrast(look)
		p.shoot("explain-error-" + look)
		p.open() // another scheme shows the page anew
	})
}

// TestPageExplainEditor: the expression has the editor of the tab Query, with its help, and is a field before that is there.
func TestPageExplainEditor(t *testing.T) {
	p := newPage(t, startDescribed(t))
	p.onOpen(`window.requestIdleCallback = (f) => { window.letIn = f }`)
	p.open("tab", "explain")
	p.wantFocus("Expression to explain")
	p.press("page_gauge" + kb.Enter) // by the plain field
	p.wantParameters("tab", "explain", "expr", "page_gauge")
	evaluate[bool](p, `(() => { window.letIn(); return true })()`)
	p.wantExpressions("page_gauge")
	p.wantFocus("Expression to explain")
	const field = "#explain [data-focus]"
	p.eachLook(func(look string) {
		p.selectText(field)
		p.press("page_reque")
		p.awaitOffer("page_requests_total")
		p.shoot("explain-completion-" + look)
		p.press(kb.Enter)
		p.awaitNoOffer()
		p.wantExpressions("page_requests_total")
		if got := evaluate[string](p, `document.querySelector("#explain .pq-metric").textContent`); got != "page_requests_total" {
			t.Errorf("%q is highlighted", got)
		}
		p.selectText(field)
		p.press("sum(rate(page_gauge))")
		p.expect("/api/v1/explain", http.StatusBadRequest)
		p.press(kb.Enter)
		p.await(`document.querySelector("#explain .cm-lintRange-error")?.textContent === "page_gauge"`)
		p.checkContrast(look)
		p.shoot("explain-underlined-" + look)
		p.selectText(field)
		p.press("sum by(code)(page_requests_total)")
		p.pressButtonOf("#explain form", "Format")
		p.wantExpressions("sum by (code) (page_requests_total)")
		p.wantFocus("Expression to explain")
		p.press(kb.Enter)
		p.wantParameters("expr", "sum by (code) (page_requests_total)")
		p.open("tab", "explain", "expr", "page_gauge") // another scheme asks again
		evaluate[bool](p, `(() => { window.letIn(); return true })()`)
		p.wantExpressions("page_gauge")
	})
	p.selectText(field)
	p.press("page_many" + kb.Enter)
	p.wantParameters("expr", "page_many")
	p.back(`new URLSearchParams(location.search).get("expr") === "page_gauge"`)
	p.wantExpressions("page_gauge")
}

// pressButtonOf clicks the button of an element that has this text.
func (p *browserPage) pressButtonOf(selector, text string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { [...document.querySelectorAll(%q)].find((b) => b.textContent === %q).click(); return true })()`, selector+" button", text))
	p.settle()
}

// startRolled writes five weeks of a demonstration, and starts an adapter on it.
func startRolled(t *testing.T, args ...string) *harness.Adapter {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	p := harness.StartCommand(t, harness.Backend{Args: []string{"--years=0.1", "--dir=" + dir, "--web.listen-address=127.0.0.1:0", "--self-scrape-interval=0s"}}, "demo")
	p.WaitLine(t, "Ctrl-C ends it")
	p.Interrupt(t)
	return harness.StartAdapter(t, harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + filepath.Join(dir, "data")}}, args...)
}

// TestPageExplainRollups: an explanation says which rollups are read, and compares with raw samples.
func TestPageExplainRollups(t *testing.T) {
	t.Parallel()
	p := newPage(t, startRolled(t))
	const expr = "sum by (handler) (rate(http_requests_total[1d]))"
	at := []string{"expr", expr, "range", "2592000", "end", time.Now().UTC().Truncate(24 * time.Hour).Format(time.RFC3339)}
	p.eachLook(func(look string) {
		p.open(append([]string{"tab", "explain"}, at...)...)
		if tiles := p.tiles(); !regexp.MustCompile(`^\d{2,} series-days$`).MatchString(tiles["Rollups of 1h"]) {
			t.Errorf("all of it reads %v", tiles)
		}
		tree := evaluate[[]treeNode](p, treeScript)
		if read := tree[len(tree)-1].Read; !harness.ContainsAll(read, []string{"series-days from rollups of 1h", "1h rollups", " from "}) {
			t.Errorf("the selector reads %q", read)
		}
		p.pressButton("Compare with raw samples")
		p.await(`document.querySelector("#explain .compared") !== null`)
		if rows := p.rows(0); rows[2][0] != "Bytes" || plain(t, strings.TrimSuffix(rows[2][3], "×")) < 2 {
			t.Errorf("compared with raw samples: %q", rows)
		}
		p.checkContrast(look)
		p.shoot("explain-rollups-" + look)
	})
	p.choose("#explain select[name=res]", "Raw (samples)")
	p.wantParameters("expr", expr, "res", "0s")
	p.settle()
	if tiles := p.tiles(); tiles["Rollups of 1h"] != "" {
		t.Errorf("raw samples read %v", tiles)
	}
	p.click("#explain .facts a")
	p.wantParameters("tab", "query", "expr", expr, "range", "2592000", "view", "graph", "res", "0s")
}

// stripScript returns the parts of the strip under the graph: where they are, as shares of the axis of time, and what they say.
const stripScript = `(() => {
	const axis = document.querySelector("#query .u-over").getBoundingClientRect();
	return [...document.querySelectorAll("#query .resolution:not([hidden]) .part")].map((part) => {
		const box = part.getBoundingClientRect();
		return { From: (box.left - axis.left) / axis.width, To: (box.right - axis.left) / axis.width, Says: part.getAttribute("aria-label"), Look: part.className };
	});
})()`

type stripPart struct {
	From, To   float64
	Says, Look string
}

// TestPageResolutionStrip: under a graph stands which part of it comes from samples, and which from rollups.
func TestPageResolutionStrip(t *testing.T) {
	t.Parallel()
	a := startRolled(t, "--retention.resolution-raw=10d")
	harness.Eventually(t, "samples may go", func() error {
		if cut := a.Metric(t, "adapter_retention_cut_timestamp_seconds"); cut < float64(time.Now().Unix()-12*86400) { // not all may go at once
			return fmt.Errorf("samples are kept from %v on", cut)
		}
		return nil
	})
	p := newPage(t, a)
	end := time.Now().Add(-10 * time.Hour).UTC().Truncate(24 * time.Hour) // rollups of a day are made nine hours after it
	const long = 30 * 86400.0
	at := []string{"view", "graph", "range", fmt.Sprint(int(long)), "end", end.Format(time.RFC3339)}
	strip := func() []stripPart {
		p.await(`document.querySelectorAll("#query .resolution:not([hidden]) .part").length > 0`)
		return evaluate[[]stripPart](p, stripScript)
	}
	p.eachLook(func(look string) {
		p.open(append([]string{"expr", "sum by (handler) (rate(http_requests_total[1d]))"}, at...)...)
		parts := strip()
		// Where windows begin before the cut, samples are gone.
		cut := a.Metric(t, "adapter_retention_cut_timestamp_seconds")
		share := 1 - (float64(end.Unix())-cut-86400)/long
		if len(parts) != 2 || !strings.HasPrefix(parts[0].Says, "Samples gone, only 1h rollups, from ") || !strings.HasPrefix(parts[1].Says, "1h rollups, from ") ||
			parts[0].Look == parts[1].Look || parts[0].From < -0.01 || parts[1].To < 0.99 || parts[1].To > 1.01 || parts[0].To < share-0.05 || parts[0].To > share+0.05 {
			t.Errorf("%s: the strip is %+v, want the cut at %.2f", look, parts, share)
		}
		if got := p.texts(".resolution .kinds li"); !slices.Equal(got, []string{"Values from:", " samples gone, only 1h rollups", " 1h rollups"}) {
			t.Errorf("the legend says %q", got)
		}
		if got := p.texts(".resolution .unseen"); len(got) != 1 || !harness.ContainsAll(got[0], []string{"The values come from: samples gone", "; 1h rollups from "}) {
			t.Errorf("to screen readers the page says %q", got)
		}
		p.checkContrast(look)
		p.shoot("strip-" + look)
		evaluate[bool](p, `(() => { document.querySelector("#query .resolution .part").focus(); return true })()`)
		p.press(kb.ArrowRight)
		if got := p.texts(".resolution .said"); len(got) != 1 || got[0] != parts[1].Says {
			t.Errorf("the second part says %q, want %q", got, parts[1].Says)
		}
		if got := evaluate[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); got > 0 {
			t.Errorf("%s: the page is %d px too wide", look, got)
		}
	})
	p.open(append([]string{"expr", "rate(http_requests_total[7h] offset 7m)"}, at...)...)
	if parts := strip(); !slices.ContainsFunc(parts, func(p stripPart) bool { return strings.Contains(p.Says, "widened") }) ||
		!slices.ContainsFunc(parts, func(p stripPart) bool {
			return strings.Contains(p.Says, "raw samples at the edges") || strings.HasPrefix(p.Says, "Raw samples")
		}) {
		t.Errorf("of windows that are no whole hours the strip is %+v", parts)
	}
	p.shoot("strip-widened")
	// Raw samples need no strip, and nothing is asked for it.
	asked := len(p.asked("/api/v1/explain"))
	p.open("expr", "rate(http_requests_total[5m])", "view", "graph", "range", "3600")
	if n := len(p.asked("/api/v1/explain")); n != asked || evaluate[bool](p, `document.querySelector("#query .resolution") !== null`) {
		t.Errorf("a graph of raw samples has a strip, and asked %d times for it", n-asked)
	}
	p.click("#query a.explain")
	p.wantParameters("tab", "explain", "expr", "rate(http_requests_total[5m])", "range", "3600", "view", "graph")
	if len(p.tiles()) == 0 {
		t.Error("the link to an explanation shows none")
	}
}

// TestPageExplainCached: a graph of days is in the cache of results when it was drawn once, whatever its limit, and Explain
// says so.
func TestPageExplainCached(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	cached := func() string {
		p.open("tab", "explain", "expr", "page_gauge", "range", "604800")
		return p.texts(".facts")[0]
	}
	if got := cached(); !strings.Contains(got, " 0 of 252 steps are in the results cache.") {
		t.Errorf("of a new query it says %q", got)
	}
	p.open("expr", "page_gauge", "view", "graph", "range", "604800")
	p.await(`document.querySelector("#query .graph") !== null`)
	if got := cached(); !regexp.MustCompile(` 25[012] of 252 steps are in the results cache\.`).MatchString(got) {
		t.Errorf("after a graph it says %q", got)
	}
	p.open("tab", "explain", "expr", "page_gauge", "view", "table")
	if got := p.texts(".facts")[0]; !strings.Contains(got, "The results cache is not used: it is an instant query.") {
		t.Errorf("of an instant query it says %q", got)
	}
}

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
	a := startPaged(t)
	p := newPage(t, a)
	p.open("tab", "explain")
	for _, selector := range []string{`page_gauge{instance="a"}`, `{__name__=~"page_.*", code=""}`, "page_nothing"} {
		// From the second time on the index is in memory, and the answers are the same.
		p.mustAsk(a, "/api/v1/explain", url.Values{"match[]": {selector}}, &[]listedPlan{})
		p.enter("#explain textarea", selector)
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
	p.enter("#explain textarea", `{x=~"("}`)
	p.wantAlert(a, "/api/v1/explain", url.Values{"query": {`{x=~"("}`}})
	// An old link.
	p.open("tab", "explain", "selector", `page_gauge{instance="a"}`)
	if got := evaluate[string](p, `document.querySelector("#explain textarea").value`); got != `page_gauge{instance="a"}` {
		t.Errorf("the expression of an old link is %q", got)
	}
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
			1: "Evaluated by Prometheus' engine over the streamed part below, because histogram_quantile is no function that streams.",
			3: "Evaluated while series are read: sum by (code) of rate.",
			4: "Evaluated while series are read, as a part of the above.",
		} {
			if tree[i].Meaning != want {
				t.Errorf("of %s the page says %q, want %q", tree[i].Expr, tree[i].Meaning, want)
			}
		}
		if read := tree[5].Read; !harness.ContainsAll(read, []string{`code!=""`, "1 series, ", " rows of METRIC with ", "The list of "}) {
			t.Errorf("the selector reads %q", read)
		}
		if tiles := p.tiles(); tiles["Series"] != "1" || tiles["Time to read"] == "" || plain(t, tiles["Rows of METRIC read"]) == 0 {
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
	p.enter("#explain textarea", "vector(1) + time()")
	if tree := evaluate[[]treeNode](p, treeScript); len(tree) != 4 || tree[0].Meaning != "Evaluated by Prometheus' engine. It reads nothing." {
		t.Errorf("without a selector the tree is %+v", tree)
	}
}

// TestPageExplainError: an error is shown where it is in the expression.
func TestPageExplainError(t *testing.T) {
	p := newPage(t, startPaged(t))
	p.eachLook(func(look string) {
		p.expect("/api/v1/explain", http.StatusBadRequest)
		p.open("tab", "explain", "expr", "sum(page_gauge)\n  + rate(page_gauge)")
		if alerts := p.texts("[role=alert]"); len(alerts) != 1 || !strings.Contains(alerts[0], "2:10: parse error") {
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

//go:build browser

package page

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/promtable/promtable/e2e/harness"
)

// openAll shows the page with the parameters in the URL, of which one may be there several times: names and values in turn.
func (p *browserPage) openAll(parameters ...string) {
	p.Helper()
	values := url.Values{}
	for pair := range slices.Chunk(parameters, 2) {
		values.Add(pair[0], pair[1])
	}
	p.visit("?" + values.Encode())
}

// wantLines wants these lines of a graph to be drawn, by their place in the list, and no others.
func (p *browserPage) wantLines(want ...int) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("the lines %v are drawn", want), func() error {
		var got []int
		for i, l := range p.lines() {
			if l.Pixels > 0 {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("drawn are %v", got)
		}
		return nil
	})
}

// clickLine clicks the name of a line.
func (p *browserPage) clickLine(i int, modifiers string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		document.querySelectorAll("#query button.line")[%d].dispatchEvent(new MouseEvent("click", { bubbles: true, %s }));
		return true;
	})()`, i, modifiers))
}

// TestPageLegend shows lines alone and hides them, and wants this to be in the URL.
func TestPageLegend(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	level := func(host string) string { return `draw_level{host="` + host + `", job="j"}` }
	want := func(only, off []string) {
		t.Helper()
		if got := p.parameters(); !slices.Equal(got["only"], only) || !slices.Equal(got["off"], off) {
			t.Errorf("the URL says only %q and off %q, want %q and %q", got["only"], got["off"], only, off)
		}
	}
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "1m")
		asked := len(p.asked("/api/v1/query_range"))
		if got := p.texts(".shared"); !slices.Equal(got, []string{`Common labels: draw_level{job="j"}`}) {
			t.Errorf("shared is %q", got)
		}
		p.clickLine(1, "")
		p.wantLines(1)
		want([]string{level("b")}, nil)
		p.clickLine(2, "ctrlKey: true")
		p.wantLines(1, 2)
		want([]string{level("b"), level("c")}, nil)
		p.checkContrast(look)
		p.shoot("legend-" + look)
		p.reload()
		p.wantLines(1, 2)
		p.clickLine(2, "")
		p.wantLines(2)
		p.clickLine(2, "")
		p.wantLines(0, 1, 2)
		want(nil, nil)
		p.clickLine(0, "metaKey: true")
		p.wantLines(1, 2)
		want(nil, []string{level("a")})
		if n := len(p.asked("/api/v1/query_range")) - asked; n != 1 { // by the reload
			t.Errorf("the graph was asked for %d times more", n)
		}
		// The same lines are hidden over another range, and none where none of them is left.
		p.click("#query .when-in")
		p.wantLines(1, 2)
		want(nil, []string{level("a")})
		p.back(`new URLSearchParams(location.search).get("range") === "3600"`)
		p.wantLines(1, 2)
		p.draw("draw_debt", "only", level("a"))
		p.wantLines(0)
		p.draw("draw_level", "off", level("a"))
		p.enter(expression, "draw_level * 1")
		p.wantLines(0, 1, 2)
		want(nil, nil)
	})
	// Where none were left, all are shown.
	p.draw("draw_debt")
	p.click("#query .legend input")
	p.wantLines(0)
}

// TestPageCopy copies the selector of a line, with and without a clipboard of the browser.
func TestPageCopy(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	for name, script := range map[string]string{
		"clipboard": `Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text } } })`,
		"refused":   `Object.defineProperty(navigator, "clipboard", { value: { writeText: async () => { throw new Error("no") } } }); document.execCommand = () => { window.copied = document.activeElement.value; return true }`,
		"none":      `Object.defineProperty(navigator, "clipboard", { value: undefined }); document.execCommand = () => { window.copied = document.activeElement.value; return true }`,
	} {
		p.load(append([]string{"expr", "draw_level"}, drawLink...)...) // without what the script before has changed
		p.awaitEditors()
		evaluate[bool](p, "(() => { "+script+"; return true })()")
		p.click("#query tr:nth-child(2) .copy")
		p.await(`document.activeElement.matches(".copy.done")`)
		if got := evaluate[string](p, "window.copied"); got != `draw_level{host="b", job="j"}` {
			t.Errorf("%s: copied is %q", name, got)
		}
	}
}

// TestPageLetters wants the lines of several expressions in one graph, each with the letter of its own, and an error beside them.
func TestPageLetters(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	link := append([]string{"tab", "query"}, drawLink...)
	p.eachLook(func(look string) {
		p.openAll(append(slices.Clone(link), "expr", "draw_debt", "expr", "draw_used_bytes", "expr", `draw_level{host="a"}`, "hide", "1")...)
		p.wantRows(0, [][]string{{`A draw_debt`, "", "-5", "-5", "-5", "-5"}, {`C draw_level{job="j"}`, "", "10", "10", "10", "10"}})
		p.wantLines(0, 1)
		p.clickLine(1, "")
		p.wantLines(1)
		p.wantParameters("only", `C draw_level{host="a", job="j"}`)
		p.shoot("letters-" + look)
	})
	// Of values in different units none is written.
	p.openAll(append(slices.Clone(link), "expr", "draw_used_bytes", "expr", "draw_wait_seconds")...)
	if rows := p.rows(0); len(rows) != 2 || rows[0][2] != "3,145,728" || rows[1][2] != "0.0125" {
		t.Errorf("in different units the list has %q", rows)
	}
	p.expect("/api/v1/query_range", 400)
	p.openAll(append(slices.Clone(link), "expr", "sum(draw_debt", "expr", "draw_used_bytes")...)
	if rows, alerts := p.rows(0), p.texts("[role=alert]"); len(rows) != 1 || len(alerts) != 1 || !strings.Contains(alerts[0], "Line 1, column ") {
		t.Errorf("beside an error the list has %q, and the page says %q", rows, alerts)
	}
}

// TestPageStrip wants what stands under a graph to be told where its axis of time is, also when the page becomes narrow.
func TestPageStrip(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.draw("draw_level")
	evaluate[bool](p, `(() => {
		import("./ui/query/graph.js").then(async ({ graph }) => {
			const { unit } = await import("./ui/query/units.js");
			const node = document.createElement("p");
			const made = graph([{ letter: "A", result: [{ metric: {}, values: [[100, "1"], [200, "2"]] }] }], { start: 50, end: 250, step: 100 }, {
				mode: "lines", unit: unit(""), shown: { only: [], off: [] }, onShown() {}, onZoom() {}, onZoomOut() {},
				strip: () => ({ node, place: (at) => { window.placed = at; } }),
			});
			document.querySelector("#query .result").replaceChildren(...made.nodes);
			made.draw(new AbortController().signal);
			window.isUnder = node.isConnected;
		});
		return true;
	})()`)
	for _, width := range []int64{1200, 500} {
		p.width(width)
		p.await(`window.isUnder === true && (() => {
			const { offsetLeft, offsetWidth } = document.querySelector("#query .u-over"), { left, width, from, to } = window.placed ?? {};
			return left === offsetLeft && width === offsetWidth && from === 50 && to === 250;
		})()`)
	}
}

// TestPageRefresh wants a graph up to now to be asked for again, and to stay while it is read or cannot be had.
func TestPageRefresh(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	send := func(v float64) {
		t.Helper()
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SentSeries{Labels: []string{"__name__", "page_gauge", "instance", "b"}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), v)}})
	}
	last := func(want string) {
		t.Helper()
		harness.Eventually(t, "the last value is "+want, func() error {
			if got := p.cell(0, 2, 2); got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	p.onOpen(`(() => {
		const ask = fetch;
		window.fetch = (url, options) => (window.isBroken && String(url).includes("query_range") ? Promise.reject(new TypeError("broken")) : ask(url, options));
	})()`)
	p.open("expr", "page_gauge", "view", "graph", "refresh", "1s", "range", "300")
	p.clickLine(2, "")
	evaluate[bool](p, `(() => { window.canvas = document.querySelector("#query canvas"); return true })()`)
	send(1234)
	last("1,234")
	p.wantLines(2)
	if !evaluate[bool](p, `window.canvas === document.querySelector("#query canvas")`) {
		t.Error("the graph was made anew")
	}

	// It fails, says so, and goes on.
	evaluate[bool](p, `(() => { window.isBroken = true; return true })()`)
	p.await(`document.querySelector("#query .result [role=alert]")?.innerText.includes("The page retries every 1s") ?? false`)
	last("1,234")
	send(1235)
	evaluate[bool](p, `(() => { window.isBroken = false; return true })()`)
	last("1,235")
	p.await(`document.querySelector("#query .result [role=alert]") === null`)

	// Another series comes, and the choice stays.
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SentSeries{Labels: []string{"__name__", "page_gauge", "instance", "a0"}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 5)}})
	p.await(`document.querySelectorAll("#query tbody tr").length === 4`)
	p.wantLines(3)

	// While a point is pinned, or the page is not to be seen, nothing is asked for.
	plot := p.plot()
	quiet := func(when string) {
		t.Helper()
		const asked = `performance.getEntriesByType("resource").filter((e) => e.name.includes("query_range")).length`
		evaluate[bool](p, `(() => { window.asked = `+asked+`; window.since = performance.now(); return true })()`)
		p.await(`performance.now() - window.since > 2500`)
		if n := evaluate[int](p, asked+" - window.asked"); n > 1 { // one may have been on its way
			t.Errorf("while %s the graph is asked for %d times", when, n)
		}
	}
	p.do(chromedp.MouseClickXY(plot.X+plot.Width-30, plot.Y+plot.Height/2))
	p.await(tip + ` !== null`)
	quiet("a point is pinned")
	if got := p.tip(); len(got) == 0 {
		t.Error("the pinned point is gone")
	}
	hidden := func(is bool) {
		evaluate[bool](p, fmt.Sprintf(`(() => {
			Object.defineProperty(document, "hidden", { value: %t, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"));
			return true;
		})()`, is))
	}
	hidden(true)
	p.do(chromedp.MouseClickXY(plot.X+plot.Width-30, plot.Y+plot.Height/2))
	quiet("the page is hidden")
	send(1236)
	hidden(false)
	harness.Eventually(t, "the last value is new", func() error {
		if got := p.cell(0, 3, 2); got != "1,236" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	// What ends at a time is not asked for again.
	p.open("expr", "page_gauge", "view", "graph", "refresh", "1s", "end", "2026-03-04T05:00:00Z")
	p.wantParameters("refresh", "1s")
	if got := evaluate[string](p, `document.querySelector("#query select[name=refresh]").value`); got != "1s" {
		t.Errorf("the form says %q", got)
	}
}

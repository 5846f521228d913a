//go:build browser

package page

import (
	"fmt"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// sendMany stores the series from-to of a metric now.
func sendMany(t testing.TB, a *harness.Adapter, name string, from, to int) {
	t.Helper()
	var series []harness.SentSeries
	for i := from; i < to; i++ {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", name, "n", fmt.Sprintf("%03d", i)}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
}

// awaitCell waits until the first cell of a table of the tab is this.
func (p *browserPage) awaitCell(text string) {
	p.Helper()
	p.await(fmt.Sprintf(`%s.querySelector("tbody:not(.pad) tr td")?.innerText === %q`, shown, text))
}

// TestPageRefreshMore: the button that shows more lines comes with the first series that is not shown.
func TestPageRefreshMore(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	sendMany(t, a, "grown", 0, 60)
	p.open("expr", "grown", "view", "graph", "range", "300", "refresh", "1s")
	if got := p.texts("p button"); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
	sendMany(t, a, "grown", 60, 61)
	p.await(`[...document.querySelectorAll("#query .result p button")].some((b) => b.innerText.startsWith("Show 240"))`)
	evaluate[bool](p, `(() => { window.facts = document.querySelector("#query .facts").textContent; document.querySelector("#query .result p button").focus(); return true })()`)
	p.await(`document.querySelector("#query .facts").textContent !== window.facts`)
	if !evaluate[bool](p, `document.activeElement.matches("#query .result p button")`) {
		t.Error("the button loses the focus")
	}
}

// TestPageRefreshChosen: the order and the search of a table are those of the table that takes its place.
func TestPageRefreshChosen(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	sendMany(t, a, "some", 0, 190)
	wantSort := func(want string) {
		t.Helper()
		p.await(shown + `.querySelector("th:nth-child(2)")?.ariaSort === "` + want + `"`)
	}
	// While the answer is empty, or an error, the table is away.
	p.onOpen(`(() => {
		const ask = fetch;
		window.fetch = async (url, options) => {
			const answer = await ask(url, options);
			if (!window.other || !String(url).match(/query$|current\?/)) {
				return answer;
			}
			return window.other === "error" && !String(options.body.get("query")).includes("vector") ? new Response(JSON.stringify({ status: "error", error: "broken" }), { status: 422 })
				: new Response(JSON.stringify({ status: "success", data: { resultType: "vector", result: [], samples: [], rowsRead: 0 } }));
		};
	})()`)
	p.open("expr", "some", "refresh", "1s")
	p.click("#query th:nth-child(2) button")
	p.click("#query th:nth-child(2) button")
	p.awaitCell(`some{n="189"}`)
	evaluate[bool](p, `(() => { window.other = "empty"; return true })()`)
	p.await(shown + `.querySelector("td") === null`)
	evaluate[bool](p, `(() => { window.other = ""; return true })()`)
	p.awaitCell(`some{n="189"}`)
	wantSort("descending")
	// More rows than are shown at once need a table with a search.
	sendMany(t, a, "some", 190, 250)
	p.awaitCell(`some{n="249"}`)
	wantSort("descending")
	p.enter("#query .pages input", "n=\"1")
	p.awaitCell(`some{n="199"}`)
	evaluate[bool](p, `(() => { window.other = "empty"; return true })()`)
	p.await(shown + `.querySelector("td") === null`)
	sendMany(t, a, "some", 250, 251)
	evaluate[bool](p, `(() => { window.other = ""; return true })()`)
	p.awaitCell(`some{n="199"}`)
	p.await(shown + `.querySelector(".pages input").value === 'n="1'`)
	// One of two expressions fails for a time.
	p.openAll("expr", "some", "expr", "vector(1)", "refresh", "1s")
	p.click("#query th:nth-child(2) button")
	p.click("#query th:nth-child(2) button")
	p.awaitCell(`some{n="250"}`)
	evaluate[bool](p, `(() => { window.other = "error"; return true })()`)
	p.await(shown + `.querySelector("[role=alert]") !== null`)
	evaluate[bool](p, `(() => { window.other = ""; return true })()`)
	p.awaitCell(`some{n="250"}`)
	wantSort("descending")

	// The list of the latest samples becomes one that is scrolled.
	sendMany(t, a, "list", 0, 190)
	p.open("tab", "latest", "filter", "list", "refresh", "1s")
	p.click("#latest th:nth-child(2) button")
	p.click("#latest th:nth-child(2) button")
	p.awaitCell(`list{n="189"}`)
	sendMany(t, a, "list", 190, 250)
	p.awaitCell(`list{n="249"}`)
	p.await(`document.querySelector("#latest .virtual") !== null`)
	wantSort("descending")
	evaluate[bool](p, `(() => { document.querySelector("#latest .virtual input").focus(); return true })()`)
	p.press(`"1`)
	p.awaitCell(`list{n="199"}`)
	evaluate[bool](p, `(() => { window.other = "empty"; return true })()`)
	p.await(shown + `.querySelector("td") === null`)
	evaluate[bool](p, `(() => { window.other = ""; return true })()`)
	p.awaitCell(`list{n="199"}`)
	wantSort("descending")
}

//go:build browser

package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// sendNow stores a value of a series of page_gauge at this time.
func sendNow(t testing.TB, a *harness.Adapter, instance string, v float64) {
	t.Helper()
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"),
		harness.SentSeries{Labels: []string{"__name__", "page_gauge", "instance", instance}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), v)}})
}

// awaitRow waits until the i-th row of the table of a tab has these first cells.
func (p *browserPage) awaitRow(i int, cells ...string) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("row %d is %q", i, cells), func() error {
		if rows := p.rows(0); len(rows) <= i || !slices.Equal(rows[i][:len(cells)], cells) {
			return fmt.Errorf("the rows are %q", rows)
		}
		return nil
	})
}

// quietly does something and wants no request to a path while refreshes would ask twice.
func (p *browserPage) quietly(path string) {
	p.Helper()
	asked := `performance.getEntriesByType("resource").filter((e) => new URL(e.name).pathname.endsWith("` + path + `")).length`
	evaluate[bool](p, `(() => { performance.setResourceTimingBufferSize(100_000); window.asked = `+asked+`; window.since = performance.now(); return true })()`)
	p.await(`performance.now() - window.since > 2500`)
	if n := evaluate[int](p, asked+" - window.asked"); n > 1 { // one may have been on its way
		p.Errorf("%s is asked for %d times", path, n)
	}
}

// selectCell marks the text of a cell of the first row.
func (p *browserPage) selectCell(n int) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { getSelection().selectAllChildren(%s.querySelector("tbody:not(.pad) tr td:nth-child(%d)")); return true })()`, shown, n))
}

// TestPageRefreshTable: a table is asked for again, in its order, with its focus, and not while text of it is marked.
func TestPageRefreshTable(t *testing.T) {
	a := startPaged(t)
	p := newPage(t, a)
	p.open("expr", "page_gauge", "refresh", "1s")
	p.click("#query th:nth-child(2) button")
	p.click("#query th:nth-child(2) button") // the greatest first
	p.awaitRow(0, `page_gauge{instance="b"}`, "42")
	evaluate[bool](p, `(() => { window.row = document.querySelector("#query tbody").rows[0]; return true })()`)
	sendNow(t, a, "a", 100)
	p.awaitRow(0, `page_gauge{instance="a"}`, "100")
	p.awaitRow(1, `page_gauge{instance="b"}`, "42")
	if !evaluate[bool](p, `window.row === document.querySelector("#query tbody").rows[1]`) {
		t.Error("a row that says the same was made anew")
	}
	if got := p.focused().Name; got != "Value" {
		t.Errorf("the keyboard is at %s", got)
	}
	if order := evaluate[string](p, `document.querySelector("#query th:nth-child(2)").ariaSort`); order != "descending" {
		t.Errorf("it is sorted %s", order)
	}
	if said := evaluate[string](p, `document.getElementById("announcement").textContent`); !strings.HasSuffix(said, " It refreshes every 1s.") {
		t.Errorf("screen readers say %q", said)
	}
	// A series more.
	sendNow(t, a, "c", 200)
	p.awaitRow(0, `page_gauge{instance="c"}`, "200")
	p.selectCell(1)
	p.quietly("/api/v1/query")
	if got := evaluate[string](p, "String(getSelection())"); got != `page_gauge{instance="c"}` {
		t.Errorf("marked is %q", got)
	}
	sendNow(t, a, "c", 201)
	evaluate[bool](p, `(() => { getSelection().empty(); return true })()`)
	p.awaitRow(0, `page_gauge{instance="c"}`, "201")

	// Two expressions, and a page that is scrolled.
	p.openAll("expr", "page_gauge", "expr", "page_many or page_gauge * 2", "refresh", "1s")
	evaluate[bool](p, `(() => { scrollTo(0, 900); return true })()`)
	sendNow(t, a, "a", 300)
	p.awaitRow(1, `page_gauge{instance="a"}`, "300")
	if y := evaluate[float64](p, "scrollY"); y != 900 {
		t.Errorf("the page is scrolled to %g", y)
	}
	if got := p.texts("h2"); !slices.Equal(got, []string{"A page_gauge", "B page_many or page_gauge * 2"}) {
		t.Errorf("the headings are %q", got)
	}
	// What is unfolded stays so.
	p.open("expr", "page_seconds", "refresh", "1s")
	p.click("#query td summary")
	before := p.texts(".answer-facts .facts")
	harness.Eventually(t, "the histogram is asked for again", func() error {
		if got := p.texts(".answer-facts .facts"); slices.Equal(got, before) {
			return fmt.Errorf("the facts are %q", got)
		}
		return nil
	})
	if got := p.texts(".buckets li"); len(got) != 3 {
		t.Errorf("of the buckets there are %q", got)
	}
}

// TestPageRefreshLatest: the current samples are asked for again, in a table and in a list that is scrolled.
func TestPageRefreshLatest(t *testing.T) {
	a := startPaged(t)
	p := newPage(t, a)
	p.open("tab", "latest", "filter", "page_gauge", "refresh", "1s")
	p.wantParameters("refresh", "1s")
	sendNow(t, a, "b", 43)
	p.awaitRow(2, `page_gauge{instance="b"}`, "43")
	sendNow(t, a, "c", 9)
	p.awaitRow(3, `page_gauge{instance="c"}`, "9")
	p.selectCell(2)
	p.quietly("/api/v1/current")

	var many []harness.SentSeries
	for i := range 300 {
		many = append(many, harness.SentSeries{Labels: []string{"__name__", "page_scrolled", "n", fmt.Sprintf("%03d", i)}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), many...)
	p.eachLook(func(look string) {
		p.open("tab", "latest", "filter", "page_scrolled")
		p.checkContrast(look)
		p.shoot("refresh-latest-" + look)
		if wide := evaluate[int](p, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s: the page is %d px too wide", look, wide)
		}
	})
	p.choose("#latest select[name=refresh]", "5 s")
	p.wantParameters("refresh", "5s")
	p.open("tab", "latest", "filter", "page_scrolled", "refresh", "1s")
	p.click("#latest th:nth-child(2) button")
	evaluate[bool](p, `(() => {
		document.querySelector("#latest .virtual input").focus();
		return true;
	})()`)
	p.press(`"1`) // 100 series
	evaluate[bool](p, `(() => { document.querySelector(".virtual .rows").scrollTop = 600; return true })()`)
	p.await(`[...document.querySelectorAll("#latest .virtual a")].some((a) => a.innerText.includes('"140"'))`)
	evaluate[bool](p, `(() => { [...document.querySelectorAll("#latest .virtual a")].find((a) => a.innerText.includes('"140"')).focus({ preventScroll: true }); return true })()`)
	scrolled := evaluate[float64](p, `document.querySelector(".virtual .rows").scrollTop`)
	many[140].Points = []harness.Point{harness.PointAt(harness.NowMillis(), 140.5)}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), many[140])
	p.await(`document.activeElement.closest("tr")?.innerText.includes("140.5") ?? false`)
	p.wantFocus(`page_scrolled{n="140"}`)
	if got := evaluate[float64](p, `document.querySelector(".virtual .rows").scrollTop`); got != scrolled {
		t.Errorf("the list is scrolled to %g, was %g", got, scrolled)
	}
	if got := p.texts(".virtual span[role=status]"); !slices.Equal(got, []string{"100 of 300 rows"}) {
		t.Errorf("the list has %q", got)
	}
	// What is saved is as it is shown: the sample came after the page.
	_, saved := p.download(t.TempDir(), "#latest .table-tools button:last-child")
	for _, row := range p.cells(saved)[1:] {
		if mustFloat(t, row[2]) < 0 {
			t.Errorf("the age of %s is saved as %s", row[0], row[2])
		}
	}
	// At its end the list stays there.
	evaluate[bool](p, `(() => { const rows = document.querySelector(".virtual .rows"); rows.focus(); rows.scrollTop = rows.scrollHeight; return true })()`)
	p.await(`[...document.querySelectorAll("#latest .virtual tr")].at(-2)?.innerText.includes('"199"') ?? false`)
	end := evaluate[float64](p, `document.querySelector(".virtual .rows").scrollTop`)
	many[199].Points = []harness.Point{harness.PointAt(harness.NowMillis(), 199.5)}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), many[199])
	p.await(`[...document.querySelectorAll("#latest .virtual tr")].at(-2)?.innerText.includes("199.5") ?? false`)
	if got := evaluate[float64](p, `document.querySelector(".virtual .rows").scrollTop`); got != end {
		t.Errorf("the list is scrolled to %g, was %g at its end", got, end)
	}
}

// TestPageRefreshWaits: with an end of time a refresh waits and says so, and to choose one is to look at now.
func TestPageRefreshWaits(t *testing.T) {
	p := newPage(t, startPaged(t))
	const waits = `document.querySelector("#query .waits").checkVisibility()`
	p.eachLook(func(look string) {
		for _, view := range []string{"graph", "table"} {
			p.open("expr", "page_gauge", "view", view, "refresh", "5s", "end", "2026-03-04T05:00:00Z")
			p.wantParameters("refresh", "5s", "end", "2026-03-04T05:00:00Z")
			p.await(waits)
			p.await(`document.getElementById("announcement").textContent.endsWith("Refresh is paused: the range does not end now.")`)
			p.checkContrast(look)
			p.shoot("refresh-waits-" + view + "-" + look)
			if wide := evaluate[int](p, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
				t.Errorf("%s: the page is %d px too wide", look, wide)
			}
			p.click("#query .waits button")
			p.wantParameters("refresh", "5s", "end", "")
			p.await("!" + waits)
		}
	})
	p.open("expr", "page_gauge", "view", "graph", "end", "2026-03-04T05:00:00Z")
	p.choose("#query select[name=refresh]", "10 s")
	p.wantParameters("refresh", "10s", "end", "")
	p.await("!" + waits)
	p.await(`document.getElementById("announcement").textContent.endsWith("It refreshes every 10s.")`)
	p.back(`new URLSearchParams(location.search).get("end") === "2026-03-04T05:00:00Z"`)
	p.wantParameters("refresh", "")
	// Where it is turned off, the time stays.
	p.open("expr", "page_gauge", "view", "graph", "refresh", "5s", "end", "2026-03-04T05:00:00Z")
	p.choose("#query select[name=refresh]", "Off")
	p.wantParameters("refresh", "", "end", "2026-03-04T05:00:00Z")
}

// TestPageRefreshPast: what refreshes ask for is not what was run, and tabs of one browser share what was.
func TestPageRefreshPast(t *testing.T) {
	p := newPage(t, startPaged(t))
	p.open("expr", "page_gauge", "view", "graph", "refresh", "1s")
	other := p.newTab("expr", "page_many", "refresh", "1s")
	wantPast := func(want string) {
		t.Helper()
		if got := evaluate[string](p, `JSON.parse(localStorage.getItem("expressions")).join()`); got != want {
			t.Errorf("what was run is %s, want %s", got, want)
		}
	}
	refreshed := func() {
		t.Helper()
		for _, tab := range []struct {
			*browserPage
			path string
		}{{p, "query_range"}, {other, "query"}} {
			asked := `performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/api/v1/` + tab.path + `")).length`
			before := evaluate[int](tab.browserPage, asked)
			tab.await(fmt.Sprintf("%s >= %d", asked, before+2))
		}
	}
	refreshed()
	wantPast("page_many,page_gauge")
	p.enter(expression, "page_gauge * 2")
	refreshed()
	wantPast("page_gauge * 2,page_many,page_gauge")
	other.enter(expression, "page_many * 2")
	refreshed()
	wantPast("page_many * 2,page_gauge * 2,page_many,page_gauge")
}

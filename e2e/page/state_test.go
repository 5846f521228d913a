//go:build browser

package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/promtable/promtable/e2e/harness"
)

// zone makes the page be in another time zone.
func (p *browserPage) zone(name string) {
	p.Helper()
	p.isLoaded = false
	devtools(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
}

// wantQueryEnd wants the last query to have been for a time.
func (p *browserPage) wantQueryEnd(want string) {
	p.Helper()
	if got := evaluate[string](p, `new URLSearchParams(window.bodies.at(-1)).get("time")`); got != want {
		p.Errorf("in the URL %v the page asks for the time %s, want %s", p.parameters(), got, want)
	}
}

// noteBodies makes pages that are opened from now on keep what they post.
func (p *browserPage) noteBodies() {
	p.Helper()
	p.onOpen(`(() => {
		const ask = fetch;
		window.bodies = [];
		window.fetch = (url, options) => {
			if (options?.body) { window.bodies.push(String(options.body)); }
			return ask(url, options);
		};
	})()`)
}

// TestPageZones wants a link to show the same time in each zone.
func TestPageZones(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	p.noteBodies()
	p.zone("Europe/Berlin")
	p.open("expr", "time()")
	p.typeTime("2026-03-04 05:06:07")
	p.wantParameters("end", "2026-03-04T04:06:07Z")
	p.wantQueryEnd("1772597167")
	link := p.parameters()
	for _, c := range []struct{ zone, words string }{
		{"America/New_York", "2026-03-03 23:06:07 America/New_York"}, {"Asia/Kolkata", "2026-03-04 09:36:07 Asia/Calcutta"}, {"UTC", "2026-03-04 04:06:07 UTC"},
	} {
		p.zone(c.zone)
		p.open("expr", "time()", "end", link.Get("end"))
		p.wantQueryEnd("1772597167")
		if got := p.when(); got != c.words {
			t.Errorf("in %s the time is %s, want %s", c.zone, got, c.words)
		}
		p.click("#query button.primary")
		p.wantParameters("end", link.Get("end"))
	}
	p.open("expr", "time()", "end", "1772597167")
	p.wantQueryEnd("1772597167")

	// A link of before, and the second of two hours that clocks call the same.
	p.zone("Europe/Berlin")
	p.open("expr", "time()", "end", "2026-03-04T05:06:07")
	p.wantQueryEnd("1772597167")
	p.wantParameters("expr", "time()", "end", link.Get("end"))
	p.open("expr", "time()", "end", "2025-10-26T01:30:00Z")
	p.click("#query button.primary")
	p.wantParameters("end", "2025-10-26T01:30:00Z")
	p.wantQueryEnd("1761442200")

	for _, end := range []string{"soon", "2026-13-40T05:06:07"} {
		p.open("expr", "time()", "end", end)
		if got := p.texts("[role=alert]"); len(got) != 1 || got[0] != "Invalid end time in the URL: "+end {
			t.Errorf("of an end that is no time the page says %q", got)
		}
	}
}

// TestPagePrometheusLinks opens links to Prometheus' page.
func TestPagePrometheusLinks(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	p.noteBodies()
	for _, path := range []string{"graph", "query"} {
		p.do(chromedp.Navigate("http://" + p.host + "/" + path + "?g0.expr=vector(7)&g0.tab=0&g0.range_input=1h&g0.end_input=2026-03-04%2005%3A06%3A07"))
		p.settle()
		p.wantParameters("expr", "vector(7)", "view", "graph", "range", "3600", "end", "2026-03-04T05:06:07Z")
		p.wantRows(0, [][]string{{"{}", "", "7", "7", "7", "7"}})
		if got := evaluate[string](p, `new URLSearchParams(window.bodies.at(-1)).get("end")`); got != "1772600767" {
			t.Errorf("the page asks up to %s", got)
		}
	}
}

// TestPageNewestSample wants a query without a result to say where the samples are, and to lead there.
func TestPageNewestSample(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	const last = 1_772_600_767_000
	send := func(tb testing.TB, t int64, n string) {
		harness.RemoteWrite2().MustSend(tb, a.URL("/api/v1/write"), harness.SentSeries{Labels: []string{"__name__", "old_total", "n", n}, Points: []harness.Point{harness.PointAt(t-60_000, 4), harness.PointAt(t, 5)}})
	}
	send(t, last-3_600_000, "1")
	send(t, last, `2"`)
	p := newPage(t, a)
	p.eachLook(func(look string) {
		for view, want := range map[string][]string{"table": {`old_total{n="2\""}`, "5"}, "graph": {`{n="2\""}`, "", "5"}} {
			p.open("expr", "old_total > 1", "view", view)
			if got := p.texts("p:last-child"); len(got) != 1 || !strings.HasPrefix(got[0], "The newest sample is at 2026-03-04 10:36:07.") { // in Kolkata
				t.Errorf("the page says %q", got)
			}
			p.checkContrast(look)
			p.shoot("newest-sample-" + look)
			p.click("#query .result p button")
			p.wantParameters("expr", "old_total > 1", "view", view, "end", "2026-03-04T05:06:07Z")
			if rows := p.rows(0); !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r[:len(want)], want) }) {
				t.Errorf("as a %s there is %q", view, rows)
			}
		}
	})
	for _, expr := range []string{"none", "vector(1) == 2", `rate(none{x=~"a.*"}[5m]) + sum(none)`} {
		p.open("expr", expr)
		if got := p.texts("p button"); len(got) != 0 {
			t.Errorf("of %s the page says %q", expr, got)
		}
	}
}

// TestPageUTC shows all times in UTC, and local again.
func TestPageUTC(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	p.noteLabels()
	const end = "2026-03-04T05:06:07Z"
	p.eachLook(func(look string) {
		for _, c := range []struct{ choice, zone, words string }{
			{"UTC", "Times are in UTC", "2026-03-03 05:06:07 – 2026-03-04 05:06:07 UTC"},
			{"Local", "Times are in Asia/Calcutta", "2026-03-03 10:36:07 – 2026-03-04 10:36:07 Asia/Calcutta"},
		} {
			p.open("expr", "vector(1)", "view", "graph", "range", "86400", "end", end)
			p.choose("#times", c.choice)
			for range 2 { // it is kept
				p.checkLabels(c.choice + " " + look)
				if _, times := p.labels(); slices.ContainsFunc(times, func(l label) bool { return !strings.HasSuffix(l.Text, ":00") && !strings.HasPrefix(l.Text, "2026-") }) {
					t.Errorf("%s: the labels are not of whole hours: %v", c.choice, times)
				}
				if got := p.when(); got != c.words {
					t.Errorf("%s: the time is %s, want %s", c.choice, got, c.words)
				}
				if got := p.texts(".graph-zone span"); !slices.Equal(got, []string{c.zone}) {
					t.Errorf("%s: the zone is called %s", c.choice, got)
				}
				_, end, _ := strings.Cut(c.words, " – ")
				if got := evaluate[string](p, `document.querySelector("#query .graph").getAttribute("aria-label")`); !strings.HasSuffix(got, strings.Join(strings.Fields(end)[:2], " ")) {
					t.Errorf("%s: the graph is called %q", c.choice, got)
				}
				p.checkContrast(look)
				p.shoot("zone-" + c.choice + "-" + look)
				p.reload()
			}
			p.wantParameters("end", end)
		}
	})
	p.choose("#times", "UTC")
	p.typeTime("2026-03-04 05:06:08")
	p.wantParameters("end", "2026-03-04T05:06:08Z")
}

// TestPageTabs wants tabs to be as they were left.
func TestPageTabs(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.eachLook(func(string) {
		p.open("expr", "page_gauge", "range", "21600")
		p.enter(expression, "page_gauge * 2")
		p.press(" + 1")
		p.click("nav a[data-tab=latest]")
		p.enter("#latest input", "gauge")
		p.click("nav a[data-tab=status]")
		p.click("nav a[data-tab=query]")
		p.wantParameters("expr", "page_gauge * 2", "range", "21600")
		if got := p.expressions(); !slices.Equal(got, []string{"page_gauge * 2 + 1"}) {
			t.Errorf("what was typed is %q", got)
		}
		if rows := p.rows(0); len(rows) != 3 || rows[2][1] != "84" {
			t.Errorf("the result is %q", rows)
		}
		p.click("nav a[data-tab=latest]")
		p.wantParameters("filter", "gauge")
		p.wantLatest(pageGauges())
		p.back(`new URLSearchParams(location.search).get("tab") === "query"`)
		p.wantParameters("expr", "page_gauge * 2")
		p.click("h1 a")
		if got := p.expressions(); !slices.Equal(got, []string{""}) {
			t.Errorf("the front page has the expressions %q", got)
		}
	})
}

// TestPageUnreachable wants the page to say that the adapter is gone, and to show
// the result when it is back.
func TestPageUnreachable(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := startBrowser(t, a.Addr) // whose requests fail, as they must
	p.eachLook(func(look string) {
		p.open("expr", "page_gauge")
		p.wantRows(0, pageGauges())
		a.Terminate(t)
		p.click("#query button.primary")
		if got := p.texts("[role=alert]"); len(got) != 1 || !strings.HasPrefix(got[0], "The adapter at "+a.Addr+" does not answer.") {
			t.Errorf("without an adapter the page says %q", got)
		}
		p.checkContrast(look)
		p.shoot("unreachable-" + look)
		a.Rerun(t)
		p.await(shown + `.querySelectorAll("tbody tr").length === 3`)
		p.wantRows(0, pageGauges())
	})
	p.open("tab", "status")
	a.Terminate(t)
	p.await(shown + `.querySelector("[role=alert]")?.innerText.includes("does not answer") ?? false`)
	if len(p.tiles()) == 0 {
		t.Error("the numbers are gone")
	}
	a.Rerun(t)
	p.await(shown + `.querySelector("[role=alert]") === null`)
}

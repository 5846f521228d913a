//go:build browser

package page

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"

	"github.com/promtable/promtable/e2e/harness"
)

// download clicks what a selector of CSS finds first, and returns the name and the text of the file that comes of it.
func (p *browserPage) download(dir, selector string) (name, text string) {
	p.Helper()
	devtools(p, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: p.owner(), DownloadPath: dir})
	p.click(selector)
	harness.Eventually(p, "the file is there", func() error {
		files, err := filepath.Glob(filepath.Join(dir, "*.[cp][sn][vg]"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("there are %q, %v", files, err)
		}
		content, err := os.ReadFile(files[0])
		name, text = filepath.Base(files[0]), string(content)
		if err == nil && text == "" {
			return fmt.Errorf("%s is empty: the browser keeps its name, and moves the file there when it is whole", name)
		}
		return err
	})
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		p.Fatal(err)
	}
	return name, text
}

// cells reads a file as RFC 4180 says.
func (p *browserPage) cells(text string) [][]string {
	p.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		p.Fatal(err)
	}
	if strings.Count(text, "\r\n") != len(rows) || !strings.HasSuffix(text, "\r\n") {
		p.Errorf("the lines of %q do not end in CRLF", text)
	}
	return rows
}

// said waits until the page has said a sentence to screen readers.
func (p *browserPage) said(part string) {
	p.Helper()
	p.await(fmt.Sprintf(`document.getElementById("announcement").textContent.includes(%q)`, part))
}

const tableEnd = "2026-03-04T05:06:07Z"

// startTabled starts an adapter with samples at a fixed time.
func startTabled(t testing.TB) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t))
	const end = 1_772_600_767_000
	var points []harness.Point
	for i := range 40 {
		points = append(points, harness.PointAt(end-int64(39-i)*15_000, float64(i)))
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"),
		harness.SentSeries{Labels: []string{"__name__", "tabled", "job", "a,b", "path", `/"x"`}, Points: points},
		harness.SentSeries{Labels: []string{"__name__", "tabled", "job", "tab\there\nand there"}, Points: points[30:]},
		harness.SentSeries{Labels: []string{"__name__", "tabled_now"}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 1)}},
		harness.SentSeries{Labels: []string{"__name__", "tabled_seconds"}, Histograms: [][]byte{pageHistogram(t, end)}})
	return a
}

// TestPageBidirectional: control characters of the direction of text are shown as what they are, and turn no line around.
func TestPageBidirectional(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	const evil = "a\u202eb\u2066c\u200fd"
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SentSeries{Labels: []string{"__name__", "page_turned", "path", evil}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 5)}})
	p := newPage(t, a)
	const shown = `a\u202eb\u2066c\u200fd`
	for _, c := range []struct {
		parameters []string
		want       string
	}{
		{[]string{"expr", "page_turned"}, `page_turned{path="` + shown + `"}`},
		{[]string{"expr", "page_turned", "columns", "1"}, shown},
		{[]string{"expr", "page_turned", "view", "graph"}, `page_turned{path="` + shown + `"}`},
		{[]string{"tab", "latest", "filter", "page_turned"}, `page_turned{path="` + shown + `"}`},
		{[]string{"tab", "explore", "metric", "page_turned", "label", "path"}, shown},
		{[]string{"tab", "cardinality", "match", "page_turned", "focus", "path"}, shown},
	} {
		p.open(c.parameters...)
		if all := p.texts("tbody td *, tbody td"); !slices.Contains(all, c.want) {
			t.Errorf("%q: %q is not in %q", c.parameters, c.want, all)
		}
		if left := evaluate[[]string](p, `[...document.querySelectorAll("main *")].flatMap((e) => [...e.getAttributeNames().filter((n) => n !== "href" && n !== "value").map((n) => e.getAttribute(n)), ...[...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data)])
			.filter((text) => /[\u200f\u202e\u2066]/.test(text))`); len(left) > 0 {
			t.Errorf("%q: the page has %+q", c.parameters, left)
		}
	}
	// A link leads to the series, and what is saved is as it is stored.
	p.open("tab", "latest", "filter", "page_turned")
	p.click("#latest tbody a")
	p.await(`document.querySelectorAll("#query .result tbody tr").length === 1`)
	p.open("expr", "page_turned", "columns", "1")
	if _, text := p.download(t.TempDir(), "#query .table-tools button:last-child"); !strings.Contains(text, evil) {
		t.Errorf("saved is %+q", text)
	}
}

// TestPageCSV saves tables as files, with all that their cells shorten.
func TestPageCSV(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTabled(t))
	dir := t.TempDir()
	long := "tab\there\nand there"
	for _, c := range []struct {
		parameters []string
		want       [][]string
	}{
		{[]string{"expr", "tabled", "end", tableEnd}, [][]string{
			{"Series", "Time", "Value"},
			{`tabled{job="a,b", path="/\"x\""}`, tableEnd, "39"},
			{`tabled{job="tab\there\nand there"}`, tableEnd, "39"},
		}},
		{[]string{"expr", "tabled", "end", tableEnd, "columns", "1"}, [][]string{
			{"Metric", "job", "path", "Time", "Value"},
			{"tabled", "a,b", `/"x"`, tableEnd, "39"},
			{"tabled", long, "", tableEnd, "39"},
		}},
		{[]string{"expr", `tabled{job="a,b"}[30s]`, "end", tableEnd}, [][]string{
			{"Series", "Time", "Value"},
			{`tabled{job="a,b", path="/\"x\""}`, "2026-03-04T05:05:52Z", "38"},
			{`tabled{job="a,b", path="/\"x\""}`, tableEnd, "39"},
		}},
		{[]string{"expr", "tabled_seconds", "end", tableEnd}, [][]string{
			{"Series", "Time", "Value"},
			{"tabled_seconds", tableEnd, "{count:12, sum:33.5, (0.5,1]:3, (1,2]:4, (4,8]:5}"},
		}},
		{[]string{"expr", "scalar(vector(1)) / 0", "end", tableEnd}, [][]string{{"Value", "Time"}, {"+Inf", tableEnd}}},
	} {
		p.open(c.parameters...)
		name, text := p.download(dir, `#query .table-tools button:last-child`)
		if rows := p.cells(text); name != "promtable-query.csv" || !slices.EqualFunc(rows, c.want, slices.Equal) {
			t.Errorf("of %q the file %s has %q, want %q", c.parameters, name, rows, c.want)
		}
	}
	p.open("tab", "cardinality")
	name, text := p.download(dir, "#cardinality .table-tools button:last-child")
	if rows := p.cells(text); name != "promtable-cardinality-series-by-metric.csv" || len(rows) != 2 || !slices.Equal(rows[1], []string{"tabled_now", "1", "1"}) {
		t.Errorf("the file %s has %q", name, rows)
	}
}

// TestPageCopy copies a table, with and without the object that pages over plain HTTP lack.
func TestPageCopyRows(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTabled(t))
	for _, permission := range []string{"clipboard-read", "clipboard-write"} {
		devtools(p, browser.SetPermission, browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: permission}, Setting: browser.PermissionSettingGranted, BrowserContextID: p.owner()})
	}
	p.onOpen(`(() => {
		const clipboard = navigator.clipboard;
		window.read = () => clipboard.readText().then((text) => window.clip = text);
		if (location.search.includes("plain")) {
			Object.defineProperty(navigator, "clipboard", { value: undefined });
		}
	})()`)
	for _, kind := range []string{"secure", "plain"} {
		p.open("expr", "tabled", "end", tableEnd, "columns", "1", "kind", kind)
		evaluate[bool](p, `(() => { window.clip = undefined; return true })()`)
		p.click("#query .table-tools button")
		p.said("2 rows copied.")
		if focus := p.focused().Name; focus != "Copy the rows" {
			t.Errorf("%s: the keyboard is at %q", kind, focus)
		}
		evaluate[bool](p, `(() => { window.read(); return true })()`)
		p.await("window.clip !== undefined")
		want := "Metric\tjob\tpath\tTime\tValue\ntabled\ta,b\t/\"x\"\t" + tableEnd + "\t39\ntabled\ttab here and there\t\t" + tableEnd + "\t39"
		if got := evaluate[string](p, "window.clip"); got != want {
			t.Errorf("%s: the clipboard has %q, want %q", kind, got, want)
		}
	}
}

// checkTaken wants each table to be one that can be taken along.
func (p *browserPage) checkTaken(what string) {
	p.Helper()
	if bare := evaluate[int](p, fmt.Sprintf(`[...%s.querySelectorAll(".result table")].filter((t) => t.closest(".table")?.querySelectorAll(".table-tools button").length !== 2).length`, shown)); bare > 0 {
		p.Errorf("%s: %d tables cannot be copied", what, bare)
	}
	if live := evaluate[int](p, `document.querySelectorAll(".result[aria-live]").length`); live > 0 {
		p.Errorf("%s: %d results are read as a whole by screen readers", what, live)
	}
}

// TestPageColumns shows labels as columns, and goes back.
func TestPageColumns(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTabled(t))
	p.eachLook(func(look string) {
		p.open("expr", "tabled", "end", tableEnd)
		p.wantHeadings("Series", "Value")
		p.click("#query .choice input")
		p.wantParameters("columns", "1", "expr", "tabled", "end", tableEnd)
		p.wantHeadings("Metric", "job", "path", "Value")
		if rows := p.rows(0); len(rows) != 2 || !slices.Equal(rows[0], []string{"tabled", "a,b", `/"x"`, "39"}) {
			t.Errorf("the rows are %q", rows)
		}
		p.await(`document.activeElement.matches("#query .choice input:checked")`)
		p.checkContrast("columns " + look)
		p.shoot("columns-" + look)
		p.click("#query th:nth-child(3) button") // sorted by path, the one without first
		if rows := p.rows(0); rows[0][2] != "" {
			t.Errorf("sorted by path: %q", rows)
		}
		p.reload()
		p.wantHeadings("Metric", "job", "path", "Value")
		p.click("#query .choice input")
		p.wantHeadings("Series", "Value")
		p.back(`new URLSearchParams(location.search).get("columns") === "1"`)
		p.wantHeadings("Metric", "job", "path", "Value")
	})
}

func (p *browserPage) wantHeadings(want ...string) {
	p.Helper()
	if got := p.texts("thead th"); !slices.Equal(got, want) {
		p.Errorf("the headings are %q, want %q", got, want)
	}
}

// TestPageKinds shows range vectors and strings so that they can be read.
func TestPageKinds(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTabled(t))
	p.eachLook(func(look string) {
		p.open("expr", `tabled{job="a,b"}[45s]`, "end", tableEnd)
		if got := p.texts(".samples li"); !slices.Equal(got, []string{"2026-03-04 10:35:37\n37", "2026-03-04 10:35:52\n38", "2026-03-04 10:36:07\n39"}) {
			t.Errorf("three samples are %q", got)
		}
		p.open("expr", `tabled{job="a,b"}[10m]`, "end", tableEnd)
		if got := p.texts("summary"); !slices.Equal(got, []string{"40 samples from 2026-03-04 10:26:22 to 2026-03-04 10:36:07, the last is 39"}) {
			t.Errorf("the samples are called %q", got)
		}
		p.click("#query summary")
		p.await(`document.querySelectorAll("#query .samples li").length === 40`)
		p.checkContrast("samples " + look)
		p.shoot("samples-" + look)
		p.open("expr", "`one\n  two`")
		if got := p.texts("td:first-child"); !slices.Equal(got, []string{"one\n  two"}) {
			t.Errorf("a string is %q", got)
		}
		p.open("expr", "tabled_seconds", "end", tableEnd)
		if got := evaluate[int](p, `document.querySelectorAll("#query summary rect").length`); got != 3 {
			t.Errorf("the histogram has %d bars", got)
		}
		p.click("#query summary")
		p.checkContrast("buckets " + look)
		p.shoot("buckets-" + look)
	})
}

// TestPageSampleTimes shows the times of values where they are not what was asked for.
func TestPageSampleTimes(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTabled(t))
	p.onOpen(`(() => {
		const ask = fetch;
		window.fetch = async (url, options) => {
			const response = await ask(url, options);
			const answer = await response.json();
			answer.data.result[0].value[0] -= 90;
			return new Response(JSON.stringify(answer), response);
		};
	})()`)
	p.open("expr", "tabled", "end", tableEnd)
	p.wantHeadings("Series", "Value", "Time")
	if rows := p.rows(0); rows[0][2] != "90s before" || rows[1][2] != "query time" {
		t.Errorf("the times are %q", rows)
	}
	_, text := p.download(t.TempDir(), `#query .table-tools button:last-child`)
	if rows := p.cells(text); rows[1][1] != "2026-03-04T05:04:37Z" || rows[2][1] != tableEnd {
		t.Errorf("the file has %q", rows)
	}
}

// TestPageSaid wants a sentence for screen readers after each answer.
func TestPageSaid(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open("expr", "page_gauge", "end", tableEnd)
	p.said("0 series at 2026-03-04 10:36:07.")
	p.open("expr", "page_gauge")
	p.said("3 series at 20")
	p.open("expr", "page_many", "view", "graph")
	p.said("Graph of 60 of 150 series from 20")
	p.open("tab", "latest", "filter", "page_gauge")
	p.said("3 series")
	p.open("tab", "explain", "selector", "page_gauge")
	p.said("From 20")
}

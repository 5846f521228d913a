//go:build browser

package page

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// startCounted starts an adapter that holds startExplored's metrics, and others of eight days before.
func startCounted(t testing.TB) (a *harness.Adapter, before time.Time) {
	t.Helper()
	a = startExplored(t)
	before = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -7).Add(-time.Second) // a date stands for its last moment
	var series []harness.SentSeries
	add := func(labels ...string) {
		series = append(series, harness.SentSeries{Labels: labels, Points: []harness.Point{harness.PointAt(before.UnixMilli(), 1)}})
	}
	for i := range 50 {
		add("__name__", "shop_shards", "shard", fmt.Sprintf("%02d", i), "zone", "=1+2")
	}
	for i := range 7 {
		add("__name__", "shop_gone", "n", fmt.Sprint(i))
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	return a, before
}

// TestPageCardinalityDrill goes from a metric to its labels, to the values of one, and to a selector.
func TestPageCardinalityDrill(t *testing.T) {
	t.Parallel()
	p := newPage(t, startExplored(t))
	p.open("tab", "cardinality")
	p.follow("shop_http_requests_total")
	p.wantParameters("tab", "cardinality", "match", "shop_http_requests_total")
	if tiles := p.tiles(); tiles["Series of the selector"] != "6" || tiles["Label pairs"] != "8" {
		t.Errorf("of the metric there are %q", tiles)
	}
	// Pairs, then labels: the metric itself is one.
	if rows := p.rows(0); !slices.Equal(rows[0], []string{"__name__=shop_http_requests_total", "6", "100%"}) || !slices.Equal(rows[1], []string{"code=200", "3", "50%"}) {
		t.Errorf("its pairs are %q", rows)
	}
	if rows := p.rows(1); !slices.Equal(rows[0], []string{"job", "3", "37.5%", "6"}) {
		t.Errorf("its labels are %q", rows)
	}
	p.follow("job")
	p.wantParameters("match", "shop_http_requests_total", "focus", "job")
	if rows := p.rows(0); !slices.EqualFunc(rows, [][]string{{"api", "2", "33.3%"}, {"db", "2", "33.3%"}, {"web", "2", "33.3%"}}, slices.Equal) {
		t.Errorf("the values of job are %q", rows)
	}
	p.follow("db")
	p.wantParameters("match", `shop_http_requests_total{job="db"}`, "focus", "")
	p.follow("code=500")
	const selector = `shop_http_requests_total{job="db", code="500"}`
	p.wantParameters("match", selector)
	if tiles := p.tiles(); tiles["Series of the selector"] != "1" {
		t.Errorf("of %s there are %q", selector, tiles)
	}
	for _, c := range []struct{ link, tab, parameter, value string }{
		{"Query", "query", "expr", selector}, {"Latest", "latest", "filter", selector}, {"Explore", "explore", "metric", "shop_http_requests_total"}, {"All series", "cardinality", "match", ""},
	} {
		p.follow(c.link)
		p.wantParameters("tab", c.tab, c.parameter, c.value)
		p.back(fmt.Sprintf(`new URLSearchParams(location.search).get("match") === %q`, selector))
	}
	p.open("tab", "cardinality", "focus", "nothing")
	if got := p.texts("p"); !slices.Contains(got, "No series has the label nothing.") {
		t.Errorf("of a label that is not there the page says %q", got)
	}
	p.open("tab", "cardinality", "match", "nothing")
	if got := p.texts("p:not(.links)"); !slices.Equal(got, []string{"There are no series of the selector in the current index period."}) {
		t.Errorf("of nothing the page says %q", got)
	}
	p.eachLook(func(look string) {
		p.open("tab", "cardinality", "match", "shop_http_requests_total", "focus", "job")
		p.checkContrast(look)
		p.shoot("cardinality-drill-" + look)
	})
}

// TestPageCardinalityDates counts another day, and compares.
func TestPageCardinalityDates(t *testing.T) {
	t.Parallel()
	a, before := startCounted(t)
	day := before.UTC().Format(time.DateOnly)
	p := newPage(t, a)
	p.open("tab", "cardinality", "date", day)
	if tiles := p.tiles(); tiles["Series"] != "57" {
		t.Errorf("then there were %q", tiles)
	}
	p.open("tab", "cardinality", "compare", day)
	if tiles := p.tiles(); tiles["Series before"] != "57" || tiles["Difference"] != fmt.Sprintf("+%d", exploredSeries-57) {
		t.Errorf("compared it is %q", tiles)
	}
	if got := p.texts("caption")[0]; got != "Series by metric: 8 new, 1 gone, 0 grown, 1 shrunk" {
		t.Errorf("the changes are %q", got)
	}
	rows := p.rows(0)
	for _, want := range [][]string{{"shop_gone", "7", "0", "−7", "gone"}, {"shop_shards", "50", "30", "−20", "shrunk"}, {"shop_queue_bytes", "0", "3", "+3", "new"}} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, want) }) {
			t.Errorf("no %q among %q", want, rows)
		}
	}
	p.eachLook(func(look string) {
		p.open("tab", "cardinality", "compare", day, "match", `{zone!=""}`, "focus", "zone")
		p.checkContrast(look)
		if wide := evaluate[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
			t.Errorf("%s: the page is %d px too wide", look, wide)
		}
		p.shoot("cardinality-compared-" + look)
	})
	if got := p.texts("caption"); !slices.Contains(got, "Series by value of zone: 3 new, 1 gone, 0 grown, 0 shrunk") {
		t.Errorf("the changes of the values are %q", got)
	}
	today := time.Now().UTC().Format(time.DateOnly)
	for _, c := range []struct{ name, value string }{{"compare", today}, {"date", "9999-01-01"}, {"date", "1969-01-01"}} {
		p.expect("/api/v1/status/tsdb", http.StatusBadRequest)
		p.open("tab", "cardinality", c.name, c.value)
		p.wantAlert(a, "/api/v1/status/tsdb", url.Values{c.name: {c.value}})
	}
}

// TestPageCardinalityKept wants a clear answer of a day of which nothing is kept.
func TestPageCardinalityKept(t *testing.T) {
	t.Parallel()
	a := startExplored(t, "--retention.resolution-raw=10d", "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	p := newPage(t, a)
	p.expect("/api/v1/status/tsdb", http.StatusBadRequest)
	p.open("tab", "cardinality", "date", time.Now().UTC().AddDate(0, 0, -30).Format(time.DateOnly))
	if got := p.texts("[role=alert]"); len(got) != 1 || !strings.Contains(got[0], "nothing is kept of that time") || !strings.Contains(got[0], "series are kept from") {
		t.Errorf("the page says %q", got)
	}
	p.open()
	if rows := p.rows(0); len(rows) != 1 || rows[0][0] != "raw" || rows[0][2] != "10d" || !strings.HasPrefix(rows[0][3], "20") {
		t.Errorf("what is kept is %q", rows)
	}
}

// TestPageCardinalityCSV saves lists as files.
func TestPageCardinalityCSV(t *testing.T) {
	t.Parallel()
	a, before := startCounted(t)
	p := newPage(t, a)
	p.onOpen(`URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return "blob:none"; };
		HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };`)
	saved := func(name string) [][]string {
		t.Helper()
		evaluate[bool](p, fmt.Sprintf(`(() => { window.saved = undefined; document.querySelector('[aria-label^=%q]').dispatchEvent(new MouseEvent("click")); return true })()`, "CSV of: "+name))
		p.await(`window.saved !== undefined`)
		text := evaluate[string](p, "window.saved")
		if !strings.HasSuffix(text, "\r\n") || strings.Count(text, "\r\n") != strings.Count(text, "\n") {
			t.Errorf("%s: lines do not end as RFC 4180 says: %q", name, text)
		}
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return rows
	}
	p.open("tab", "cardinality", "date", before.UTC().Format(time.DateOnly), "focus", "zone")
	if rows := saved("Series by metric"); !slices.EqualFunc(rows[:2], [][]string{{"Metric", "Series", "Share of all series"}, {"shop_shards", "50", fmt.Sprint(50.0 / 57)}}, slices.Equal) || len(rows) != 3 {
		t.Errorf("the metrics are saved as %q", rows)
	}
	if name := evaluate[string](p, "window.savedAs"); name != "promtable-cardinality-series-by-metric.csv" {
		t.Errorf("the file is called %s", name)
	}
	// A spreadsheet takes what begins with = for a formula.
	if rows := saved("Series by value of zone"); len(rows) != 2 || rows[1][0] != "'=1+2" || rows[1][1] != "50" {
		t.Errorf("the values are saved as %q", rows)
	}
	p.open("tab", "cardinality", "compare", before.UTC().Format(time.DateOnly))
	if rows := saved("Series by metric:"); len(rows) != 11 || !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, []string{"shop_gone", "7", "0", "-7", "gone"}) }) {
		t.Errorf("the changes are saved as %q", rows)
	}
}

// TestPageUnread: metrics that no query has read are listed with the rule that drops them, and those of a limit with how near it is.
func TestPageUnread(t *testing.T) {
	t.Parallel()
	limits := filepath.Join(t.TempDir(), "limits.yml")
	if err := os.WriteFile(limits, []byte("defaults: {max_global_series_per_user: 1000}"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := startExplored(t, "--limits.file="+limits)
	p := newPage(t, a)
	if _, err := harness.GetAPI(a.URL("/api/v1/query"), url.Values{"query": {"sum by (job) (shop_http_requests_total)"}}); err != nil {
		t.Fatal(err)
	}
	p.open("tab", "cardinality")
	p.await(shown + `.innerText.includes("Not read by any query since")`)
	text := evaluate[string](p, shown+`.querySelector("details.unread").textContent`)
	for part, want := range map[string]bool{
		"- {source_labels: [__name__], regex: 'shop_http_requests_total', action: drop}": false, "action: drop}": true, "action: labeldrop}": true, "regex: 'job'": false, "regex: 'code'": true,
	} {
		if strings.Contains(text, part) != want {
			t.Errorf("%q is in the list: %t, want %t: %s", part, !want, want, text)
		}
	}
	if text := evaluate[string](p, shown+`.innerText`); !strings.Contains(text, "max_global_series_per_user") {
		t.Errorf("no limit is shown: %s", text)
	}
	p.checkAxe("what is not read")
}

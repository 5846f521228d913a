//go:build browser

package page

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/e2e/harness"
)

// What the page is shown: an hour of samples up to now.
const (
	pageInterval = 30_000
	pagePoints   = 121
	pageMany     = 150
	pageMarkup   = `<img src=x onerror=alert(1)>`
)

// startPaged starts an adapter that holds what the tests look at.
func startPaged(t testing.TB, args ...string) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t), args...)
	fillPaged(t, a.URL(""))
	return a
}

// fillPaged writes it to the adapter at a URL.
func fillPaged(t testing.TB, url string) {
	t.Helper()
	now := harness.NowMillis()
	over := func(value func(i int) float64, labels ...string) harness.SentSeries {
		s := harness.SentSeries{Labels: labels}
		for i := range pagePoints {
			s.Points = append(s.Points, harness.PointAt(now-int64(pagePoints-1-i)*pageInterval, value(i)))
		}
		return s
	}
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	series := []harness.SentSeries{
		over(flat(1.5), "__name__", "page_gauge", "instance", "a"),
		over(flat(42), "__name__", "page_gauge", "instance", "b"),
		over(flat(7), "__name__", "page_gauge", "instance", pageMarkup),
		over(func(i int) float64 { return float64(1000 + 15*i) }, "__name__", "page_requests_total", "code", "200"),
		{Labels: []string{"__name__", "page_seconds"}, Histograms: [][]byte{pageHistogram(t, now)}},
	}
	for i := range pageMany {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "page_many", "n", fmt.Sprintf("%03d", i)}, Points: []harness.Point{harness.PointAt(now, float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, url+"/api/v1/write", series...)
}

// pageHistogram encodes 3 observations in (0.5, 1], 4 in (1, 2] and 5 in (4, 8].
func pageHistogram(t testing.TB, now int64) []byte {
	t.Helper()
	encoded, err := harness.RemoteWrite2().Histogram(0, now, &histogram.Histogram{
		Count: 12, Sum: 33.5, ZeroThreshold: 0.001,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}},
		PositiveBuckets: []int64{3, 1, 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// pageGauges are the cells of a table of page_gauge.
func pageGauges() [][]string {
	return [][]string{
		{`page_gauge{instance="` + pageMarkup + `"}`, "7"},
		{`page_gauge{instance="a"}`, "1.5"},
		{`page_gauge{instance="b"}`, "42"},
	}
}

func TestPageQuery(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	p.press("page_gauge\r")
	p.wantRows(0, pageGauges())
	if made := p.texts("img, td *"); len(made) > 0 {
		t.Errorf("a label value became elements: %q", made)
	}
	p.wantParameters("tab", "query", "expr", "page_gauge", "view", "table", "range", "3600")
	p.shoot("query-table")

	p.tabTo("Table")
	p.press(kb.ArrowRight) // from Table to Graph
	p.checkGauges()
	p.wantParameters("tab", "query", "expr", "page_gauge", "view", "graph", "range", "3600")
	p.shoot("query-graph")

	p.reload()
	p.checkGauges()
	p.checkHiding()
	p.checkZoom()

	p.back(`new URLSearchParams(location.search).get("view") === "table"`)
	p.wantRows(0, pageGauges())
	p.enter(expression, "rate(page_requests_total[5m])")
	// It is a little less once the newest sample is older than an interval.
	if rows := p.rows(0); len(rows) != 1 || rows[0][0] != `{code="200"}` || math.Abs(mustFloat(t, rows[0][1])-0.5) > 0.1 {
		t.Errorf("a rate is %q, want about 0.5", rows)
	}
}

// checkGaugeRows wants the list of a graph of page_gauge: of each line the labels that others do not have.
func (p *browserPage) checkGaugeRows() {
	p.Helper()
	var want [][]string
	for _, row := range pageGauges() {
		want = append(want, []string{strings.TrimPrefix(row[0], "page_gauge"), "", row[1], row[1], row[1], row[1]})
	}
	p.wantRows(0, want)
}

// checkGauges wants a graph of page_gauge: three lines, in their colours, in
// their order.
func (p *browserPage) checkGauges() {
	p.Helper()
	p.checkGaugeRows()
	var drawn []drawnLine
	harness.Eventually(p, "the lines are drawn", func() error {
		drawn = p.lines()
		for _, l := range drawn {
			if l.Pixels < 200 {
				return fmt.Errorf("lines are %+v", drawn)
			}
		}
		return nil
	})
	// Down the page: 42, 7, 1.5.
	if len(drawn) != 3 || drawn[2].Y >= drawn[0].Y || drawn[0].Y >= drawn[1].Y {
		p.Errorf("lines are drawn at %+v", drawn)
	}
}

// A drawnLine is how much of a graph has the colour of a line, and how far down
// that is on average.
type drawnLine struct {
	Colour string
	Pixels int
	Y      float64
}

// lines returns those of the graph, as the legend lists them.
func (p *browserPage) lines() []drawnLine {
	p.Helper()
	return evaluate[[]drawnLine](p, `(() => {
		const drawn = `+shown+`.querySelector("canvas");
		const copy = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(drawn, 0, 0);
		const { data } = context.getImageData(0, 0, copy.width, copy.height);
		return [...`+shown+`.querySelectorAll("tbody path[stroke]")].map((path) => {
			const colour = path.getAttribute("stroke");
			const want = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
			let pixels = 0, y = 0;
			for (let i = 0; i < data.length; i += 4) {
				if (data[i + 3] === 255 && want.every((w, j) => Math.abs(data[i + j] - w) < 8)) {
					pixels++;
					y += Math.floor(i / 4 / copy.width);
				}
			}
			return { Colour: colour, Pixels: pixels, Y: pixels && y / pixels };
		});
	})()`)
}

// checkHiding hides the first line by the keyboard, and shows it again.
func (p *browserPage) checkHiding() {
	p.Helper()
	evaluate[bool](p, `(() => { document.querySelector("#query .result input[type=checkbox]").focus(); return true })()`)
	for _, hidden := range []bool{true, false} {
		p.press(" ")
		if hidden {
			p.click("#query .result th button") // the rows are made anew, and the line stays hidden
			if evaluate[bool](p, `document.querySelector("#query .result input[type=checkbox]").checked`) {
				p.Error("after sorting the line is said to be shown")
			}
			evaluate[bool](p, `(() => { document.querySelector("#query .result input[type=checkbox]").focus(); return true })()`)
		}
		harness.Eventually(p, fmt.Sprintf("the line is hidden: %t", hidden), func() error {
			if l := p.lines(); (l[0].Pixels == 0) != hidden || l[1].Pixels == 0 {
				return fmt.Errorf("lines are %+v", l)
			}
			return nil
		})
	}
}

// checkZoom drags over the middle half of the graph, and goes back.
func (p *browserPage) checkZoom() {
	p.Helper()
	box := evaluate[struct{ X, Y, Width, Height float64 }](p, `document.querySelector("#query .u-over").getBoundingClientRect().toJSON()`)
	last := evaluate[float64](p, `new Date(document.querySelector("#query .graph").getAttribute("aria-label").split(" to ")[1].replace(" ", "T")).getTime() / 1000`)
	p.drag(box.X+box.Width/4, box.Y+20, box.X+box.Width*3/4, box.Y+60)
	zoomed := p.parameters()
	width := mustFloat(p, zoomed.Get("range"))
	end := evaluate[float64](p, fmt.Sprintf("new Date(%q).getTime() / 1000", zoomed.Get("end")))
	// A pixel is some seconds.
	if math.Abs(width-1800) > 15 || math.Abs(end-(last-900)) > 15 {
		p.Errorf("after the zoom the page shows %v: %g s up to %g s before the end", zoomed, width, last-end)
	}
	p.checkGauges()
	if words := p.when(); !strings.HasPrefix(words, "20") || !strings.HasSuffix(words, " Asia/Calcutta") {
		p.Errorf("the range is called %q", words)
	}
	p.shoot("query-zoomed")
	p.back(`!new URLSearchParams(location.search).has("end")`)
	p.wantParameters("tab", "query", "expr", "page_gauge", "view", "graph", "range", "3600")
	p.checkGauges()
}

// TestPageResolution: a graph of a long time has steps and times of whole hours, or of whole 5 minutes, and asks for raw samples if
// it is told to.
func TestPageResolution(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.noteBodies()
	// last returns the last n questions.
	last := func(n int) (asked []url.Values) {
		t.Helper()
		for _, body := range evaluate[[]string](p, fmt.Sprintf("window.bodies.slice(-%d)", n)) {
			values, err := url.ParseQuery(body)
			if err != nil {
				t.Fatal(err)
			}
			asked = append(asked, values)
		}
		return asked
	}
	for _, c := range []struct {
		seconds, step float64
		isLong        bool // so that its steps are multiples
	}{{3600, 15, false}, {86_400, 300, true}, {604_800, 2400, true}, {94_608_000, 105 * 3600, true}} {
		p.open("expr", "page_gauge")
		evaluate[bool](p, fmt.Sprintf(`(() => {
			document.querySelector("#query [name=range]").value = "%.0f";
			document.querySelector("#query input[value=graph]").click();
			return true;
		})()`, c.seconds))
		p.wantParameters("view", "graph", "range", fmt.Sprint(int(c.seconds)))
		p.settle()
		asked := last(1)[0]
		if c.isLong {
			both := last(2)
			asked = both[0]
			if newest := both[1]; newest.Get("start") != newest.Get("end") || math.Abs(float64(time.Now().Unix())-mustFloat(t, newest.Get("end"))) > 60 {
				t.Errorf("for %.0f s the page asks for the newest point at %v", c.seconds, newest)
			}
		}
		start, step := mustFloat(t, asked.Get("start")), mustFloat(t, asked.Get("step"))
		end := mustFloat(t, asked.Get("end"))
		long, late := end-start, float64(time.Now().Unix())-end
		if c.isLong && (math.Mod(start, step) != 0 || math.Mod(long, step) != 0) || step != c.step || long > c.seconds+1 || long < c.seconds-2*step ||
			late > 60 && !c.isLong || late > step+60 || asked.Has("max_source_resolution") {
			t.Errorf("for %.0f s the page asks %v", c.seconds, asked)
		}
	}
	p.choose("#query select[name=res]", "Raw (samples)")
	p.wantParameters("range", "94608000", "res", "0s")
	p.settle()
	if asked := last(1)[0]; asked.Get("max_source_resolution") != "0s" {
		t.Errorf("for raw samples the page asks %v", asked)
	}
	p.shoot("query-raw")
	p.open("expr", "page_gauge", "view", "graph", "res", "5s", "range", "7777")
	if got := evaluate[[]string](p, `["res", "lines"].map((name) => document.querySelector("#query select[name=" + name + "]").selectedOptions[0].text)`); !slices.Equal(got, []string{"5s", "60 lines"}) {
		t.Errorf("the page has chosen %q", got)
	}
	if got := p.when(); got != "Last 2h9m37s" {
		t.Errorf("the range is called %q", got)
	}
	p.expect("/api/v1/query_range", http.StatusBadRequest)
	p.open("expr", "page_gauge", "view", "graph", "res", "raw")
	if alerts := p.texts("[role=alert]"); len(alerts) != 1 || !strings.Contains(alerts[0], "max_source_resolution") {
		t.Errorf("of a resolution that there is not the page says %q", alerts)
	}
}

// when returns what the control of time of a query says.
func (p *browserPage) when() string {
	p.Helper()
	return evaluate[string](p, `document.querySelector("#query .when-words").innerText`)
}

// typeTime opens the panel of the control of time and types the end of what is shown, as it is said in the zone of the page.
func (p *browserPage) typeTime(text string) {
	p.Helper()
	p.click("#query .when-open")
	p.await(`document.querySelector("#query .when-panel").matches(":popover-open")`)
	p.enter("#query .when-to input", text)
}

// back goes back to where an expression of JavaScript is true.
func (p *browserPage) back(arrived string) {
	p.Helper()
	evaluate[bool](p, "(() => { history.back(); return true })()")
	p.await(arrived)
	p.settle()
}

// TestPageQueryAnswers shows answers that are no numbers.
func TestPageQueryAnswers(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open("expr", "page_seconds")
	p.wantRows(0, [][]string{{"page_seconds", "count 12, sum 33.5"}})
	p.click("#query summary")
	if got, want := p.texts(".buckets li"), []string{"(0.5, 1]\n3", "(1, 2]\n4", "(4, 8]\n5"}; !slices.Equal(got, want) {
		t.Errorf("the buckets are %q, want %q", got, want)
	}
	p.shoot("query-histogram")

	for _, c := range []struct{ expr, view, selector, want string }{
		{"page_nothing", "table", "p:not(.facts)", "No series has a value at this time."},
		{"page_nothing", "graph", "p:not(.facts)", "No series has a value in this range."},
		{"scalar(page_gauge{instance=\"b\"})", "table", "td:first-child", "42"},
		{"\"" + pageMarkup + "\"", "table", "td:first-child", pageMarkup},
		{"page_many{n=\"007\"}[1m]", "table", "td:first-child", `page_many{n="007"}`},
	} {
		p.open("expr", c.expr, "view", c.view)
		if got := p.texts(c.selector); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s as a %s: %q, want %q", c.expr, c.view, got, c.want)
		}
	}
	for view, path := range map[string]string{"table": "/api/v1/query", "graph": "/api/v1/query_range"} {
		p.expect(path, http.StatusBadRequest)
		p.open("expr", "sum(page_gauge", "view", view)
		p.wantAlert(a, path, url.Values{"query": {"sum(page_gauge"}, "start": {"0"}, "end": {"1"}, "step": {"1"}})
	}
	p.shoot("query-error")
}

func TestPageLatest(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open("tab", "latest")
	if rows, facts := p.rows(0), p.texts(".facts"); len(rows) != pageMany+5 || len(facts) != 1 || facts[0] != "155 series" {
		t.Errorf("%d series, %q", len(rows), facts)
	}
	if warnings := p.texts("[role=status]"); len(warnings) > 0 {
		t.Errorf("all series are shown, and the page says %q", warnings)
	}
	p.shoot("latest")
	p.enter("#latest input", "E_GAU")
	p.wantLatest(pageGauges())
	p.wantParameters("tab", "latest", "filter", "E_GAU", "limit", "1000")
	p.enter("#latest input", `page_many{n=~"0[01]0"}`)
	p.wantLatest([][]string{{`page_many{n="000"}`, "0"}, {`page_many{n="010"}`, "10"}})
	p.enter("#latest input", `{n="x"}`)
	if got := p.texts("p:not(.facts)"); !slices.Equal(got, []string{"No series matches."}) {
		t.Errorf("without a match the page says %q", got)
	}
	p.expect("/api/v1/current", http.StatusBadRequest)
	p.enter("#latest input", `{n=`)
	p.wantAlert(a, "/api/v1/current", url.Values{"match[]": {"{n="}})
	p.checkLatestMany()

	p.click("#latest tbody a")
	p.wantParameters("tab", "query", "expr", `page_many{n="149"}`, "view", "graph")
	if rows := p.rows(0); len(rows) != 1 || rows[0][2] != "149" {
		t.Errorf("the graph has %q", rows)
	}
}

// checkLatestMany looks at more series than are shown, and then sorts all.
func (p *browserPage) checkLatestMany() {
	p.Helper()
	p.open("tab", "latest", "filter", "page_many", "limit", "100")
	if rows, warnings := p.rows(0), p.texts("[role=status]"); len(rows) != 100 || len(warnings) != 1 || !strings.Contains(warnings[0], "Not all series") {
		p.Errorf("%d of %d series, and %q", len(rows), pageMany, warnings)
	}
	p.shoot("latest-truncated")
	p.open("tab", "latest", "filter", "page_many")
	for _, descending := range []bool{false, true} {
		p.click("#latest th:nth-child(2) button")
		order := evaluate[string](p, `document.querySelector("#latest th:nth-child(2)").getAttribute("aria-sort")`)
		rows := p.rows(0)
		if len(rows) != pageMany || (order == "descending") != descending {
			p.Fatalf("%d series, sorted %s", len(rows), order)
		}
		for i, row := range rows {
			if descending {
				i = pageMany - 1 - i
			}
			if row[1] != strconv.Itoa(i) {
				p.Fatalf("sorted %s there is %q where %d belongs", order, row, i)
			}
		}
	}
}

// wantLatest wants these series and values, each with an age.
func (p *browserPage) wantLatest(want [][]string) {
	p.Helper()
	var got [][]string
	for _, row := range p.rows(0) {
		if age := row[2]; !regexp.MustCompile(`^[0-9.]+[smhd]$`).MatchString(age) {
			p.Errorf("the age of %s is %q", row[0], age)
		}
		got = append(got, row[:2])
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		p.Errorf("the page shows %q, want %q", got, want)
	}
}

func TestPageCardinality(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open("tab", "cardinality")
	type counts []struct {
		Name  string
		Value float64
	}
	var want struct {
		HeadStats                                                                        struct{ NumSeries, NumLabelPairs float64 }
		SeriesCountByMetricName, SeriesCountByLabelValuePair, LabelValueCountByLabelName counts
	}
	p.mustAsk(a, "/api/v1/status/tsdb", url.Values{"limit": {"30"}}, &want)
	tiles := p.tiles()
	if want.HeadStats.NumSeries != pageMany+5 || plain(t, tiles["Series"]) != want.HeadStats.NumSeries || plain(t, tiles["Label pairs"]) != want.HeadStats.NumLabelPairs {
		t.Errorf("the page shows %v, want %+v", tiles, want.HeadStats)
	}
	for i, list := range []counts{want.SeriesCountByMetricName, want.SeriesCountByLabelValuePair, want.LabelValueCountByLabelName} {
		rows := p.rows(i)
		if len(rows) != len(list) || len(rows) == 0 {
			t.Errorf("table %d has %d rows, want %d", i, len(rows), len(list))
			continue
		}
		for j, row := range rows {
			if row[0] != list[j].Name || plain(t, row[1]) != list[j].Value {
				t.Errorf("table %d, row %d: %q, want %v", i, j, row, list[j])
			}
		}
	}
	// 150 and 3 of 155 series.
	if rows := p.rows(0); rows[0][2] != "96.8%" || !slices.ContainsFunc(rows, func(r []string) bool { return r[0] == "page_gauge" && r[2] == "1.94%" }) {
		t.Errorf("the shares of metrics are %q", rows)
	}
	// 150 of all values.
	if share, want := p.rows(2)[0][2], fmt.Sprintf("%.3g%%", 100*pageMany/want.HeadStats.NumLabelPairs); share != want {
		t.Errorf("the share of the values of the largest label is %s, want %s", share, want)
	}
	p.eachLook(func(look string) {
		p.open("tab", "cardinality")
		if got := evaluate[float64](p, shown+`.querySelector("meter").value`); math.Abs(got-150.0/155) > 1e-9 {
			t.Errorf("the largest share is drawn as %g", got)
		}
		p.checkContrast(look)
		p.shoot("cardinality-" + look)
	})
	p.open("tab", "cardinality", "top", "10")
	if rows := p.rows(1); len(rows) != 10 {
		t.Errorf("the ten largest are %d", len(rows))
	}
	if first := p.rows(0)[0]; first[0] != "page_many" || first[1] != strconv.Itoa(pageMany) {
		t.Errorf("the largest metric is %q", first)
	}
}

// checkAdapter wants the page to say what the adapter and its tables are.
func (p *browserPage) checkAdapter(a *harness.Adapter) {
	p.Helper()
	var want struct {
		Version, Backend, Location string
		DirectoryFormat            string
		Format                     int
		Tables                     []struct {
			Name     string
			Families []struct {
				Name          string
				MaxAgeSeconds float64
			}
		}
	}
	p.mustAsk(a, "/api/v1/status/adapter", nil, &want)
	facts := map[string]string{}
	for _, row := range p.rowsOf("Properties") {
		facts[row[0]] = row[1]
	}
	if want.Version != harness.AdapterVersion || facts["Version"] != want.Version || facts["Backend"] != want.Backend+": "+want.Location || facts["Table format"] != fmt.Sprintf("version %d", want.Format) {
		p.Errorf("the page says %v, want %+v", facts, want)
	}
	file, err := os.ReadFile(filepath.Join(want.Location, "FORMAT"))
	if err != nil {
		p.Fatal(err)
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(file)), " format ")
	if want.DirectoryFormat != version || facts["Directory format"] != "version "+version+" (file FORMAT)" {
		p.Errorf("the page says %q, FORMAT %q", facts["Directory format"], file)
	}
	var tables [][]string
	for _, table := range want.Tables {
		for _, f := range table.Families {
			kept := "forever"
			if days := f.MaxAgeSeconds / 86400; days >= 2 {
				kept = fmt.Sprintf("%dd", int(days))
			}
			tables = append(tables, []string{table.Name, f.Name, kept})
		}
	}
	if len(tables) < 4 {
		p.Errorf("there are only the tables %q", tables)
	}
	if got := p.rowsOf("Retention of cells"); !slices.EqualFunc(got, tables, slices.Equal) {
		p.Errorf("the tables are %q, want %q", got, tables)
	}
}

// wantShown wants the facts of a graph, and so many lines in its list, and no warning.
func (p *browserPage) wantShown(facts string, lines int) {
	p.Helper()
	if got := p.texts(".facts"); len(got) != 1 || !strings.HasPrefix(got[0], facts) {
		p.Errorf("the facts are %q, want %s", got, facts)
	}
	if got := p.rows(0); len(got) != lines {
		p.Errorf("the list has %d lines, want %d", len(got), lines)
	}
	if got := p.texts(".message"); len(got) > 0 {
		p.Errorf("the page warns %q", got)
	}
}

// TestPageMany shows 30,000 series, in a list that is scrolled and in pages, and finds one of them.
func TestPageMany(t *testing.T) {
	t.Parallel()
	const many = pageLong
	a := harness.StartAdapter(t, harness.Embedded(t))
	now := harness.NowMillis()
	series := []harness.SentSeries{{Labels: []string{"__name__", "zz_cpu"}, Points: []harness.Point{harness.PointAt(now, 7)}}}
	for i := range many {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "a_zz_cpu", "n", fmt.Sprintf("%05d", i)}, Points: []harness.Point{harness.PointAt(now, float64(i))}})
	}
	for some := range slices.Chunk(series, 5000) {
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), some...)
	}
	p := newPage(t, a)
	const place = "span[role=status]"
	p.checkScrolled()
	p.open("expr", "a_zz_cpu")
	if rows, got := p.rows(0), p.texts(place); len(rows) != 200 || !slices.Equal(got, []string{"1–200 of 30,000"}) {
		t.Errorf("a query shows %d rows, %q", len(rows), got)
	}
	_, saved := p.download(t.TempDir(), "#query .table-tools button:last-child")
	if rows := p.cells(saved); len(rows) != many+1 || rows[many][0] != `a_zz_cpu{n="29999"}` || rows[many][2] != "29999" {
		t.Errorf("%d rows are saved, the last is %q", len(rows), rows[len(rows)-1])
	}
	p.eachLook(func(look string) {
		p.open("expr", "a_zz_cpu", "view", "graph")
		p.wantShown("60 of 30,000 series shown, ", 60)
		p.checkContrast(look)
		p.shoot("lines-" + look)
		p.click("#query .result p button")
		p.wantParameters("lines", "240", "expr", "a_zz_cpu", "view", "graph")
		p.wantShown("240 of 30,000 series shown, ", 200) // the first page of the list
	})
	p.open("expr", "a_zz_cpu", "view", "graph", "range", "604800")
	p.wantShown("60 of ", 60) // whether of at least 30,000 depends on the time
	p.open("expr", `topk(5, a_zz_cpu)`, "view", "graph")
	p.wantShown("5 series, ", 5)
	// The limit keeps the exact name.
	p.open("tab", "latest", "filter", "zz_cpu", "limit", "100")
	if rows := p.rows(0); len(rows) != 100 || rows[0][0] != "zz_cpu" {
		t.Errorf("of 100 series the first of %d is %q", len(rows), rows[0])
	}
}

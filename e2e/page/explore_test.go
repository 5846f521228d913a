//go:build browser

package page

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/e2e/harness"
)

// exploredSeries and exploredSamples are how many startExplored stores: 79 series of floats and one of histograms.
const (
	exploredSeries  = 80 + 1
	exploredSamples = 80*pagePoints + 5
)

// startExplored starts an adapter that holds metrics of each kind: an hour of samples up to now.
func startExplored(t testing.TB, args ...string) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t), args...)
	now := harness.NowMillis()
	var series []harness.SentSeries
	over := func(value func(i int) float64, labels ...string) {
		s := harness.SentSeries{Labels: labels}
		for i := range pagePoints {
			s.Points = append(s.Points, harness.PointAt(now-int64(pagePoints-1-i)*pageInterval, value(i)))
		}
		series = append(series, s)
	}
	line := func(slope float64) func(int) float64 { return func(i int) float64 { return slope * float64(i) } }
	for n, job := range []string{"api", "web", "db"} {
		for m, instance := range []string{"a", "b"} {
			over(line(float64(15*(n+1)*(m+1))), "__name__", "shop_http_requests_total", "job", job, "instance", instance, "code", strconv.Itoa(200+m*300))
			for i, le := range []string{"0.1", "0.5", "1", "+Inf"} {
				over(line(float64((i+1)*(n+1))), "__name__", "shop_http_request_duration_seconds_bucket", "job", job, "instance", instance, "le", le)
			}
			over(line(float64(4*(n+1))), "__name__", "shop_http_request_duration_seconds_count", "job", job, "instance", instance)
			over(line(float64(n+1)), "__name__", "shop_http_request_duration_seconds_sum", "job", job, "instance", instance)
		}
		over(func(i int) float64 { return 1e6 * (float64(n+2) + math.Sin(float64(i)/9)) }, "__name__", "shop_queue_bytes", "job", job)
		over(func(int) float64 { return 1 }, "__name__", "shop_build_info", "job", job, "version", fmt.Sprintf("1.%d", n))
	}
	for _, q := range []string{"0.5", "0.99"} {
		over(func(int) float64 { return mustFloat(t, q) }, "__name__", "shop_wait_seconds", "quantile", q)
	}
	for i := range 30 {
		over(line(float64(i)), "__name__", "shop_shards", "shard", fmt.Sprintf("%02d", i), "zone", strconv.Itoa(i%3))
	}
	native := harness.SentSeries{Labels: []string{"__name__", "shop_native_seconds"}}
	for i := range 5 {
		encoded, err := harness.RemoteWrite2().Histogram(0, now-int64(4-i)*pageInterval, &histogram.Histogram{
			Count: uint64(7 * (i + 1)), Sum: float64(i), ZeroThreshold: 0.001,
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{int64(3 * (i + 1)), int64(i + 1)},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		native.Histograms = append(native.Histograms, encoded)
	}
	series = append(series, native)
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	return a
}

// examples returns the queries that the start of the page offers.
func (p *browserPage) examples() []string { return p.texts(".examples code") }

// TestPageStart wants the page to say what is stored, and to offer queries that have an answer.
func TestPageStart(t *testing.T) {
	t.Parallel()
	a := startExplored(t)
	p := newPage(t, a)
	p.open()
	var store struct {
		Series         float64
		SeriesExact    bool
		Oldest, Newest struct{ MinTime, MaxTime float64 }
		NewestSample   int64
		Resolutions    []struct{ Name string }
	}
	p.mustAsk(a, "/api/v1/status/store", nil, &store)
	tiles := p.tiles()
	if !store.SeriesExact || store.Series != exploredSeries || plain(t, tiles["Active series"]) != store.Series {
		t.Errorf("the page shows %q, the adapter has %+v", tiles, store)
	}
	newest := fmt.Sprintf(`new Date(%d).getFullYear().toString()`, store.NewestSample)
	if age := harness.NowMillis() - store.NewestSample; age < 0 || age > 3600_000 || !strings.Contains(tiles["Newest sample"], evaluate[string](p, newest)) {
		t.Errorf("the newest sample is of %d ms ago, and the page shows %q", age, tiles)
	}
	if rows := p.rows(0); len(rows) != len(store.Resolutions) || rows[0][0] != "raw" || rows[0][2] != "forever" || rows[0][3] != "the oldest sample" {
		t.Errorf("the resolutions are %q", rows)
	}
	for title, text := range tiles {
		if strings.HasPrefix(title, "Samples stored since start") && plain(t, text) != exploredSamples {
			t.Errorf("%s: %s", title, text)
		}
	}
	want := []string{
		"sum by (job) (rate(shop_http_requests_total[5m]))", "shop_queue_bytes",
		"histogram_quantile(0.9, sum by (le) (rate(shop_http_request_duration_seconds_bucket[5m])))",
	}
	if got := p.examples(); !slices.Equal(got, want) {
		t.Errorf("the examples are %q, want %q", got, want)
	}
	if got := p.texts("pre"); len(got) != 0 {
		t.Errorf("where samples come in the page says how they would: %q", got)
	}
	for i, expr := range want {
		p.open()
		p.click(fmt.Sprintf(".examples li:nth-child(%d) a", i+1))
		p.wantParameters("tab", "query", "expr", expr, "view", "graph")
		if rows := p.rows(0); len(rows) == 0 {
			t.Errorf("%s has no lines", expr)
		}
	}
	p.eachLook(func(look string) {
		p.open()
		p.checkContrast(look)
		p.shoot("start-" + look)
	})
}

// TestPageStartEmpty wants an empty store to say how samples come in, and to offer nothing that has no answer.
func TestPageStartEmpty(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	p.eachLook(func(look string) {
		p.open()
		if got := p.texts("pre"); len(got) != 1 || !strings.Contains(got[0], "url: http://"+a.Addr+"/api/v1/write") {
			t.Errorf("how samples come in is %q", got)
		}
		if got := p.examples(); len(got) > 0 {
			t.Errorf("of nothing the examples are %q", got)
		}
		if tiles := p.tiles(); tiles["Active series"] != "0" || tiles["Oldest sample not before"] != "none yet" || tiles["Newest sample not after"] != "none yet" {
			t.Errorf("of nothing there is %q", tiles)
		}
		p.checkContrast(look)
		p.shoot("start-empty-" + look)
	})
}

// TestPageStartOwn wants examples and a small graph of the metrics of the adapter itself, where there are no others, and none that has ended.
func TestPageStartOwn(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s")
	old := harness.SentSeries{Labels: []string{"__name__", "adapter_aged_total"}, Points: []harness.Point{harness.PointAt(harness.NowMillis()-3600_000, 1)}}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), old)
	p := newPage(t, a)
	harness.Eventually(t, "there are three examples and a graph", func() error {
		p.open()
		if got := p.examples(); len(got) != 3 || len(p.texts(".spark")) != 1 || len(p.texts("pre")) != 1 {
			return fmt.Errorf("there are %q, graphs %q", got, p.texts(".spark"))
		}
		return nil
	})
	for _, expr := range p.examples() {
		if !strings.Contains(expr, "adapter_") || strings.Contains(expr, "adapter_aged") {
			t.Errorf("an example is %s", expr)
		}
		var data struct{ Result []struct{ Value []any } }
		p.mustAsk(a, "/api/v1/query", url.Values{"query": {expr}}, &data)
		if len(data.Result) == 0 {
			t.Errorf("%s has no answer", expr)
		}
	}
	if name := evaluate[string](p, `document.querySelector(".spark svg").getAttribute("aria-label")`); !strings.HasPrefix(name, "Samples stored in the last hour: last ") {
		t.Errorf("the graph is called %q", name)
	}
	p.eachLook(func(look string) {
		p.open()
		p.checkContrast(look)
		p.shoot("start-own-" + look)
	})
}

// listed returns the first lines of what the list of metrics has.
func (p *browserPage) listed() []string { return p.texts(".names li a") }

// drawnExprs returns the expressions that Explore draws.
func (p *browserPage) drawnExprs() []string {
	p.Helper()
	if all := p.texts(".metric pre"); len(all) == 1 {
		return strings.Split(all[0], "\n")
	}
	return nil
}

// follow clicks the first link of the shown section that has this text.
func (p *browserPage) follow(text string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const link = [...%s.querySelectorAll(".result a")].find((a) => a.innerText === %q);
		link.click();
		return true;
	})()`, shown, text))
	p.settle()
}

// TestPageExplore goes from the tree of names to a metric, its labels and values.
func TestPageExplore(t *testing.T) {
	t.Parallel()
	p := newPage(t, startExplored(t))
	p.open("tab", "explore")
	want := []string{"shop_build_info", "shop_http_…", "shop_native_seconds", "shop_queue_bytes", "shop_shards", "shop_wait_seconds"}
	if got := p.listed(); !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	// Their series are counted when they are shown, not before.
	harness.Eventually(t, "the series are counted", func() error {
		if got := p.texts(".names li")[1]; !strings.Contains(got, "4 metrics") || !strings.Contains(got, "42 series") {
			return fmt.Errorf("the group says %q", got)
		}
		return nil
	})
	p.follow("shop_http_…")
	p.wantParameters("tab", "explore", "prefix", "shop_http_")
	if got := p.listed(); len(got) != 4 || got[3] != "shop_http_requests_total" {
		t.Errorf("in the group there are %q", got)
	}
	p.follow("shop_http_requests_total")
	p.wantParameters("tab", "explore", "prefix", "shop_http_", "metric", "shop_http_requests_total")
	p.wantExplored([]string{"sum by (job) (rate(shop_http_requests_total[5m]))"}, 3)
	if rows := p.rows(1); !slices.EqualFunc(rows, [][]string{{"code", "2", "6"}, {"instance", "2", "6"}, {"job", "3", "6"}}, slices.Equal) {
		t.Errorf("its labels are %q", rows)
	}
	if rows := p.rows(2); !slices.EqualFunc(rows, [][]string{{"api", "2"}, {"db", "2"}, {"web", "2"}}, slices.Equal) {
		t.Errorf("the values of job are %q", rows)
	}
	p.follow("code")
	p.wantParameters("by", "code", "label", "code")
	p.wantExplored([]string{"sum by (code) (rate(shop_http_requests_total[5m]))"}, 2)
	p.follow("500")
	p.wantParameters("match", `code="500"`, "metric", "shop_http_requests_total", "by", "")
	p.wantExplored([]string{`sum by (job) (rate(shop_http_requests_total{code="500"}[5m]))`}, 3)
	p.follow("Do not split")
	p.wantExplored([]string{`sum(rate(shop_http_requests_total{code="500"}[5m]))`}, 1)
	p.reload()
	p.wantExplored([]string{`sum(rate(shop_http_requests_total{code="500"}[5m]))`}, 1)
	p.follow("×")
	p.wantExplored([]string{`sum(rate(shop_http_requests_total[5m]))`}, 1)
	p.back(`new URLSearchParams(location.search).get("match") !== null`)
	p.wantExplored([]string{`sum(rate(shop_http_requests_total{code="500"}[5m]))`}, 1)
	p.follow("Cardinality")
	p.wantParameters("tab", "cardinality", "match", `shop_http_requests_total{code="500"}`)
	p.back(`new URLSearchParams(location.search).get("tab") === "explore"`)
	p.follow("Latest values")
	p.wantParameters("tab", "latest", "filter", `shop_http_requests_total{code="500"}`)
	if rows := p.rows(0); len(rows) != 3 {
		t.Errorf("the latest values are %q", rows)
	}
	p.back(`new URLSearchParams(location.search).get("tab") === "explore"`)
	p.follow("Open in Query")
	p.wantParameters("tab", "query", "expr", `sum(rate(shop_http_requests_total{code="500"}[5m]))`, "view", "graph", "range", "3600")

	p.open("tab", "explore", "metric", "shop_http_requests_total", "range", "2592000", "fold", "max")
	p.wantExplored([]string{"max by (job) (rate(shop_http_requests_total[3h]))"}, -1)
	p.open("tab", "explore", "metric", "shop_http_requests_total", "fold", "each")
	p.wantExplored([]string{"rate(shop_http_requests_total[5m])"}, 6)
	p.open("tab", "explore", "metric", "nothing")
	if got := p.texts(".metric p"); !slices.Contains(got, "No such metric around the end of this range.") {
		t.Errorf("of a metric that is not there the page says %q", got)
	}
	p.expect("/api/v1/metric_names", 400)
	p.open("tab", "explore", "end", "1960-01-01T00:00:00Z")
	if got := p.texts("[role=alert]"); len(got) != 1 || !strings.Contains(got[0], "before 1970") {
		t.Errorf("of a time without samples the page says %q", got)
	}
}

// wantExplored wants what Explore draws: expressions, and how many lines unless that is negative.
func (p *browserPage) wantExplored(exprs []string, lines int) {
	p.Helper()
	if got := p.drawnExprs(); !slices.Equal(got, exprs) {
		p.Errorf("the page draws %q, want %q", got, exprs)
	}
	if lines >= 0 {
		if rows := p.rows(0); len(rows) != lines {
			p.Errorf("of %q there are %d lines, want %d: %q", exprs, len(rows), lines, rows)
		}
	}
	if got := p.texts(".message"); len(got) > 0 {
		p.Errorf("of %q the page says %q", exprs, got)
	}
}

// TestPageExploreKinds draws each kind of metric as makes sense of it.
func TestPageExploreKinds(t *testing.T) {
	t.Parallel()
	p := newPage(t, startExplored(t))
	quantiles := func(of string) (all []string) {
		for _, q := range []string{"0.5", "0.9", "0.99"} {
			all = append(all, fmt.Sprintf("histogram_quantile(%s, %s)", q, of))
		}
		return all
	}
	for _, c := range []struct {
		metric, by, heatmap string
		exprs               []string
		lines               int
	}{
		{"shop_queue_bytes", "", "", []string{"shop_queue_bytes"}, 3},
		{"shop_shards", "", "", []string{"avg by (zone) (shop_shards)"}, 3},
		{"shop_wait_seconds", "", "", []string{"shop_wait_seconds"}, 2},
		{"shop_http_request_duration_seconds_sum", "", "", []string{"sum by (job) (rate(shop_http_request_duration_seconds_sum[5m]))"}, 3},
		{
			"shop_http_request_duration_seconds_bucket", "", "sum by (le) (rate(shop_http_request_duration_seconds_bucket[5m]))",
			quantiles("sum by (le) (rate(shop_http_request_duration_seconds_bucket[5m]))"), 3,
		},
		{
			"shop_http_request_duration_seconds_bucket", "job", "sum by (le) (rate(shop_http_request_duration_seconds_bucket[5m]))",
			quantiles("sum by (le, job) (rate(shop_http_request_duration_seconds_bucket[5m]))"), 9,
		},
		// No metadata says that it is one.
		{"shop_native_seconds", "", "sum(rate(shop_native_seconds[5m]))", quantiles("sum(rate(shop_native_seconds[5m]))"), -1},
		{"shop_build_info", "", "", []string{"shop_build_info"}, 3},
	} {
		t.Run(c.metric+c.by, func(t *testing.T) {
			p.open("tab", "explore", "metric", c.metric, "by", c.by)
			p.wantExplored(c.exprs, c.lines)
			heatmaps := evaluate[[]string](p, `[...document.querySelectorAll(".metric a")].filter((a) => a.innerText === "Heatmap").map((a) => a.getAttribute("href"))`)
			switch {
			case c.heatmap == "" && len(heatmaps) > 0:
				t.Errorf("there are heatmaps: %q", heatmaps)
			case c.heatmap != "":
				q, err := url.ParseQuery(strings.TrimPrefix(strings.Join(heatmaps, ""), "?"))
				if err != nil || q.Get("expr") != c.heatmap || q.Get("mode") != "heatmap" || q.Get("view") != "graph" || q.Get("tab") != "query" {
					t.Errorf("the heatmap is %v, %v", q, err)
				}
			}
		})
	}
	p.open("tab", "explore", "metric", "shop_native_seconds")
	if rows := p.rows(0); len(rows) != 3 || !strings.HasSuffix(rows[0][2], " ms") && !strings.HasSuffix(rows[0][2], " s") {
		t.Errorf("quantiles of a native histogram are %q", rows)
	}
	p.eachLook(func(look string) {
		for _, metric := range []string{"shop_http_requests_total", "shop_http_request_duration_seconds_bucket", "shop_build_info", ""} {
			p.open("tab", "explore", "metric", metric, "match", `job="api"`)
			p.checkContrast(look + " " + metric)
			p.shoot("explore-" + metric + "-" + look)
			if small := evaluate[[]string](p, `[...document.querySelectorAll("#explore .result a")].filter((a) => a.checkVisibility() && a.getBoundingClientRect().height < 24).map((a) => a.outerHTML)`); len(small) > 0 {
				t.Errorf("%s: too small to be hit are %q", look, small)
			}
		}
	})
}

// TestPageExploreMany finds one of many names, of which few are elements.
func TestPageExploreMany(t *testing.T) {
	t.Parallel()
	const many = 20_000
	a := harness.StartAdapter(t, harness.Embedded(t))
	var series []harness.SentSeries
	for i := range many {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", fmt.Sprintf("many%03d_part%03d_total", i%500, i)}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 1)}})
	}
	series = append(series, harness.SentSeries{Labels: []string{"__name__", "part019"}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 1)}})
	for some := range slices.Chunk(series, 5000) {
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), some...)
	}
	p := newPage(t, a)
	p.open("tab", "explore")
	if got := p.listed(); len(got) != 200 || got[0] != "many000_…" {
		t.Errorf("%d are listed, from %q on", len(got), got[:1])
	}
	if got := p.texts(".names .hint"); len(got) != 1 || !strings.HasPrefix(got[0], "301 more") {
		t.Errorf("of the others the page says %q", got)
	}
	p.shoot("explore-many")
	// The names are found while one is typed.
	p.click("#explore input")
	p.press("part01")
	p.await(`document.querySelector(".names .facts").textContent === "11 of 20,001 metrics"`)
	p.press("9")
	p.await(`document.querySelector(".names .facts").textContent === "2 of 20,001 metrics"`)
	p.wantParameters("tab", "explore", "search", "part019")
	p.enter("#explore input", "part019")
	p.wantParameters("tab", "explore", "search", "part019")
	if got := p.listed(); !slices.Equal(got, []string{"part019", "many019_part019_total"}) {
		t.Errorf("found are %q", got)
	}
	p.enter("#explore input", "TOTAL")
	if got, facts := p.listed(), p.texts(".names .facts"); len(got) != 200 || !slices.Equal(facts, []string{"20,000 of 20,001 metrics"}) {
		t.Errorf("of very many %d are listed, and the page says %q", len(got), facts)
	}
	p.enter("#explore input", "nothing_like_it")
	if got := p.texts(".names .facts"); len(p.listed()) > 0 || !slices.Equal(got, []string{"0 of 20,001 metrics"}) {
		t.Errorf("of what is not there the page says %q", got)
	}
}

// TestPageExploreMissing: a metric without samples in the time leads to its newest one, and one that is not there to those that begin with its name.
func TestPageExploreMissing(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := newPage(t, a)
	send := func(ago int64, labels ...string) {
		t.Helper()
		at := harness.NowMillis() - ago
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SentSeries{Labels: labels, Points: []harness.Point{harness.PointAt(at-60_000, 4), harness.PointAt(at, 5)}})
	}
	send(30*60_000, "__name__", "gone_total")
	send(0, "__name__", "wait_seconds_bucket", "le", "1")
	send(0, "__name__", "wait_seconds_count")
	const days = 86_400_000
	send(40*days, "__name__", "long_gone")
	for _, metric := range []string{"gone_total", "long_gone"} {
		p.open("tab", "explore", "metric", metric, "range", "300")
		p.await(`[...document.querySelectorAll(".metric p")].some((p) => p.innerText.startsWith("The newest sample is at "))`)
		p.click(".metric p button")
		p.await(`document.querySelector(".metric .legend tbody tr") !== null`)
	}
	p.eachLook(func(look string) {
		p.open("tab", "explore", "metric", "wait_seconds")
		if got := p.texts(".metric p"); !slices.Contains(got, "No such metric around the end of this range.") {
			t.Errorf("%s: the page says %q", look, got)
		}
		if got := p.texts(".metric table, .metric .facts"); len(got) > 0 && strings.Join(got, "") != "" {
			t.Errorf("%s: there are %q", look, got)
		}
		if got := p.texts(".metric .links a"); !slices.Equal(got, []string{"wait_seconds_bucket", "wait_seconds_count"}) {
			t.Errorf("%s: offered are %q", look, got)
		}
		p.checkContrast(look)
		p.shoot("explore-missing-" + look)
	})
	p.follow("wait_seconds_bucket")
	p.wantParameters("tab", "explore", "metric", "wait_seconds_bucket")
}

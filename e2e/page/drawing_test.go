//go:build browser

package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/e2e/harness"
)

// drawEnd is the time of the last sample that graphs are tested with, in seconds: 2026-03-04T05:00:00Z.
const drawEnd = 1_772_600_400

// drawLink opens an hour up to then.
var drawLink = []string{"view", "graph", "range", "3600", "end", "2026-03-04T05:00:00Z"}

// draw opens the graph of an expression of that hour.
func (p *browserPage) draw(expr string, more ...string) {
	p.Helper()
	p.open(append(append([]string{"expr", expr}, drawLink...), more...)...)
}

// startDrawn starts an adapter that holds an hour of samples, one each minute, up to drawEnd.
func startDrawn(t testing.TB) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t))
	const points = 61
	at := func(i int) int64 { return (drawEnd - int64(points-1-i)*60) * 1000 }
	over := func(value func(i int) float64, labels ...string) harness.SentSeries {
		s := harness.SentSeries{Labels: labels}
		for i := range points {
			s.Points = append(s.Points, harness.PointAt(at(i), value(i)))
		}
		return s
	}
	line := func(from, step float64) func(int) float64 {
		return func(i int) float64 { return from + step*float64(i) }
	}
	series := []harness.SentSeries{
		over(line(10, 0), "__name__", "draw_level", "job", "j", "host", "a"),
		over(line(20, 0), "__name__", "draw_level", "job", "j", "host", "b"),
		over(line(30, 1), "__name__", "draw_level", "job", "j", "host", "c"),
		over(line(-5, 0), "__name__", "draw_debt", "host", "a"),
		over(line(0, 2048*60), "__name__", "draw_sent_bytes_total", "host", "a"),
		over(line(3<<20, 0), "__name__", "draw_used_bytes", "host", "a"),
		over(line(0.0125, 0), "__name__", "draw_wait_seconds", "host", "a"),
		over(line(0.42, 0), "__name__", "draw_busy_ratio", "host", "a"),
	}
	// Each minute: 6 up to 0.1, 30 from there to 1, 24 to 10, and 0 above.
	for _, bucket := range []struct {
		le    string
		count float64
	}{{"0.1", 6}, {"1", 36}, {"10", 60}, {"+Inf", 60}} {
		for _, host := range []string{"a", "b"} {
			series = append(series, over(line(0, bucket.count), "__name__", "draw_took_seconds_bucket", "host", host, "le", bucket.le))
		}
	}
	native := harness.SentSeries{Labels: []string{"__name__", "draw_size_bytes"}}
	for i := range points {
		encoded, err := harness.RemoteWrite2().Histogram(0, at(i), &histogram.Histogram{
			Count: 12, Sum: 33.5, ZeroThreshold: 0.001, CounterResetHint: histogram.GaugeType,
			PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}},
			PositiveBuckets: []int64{3, 1, 1}, // 3 in (0.5, 1], 4 in (1, 2], 5 in (4, 8]
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		native.Histograms = append(native.Histograms, encoded)
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), append(series, native)...)
	return a
}

// A place is one of the plot of a graph, in pixels of the page.
type place struct{ X, Y, Width, Height float64 }

// plot returns where the plot is.
func (p *browserPage) plot() place {
	p.Helper()
	evaluate[bool](p, `(() => { document.querySelector("#query .u-over").scrollIntoView({ block: "center" }); return true })()`)
	return evaluate[place](p, `document.querySelector("#query .u-over").getBoundingClientRect().toJSON()`)
}

// at returns the place of a time, in seconds before drawEnd, as a part of the hour, and of a part of the height from the top.
func (b place) at(before, part float64) (x, y float64) {
	return b.X + b.Width*(1-before/3600), b.Y + b.Height*part
}

// mouseTo moves the mouse.
func mouseTo(x, y float64) chromedp.Action[chromedp.Void] {
	return chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y)
}

const tip = "document.querySelector('#query .graph-tip:not([hidden])')"

// tip returns the lines of what is said at the cursor, or none.
func (p *browserPage) tip() []string {
	p.Helper()
	return evaluate[[]string](p, `(`+tip+`?.innerText ?? "").split("\n").filter((line) => line)`)
}

// wantTip wants the cursor to say something.
func (p *browserPage) wantTip(want ...string) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("the cursor says %q", want), func() error {
		if got := p.tip(); !slices.Equal(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// wantSaid wants a screen reader to be told something.
func (p *browserPage) wantSaid(want string) {
	p.Helper()
	if got := p.texts(".graph-place .unseen[aria-live=polite]"); !slices.Equal(got, []string{want}) {
		p.Errorf("said is %q, want %q", got, want)
	}
}

// marked returns how many pixels are drawn above the lines, for the one that is read.
func (p *browserPage) marked() (pixels int) {
	p.Helper()
	return evaluate[int](p, `(() => {
		const mark = document.querySelector("#query .graph-mark");
		const copy = Object.assign(document.createElement("canvas"), { width: mark.width, height: mark.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(mark, 0, 0);
		const { data } = context.getImageData(0, 0, copy.width, copy.height);
		return data.filter((v, i) => i % 4 === 3 && v > 0).length;
	})()`)
}

// TestPageCursor reads a graph by the mouse, by touch and by the keyboard.
func TestPageCursor(t *testing.T) {
	p := newPage(t, startDrawn(t))
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "1m")
		plot := p.plot()
		// The axis is from about 3 to 97: 10 is at the bottom, and 90 at the top.
		x, y := plot.at(1800, 0.8)
		p.do(mouseTo(x, y))
		p.wantTip("2026-03-04 10:00:00", "20", `{host="b"}`)
		if rows := p.rows(0); rows[0][1] != "10" || rows[1][1] != "20" || rows[2][1] != "60" {
			t.Errorf("%s: under the cursor the list has %q", look, rows)
		}
		if p.marked() < 200 {
			t.Errorf("%s: the line is not marked: %d pixels", look, p.marked())
		}
		p.checkContrast(look)
		p.shoot("cursor-" + look)
		x, y = plot.at(0, 0.1)
		p.do(mouseTo(x-1, y))
		p.wantTip("2026-03-04 10:30:00", "90", `{host="c"}`)
		p.do(mouseTo(plot.X+5, plot.Y-20))
		p.wantTip()
		if p.marked() > 0 {
			t.Errorf("%s: without a cursor a line is marked", look)
		}

		// A click keeps it there, and another lets it go.
		x, y = plot.at(1800, 0.95)
		p.do(chromedp.MouseClickXY(x, y))
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		p.wantSaid(`2026-03-04 10:00:00: 10, {host="a"}`)
		p.do(mouseTo(plot.X+5, plot.Y+5))
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		p.do(chromedp.MouseClickXY(x, y))
		p.do(mouseTo(plot.X+5, plot.Y-20))
		p.wantTip()

		evaluate[bool](p, `(() => { document.querySelector("#query .graph").focus(); return true })()`)
		p.press(kb.ArrowLeft)
		p.wantTip("2026-03-04 10:30:00", "10", `{host="a"}`)
		p.press(kb.ArrowUp + kb.ArrowUp + kb.ArrowUp)
		p.press(kb.ArrowLeft + kb.ArrowLeft)
		p.wantTip("2026-03-04 10:28:00", "88", `{host="c"}`)
		p.wantSaid(`2026-03-04 10:28:00: 88, {host="c"}`)
		p.press(kb.ArrowDown)
		p.press(kb.Home)
		p.wantTip("2026-03-04 09:30:00", "20", `{host="b"}`)
		p.shoot("cursor-keyboard-" + look)
		p.press(kb.Escape)
		p.wantTip()

		devtools(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: "touchStart", TouchPoints: []*input.TouchPoint{{X: x, Y: y}}})
		devtools(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: "touchEnd", TouchPoints: []*input.TouchPoint{}})
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		if got := p.texts("#graph-description"); len(got) != 1 || !strings.HasPrefix(got[0], `3 lines are shown. The least value is 10 of draw_level{host="a", job="j"}, the greatest 90 of draw_level{host="c", job="j"}.`) {
			t.Errorf("the graph is described by %q", got)
		}
	})
}

// wantRange wants the URL to say a range.
func (p *browserPage) wantRange(seconds, end string) {
	p.Helper()
	harness.Eventually(p, "the range is "+seconds+" up to "+end, func() error {
		if got := p.parameters(); got.Get("range") != seconds || got.Get("end") != end {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
	p.settle()
}

// TestPageMoves moves the range, and goes back.
func TestPageMoves(t *testing.T) {
	p := newPage(t, startDrawn(t))
	p.draw("draw_level")
	for _, c := range []struct{ button, seconds, end string }{
		{".when-earlier", "3600", "2026-03-04T04:30:00Z"},
		{".when-later", "3600", "2026-03-04T05:00:00Z"},
		{".when-in", "1800", "2026-03-04T04:45:00Z"},
		{".when-out", "3600", "2026-03-04T05:00:00Z"},
		{".when-out", "7200", "2026-03-04T05:30:00Z"},
	} {
		p.click("#query " + c.button)
		p.wantRange(c.seconds, c.end)
	}
	if got := p.when(); got != "2026-03-04 09:00 – 11:00 Asia/Calcutta" {
		t.Errorf("the range is called %q", got)
	}
	x, y := p.plot().at(1800, 0.3)
	button := chromedp.ButtonType(input.MouseButtonLeft)
	for n := range 2 {
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y, button, chromedp.ClickCount(n+1)),
			chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x, y, button, chromedp.ClickCount(n+1)))
	}
	p.wantRange("14400", "2026-03-04T06:30:00Z")
	p.back(`new URLSearchParams(location.search).get("range") === "7200"`)
	p.wantRange("7200", "2026-03-04T05:30:00Z")

	// Up to now there is no later, and what would go beyond now stops there.
	p.open("expr", "draw_level", "view", "graph")
	if !evaluate[bool](p, `document.querySelector("#query .when-later").disabled`) {
		t.Error("there is a later than now")
	}
	p.click("#query .when-out")
	p.wantRange("7200", "")
	p.click("#query .when-earlier")
	p.click("#query .when-later")
	p.wantRange("7200", "")
}

// TestPageTimes chooses a range, and types one.
func TestPageTimes(t *testing.T) {
	p := newPage(t, startDrawn(t))
	openPanel := func() {
		t.Helper()
		p.click("#query .when-open")
		p.await(`document.querySelector("#query .when-panel").matches(":popover-open")`)
	}
	button := func(text string) {
		t.Helper()
		evaluate[bool](p, fmt.Sprintf(`(() => { [...document.querySelectorAll("#query .when-panel button")].find((b) => b.textContent === %q).click(); return true })()`, text))
		p.settle()
	}
	p.eachLook(func(look string) {
		p.open("expr", "draw_level", "view", "graph")
		openPanel()
		p.wantFocus("From")
		if got := evaluate[[]string](p, `[...document.querySelectorAll("#query .when-panel input")].map((e) => e.value)`); !slices.Equal(got, []string{"now-1h", "now"}) {
			t.Errorf("the fields have %q", got)
		}
		if got := evaluate[[]string](p, `[...document.querySelectorAll("#query .when-quick [aria-pressed=true]")].map((e) => e.innerText)`); !slices.Equal(got, []string{"Last 1 hour"}) {
			t.Errorf("%q is chosen", got)
		}
		box := evaluate[place](p, `document.querySelector("#query .when-panel").getBoundingClientRect().toJSON()`)
		if wide := evaluate[float64](p, "document.documentElement.clientWidth"); box.X < 0 || box.X+box.Width > wide {
			t.Errorf("%s: the panel is from %.0f to %.0f of %.0f", look, box.X, box.X+box.Width, wide)
		}
		p.checkContrast(look)
		p.shoot("times-" + look)
		p.press(kb.Escape)
		p.wantFocus("Last 1 hour")
		openPanel()
		button("Last 2 days")
		p.wantRange("172800", "")
		if got := p.when(); got != "Last 2 days" {
			t.Errorf("the range is called %q", got)
		}
	})
	openPanel()
	button("Yesterday")
	if got := p.parameters(); got.Get("range") != "86400" || !strings.HasSuffix(got.Get("end"), "T18:30:00Z") { // midnight in Kolkata
		t.Errorf("yesterday is %v", got)
	}
	for _, c := range []struct{ from, to, seconds, end, words string }{
		{"2026-03-04 10:00", "2026-03-04 12:00", "7200", "2026-03-04T06:30:00Z", "2026-03-04 10:00 – 12:00 Asia/Calcutta"},
		{"2026-03-01", "2026-03-04T06:30:00Z", "302400", "2026-03-04T06:30:00Z", "2026-03-01 00:00 – 2026-03-04 12:00 Asia/Calcutta"},
		{"now-90m", "now", "5400", "", "Last 1h30m"},
		{"now - 2d", "", "172800", "", "Last 2 days"},
	} {
		openPanel()
		evaluate[bool](p, fmt.Sprintf(`(() => { document.querySelector("#query .when-from input").value = %q; return true })()`, c.from))
		evaluate[bool](p, `(() => { const f = document.querySelector("#query .when-to input"); f.value = ""; f.focus(); return true })()`)
		p.press(c.to + "\r")
		p.wantRange(c.seconds, c.end)
		if got := p.when(); got != c.words {
			t.Errorf("from %q to %q is called %q", c.from, c.to, got)
		}
		p.reload()
		if got := p.when(); got != c.words {
			t.Errorf("after a reload from %q to %q is called %q", c.from, c.to, got)
		}
	}
	for from, want := range map[string]string{"soon": "soon is no time.", "now-1q": "now-1q is no time.", "2026-13-01": "2026-13-01 is no time.", "now+1h": "From must be before To."} {
		openPanel()
		p.enter("#query .when-from input", from)
		if got := evaluate[string](p, `document.querySelector("#query .when-panel [role=alert]").innerText`); !strings.HasPrefix(got, want) {
			t.Errorf("of %q the panel says %q", from, got)
		}
		p.press(kb.Escape)
	}
	p.wantRange("172800", "")
	openPanel()
	button("Show UTC")
	if got := evaluate[string](p, `document.querySelector("#query .when-zone strong").innerText + document.getElementById("times").value`); got != "UTCUTC" {
		t.Errorf("the zone is %s", got)
	}
	p.press(kb.Escape)
	p.draw("draw_level")
	if got := p.when(); got != "2026-03-04 04:00 – 05:00 UTC" {
		t.Errorf("in UTC the range is called %q", got)
	}
}

// TestPageStep chooses the step of a graph.
func TestPageStep(t *testing.T) {
	p := newPage(t, startDrawn(t))
	p.noteBodies()
	p.draw("draw_level")
	facts := func() string { return p.texts(".facts")[0] }
	if got := facts(); !strings.HasSuffix(got, "step 15s") {
		t.Errorf("the facts are %q", got)
	}
	p.choose("#query select[name=step]", "5 min")
	p.wantParameters("step", "5m")
	p.settle()
	if got := facts(); !strings.HasSuffix(got, "step 5m") {
		t.Errorf("the facts are %q", got)
	}
	evaluate[bool](p, `(() => { const s = document.querySelector("#query select[name=step]"); s.focus(); s.value = "own"; s.dispatchEvent(new Event("change", { bubbles: true })); return true })()`)
	p.wantFocus("Step of")
	p.press("7m\r")
	p.wantParameters("step", "7m")
	if got := facts(); !strings.HasSuffix(got, "step 7m") {
		t.Errorf("the facts are %q", got)
	}
	// Counted from the end back.
	if got := evaluate[string](p, `(() => { const q = new URLSearchParams(window.bodies.at(-1)); return [q.get("start"), q.get("end"), q.get("step")].join(" ") })()`); got != fmt.Sprintf("%d %d 420", drawEnd-8*420, drawEnd) {
		t.Errorf("the page asks for %s", got)
	}
	p.reload()
	if got := evaluate[string](p, `document.querySelector("#query select[name=step]").value`); got != "7m" {
		t.Errorf("after a reload the step is %s", got)
	}
	p.open("expr", "draw_level", "view", "graph", "range", "86400", "step", "1s")
	want := "With a step of 1s this range has 86,401 points, and a series may have 11,000: choose a step of at least 8s, or a shorter range."
	if got := p.texts("[role=alert]"); !slices.Equal(got, []string{want}) {
		t.Errorf("of too many points the page says %q", got)
	}
	p.open("expr", "draw_level", "view", "graph", "step", "soon")
	if got := p.texts("[role=alert]"); len(got) != 1 || !strings.HasPrefix(got[0], "The step in the URL is no time: soon.") {
		t.Errorf("of no step the page says %q", got)
	}
}

// TestPageDrawing looks at graphs of all kinds.
func TestPageDrawing(t *testing.T) {
	p := newPage(t, startDrawn(t))
	for _, c := range []struct{ name, expr, mode, unit string }{
		{"lines", "draw_level", "", ""}, {"stacked", "draw_level", "stacked", ""}, {"below", "{__name__=~\"draw_level|draw_debt\"}", "stacked", ""},
		{"points", "draw_level", "points", ""}, {"bars", "draw_level", "bars", ""},
		{"classic", "sum by (le) (rate(draw_took_seconds_bucket[5m]))", "", ""}, {"two", "rate(draw_took_seconds_bucket[5m])", "", ""},
		{"native", "draw_size_bytes", "", ""}, {"native-lines", "draw_size_bytes", "lines", ""}, {"no-heatmap", "draw_level", "heatmap", ""},
		{"bytes", "rate(draw_sent_bytes_total[5m])", "", ""}, {"chosen", "draw_level", "", "seconds"},
	} {
		p.eachLook(func(look string) {
			step := "1m"
			if c.mode == "bars" {
				step = "5m"
			}
			p.draw(c.expr, "mode", c.mode, "unit", c.unit, "step", step)
			p.checkContrast(c.name + " " + look)
			x, y := p.plot().at(1800, 0.6)
			p.do(mouseTo(x, y))
			p.shoot("draw-" + c.name + "-" + look)
			if wide := evaluate[bool](p, "document.documentElement.scrollWidth > innerWidth"); wide {
				t.Errorf("%s %s: the page scrolls sideways", c.name, look)
			}
		})
	}
}

//go:build browser

package page

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
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
	p.awaitEditors() // which move what is below them
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
func (p *browserPage) mouseTo(x, y float64) {
	p.Helper()
	p.mouse = &place{X: x, Y: y}
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
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
		got := p.tip()
		if slices.Equal(got, want) {
			return nil
		}
		if at := p.mouse; at != nil { // again: a page that draws just then may miss it
			p.mouseTo(at.X+1, at.Y)
			p.mouseTo(at.X, at.Y)
		}
		return fmt.Errorf("it says %q", got)
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
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "1m")
		plot := p.plot()
		// The axis is from about 3 to 97: 10 is at the bottom, and 90 at the top.
		x, y := plot.at(1800, 0.8)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "20", `{host="b"}`)
		if rows := p.rows(0); rows[0][1] != "10" || rows[1][1] != "20" || rows[2][1] != "60" {
			t.Errorf("%s: under the cursor the list has %q", look, rows)
		}
		if p.marked() < 200 {
			t.Errorf("%s: the line is not marked: %d pixels", look, p.marked())
		}
		p.checkContrast(look)
		p.shoot("cursor-" + look)
		plot = p.plot() // a screenshot may have moved it
		x, y = plot.at(0, 0.1)
		p.mouseTo(x-1, y)
		p.wantTip("2026-03-04 10:30:00", "90", `{host="c"}`)
		p.mouseTo(plot.X+5, plot.Y-20)
		p.wantTip()
		if p.marked() > 0 {
			t.Errorf("%s: without a cursor a line is marked", look)
		}

		// A click keeps it there, and another lets it go.
		x, y = plot.at(1800, 0.95)
		p.do(chromedp.MouseClickXY(x, y))
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		p.wantSaid(`2026-03-04 10:00:00: 10, {host="a"}`)
		p.mouseTo(plot.X+5, plot.Y+5)
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		p.do(chromedp.MouseClickXY(x, y))
		p.mouseTo(plot.X+5, plot.Y-20)
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

		x, y = p.plot().at(1800, 0.95)
		devtools(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: "touchStart", TouchPoints: []*input.TouchPoint{{X: x, Y: y}}})
		devtools(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: "touchEnd", TouchPoints: []*input.TouchPoint{}})
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		if got := p.texts(".graph-description"); len(got) != 1 || !strings.HasPrefix(got[0], `3 lines are shown. The minimum is 10 of draw_level{host="a", job="j"}, the maximum 90 of draw_level{host="c", job="j"}.`) {
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
	t.Parallel()
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
	evaluate[bool](p, `(() => { const now = Date.now; Date.now = () => now() + 60_000; return true })()`) // a minute later
	p.click("#query .when-later")
	p.wantRange("7200", "")
}

// TestPageZoom drags over a part of a graph, and wants every click after that to do what it is for: the chart that a drag ends on is
// replaced by that drag, or by a key that is pressed during it.
func TestPageZoom(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	button := chromedp.ButtonType(input.MouseButtonLeft)
	// dragHalf drags over the middle half of the plot. During it, do is called.
	dragHalf := func(during func()) {
		t.Helper()
		plot := p.plot()
		x, y := plot.at(2700, 0.3)
		to, _ := plot.at(900, 0.3)
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y),
			chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y, button, chromedp.ClickCount(1)),
			chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, (x+to)/2, y, button),
			chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, to, y, button))
		during()
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, to, y, button, chromedp.ClickCount(1)))
		p.settle()
	}
	for _, c := range []struct {
		name, expr string
		during     func()
		seconds    string
	}{
		{"lines", "draw_level", func() {}, "1800"},
		{"a heatmap", "rate(draw_took_seconds_bucket[5m])", func() {}, "1800"},
		{"another range during the drag", "draw_level", func() {
			evaluate[bool](p, `(() => { document.querySelector("#query .when-out").click(); return true })()`)
			p.wantRange("7200", "2026-03-04T05:30:00Z")
		}, "7200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.draw(c.expr)
			dragHalf(c.during)
			var zoomed url.Values
			harness.Eventually(t, "the page shows what was dragged over", func() error { // a moment after the drag
				zoomed = p.parameters()
				if got := mustFloat(t, zoomed.Get("range")); math.Abs(got-mustFloat(t, c.seconds)) > 15 {
					return fmt.Errorf("it shows %v, want %s s", zoomed, c.seconds)
				}
				return nil
			})
			p.settle()
			p.click("#query .graph-zone") // which does nothing
			if got := p.parameters(); got.Encode() != zoomed.Encode() {
				t.Errorf("a click beside the graph leads to %v, want %v", got, zoomed)
			}
			x, y := p.plot().at(1800, 0.3)
			for n := range 2 {
				p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y, button, chromedp.ClickCount(n+1)),
					chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x, y, button, chromedp.ClickCount(n+1)))
			}
			p.settle()
			harness.Eventually(t, "a double click zooms out", func() error {
				if got := mustFloat(t, p.parameters().Get("range")); math.Abs(got-2*mustFloat(t, zoomed.Get("range"))) > 1 {
					return fmt.Errorf("the range is %g s", got)
				}
				return nil
			})
			p.click("nav a[data-tab=explore]")
			p.click("#explore label")
			if got := p.parameters().Get("tab"); got != "explore" {
				t.Errorf("a click in Explore leads to the tab %q", got)
			}
		})
	}
}

// drawnAt says whether a line is drawn in the plot within three pixels of a time, in seconds before drawEnd.
func (p *browserPage) drawnAt(plot place, before float64) bool {
	p.Helper()
	x, _ := plot.at(before, 0)
	return evaluate[bool](p, fmt.Sprintf(`(() => {
		const drawn = document.querySelector("#query .u-wrap canvas"), { left, top } = drawn.getBoundingClientRect(), over = document.querySelector("#query .u-over").getBoundingClientRect();
		const ratio = devicePixelRatio, copy = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(drawn, 0, 0);
		const { data } = context.getImageData((%g - 3 - left) * ratio, (over.top - top) * ratio, 7 * ratio, over.height * ratio);
		const colours = [...document.querySelectorAll("#query .result tbody path")].map((path) => [1, 3, 5].map((at) => parseInt(path.getAttribute("stroke").slice(at, at + 2), 16)));
		for (let i = 0; i < data.length; i += 4) {
			if (data[i + 3] > 90 && colours.some((colour) => colour.every((v, j) => Math.abs(data[i + j] - v) < 8))) {
				return true;
			}
		}
		return false;
	})()`, x))
}

// TestPageGap wants a time in which no series has a value to be drawn as a gap.
func TestPageGap(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	// There is nothing from 09:50 to 10:09, and one value at 10:10.
	const outage = "draw_level and on() (vector(time()) < 1772598000 or vector(time()) == 1772599200 or vector(time()) > 1772599500)"
	for _, mode := range []string{"lines", "stacked", "points", "bars"} {
		p.draw(outage, "step", "1m", "mode", mode)
		plot := p.plot()
		for _, c := range []struct {
			before float64
			drawn  bool
		}{{3000, true}, {2100, false}, {1500, false}, {1200, true}, {1050, false}, {600, true}} {
			if got := p.drawnAt(plot, c.before); got != c.drawn {
				t.Errorf("%s: %g s before the end there is something: %t, want %t", mode, c.before, got, c.drawn)
			}
		}
		p.shoot("gap-" + mode)
	}
}

// TestPageTimes chooses a range, and types one.
func TestPageTimes(t *testing.T) {
	t.Parallel()
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
	for from, want := range map[string]string{"soon": "Invalid time: soon.", "now-1q": "Invalid time: now-1q.", "2026-13-01": "Invalid time: 2026-13-01.", "now+1h": "From must be before To."} {
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

// TestPageHeatmapCut wants no heatmap of a part of the buckets.
func TestPageHeatmapCut(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.draw("rate(draw_took_seconds_bucket[5m])", "lines", "3")
	if got := p.texts(".message"); len(got) != 1 || !strings.HasPrefix(got[0], "A heatmap needs all series, but the limit left 3 of 8. They are drawn as lines.") {
		t.Errorf("the page says %q", got)
	}
	if rows := p.rows(0); len(rows) != 3 {
		t.Errorf("the lines are %q", rows)
	}
}

// TestPageStep chooses the step of a graph.
func TestPageStep(t *testing.T) {
	t.Parallel()
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
	// What is typed there counts also where another button sends the form, and what is no step is refused there.
	own := func(text string) {
		t.Helper()
		evaluate[bool](p, `(() => { const s = document.querySelector("#query select[name=step]"); s.focus(); s.value = "own"; s.dispatchEvent(new Event("change", { bubbles: true })); return true })()`)
		p.wantFocus("Step of")
		p.press(text)
		p.click("#query .primary")
	}
	own("9m")
	p.wantParameters("step", "9m")
	own("soon")
	if got := evaluate[string](p, `document.querySelector("#query .step-own [role=alert]").innerText`); got != "Use a duration such as 15s, 5m or 1h." || p.parameters().Get("step") != "9m" {
		t.Errorf("of no step the page says %q, and has %v", got, p.parameters())
	}
	own("7m")
	p.wantParameters("step", "7m")
	// Counted from the end back.
	if got := evaluate[string](p, `(() => { const q = new URLSearchParams(window.bodies.at(-1)); return [q.get("start"), q.get("end"), q.get("step")].join(" ") })()`); got != fmt.Sprintf("%d %d 420", drawEnd-8*420, drawEnd) {
		t.Errorf("the page asks for %s", got)
	}
	p.reload()
	if got := evaluate[string](p, `document.querySelector("#query select[name=step]").value`); got != "7m" {
		t.Errorf("after a reload the step is %s", got)
	}
	p.open("expr", "draw_level", "view", "graph", "range", "86400", "step", "1s")
	want := "With a step of 1s this range has 86,401 points, and the limit is 11,000. Choose a step of at least 8s or a shorter range."
	if got := p.texts("[role=alert]"); !slices.Equal(got, []string{want}) {
		t.Errorf("of too many points the page says %q", got)
	}
	p.open("expr", "draw_level", "view", "graph", "range", "-5")
	if got := p.texts("[role=alert]"); !slices.Equal(got, []string{"Invalid range in the URL, not a number of seconds above 0: -5"}) {
		t.Errorf("of no range the page says %q", got)
	}
	p.open("expr", "draw_level", "view", "graph", "step", "soon")
	if got := p.texts("[role=alert]"); len(got) != 1 || !strings.HasPrefix(got[0], "Invalid step in the URL: soon.") {
		t.Errorf("of no step the page says %q", got)
	}
}

// TestPageDrawing looks at graphs of all kinds.
func TestPageDrawing(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	drawings := []struct{ name, expr, mode, unit string }{
		{"lines", "draw_level", "", ""}, {"stacked", "draw_level", "stacked", ""}, {"below", "{__name__=~\"draw_level|draw_debt\"}", "stacked", ""},
		{"points", "draw_level", "points", ""}, {"bars", "draw_level", "bars", ""},
		{"classic", "sum by (le) (rate(draw_took_seconds_bucket[5m]))", "", ""}, {"two", "rate(draw_took_seconds_bucket[5m])", "", ""},
		{"native", "draw_size_bytes", "", ""}, {"native-lines", "draw_size_bytes", "lines", ""}, {"no-heatmap", "draw_level", "heatmap", ""},
		{"bytes", "rate(draw_sent_bytes_total[5m])", "", ""}, {"chosen", "draw_level", "", "seconds"},
	}
	p.eachLook(func(look string) {
		for _, c := range drawings {
			step := "1m"
			if c.mode == "bars" {
				step = "5m"
			}
			p.draw(c.expr, "mode", c.mode, "unit", c.unit, "step", step)
			p.checkContrast(c.name + " " + look)
			x, y := p.plot().at(1800, 0.6)
			p.mouseTo(x, y)
			p.shoot("draw-" + c.name + "-" + look)
			if wide := evaluate[bool](p, "document.documentElement.scrollWidth > innerWidth"); wide {
				t.Errorf("%s %s: the page scrolls sideways", c.name, look)
			}
		}
	})
}

// pixels returns the colours of places of the plot, x and y in turn, on the canvas of a graph, as the style sheet would write them.
func (p *browserPage) pixels(at ...float64) []string {
	p.Helper()
	places, err := json.Marshal(slices.Collect(slices.Chunk(at, 2)))
	if err != nil {
		p.Fatal(err)
	}
	return evaluate[[]string](p, fmt.Sprintf(`(() => {
		const drawn = document.querySelector("#query .uplot canvas"), box = drawn.getBoundingClientRect();
		const copy = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(drawn, 0, 0);
		return %s.map(([x, y]) => {
			const [r, g, b, a] = context.getImageData(Math.round(x - box.x), Math.round(y - box.y), 1, 1).data;
			return a === 0 ? "" : "rgb(" + [r, g, b].join(", ") + ")";
		});
	})()`, places))
}

// TestPageStacked wants lines on top of each other, and again when one is hidden.
func TestPageStacked(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "1m", "mode", "stacked")
		plot := p.plot()
		x, y := plot.at(1800, 0.5)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "60", `{host="c"}`, "Total: 90")
		_, y = plot.at(1800, 0.97)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`, "Total: 90")
		if got := p.texts(".message"); len(got) > 0 {
			t.Errorf("without values below 0 the page says %q", got)
		}
		// From the bottom up there are three areas, and above them nothing.
		colours := map[string]bool{}
		var at []float64
		for _, part := range []float64{0.97, 0.85, 0.5, 0.02} {
			x, y := plot.at(2400, part)
			at = append(at, x+7, y)
		}
		found := p.pixels(at...)
		for _, colour := range found[:3] {
			colours[colour] = true
		}
		if above := found[3]; len(colours) != 3 || colours[""] || colours[above] {
			t.Errorf("%s: the areas have the colours %v, above is %q", look, colours, above)
		}
		p.click("#query .legend input")
		plot = p.plot()
		x, y = plot.at(1800, 0.97)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "20", `{host="b"}`, "Total: 80")
		p.draw(`{__name__=~"draw_level|draw_debt"}`, "step", "1m", "mode", "stacked")
		if got := p.texts(".message"); !slices.Equal(got, []string{"Values below 0 are stacked downwards from 0."}) {
			t.Errorf("with values below 0 the page says %q", got)
		}
		x, y = p.plot().at(1800, 0.99)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "-5", `draw_debt{host="a"}`, "Total: 85")
	})
}

// TestPageBars wants a bar of each line at each step, and points and no lines between them.
func TestPageBars(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "10m", "mode", "bars")
		plot := p.plot()
		// Half a step is left at both sides: a step is a seventh.
		at := func(i int, aside float64) float64 { return plot.X + plot.Width*(float64(i)+0.5+aside)/7 }
		bottom := plot.Y + plot.Height*0.97
		swatches := evaluate[[]string](p, `[...document.querySelectorAll("#query tbody path")].map((e) => {
			const n = parseInt(e.getAttribute("stroke").slice(1), 16);
			return "rgb(" + [n >> 16, n >> 8 & 255, n & 255].join(", ") + ")";
		})`)
		for i := range 7 {
			got := p.pixels(at(i, -0.27)+3, bottom, at(i, 0)+3, bottom, at(i, 0.27)+3, bottom, at(i, 0.46), bottom)
			if !slices.Equal(got[:3], swatches) || slices.Contains(swatches, got[3]) {
				t.Errorf("%s: at step %d there are the colours %q, want %q and a gap", look, i, got, swatches)
			}
		}
		p.mouseTo(at(3, -0.27), bottom-30)
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`)
		p.mouseTo(at(3, 0.27), bottom-30)
		p.wantTip("2026-03-04 10:00:00", "60", `{host="c"}`)

		p.draw("draw_level", "step", "10m", "mode", "points")
		lines := p.lines()
		p.draw("draw_level", "step", "10m", "mode", "lines")
		for i, l := range p.lines() {
			if lines[i].Pixels == 0 || lines[i].Pixels*2 > l.Pixels {
				t.Errorf("%s: as points line %d has %d pixels, as a line %d", look, i, lines[i].Pixels, l.Pixels)
			}
		}
	})
}

// TestPageHeatmap wants the buckets of histograms in their places, and their counts.
func TestPageHeatmap(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	fullest := map[string]string{"light": "rgb(12, 35, 88)", "dark": "rgb(251, 253, 255)"}
	p.eachLook(func(look string) {
		scheme, _, _ := strings.Cut(look, "-")
		p.draw("sum by (le) (rate(draw_took_seconds_bucket[5m]))", "step", "1m")
		plot := p.plot()
		// Of two hosts each second: 0.2 up to 0.1 s, 1 to 1 s, 0.8 to 10 s; in three rows of a logarithmic axis.
		seen := map[string]bool{}
		for _, c := range []struct {
			part         float64
			count, bound string
		}{{0.83, "0.2/s", "0 s – 100 ms"}, {0.5, "1/s", "100 ms – 1 s"}, {0.17, "0.8/s", "1 s – 10 s"}} {
			x, y := plot.at(1800, c.part)
			p.mouseTo(x, y)
			p.wantTip("2026-03-04 10:00:00", c.count, c.bound)
			colour := p.pixels(x+2, y)[0]
			if seen[colour] || colour == "" || (colour == fullest[scheme]) != (c.count == "1/s") {
				t.Errorf("%s: the bucket %s has the colour %q", look, c.bound, colour)
			}
			seen[colour] = true
		}
		if got := p.texts(".heat-marks span"); !slices.Equal(got, []string{"0", "0.25/s", "1/s"}) {
			t.Errorf("the colours are called %q", got)
		}
		if got := p.texts(".graph-description"); len(got) != 1 || !strings.HasPrefix(got[0], "The fullest bucket has 1/s, from 100 ms to 1 s at 2026-03-04 ") || !strings.Contains(got[0], "The last histogram has 2/s in total.") {
			t.Errorf("the heatmap is described by %q", got)
		}
		if rows := p.texts("tbody tr"); len(rows) > 0 {
			t.Errorf("there is a list of %d rows", len(rows))
		}
		p.mouseTo(plot.X, plot.Y-20)
		evaluate[bool](p, `(() => { document.querySelector("#query .graph").focus(); return true })()`)
		p.press(kb.ArrowLeft)
		p.wantTip("2026-03-04 10:30:00", "1/s", "100 ms – 1 s")
		p.press(kb.ArrowUp)
		p.press(kb.ArrowLeft)
		p.wantSaid("2026-03-04 10:29:00: 0.8/s from 1 s to 10 s")
		p.checkContrast(look)
		p.shoot("heatmap-" + look)

		p.draw("rate(draw_took_seconds_bucket[5m])", "step", "1m")
		if got := p.texts(".message"); !slices.Equal(got, []string{"The heatmap shows the sum of 2 histograms."}) {
			t.Errorf("of two histograms the page says %q", got)
		}
		x, y := p.plot().at(1800, 0.5)
		p.mouseTo(x, y)
		p.wantTip("2026-03-04 10:00:00", "1/s", "100 ms – 1 s")

		// (0.5, 1], (1, 2] and (4, 8] of bytes, on a linear axis; between the last two there is nothing.
		p.draw("draw_size_bytes", "step", "1m")
		plot = p.plot()
		for _, c := range []struct {
			v     float64
			count string
			bound string
		}{{0.75, "3", "0.5 B – 1 B"}, {1.5, "4", "1 B – 2 B"}, {6, "5", "4 B – 8 B"}} {
			x, y := plot.at(1800, 1-(c.v-0.5)/7.5)
			p.mouseTo(x, y)
			p.wantTip("2026-03-04 10:00:00", c.count, c.bound)
			if got := p.pixels(x+2, y)[0]; (got == fullest[scheme]) != (c.count == "5") || got == "" {
				t.Errorf("%s: the bucket %s has the colour %q", look, c.bound, got)
			}
		}
		x, y = plot.at(1800, 1-2.5/7.5)
		p.mouseTo(x, y)
		p.wantTip()
		if got := p.pixels(x+10, y)[0]; got != "" {
			t.Errorf("%s: where there is no bucket the colour is %q", look, got)
		}
	})
	p.draw("draw_size_bytes", "mode", "lines")
	p.wantRows(0, [][]string{{"draw_size_bytes", "", "12", "12", "12", "12"}})
	// Only counts of observations are a heatmap by themselves.
	for expr, isHeatmap := range map[string]bool{
		"2 * sum without (host) (increase(draw_took_seconds_bucket[5m] offset 1m))": true,
		"avg by (le) (rate((draw_took_seconds_bucket)[5m:1m])) / 2":                 true,
		"stddev_over_time(draw_took_seconds_bucket[5m])":                            false,
		"count by (le) (draw_took_seconds_bucket)":                                  false,
		"deriv(draw_took_seconds_bucket[5m])":                                       false,
		"timestamp(draw_took_seconds_bucket)":                                       false,
		"draw_took_seconds_bucket / draw_took_seconds_bucket":                       false,
		"draw_took_seconds_bucket > bool 1":                                         false,
	} {
		p.draw(expr, "step", "1m")
		if got := len(p.texts(".heat-legend")) == 1; got != isHeatmap || len(p.texts(".graph")) != 1 {
			t.Errorf("%s is a heatmap: %t", expr, got)
		}
	}
	p.draw("draw_level", "mode", "heatmap")
	if got := p.texts(".message"); len(got) != 1 || !strings.HasPrefix(got[0], "A heatmap needs histograms") {
		t.Errorf("of a gauge as a heatmap the page says %q", got)
	}
	if rows := p.rows(0); len(rows) != 3 {
		t.Errorf("and the list has %q", rows)
	}
}

// TestPageHeatmapChoice: of several expressions a heatmap says which it is of, and another can be chosen.
func TestPageHeatmapChoice(t *testing.T) {
	p := newPage(t, startDrawn(t))
	open := func(exprs ...string) {
		t.Helper()
		values := url.Values{"expr": exprs, "mode": {"heatmap"}, "step": {"1m"}}
		for pair := range slices.Chunk(drawLink, 2) {
			values.Set(pair[0], pair[1])
		}
		p.visit("?" + values.Encode())
	}
	counts := func(want ...string) {
		t.Helper()
		if got := p.texts(".heat-marks span"); !slices.Equal(got, want) {
			t.Errorf("the colours are called %q, want %q", got, want)
		}
	}
	p.eachLook(func(look string) {
		open("draw_level", "sum by (le) (rate(draw_took_seconds_bucket[5m]))", "draw_size_bytes")
		counts("0", "0.25/s", "1/s")
		if got := p.texts(".heat-choice"); len(got) != 1 || strings.Join(strings.Fields(got[0]), " ") != "A heatmap shows one expression: B C" {
			t.Errorf("the page says %q", got)
		}
		p.checkContrast(look)
		p.shoot("heatmap-choice-" + look)
		if wide := evaluate[bool](p, "document.documentElement.scrollWidth > innerWidth"); wide {
			t.Errorf("%s: the page scrolls sideways", look)
		}
		evaluate[bool](p, `(() => { document.querySelector("#query .heat-choice :checked").focus(); return true })()`)
		p.press(kb.ArrowRight)
		p.wantParameters("heatmap", "C")
		counts("0", "1.25", "5")
		p.wantFocus("C")
		p.reload()
		counts("0", "1.25", "5")
	})
	// One that is hidden is not drawn, and of a single one there is nothing to choose.
	p.named("Show expression C")
	counts("0", "0.25/s", "1/s")
	if got := p.texts(".message"); !slices.Equal(got, []string{"A heatmap shows one expression: B."}) {
		t.Errorf("the page says %q", got)
	}
	p.named("Show expression A")
	counts("0", "0.25/s", "1/s")
	if got := p.texts(".message"); len(got) > 0 {
		t.Errorf("of one expression the page says %q", got)
	}
}

// TestPageUnits wants values in the units that the names of metrics say.
func TestPageUnits(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDrawn(t))
	p.noteLabels()
	for _, c := range []struct{ expr, unit, last, label string }{
		{"draw_used_bytes", "", "3 MiB", " MiB"},
		{"sum(draw_used_bytes) by (host)", "", "3 MiB", " MiB"},
		{"rate(draw_sent_bytes_total[5m])", "", "2 KiB/s", " KiB/s"},
		{"increase(draw_sent_bytes_total[5m])", "", "600 KiB", " KiB"},
		{"draw_used_bytes * 8", "", "25,165,824", "M"},
		{"draw_used_bytes / draw_used_bytes", "", "1", ""},
		{"draw_used_bytes > 5", "", "3 MiB", " MiB"},
		{"draw_wait_seconds", "", "12.5 ms", " ms"},
		{"draw_wait_seconds * 1", "seconds", "12.5 ms", " ms"},
		{"draw_wait_seconds", "none", "0.0125", ""},
		{"draw_busy_ratio", "", "42%", "%"},
		{"draw_busy_ratio", "percent", "0.42%", "%"},
		{"histogram_quantile(0.5, sum by (le) (rate(draw_took_seconds_bucket[5m])))", "", "820 ms", " ms"},
		{"sum(rate(draw_took_seconds_bucket[5m]))", "", "5.4/s", "/s"},
		{"draw_level", "volts", "10 V", " V"},
		{"draw_level / 1000", "bytes", "0.01 B", " B"},
	} {
		p.draw(c.expr, "unit", c.unit, "mode", "lines")
		if got := p.rows(0)[0][2]; got != c.last {
			t.Errorf("%s in %q: the last value is %q, want %q", c.expr, c.unit, got, c.last)
		}
		p.checkLabels(c.expr)
		values, _ := p.labels()
		if last := values[len(values)-1].Text; !strings.HasSuffix(last, c.label) || c.label == "" && strings.ContainsAny(last, " %/") {
			t.Errorf("%s in %q: the axis has %q, want %q", c.expr, c.unit, last, c.label)
		}
	}
}

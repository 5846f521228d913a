//go:build browser

package page

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// writingScript notes what is written on a canvas since it was cleared, in pixels, or since a link was followed.
const writingScript = `(() => {
	const of = CanvasRenderingContext2D.prototype, { fillText, clearRect } = of;
	window.written = [];
	addEventListener("click", ({ target }) => { if (target.matches("a")) { window.written = []; } }, true);
	of.clearRect = function (...box) {
		window.written = [];
		clearRect.apply(this, box);
	};
	of.fillText = function (text, x, y) {
		const m = this.measureText(text), at = this.getTransform().transformPoint(new DOMPoint(x, y));
		window.written.push({
			Text: text, Align: this.textAlign, Left: at.x - m.actualBoundingBoxLeft, Right: at.x + m.actualBoundingBoxRight,
			Top: at.y - m.actualBoundingBoxAscent, Bottom: at.y + m.actualBoundingBoxDescent, Canvas: this.canvas.width,
		});
		fillText.call(this, text, x, y);
	};
})()`

// A label is a text on the canvas of a graph, with the width of that.
type label struct {
	Text, Align                      string
	Left, Right, Top, Bottom, Canvas float64
}

func (l label) overlaps(o label) bool {
	return l.Left < o.Right && o.Left < l.Right && l.Top < o.Bottom && o.Top < l.Bottom
}

// noteLabels makes pages that are opened from now on tell the labels of graphs.
func (p *browserPage) noteLabels() {
	p.Helper()
	p.onOpen(writingScript)
}

// labels returns those of the graph, of the axis of values and of that of times.
func (p *browserPage) labels() (values, times []label) {
	p.Helper()
	for _, l := range evaluate[[]label](p, "window.written") {
		if l.Align == "right" {
			values = append(values, l)
		} else {
			times = append(times, l)
		}
	}
	return values, times
}

// checkLabels wants labels that can be read: apart, not cut off, and, of values,
// all different.
func (p *browserPage) checkLabels(what string) {
	p.Helper()
	p.await("window.written.length > 0")
	values, times := p.labels()
	if len(values) < 3 || len(times) < 2 {
		p.Errorf("%s: the labels are %v and %v", what, values, times)
	}
	all := slices.Concat(values, times)
	for i, l := range all {
		if l.Left < 0 || l.Right > l.Canvas {
			p.Errorf("%s: %q is cut off: from %.0f to %.0f of %.0f", what, l.Text, l.Left, l.Right, l.Canvas)
		}
		for _, o := range all[:i] {
			if l.overlaps(o) {
				p.Errorf("%s: %q is over %q", what, l.Text, o.Text)
			}
		}
	}
	seen := map[string]bool{}
	for _, l := range values {
		if seen[l.Text] {
			p.Errorf("%s: two values are called %s", what, l.Text)
		}
		seen[l.Text] = true
	}
}

// eachLook does something on a telephone, in light, and on a wide screen, in dark. Nothing in the page depends on both, width and scheme:
// TestPageViews looks at each view in all four looks, and so does all else while it writes what it sees.
func (p *browserPage) eachLook(do func(name string)) {
	p.Helper()
	for _, look := range looks() {
		if look.isCrossed && os.Getenv(screenshotsVariable) == "" {
			continue
		}
		p.width(look.width)
		p.scheme(look.scheme)
		do(look.String())
	}
}

// TestPageAxes wants labels of values of all sizes, and of short and long times.
func TestPageAxes(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	p.noteLabels()
	values := []struct{ name, expr, want string }{
		{"small", "0.03 + 0.01 * sin(vector(time() / 600))", "0.030"},
		{"tiny", "4e-9 + 1e-9 * sin(vector(time() / 600))", "4.0n"},
		{"close", "1000030 + 5 * sin(vector(time() / 600))", "1,000,030"},
		{"large", "1.8e19 + 1e17 * sin(vector(time() / 600))", "18.00E"},
		{"flat", "vector(1.8e19)", "18.0E"},
		{"neighbours", "1.8e19 + 4096 * sgn(sin(vector(time() / 600)))", "18.0E"},
		{"extreme", "1.7e308 * sgn(sin(vector(time() / 600)))", "0.0"},
		{"thousands", "45e3 + 30e3 * sin(vector(time() / 600))", "40k"},
	}
	p.eachLook(func(look string) {
		for _, c := range values {
			p.open("expr", c.expr, "view", "graph")
			p.checkLabels(c.name + " " + look)
			if values, _ := p.labels(); !slices.ContainsFunc(values, func(l label) bool { return l.Text == c.want }) {
				t.Errorf("%s: no %q among %v", c.name, c.want, values)
			}
			p.shoot("axes-" + c.name + "-" + look)
		}
		for _, seconds := range []string{"1", "60", "900", "3600", "21600", "86400", "200000", "604800", "2592000", "31536000", "94608000"} {
			p.open("expr", "vector(time() % 86400)", "view", "graph", "range", seconds, "end", "2026-02-20T10:11:12")
			p.checkLabels(seconds + " s " + look)
			p.shoot("axes-" + seconds + "-" + look)
		}
	})
}

// TestPageUndrawable wants values that are no numbers to be said in words.
func TestPageUndrawable(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	for expr, want := range map[string]string{
		"vector(1) / 0":                 "+Inf",
		"-vector(1) / 0":                "-Inf",
		"vector(0) / 0":                 "NaN",
		"vector(1.7e308)":               "beyond 1e300",
		"vector(time() % 2 * 2 - 1)/0":  "Inf",
		"vector(NaN) or vector(1) == 2": "NaN",
	} {
		p.open("expr", expr, "view", "graph")
		if got := p.texts("[role=status]"); len(got) != 1 || !strings.Contains(got[0], want) || strings.Contains(got[0], "cannot be drawn") == (want == "NaN") {
			t.Errorf("of %s the page says %q, want %s", expr, got, want)
		}
		last := p.rows(0)[0][2]
		if v := mustFloat(t, strings.ReplaceAll(last, ",", "")); !math.IsInf(v, 0) && !math.IsNaN(v) && v < 1e300 {
			t.Errorf("the last value of %s is %q", expr, last)
		}
	}
	p.shoot("undrawable")
}

// TestPageNewest wants the last point of a graph to be at its end, of all ranges.
func TestPageNewest(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	for _, end := range []string{"", "2026-03-04T05:47:13Z"} {
		for _, seconds := range []string{"900", "3600", "7777", "21600", "86400", "604800", "2592000", "31536000", "94608000"} {
			p.open("expr", "vector(time())", "view", "graph", "unit", "none", "range", seconds, "end", end)
			to := evaluate[float64](p, `new Date(document.querySelector("#query .graph").getAttribute("aria-label").split(" to ")[1].replace(" ", "T")).getTime() / 1000`)
			if last := plain(t, p.rows(0)[0][2]); math.Abs(last-to) > 1 {
				t.Errorf("of %s s up to %q the last point is %.0f s before the end", seconds, end, to-last)
			}
		}
	}
	p.eachLook(func(look string) {
		p.open("expr", "page_gauge", "view", "graph", "range", "604800")
		p.checkGaugeRows()
		p.shoot("newest-" + look)
	})
}

// TestPageNewestCut wants the last point of each line that is shown, also where a limit leaves series out and others are only at the end.
func TestPageNewestCut(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	const last = drawEnd + 190 // and drawEnd is the last step of the range below
	var series []harness.SentSeries
	for i := range 80 {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "cut_gauge", "n", fmt.Sprintf("b%02d", i)},
			Points: []harness.Point{harness.PointAt((drawEnd-120)*1000, 1), harness.PointAt(last*1000, 2)}})
	}
	for i := range 40 {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "cut_gauge", "n", fmt.Sprintf("a%02d", i)}, Points: []harness.Point{harness.PointAt(last*1000, 3)}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	p := newPage(t, a)
	p.open("expr", "cut_gauge", "view", "graph", "range", "864000", "end", "2026-03-04T05:03:20Z")
	p.wantShown("60 of at least 120 series shown, ", 60)
	for i, row := range p.rows(0) {
		if want := fmt.Sprintf(`{n="b%02d"}`, i); row[0] != want || row[2] != "2" || row[3] != "1" {
			t.Errorf("line %d is %q, want %s with 1 and then 2", i, row, want)
		}
	}
	p.await(`document.getElementById("announcement").textContent.startsWith("Graph of 60 of at least 120 series from ")`)
	p.open("expr", "cut_gauge", "view", "graph", "range", "864000", "end", "2026-03-04T05:03:20Z", "lines", "240")
	p.wantShown("120 series, ", 120)
}

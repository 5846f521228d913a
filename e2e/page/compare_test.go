//go:build browser

package page

import (
	"bytes"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// startCompared is startDrawn with a week before it: draw_level of a at half its value, of b at the same, and of x, which is gone.
func startCompared(t testing.TB) *harness.Adapter {
	t.Helper()
	a := startDrawn(t)
	var series []harness.SentSeries
	for host, value := range map[string]float64{"a": 5, "b": 20, "x": 7} {
		s := harness.SentSeries{Labels: []string{"__name__", "draw_level", "job", "j", "host", host}}
		for i := range int64(61) {
			s.Points = append(s.Points, harness.PointAt((drawEnd-7*86400-(60-i)*60)*1000, value))
		}
		series = append(series, s)
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	return a
}

// TestPageCompare: a graph and a table beside what they were a week ago, in the legend, at the cursor, in words and by the year.
func TestPageCompare(t *testing.T) {
	t.Parallel()
	a := startCompared(t)
	p := newPage(t, a)
	gone := `1 series of a week ago has no value now: draw_level{host="x", job="j"}`
	p.eachLook(func(look string) {
		p.draw("draw_level", "step", "1m", "compare", "1w")
		if got := p.texts(".message"); !slices.Equal(got, []string{gone}) {
			t.Errorf("%s: said is %q", look, got)
		}
		plot := p.plot()
		x, _ := plot.at(1800, 0.5)
		p.mouseTo(x, plot.Y+plot.Height-12)
		p.wantTip("2026-03-04 10:00:00", "10", `{host="a"}`, "A week ago: 5 (+100 %)")
		p.checkContrast(look)
		p.shoot("compare-" + look)
	})
	p.draw("draw_level", "step", "1m", "compare", "1w")
	if got := p.texts(".legend th"); !slices.Equal(got, []string{"Series", "Cursor", "Last", "Min", "Max", "Avg", "Avg a week ago", "Change"}) {
		t.Errorf("the legend has %q", got)
	}
	change := p.texts(".legend td:last-child")
	if !slices.Equal(change, []string{"+100 %", "±0 %", "new"}) {
		t.Errorf("changes are %q", change)
	}
	// The change is that of the times which have both.
	var grown, then harness.SentSeries
	grown.Labels, then.Labels = []string{"__name__", "grown"}, []string{"__name__", "grown"}
	for i := range int64(61) {
		ms := (drawEnd - (60-i)*60) * 1000
		grown.Points = append(grown.Points, harness.PointAt(ms, float64(i)))
		if i >= 30 {
			then.Points = append(then.Points, harness.PointAt(ms-7*86400*1000, 90))
		}
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), grown, then)
	p.draw("grown", "step", "1m", "compare", "1w")
	if got := p.texts(".legend td:nth-last-child(-n+3)"); !slices.Equal(got, []string{"30", "90", "−50 %"}) {
		t.Errorf("half of then is there, and the legend has %q", got)
	}
	p.draw("draw_level", "step", "1m", "compare", "1w")
	// What is shown alone is so then, too.
	p.clickLine(1, "")
	p.wantLines(1)
	p.open("expr", "draw_level", "view", "table", "end", "2026-03-04T05:00:00Z", "compare", "1w")
	if got := p.texts("tbody tr"); len(got) != 3 || !strings.HasSuffix(got[0], "5\t+100 %") || !strings.HasSuffix(got[1], "20\t±0 %") || !strings.HasSuffix(got[2], "new") {
		t.Errorf("the table has %q", got)
	}
	p.open("expr", "draw_level", "view", "table", "end", "2026-03-04T05:00:00Z", "compare", "1y")
	if got := p.texts(".message"); !slices.Equal(got, []string{"No series has a value a year ago."}) {
		t.Errorf("a year ago: %q", got)
	}
	p.draw("draw_took_seconds_bucket", "compare", "1w")
	if got := p.texts(".message"); !slices.Contains(got, "A heatmap is not compared. Draw lines to see both.") {
		t.Errorf("the heatmap says %q", got)
	}
	p.draw("draw_level", "compare", "yesterday")
	if got := p.texts(".message"); !slices.Equal(got, []string{"Invalid time to compare with in the URL: yesterday. Use a duration such as 1d, 1w or 1y."}) {
		t.Errorf("yesterday: %q", got)
	}
}

// TestPageShareFiles takes a graph along: its points as CSV, of the lines that are shown, and a picture.
func TestPageShareFiles(t *testing.T) {
	t.Parallel()
	p := newPage(t, startCompared(t))
	dir := t.TempDir()
	p.noteLabels()
	p.draw("draw_level", "step", "1m", "compare", "1w", "off", `draw_level{host="c", job="j"}`)
	name, text := p.download(dir, "#query .graph-zone button:nth-of-type(2)")
	rows := p.cells(text)
	a, b := `draw_level{host="a", job="j"}`, `draw_level{host="b", job="j"}`
	if want := []string{"Time", a, b, a + ", a week ago", b + ", a week ago"}; name != "promtable-points.csv" || !slices.Equal(rows[0], want) {
		t.Errorf("%s begins with %q, want %q", name, rows[0], want)
	}
	if want := []string{"2026-03-04T05:00:00Z", "10", "20", "5", "20"}; len(rows) != 62 || !slices.Equal(rows[61], want) {
		t.Errorf("%d rows, the last is %q, want %q", len(rows), rows[len(rows)-1], want)
	}
	name, content := p.download(dir, "#query .graph-zone button:nth-of-type(3)")
	picture, err := png.Decode(bytes.NewReader([]byte(content)))
	if err != nil || name != "promtable-graph.png" {
		t.Fatalf("%s: %v", name, err)
	}
	colours := map[[3]uint32]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			r, g, b, _ := picture.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
		}
	}
	if !colours[[3]uint32{0x24, 0x57, 0xc5}] || !colours[[3]uint32{0xb3, 0x26, 0x1e}] {
		t.Error("the picture has not the colours of the two lines")
	}
	written := evaluate[[]label](p, "window.written")
	for _, text := range []string{"draw_level", `{host="a"}`, `{host="b"}`, "last 10", "last 20"} {
		if !slices.ContainsFunc(written, func(l label) bool { return l.Text == text }) {
			t.Errorf("the picture does not say %q: %v", text, written)
		}
	}

	// A graph can be as high as the window, and stays so with the next query.
	before := p.plot().Height
	p.click("#query .graph-zone button:nth-of-type(1)")
	p.await(fmt.Sprintf(`document.querySelector("#query .u-over").clientHeight > %v`, 1.2*before))
	p.enter(expression, "draw_debt")
	p.settle()
	if got := p.plot().Height; got < 1.2*before {
		t.Errorf("the next graph is %v high, and was %v before", got, before)
	}
}

//go:build browser

package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// startTraced starts an adapter with an hour of samples up to drawEnd, one each minute: a histogram and a counter with exemplars, a build that is followed by another one in the
// middle, and a process that starts again 20 minutes before the end.
func startTraced(t testing.TB) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.trace-url=https://traces.example/trace/{trace_id}?from=promtable")
	var req prompb.WriteRequest
	at := func(minute int) int64 { return (drawEnd - int64(60-minute)*60) * 1000 }
	add := func(first, limit int, value func(minute int) float64, labels ...string) *prompb.TimeSeries {
		var s prompb.TimeSeries
		for pair := range slices.Chunk(labels, 2) {
			s.Labels = append(s.Labels, prompb.Label{Name: pair[0], Value: pair[1]})
		}
		for minute := first; minute < limit; minute++ {
			s.Samples = append(s.Samples, prompb.Sample{Timestamp: at(minute), Value: value(minute)})
		}
		req.Timeseries = append(req.Timeseries, s)
		return &req.Timeseries[len(req.Timeseries)-1]
	}
	exemplar := func(s *prompb.TimeSeries, minute int, v float64, labels ...string) {
		x := prompb.Exemplar{Timestamp: at(minute), Value: v}
		for pair := range slices.Chunk(labels, 2) {
			x.Labels = append(x.Labels, prompb.Label{Name: pair[0], Value: pair[1]})
		}
		s.Exemplars = append(s.Exemplars, x)
	}
	for i, le := range []string{"0.1", "1", "10", "+Inf"} {
		s := add(0, 61, func(minute int) float64 { return float64(minute * (i + 1) * 10) }, "__name__", "seen_seconds_bucket", "le", le)
		switch le {
		case "0.1":
			exemplar(s, 20, 0.05, "trace_id", "quick")
		case "10":
			exemplar(s, 30, 5, "trace_id", "slow/one", "user", "x")
			exemplar(s, 40, 7, "user", "untraced")
		case "+Inf":
			exemplar(s, 50, 1000, "trace_id", "stuck")
		}
	}
	exemplar(add(0, 61, func(minute int) float64 { return float64(minute) }, "__name__", "asked_total"), 30, 1, "trace_id", "counted")
	one := func(int) float64 { return 1 }
	add(0, 30, one, "__name__", "app_build_info", "version", "1.0")
	add(30, 61, one, "__name__", "app_build_info", "version", "1.1")
	add(0, 61, func(minute int) float64 { return float64(100 + minute/40*50) }, "__name__", "process_start_time_seconds")
	body, err := req.Marshal()
	if err == nil {
		var resp harness.Response
		if resp, err = harness.Post(context.Background(), a.URL("/api/v1/write"), harness.ProtobufHeader(), harness.Compress(body)); err == nil && resp.Status != http.StatusNoContent {
			err = fmt.Errorf("%v", resp)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// An overlayMark is a mark over a graph: its title, and its place within the plot.
type overlayMark struct {
	Title             string
	Left, Top, Height float64
}

func (p *browserPage) marksOf(class string) []overlayMark {
	p.Helper()
	p.await(`document.querySelectorAll("#query .` + class + `").length > 0`)
	return evaluate[[]overlayMark](p, `[...document.querySelectorAll("#query .`+class+`")].map((mark) => ({ Title: mark.title, Left: (mark.offsetLeft + mark.offsetWidth / 2) / mark.parentElement.clientWidth,
		Top: mark.offsetTop + mark.offsetHeight / 2, Height: mark.parentElement.clientHeight }))`)
}

// TestPageExemplars: exemplars are points of a graph at their values, where its values are such, or at its lower edge; each leads to its trace.
func TestPageExemplars(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTraced(t))
	const quantile = `histogram_quantile(0.9, rate(seen_seconds_bucket[5m]))`
	p.draw(quantile)
	p.change("#query select[name=exemplars]", "on")
	p.wantParameters(append([]string{"expr", quantile, "exemplars", "on"}, drawLink...)...)
	p.eachLook(func(look string) {
		p.draw(quantile, "exemplars", "on")
		marks := p.marksOf("exemplar")
		if len(marks) != 4 {
			t.Fatalf("%s: there are %d points: %v", look, len(marks), marks)
		}
		quick, slow, stuck := marks[0], marks[1], marks[3]
		if !strings.HasPrefix(quick.Title, `Exemplar: 50 ms, {trace_id="quick"}`) || !strings.HasPrefix(slow.Title, `Exemplar: 5 s, {trace_id="slow/one", user="x"}`) {
			t.Errorf("%s: the points are called %q and %q", look, quick.Title, slow.Title)
		}
		for i, part := range []float64{20. / 60, 30. / 60, 40. / 60, 50. / 60} {
			if got := marks[i].Left; got < part-0.01 || got > part+0.01 {
				t.Errorf("%s: point %d is at %.3f of the width, want %.3f", look, i, got, part)
			}
		}
		if quick.Top < slow.Top || stuck.Top > 8 || slow.Top < 8 && quick.Top < 8 {
			t.Errorf("%s: the points are at %v, %v and %v", look, quick.Top, slow.Top, stuck.Top)
		}
		p.click("#query details summary")
		if got := p.texts(".overlay-list summary"); !slices.Equal(got, []string{"4 exemplars"}) {
			t.Errorf("%s: below the graph is %q", look, got)
		}
		p.click("#query .exemplar:nth-of-type(2)")
		if got := p.texts(".layer-card .graph-tip-name, .layer-card dd, .layer-card a"); !slices.Equal(got, []string{`seen_seconds_bucket{le="10"}`, "slow/one", "x", "Open the trace"}) {
			t.Errorf("%s: the card has %q", look, got)
		}
		p.checkContrast(look)
		p.checkAxe(look)
		p.shoot("exemplars-" + look)
		p.press(kb.Escape)
		p.await(`!document.querySelector(".layer-card")`)
	})
	links := evaluate[[]string](p, `[...document.querySelectorAll("#query .overlay-list td a")].map((a) => a.href + " " + a.rel)`)
	if want := []string{"https://traces.example/trace/quick?from=promtable noopener noreferrer", "https://traces.example/trace/slow%2Fone?from=promtable noopener noreferrer", "https://traces.example/trace/stuck?from=promtable noopener noreferrer"}; !slices.Equal(links, want) {
		t.Errorf("the list leads to %q, want %q", links, want)
	}

	// A count has no place for what a request took: its points are at the edge.
	p.draw(`rate(asked_total[5m])`, "exemplars", "on")
	if marks := p.marksOf("exemplar"); len(marks) != 1 || marks[0].Top < marks[0].Height-8 {
		t.Errorf("the point of a counter is at %v", marks)
	}
	// The axis of a heatmap is what was observed.
	p.draw(`rate(seen_seconds_bucket[5m])`, "exemplars", "on")
	if marks := p.marksOf("exemplar"); len(marks) != 4 || marks[0].Top < marks[1].Top+20 || marks[0].Top > marks[0].Height-8 || marks[3].Top > 8 {
		t.Errorf("on a heatmap the points are at %v", marks)
	}
	p.draw(`app_build_info`, "exemplars", "on")
	if got := p.texts(".overlay-list"); !slices.Equal(got, []string{"No series of this graph has an exemplar in this range."}) {
		t.Errorf("a graph without exemplars says %q", got)
	}
}

// TestPageAnnotations: where series of another expression begin, end or change is marked in a graph, and listed.
func TestPageAnnotations(t *testing.T) {
	t.Parallel()
	p := newPage(t, startTraced(t))
	p.zone("UTC")
	const changing = `{__name__=~"app_build_info|process_start_time_seconds"}`
	p.draw(`rate(asked_total[5m])`)
	p.enter("input[name=annotate]", changing)
	p.press("Enter")
	p.wantParameters(append([]string{"expr", "rate(asked_total[5m])", "annotate", changing}, drawLink...)...)
	p.eachLook(func(look string) {
		p.draw(`rate(asked_total[5m])`, "annotate", changing)
		marks := p.marksOf("annotation")
		if len(marks) != 3 {
			t.Fatalf("%s: there are %d marks: %v", look, len(marks), marks)
		}
		p.click("#query details summary")
		// A sample is seen for five minutes.
		want := [][]string{{"2026-03-04 04:30:00", `app_build_info{version="1.1"}`, "Began"}, {"2026-03-04 04:34:00", `app_build_info{version="1.0"}`, "Ended"}, {"2026-03-04 04:40:00", "process_start_time_seconds", "1970-01-01 00:01:40 → 1970-01-01 00:02:30"}}
		got := evaluate[[][]string](p, `[...document.querySelectorAll("#query .overlay-list tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent))`)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the list is %q, want %q", look, got, want)
		}
		p.click("#query .annotation:nth-of-type(3)")
		if got := p.texts(".layer-card"); len(got) != 1 || !strings.Contains(got[0], "process_start_time_seconds 1970-01-01 00:01:40 → 1970-01-01 00:02:30") {
			t.Errorf("%s: the card has %q", look, got)
		}
		p.checkContrast(look)
		p.checkAxe(look)
		p.shoot("annotations-" + look)
		p.press(kb.Escape)
		p.await(`!document.querySelector(".layer-card")`)
	})
	for expr, want := range map[string]string{
		"up{":           "Annotations: Line 1, column 4",
		"nothing":       "Annotations: nothing changes in this range.",
		"time()":        "Annotations: there are changes at 240 times, and the first 200 are marked.",
		"app_build_inf": "Annotations: nothing changes in this range.",
	} {
		if expr == "up{" {
			p.expect("/api/v1/query_range", http.StatusBadRequest)
		}
		p.draw(`rate(asked_total[5m])`, "annotate", expr)
		if got := strings.Join(p.texts(".overlay-list"), " "); !strings.Contains(got, want) {
			t.Errorf("for %s the page says %q, want %q", expr, got, want)
		}
	}
	// The plot beside a mark can be dragged, and the mark not.
	p.draw(`rate(asked_total[5m])`, "annotate", changing)
	p.marksOf("annotation")
	plot := p.plot()
	x, y := plot.at(30*60, 0.5)
	to, _ := plot.at(10*60, 0.5)
	p.drag(x, y, to, y)
	if got := p.parameters().Get("range"); got != "3600" {
		t.Errorf("a drag from a mark selects %s seconds", got)
	}
	from, _ := plot.at(50*60, 0.5)
	p.drag(from, y, to, y)
	p.await(`new URLSearchParams(location.search).get("range") === "2400"`)
}

//go:build browser

package page

import (
	"fmt"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// A sparkline is what a small graph says and draws.
type sparkline struct {
	Name, Text  string
	Runs, Areas int
}

// sparkline draws a small graph in the page, of what JavaScript says.
func (p *browserPage) sparkline(of string) sparkline {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		document.querySelector("#test-spark")?.remove();
		import("/ui/common/sparkline.js").then(({ sparkline }) => {
			const place = document.createElement("div");
			place.id = "test-spark";
			place.append(sparkline(%s));
			document.querySelector("main").prepend(place);
		});
		return true;
	})()`, of))
	p.await(`document.querySelector("#test-spark") !== null`)
	return evaluate[sparkline](p, `(() => {
		const place = document.querySelector("#test-spark");
		const count = (path) => (path?.getAttribute("d").match(/M/g) ?? []).length;
		return { Name: place.querySelector("svg")?.getAttribute("aria-label") ?? "", Text: place.innerText.replace(/\s+/g, " ").trim(),
			Runs: count(place.querySelector("path.line")), Areas: count(place.querySelector("path.area")) };
	})()`)
}

// TestPageSparkline wants small graphs to say what they draw, and to leave gaps where there are no values.
func TestPageSparkline(t *testing.T) {
	t.Parallel()
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	p.open()
	p.zone("UTC")
	p.reload()
	for _, c := range []struct {
		name, of string
		want     sparkline
	}{
		{"line", `{ times: [60, 120, 180], values: [1, 5, 2.5], unit: "/s", label: "Rate" }`, sparkline{
			"Rate: last 2.5/s, min 1/s, max 5/s, from 1970-01-01 00:01:00 to 1970-01-01 00:03:00", "Rate 2.5/s min 1/s, max 5/s", 1, 1}},
		{"sizes", `{ times: [60, 120], values: [1024, 2048], unit: "B/s", label: "Log" }`, sparkline{
			"Log: last 2 KiB/s, min 1 KiB/s, max 2 KiB/s, from 1970-01-01 00:01:00 to 1970-01-01 00:02:00", "Log 2 KiB/s min 1 KiB/s, max 2 KiB/s", 1, 1}},
		{"milliseconds", `{ times: [60, 120], values: [12.5, 4640], unit: " ms", label: "p99" }`, sparkline{
			"p99: last 4.64 s, min 12.5 ms, max 4.64 s, from 1970-01-01 00:01:00 to 1970-01-01 00:02:00", "p99 4.64 s min 12.5 ms, max 4.64 s", 1, 1}},
		{"gaps", `{ times: [0, 60, 120, 180, 400, 460, 520, 580], values: [1, 2, null, -3, 4, NaN, 5, 6], label: "Gaps" }`, sparkline{
			"Gaps: last 6, min -3, max 6, from 1970-01-01 00:00:00 to 1970-01-01 00:09:40", "Gaps 6 min -3, max 6", 4, 2}},
		{"point", `{ times: [60], values: [0], label: "One" }`, sparkline{
			"One: last 0, min 0, max 0, from 1970-01-01 00:01:00 to 1970-01-01 00:01:00", "One 0 min 0, max 0", 1, 0}},
		{"nothing", `{ times: [], values: [], label: "None" }`, sparkline{"", "None no values yet", 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.sparkline(c.of); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	p.eachLook(func(look string) {
		p.open()
		p.sparkline(`{ times: [...Array(60).keys()].map((i) => i * 60), values: [...Array(60).keys()].map((i) => 50 + 30 * Math.sin(i / 5)), unit: "/s", label: "Samples" }`)
		p.checkContrast(look)
		p.shoot("sparkline-" + look)
	})
}

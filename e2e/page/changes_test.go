//go:build browser

package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// startChanged starts an adapter with an hour of samples up to drawEnd, one each minute. In its second half one host has twice the load, one is new and one is
// gone; one metric of the job has a higher rate, and others stay as they are.
func startChanged(t testing.TB) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t))
	var all []harness.SentSeries
	add := func(name, host string, of func(minute int) (float64, bool)) {
		s := harness.SentSeries{Labels: []string{"__name__", name, "job", "j", "host", host}}
		for minute := range 121 {
			if v, is := of(minute); is {
				s.Points = append(s.Points, harness.PointAt((drawEnd-int64(120-minute)*60)*1000, v))
			}
		}
		all = append(all, s)
	}
	level := func(before, now float64) func(int) (float64, bool) {
		return func(minute int) (float64, bool) {
			wave := float64(minute / 2 % 2)
			if minute <= 60 {
				return before + wave, before >= 0 && (now >= 0 || minute < 55) // a sample is seen for five minutes
			}
			return now + wave, now >= 0
		}
	}
	add("load", "calm", level(10, 10))
	add("load", "hot", level(20, 40))
	add("load", "new", level(-1, 5))
	add("load", "old", level(5, -1))
	add("temperature", "hot", level(30, 31))
	add("errors_total", "hot", func(minute int) (float64, bool) { return float64(minute + max(0, minute-60)*9), true })
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), all...)
	return a
}

// TestPageChanges: what changed in the hour that is shown, in an expression, in a metric and in all of a job, each with its graph and a link.
func TestPageChanges(t *testing.T) {
	t.Parallel()
	p := newPage(t, startChanged(t))
	first := func() (rows []string) {
		for _, row := range p.texts(".changes tbody tr") {
			rows = append(rows, strings.ReplaceAll(strings.ReplaceAll(row, "\n", ""), "\t", "|"))
		}
		return rows
	}
	hot := `load{host="hot", job="j"}`
	p.eachLook(func(look string) {
		p.draw(`load{host!="calm"}`)
		p.button("What changed?")
		p.wantParameters(append([]string{"expr", `load{host!="calm"}`, "changed", "A"}, drawLink...)...)
		want := []string{hot + `||20.5|40.5|+97.6 %|40`, `load{host="new", job="j"}|||5.5|appeared|`, `load{host="old", job="j"}||5.55172||gone|`}
		if got := first(); len(got) != 3 || !slices.Equal(got, want) {
			t.Errorf("%s: the list is %q, want %q", look, got, want)
		}
		if evaluate[bool](p, `(() => {
			const range = document.createRange(), tools = document.querySelector(".changes .table-tools").getBoundingClientRect();
			range.selectNodeContents(document.querySelector(".changes .facts"));
			return [...range.getClientRects()].some((r) => r.right > tools.left && r.bottom > tools.top && r.top < tools.bottom);
		})()`) {
			t.Errorf("%s: the sentence is under Copy and CSV", look)
		}
		p.checkContrast(look)
		p.checkAxe(look)
		p.shoot("changes-" + look)
	})
	if got := p.texts(".changes .facts"); len(got) != 1 || !strings.HasPrefix(got[0], "1 series compared, 1 appeared, 1 gone. From 2026-03-04 09:30:00 to 2026-03-04 10:30:00, compared with the same length of time from 2026-03-04 08:30:00 on.") {
		t.Errorf("above it stands %q", got)
	}
	p.click(".changes button.line")
	p.wantLines(0)
	if got := p.parameters()["only"]; !slices.Equal(got, []string{hot}) {
		t.Errorf("only is %q", got)
	}

	p.draw(`load{host="hot"}`, "changed", "A", "scope", "load")
	if got := p.texts(".changes .facts"); len(got) != 1 || !strings.HasPrefix(got[0], "2 series compared, 1 appeared, 1 gone.") {
		t.Errorf("of the metric: %q", got)
	}
	p.draw(`load{host="hot"}`, "changed", "A", "scope", "job")
	names := []string{}
	for _, row := range first() {
		names = append(names, strings.Split(row, "|")[0])
	}
	if want := []string{hot, `errors_total{host="hot", job="j"}`, `temperature{host="hot", job="j"}`, `load{host="new", job="j"}`, `load{host="old", job="j"}`}; !slices.Equal(names, want) {
		t.Errorf("of the job: %q, want %q", names, want)
	}
	p.click(".changes tbody tr:nth-child(2) td a")
	p.wantParameters("expr", `rate(errors_total{host="hot", job="j"}[5m])`, "view", "graph", "range", "3600", "end", "2026-03-04T05:00:00Z")

	p.draw("draw_nothing", "changed", "A")
	if got := p.texts(".changes"); !strings.Contains(strings.Join(got, ""), "No series differs from before.") {
		t.Errorf("of nothing: %q", got)
	}
	p.button("Close")
	p.wantParameters(append([]string{"expr", "draw_nothing"}, drawLink...)...)
}

//go:build browser

package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// focusMain takes the keyboard out of all fields.
func (p *browserPage) focusMain() {
	p.Helper()
	evaluate[bool](p, `(() => { document.getElementById("main").focus(); return true })()`)
}

// TestPageKeys uses the keys of the page where no text is typed.
func TestPageKeys(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open("expr", "page_gauge")
	p.press(kb.Escape)
	p.await(`document.activeElement.id === "main"`)
	p.press("t")
	p.wantParameters("expr", "page_gauge", "view", "graph")
	p.checkGauges()
	p.press("t")
	p.wantParameters("expr", "page_gauge", "view", "table")

	before := len(p.asked("/api/v1/query"))
	p.focusMain()
	p.press("r")
	p.await(fmt.Sprintf(`performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/api/v1/query")).length > %d`, before))
	p.settle()
	if n := len(p.asked("/api/v1/query")) - before; n != 1 {
		t.Errorf("run again, the page asks %d times", n)
	}

	p.press("u")
	if zone := evaluate[string](p, `document.getElementById("times").value + localStorage.getItem("zone")`); zone != "UTCUTC" {
		t.Errorf("the zone is %s", zone)
	}
	p.press("u")
	if zone := evaluate[string](p, `document.getElementById("times").value + localStorage.getItem("zone")`); zone != "null" {
		t.Errorf("the zone is %s", zone)
	}

	for _, tab := range evaluate[[]string](p, `[...document.querySelectorAll("nav a")].map((a) => a.dataset.tab)`) {
		letter := map[string]string{"query": "q", "boards": "b", "explore": "e", "latest": "l", "cardinality": "c", "explain": "x", "rules": "r", "status": "s"}[tab]
		p.focusMain()
		p.press("g" + letter)
		p.await(fmt.Sprintf(`new URLSearchParams(location.search).get("tab") === %q`, tab))
		p.settle()
	}
	p.focusMain()
	p.press("/")
	p.press("q")
	p.wantParameters("tab", "status") // it has no field, and q alone is nothing
}

// TestPageKeysLeave: Esc leaves a field of each tab, with what is typed there, for the keys of the page.
func TestPageKeysLeave(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	for tab, field := range map[string]string{
		"explore": "#explore [name=search]", "latest": "#latest [name=filter]", "cardinality": "#cardinality [name=focus]", "rules": "#rules [name=filter]",
	} {
		p.open("tab", tab)
		evaluate[bool](p, fmt.Sprintf(`(() => { document.querySelector(%q).focus(); return true })()`, field))
		p.press("page" + kb.Escape)
		p.await(`document.activeElement.id === "main"`)
		if got := evaluate[string](p, fmt.Sprintf(`document.querySelector(%q).value`, field)); got != "page" {
			t.Errorf("%s: in the field is %q", tab, got)
		}
		p.press("gs")
		p.await(`new URLSearchParams(location.search).get("tab") === "status"`)
		p.settle()
	}
	p.open("tab", "explore")
	evaluate[bool](p, `(() => { document.querySelector("#explore [name=fold]").focus(); return true })()`)
	p.press(kb.Escape)
	p.await(`document.activeElement.id === "main"`)
	// Above the page Esc closes what is open.
	p.open("expr", "page_gauge", "view", "graph")
	p.click("#query .when-open")
	p.await(`document.querySelector("#query .when-panel").matches(":popover-open")`)
	p.press(kb.Escape)
	p.await(`!document.querySelector("#query .when-panel").matches(":popover-open")`)
	p.choose("#query select[name=step]", "Other…")
	p.press(kb.Escape)
	p.await(`document.activeElement.name === "step"`)
}

// TestPageShift moves the times of a graph by half of its range.
func TestPageShift(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open("expr", "page_gauge", "view", "graph", "range", "3600", "end", "2026-03-04T05:06:07Z")
	p.focusMain()
	for _, step := range []struct{ keys, end string }{
		{"[", "2026-03-04T04:36:07Z"}, {kb.ArrowLeft, "2026-03-04T04:06:07Z"}, {kb.ArrowRight, "2026-03-04T04:36:07Z"}, {"]]", "2026-03-04T05:36:07Z"},
	} {
		p.press(step.keys)
		p.wantParameters("end", step.end, "range", "3600", "expr", "page_gauge", "view", "graph")
	}
	p.open("expr", "page_gauge", "view", "graph")
	p.focusMain()
	p.press("[")
	end, err := time.Parse(time.RFC3339, p.parameters().Get("end"))
	if ago := time.Since(end).Minutes(); err != nil || math.Abs(ago-30) > 1 {
		t.Errorf("half an hour ago is %v ago, %v", ago, err)
	}
	p.press("]")
	if p.parameters().Has("end") {
		t.Errorf("now is %v", p.parameters())
	}
	p.press("]")
	if p.parameters().Has("end") {
		t.Errorf("after now comes %v", p.parameters())
	}
}

// TestPageKeysTyped wants letters to be letters in a field, and arrows to be of what has the keyboard.
func TestPageKeysTyped(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	p.press("t?u[]gs/r")
	p.wantExpressions("t?u[]gs/r")
	if evaluate[bool](p, `document.querySelector("dialog") !== null || document.getElementById("times").value !== "" || location.search.includes("status")`) {
		t.Error("a letter did more than that")
	}
	evaluate[bool](p, `(() => { const e = Object.assign(document.createElement("div"), { id: "typed", contentEditable: "true" }); document.querySelector("#query .result").append(e); e.focus(); return true })()`)
	p.press("t?u")
	if got := evaluate[string](p, `document.getElementById("typed").innerText + location.search`); got != "t?u?" && got != "t?u" {
		t.Errorf("typed is %q", got)
	}
	p.open("expr", "page_gauge", "view", "graph", "end", "2026-03-04T05:06:07Z")
	evaluate[bool](p, `(() => { document.querySelector("#query select").focus(); return true })()`)
	p.press("[")
	evaluate[bool](p, `(() => { document.querySelector("#query button.primary").focus(); return true })()`)
	p.press(kb.ArrowLeft)
	p.wantParameters("end", "2026-03-04T05:06:07Z")
	p.press("u", kb.ModifierCtrl)
	if evaluate[bool](p, `document.getElementById("times").value !== ""`) {
		t.Error("a key of the browser is one of the page")
	}
}

// TestPageKeysDialog lists the keys, from the keyboard and by its button.
func TestPageKeysDialog(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.eachLook(func(look string) {
		p.open("tab", "latest")
		p.focusMain()
		p.press("?")
		p.await(`document.querySelector("dialog[open]") !== null && document.querySelector("dialog").contains(document.activeElement)`)
		listed := evaluate[string](p, `document.querySelector("dialog").innerText`)
		for _, want := range []string{"Keys", "Run again", "Switch between table and graph", "Half a range earlier", "Switch between UTC and local time", "Cardinality"} {
			if !strings.Contains(listed, want) {
				t.Errorf("%q is not in %q", want, listed)
			}
		}
		p.checkContrast("keys " + look)
		p.shoot("keys-" + look)
		p.press("gs") // of the page behind
		p.wantParameters("tab", "latest")
		for range 5 {
			p.press(kb.Tab)
			if !evaluate[bool](p, `document.activeElement === document.body || document.querySelector("dialog").contains(document.activeElement)`) {
				t.Errorf("the keyboard leaves the dialog for %+v", p.focused())
			}
		}
		p.press(kb.Escape)
		p.await(`document.querySelector("dialog") === null && document.activeElement.id === "main"`)
		if !evaluate[bool](p, `document.getElementById("help").checkVisibility()`) {
			p.click("#settings")
		}
		p.click("#help")
		p.click("dialog button.primary")
		p.await(`document.querySelector("dialog") === null && document.activeElement.id === "help"`)
	})
}

// checkThumb wants what is used most to be large enough for a thumb on a telephone, and the tabs in one line.
func (p *browserPage) checkThumb(what string) {
	p.Helper()
	small := evaluate[[]string](p, `[...document.querySelectorAll("header :is(a, button, select), main form :is(button, select, input:not([type=hidden]), textarea), .result .table-bar :is(button, input)")]
		.filter((e) => e.checkVisibility() && (e.matches("[type=radio], [type=checkbox]") ? e.closest("label") : e).getBoundingClientRect().height < 32)
		.map((e) => e.outerHTML.slice(0, 80))`)
	if len(small) > 0 {
		p.Errorf("%s: less than 32 px high are %q", what, small)
	}
	if tops := evaluate[[]float64](p, `[...new Set([...document.querySelectorAll("nav a")].map((a) => a.getBoundingClientRect().top))]`); len(tops) != 1 {
		p.Errorf("%s: the tabs are in %d lines", what, len(tops))
	}
	if in := evaluate[bool](p, `(() => { const { left, right } = document.querySelector("nav a[aria-current]").getBoundingClientRect(); return left >= 0 && right <= innerWidth })()`); !in {
		p.Errorf("%s: its tab is out of view", what)
	}
}

// TestPageOneHand folds away the settings, and how a graph is drawn, on a telephone.
func TestPageOneHand(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.width(390)
	p.onOpen(`localStorage.setItem("controls", "")`)
	p.open()
	p.click("#settings")
	p.choose("#times", "UTC")
	p.choose("#theme", "Dark")
	p.shoot("settings-narrow")
	if got := evaluate[[]string](p, `[localStorage.getItem("zone"), document.documentElement.dataset.theme]`); !slices.Equal(got, []string{"UTC", "dark"}) {
		t.Errorf("the settings are %q", got)
	}
	p.click("#settings")
	if evaluate[bool](p, `document.getElementById("times").checkVisibility()`) {
		t.Error("the settings stay open")
	}
	// What is asked, when, and how it is drawn is folded away, so that the graph is near.
	p.open("expr", "page_gauge", "view", "graph")
	unfolded := func() bool {
		return evaluate[bool](p, `document.querySelector("#query select[name=mode]").checkVisibility()`)
	}
	if unfolded() {
		t.Error("the options are open")
	}
	if got := evaluate[string](p, `document.querySelector("#query .fold").innerText`); got != "Graph, Last 1 hour ▸" && got != "Graph, Last 1 hour" {
		t.Errorf("the controls are named %q", got)
	}
	for _, view := range []string{"graph", "table"} {
		p.open("expr", "page_gauge", "view", view)
		if top := evaluate[float64](p, `document.querySelector("#query .result").getBoundingClientRect().top`); top > 200 {
			t.Errorf("the result as a %s begins at %g px", view, top)
		}
		p.shoot("folded-" + view)
	}
	p.open("expr", "page_gauge", "view", "graph")
	// The names of the lines have the width, and the numbers are below them.
	if narrow := evaluate[[]float64](p, `[...document.querySelectorAll("#query .legend div.line")].map((e) => e.clientWidth).filter((width) => width < 300)`); len(narrow) > 0 {
		t.Errorf("names of lines have only %g px", narrow)
	}
	if !evaluate[bool](p, `(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector("#query .legend .scroll"))`) {
		t.Error("the legend has to be scrolled sideways")
	}
	p.click("#query .fold")
	if !unfolded() {
		t.Error("the options stay closed")
	}
	p.checkAxe("options")
	p.choose("#query select[name=mode]", "Stacked")
	p.wantParameters("mode", "stacked")
	p.shoot("options-narrow")
}

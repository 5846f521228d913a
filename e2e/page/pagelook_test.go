//go:build browser

package page

import (
	"bytes"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	protopage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"

	"github.com/promtable/promtable/e2e/harness"
)

// A pageView is a view of the page that has something to show.
type pageView struct {
	name       string
	parameters []string
	refused    string // the path of a request that is answered 400
}

// pageViews returns one of each kind.
func pageViews() []pageView {
	return []pageView{
		{"front", nil, ""},
		{"table", []string{"expr", "page_gauge"}, ""},
		{"columns", []string{"expr", "page_gauge", "columns", "1"}, ""},
		{"samples", []string{"expr", "page_gauge[1h]"}, ""},
		{"histogram", []string{"expr", "page_seconds"}, ""},
		{"graph", []string{"expr", "page_gauge", "view", "graph"}, ""},
		{"error", []string{"expr", "sum(page_gauge"}, "/api/v1/query"},
		{"hidden", []string{"expr", "sum by (instance) (rate(page_gauge{instance!=\"a\"}[5m] offset 1h)) > bool 0.5", "hide", "0"}, ""},
		{"latest", []string{"tab", "latest", "limit", "100"}, ""},
		{"cardinality", []string{"tab", "cardinality"}, ""},
		{"explain", []string{"tab", "explain", "selector", `page_gauge{instance=~".+"}`}, ""},
		{"expression", []string{"tab", "explain", "expr", `histogram_quantile(0.9, sum by (le) (rate(page_gauge{instance=~".+"}[5m])))`}, ""},
		{"rules", []string{"tab", "rules"}, ""},
		{"status", []string{"tab", "status"}, ""},
		{"stacked", []string{"expr", "page_gauge", "view", "graph", "mode", "stacked"}, ""},
		{"heatmap", []string{"expr", "page_seconds", "view", "graph", "range", "900"}, ""},
		{"refresh-waits", []string{"expr", "page_gauge", "view", "graph", "refresh", "5s", "end", "2026-03-04T05:00:00Z"}, ""},
		{"explore", []string{"tab", "explore"}, ""},
		{"explore-metric", []string{"tab", "explore", "metric", "page_requests_total", "match", `code="200"`}, ""},
		{"cardinality-of", []string{"tab", "cardinality", "match", "page_many", "focus", "n"}, ""},
	}
}

// Widths of the page in pixels: of a telephone, and of a screen.
const narrowPage, widePage = 390, 1440

// A look is a width of the page and the colours that the system prefers.
type look struct {
	scheme    string
	width     int64
	isCrossed bool // whether other looks have its scheme and its width, too
}

func (l look) String() string { return fmt.Sprintf("%s-%d", l.scheme, l.width) }

// looks returns all four.
func looks() []look {
	return []look{{"light", narrowPage, false}, {"light", widePage, true}, {"dark", narrowPage, true}, {"dark", widePage, false}}
}

// view shows a view, by a link or by loading the page anew.
func (p *browserPage) view(v pageView, open func(parameters ...string)) {
	p.Helper()
	if v.refused != "" {
		p.expect(v.refused, 400)
	}
	open(v.parameters...)
	p.awaitEditors()
}

// TestPageViews opens each view, in both colour schemes, wide and narrow, and wants of it what holds of all views. One of the four
// loads the page anew for each view, the others come to it by a link. axe-core looks at two, which have each scheme and each width.
func TestPageViews(t *testing.T) {
	t.Parallel()
	for _, look := range looks() {
		t.Run(look.String(), func(t *testing.T) {
			t.Parallel()
			p := newPage(t, startPaged(t))
			p.width(look.width)
			p.scheme(look.scheme)
			for _, v := range pageViews() {
				if look == looks()[0] {
					p.view(v, p.load)
				} else {
					p.view(v, p.open)
				}
				what := v.name + "-" + look.String()
				p.shoot(what)
				p.checkContrast(what)
				p.checkFits(what, look.width)
				p.checkTaken(what)
				if look.width == narrowPage {
					p.checkThumb(what)
				}
				if look.width == widePage && look.scheme == "light" {
					p.checkNames(what)
				}
				if !look.isCrossed {
					p.checkAxe(what)
				}
			}
			p.checkAsked()
		})
	}
}

// TestPageKeyboard uses the page without a mouse.
func TestPageKeyboard(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	p.wantFocus("PromQL expression")
	for _, tab := range []struct{ name, focus string }{
		{"Latest", "Filter by metric name or selector"},
		{"Cardinality", "Selector (empty: all series)"},
		{"Explore", "Find a metric"},
		{"Explain", "Expression to explain"},
		{"Status", "Status"},
		{"Query", "PromQL expression"},
	} {
		p.tabTo(tab.name, kb.ModifierShift)
		p.press(kb.Enter)
		if got := evaluate[string](p, shown+`.getAttribute("aria-label")`); got != tab.name {
			t.Errorf("the link to %s shows %s", tab.name, got)
		}
		p.wantFocus(tab.focus)
	}
	p.tabTo("Skip to the content", kb.ModifierShift)
	p.shoot("skip")
	p.press(kb.Enter)
	p.await(`document.activeElement.id === "main"`)
	p.press("/")
	p.wantFocus("PromQL expression")
	p.press("1/4")
	p.press(kb.Enter)
	if rows := p.rows(0); len(rows) != 1 || rows[0][0] != "0.25" {
		t.Errorf("1/4 is %q", rows)
	}
	p.tabTo("Table")
	p.shoot("focus")
	p.tabTo("Execute")
	p.press(kb.Enter)
	p.checkTypedTime()
	p.open("expr", "page_gauge")
	p.tabTo("Value")
	p.press(kb.Enter)
	if rows := p.rows(0); rows[0][1] != "1.5" || rows[2][1] != "42" {
		t.Errorf("sorted by Enter: %q", rows)
	}
}

// checkTypedTime types the end of a range and wants one question about it.
func (p *browserPage) checkTypedTime() {
	p.Helper()
	p.open("expr", "page_gauge", "end", "2026-03-04T05:06:07")
	before := len(p.asked("/api/v1/query"))
	p.tabTo("2026-03-04 05:06:07 Asia/Calcutta")
	p.press(kb.Enter)
	p.wantFocus("Time")
	p.press("2025-11-21 21:15:43" + kb.Enter)
	p.wantParameters("expr", "page_gauge", "end", "2025-11-21T15:45:43Z")
	p.wantFocus("2025-11-21 21:15:43 Asia/Calcutta")
	if n := len(p.asked("/api/v1/query")) - before; n != 1 {
		p.Errorf("a time that is typed is asked for %d times", n)
	}
}

// A focus is what has the keyboard.
type focus struct {
	Name    string
	Outline bool // whether that is to be seen
}

// focused returns what has the keyboard.
func (p *browserPage) focused() focus {
	p.Helper()
	return evaluate[focus](p, `(() => {
		const e = document.activeElement, style = getComputedStyle(e.closest(".editor") ?? e);
		const name = e.ariaLabel ?? (e.labels?.[0]?.firstChild.nodeType === Node.TEXT_NODE ? e.labels[0].firstChild : e.labels?.[0] ?? e).textContent;
		return { Name: name.trim(), Outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
	})()`)
}

func (p *browserPage) wantFocus(name string) {
	p.Helper()
	harness.Eventually(p, "the keyboard is at "+name, func() error {
		if got := p.focused(); got.Name != name || !got.Outline {
			return fmt.Errorf("it is at %+v", got)
		}
		return nil
	})
}

// tabTo presses Tab until something has the keyboard.
func (p *browserPage) tabTo(name string, modifiers ...kb.Modifier) {
	p.Helper()
	const most = 40
	var passed []string
	for range most {
		p.press(kb.Tab, modifiers...)
		got := p.focused()
		if got.Name == name && got.Outline {
			return
		}
		if !got.Outline && !slices.Contains([]string{"BODY", "MAIN"}, evaluate[string](p, "document.activeElement.tagName")) {
			p.Errorf("the keyboard is at %+v, and does not show it", got)
		}
		passed = append(passed, got.Name)
	}
	p.Fatalf("Tab does not come to %q, but to %q", name, passed)
}

// checkNames wants a name of all that can be used, and headings and landmarks.
func (p *browserPage) checkNames(what string) {
	p.Helper()
	controls := []string{"textbox", "searchbox", "combobox", "listbox", "radio", "checkbox", "button", "link", "spinbutton", "Date", "DateTime", "InputTime"}
	seen := map[string]int{}
	for _, node := range devtools(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role, name := strings.Trim(string(node.Role.Value), `"`), ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `" `)
		}
		seen[role]++
		if slices.Contains(controls, role) && name == "" {
			p.Errorf("%s: a %s has no name", what, role)
		}
	}
	for _, want := range []string{"banner", "navigation", "main", "heading", "region", "link"} {
		if seen[want] == 0 {
			p.Errorf("%s: there is no %s among %v", what, want, seen)
		}
	}
	// A placeholder is a name too, but not one that stays.
	if bare := evaluate[[]string](p, `[...document.querySelectorAll("input:not([type=hidden]), select, textarea")].filter((e) => e.labels.length === 0).map((e) => e.outerHTML)`); len(bare) > 0 {
		p.Errorf("%s: no label for %q", what, bare)
	}
	if seen["main"] != 1 {
		p.Errorf("%s: there are %d main parts", what, seen["main"])
	}
}

// TestPageDark looks at both colour schemes, as the system and as a user
// chooses them.
func TestPageDark(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	schemes := map[string]colours{}
	for _, name := range []string{"light", "dark"} {
		p.scheme(name)
		p.open("expr", "page_gauge", "view", "graph")
		schemes[name] = p.colours()
	}
	light, dark := schemes["light"], schemes["dark"]
	if light.Back == dark.Back || light.Text == dark.Text || light.Line == dark.Line || !light.brighter() || dark.brighter() {
		t.Errorf("light is %+v, dark is %+v", light, dark)
	}
	p.checkChoice(light, dark)
}

// checkChoice chooses the scheme that the system does not prefer, and then none.
func (p *browserPage) checkChoice(light, dark colours) {
	p.Helper()
	for system, c := range map[string]struct {
		choice           string
		preferred, other colours
	}{"dark": {"Light", dark, light}, "light": {"Dark", light, dark}} {
		p.scheme(system)
		p.open("expr", "page_gauge", "view", "graph")
		p.choose("#theme", c.choice)
		p.wantColours("chosen", c.other)
		p.checkContrast(c.choice + " chosen")
		p.reload()
		p.wantColours("after a reload", c.other)
		p.choose("#theme", "Auto")
		p.wantColours("as the system prefers", c.preferred)
		p.reload()
		p.wantColours("as the system prefers, after a reload", c.preferred)
	}
}

// choose selects an option by typing its name.
func (p *browserPage) choose(selector, option string) {
	p.Helper()
	if !evaluate[bool](p, fmt.Sprintf(`document.querySelector(%q).checkVisibility()`, selector)) {
		p.click("#settings")
	}
	// Keys that come a second apart, as on a machine that is busy, are two words for the browser: they are typed again.
	harness.Eventually(p, "typing chooses "+option, func() error {
		evaluate[bool](p, fmt.Sprintf(`(() => { const f = document.querySelector(%q); f.blur(); f.focus(); return true })()`, selector)) // which begins a word
		p.press(option)
		chosen := fmt.Sprintf(`document.querySelector(%q).selectedOptions[0].text`, selector)
		if got := evaluate[string](p, chosen); got != option {
			return fmt.Errorf("%s in %s chooses %s", option, selector, got)
		}
		return nil
	})
}

// Colours of the page, as the style sheet computes them, and of a line of a graph.
type colours struct{ Back, Text, Line string }

func (p *browserPage) colours() colours {
	p.Helper()
	return evaluate[colours](p, `(() => {
		const { backgroundColor, color } = getComputedStyle(document.body);
		return { Back: backgroundColor, Text: color, Line: document.querySelector("#query tbody path")?.getAttribute("stroke") ?? "" };
	})()`)
}

// brighter says whether the background is brighter than the text.
func (c colours) brighter() bool {
	sum := func(text string) (n int) {
		var r, g, b int
		fmt.Sscanf(text, "rgb(%d, %d, %d)", &r, &g, &b)
		return r + g + b
	}
	return sum(c.Back) > sum(c.Text)
}

func (p *browserPage) wantColours(when string, want colours) {
	p.Helper()
	if got := p.colours(); got != want {
		p.Errorf("%s the colours are %+v, want %+v", when, got, want)
	}
}

// contrastScript returns for each text that is to be seen the ratio of its
// contrast by WCAG 2.
const contrastScript = `(() => {
	const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const paint = (colour) => {
		context.clearRect(0, 0, 1, 1);
		context.fillStyle = colour;
		context.fillRect(0, 0, 1, 1);
		return [...context.getImageData(0, 0, 1, 1).data];
	};
	const luminance = (rgb) => {
		const [r, g, b] = rgb.slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const colour = paint(getComputedStyle(e).backgroundColor);
			if (colour[3] === 255) { return colour; }
			if (colour[3] !== 0) { throw new Error("half a background of " + e.outerHTML); }
		}
		throw new Error("no background");
	};
	const ratio = (e, pseudo) => {
		const [a, b] = [luminance(paint(getComputedStyle(e, pseudo).color)), luminance(behind(e))];
		return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
	};
	const found = [];
	for (const e of document.body.querySelectorAll("*")) {
		const own = e.matches("input, select, textarea") || [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim() !== "");
		if (own && e.checkVisibility() && !e.matches("option, script")) {
			found.push({ Name: e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 30), Ratio: ratio(e) });
			if (e.placeholder) { found.push({ Name: "placeholder of " + e.name, Ratio: ratio(e, "::placeholder") }); }
		}
	}
	return found;
})()`

// checkContrast wants all text to be told from what is behind it.
func (p *browserPage) checkContrast(what string) {
	p.Helper()
	const least = 4.5
	found := evaluate[[]struct {
		Name  string
		Ratio float64
	}](p, contrastScript)
	if len(found) < 15 {
		p.Errorf("%s: only %d texts are found", what, len(found))
	}
	bad := map[string]bool{}
	for _, text := range found {
		if tag, _, _ := strings.Cut(text.Name, " "); text.Ratio < least && !bad[tag] {
			bad[tag] = true
			p.Errorf("%s: %s has a contrast of %.2f", what, text.Name, text.Ratio)
		}
	}
}

// checkFits wants nothing to stick out.
func (p *browserPage) checkFits(what string, width int64) {
	p.Helper()
	if got := evaluate[int64](p, "document.documentElement.scrollWidth"); got > width {
		wide := evaluate[[]string](p, fmt.Sprintf(`[...document.querySelectorAll("body *")]
			.filter((e) => e.getBoundingClientRect().right > %d && !e.closest(".scroll, pre")).map((e) => e.outerHTML.slice(0, 80))`, width))
		p.Errorf("%s is %d wide: %q", what, got, wide)
	}
}

// TestPagePlaceholders wants all of a placeholder to be seen, also what is below the line.
func TestPagePlaceholders(t *testing.T) {
	p := newPage(t, harness.StartAdapter(t, harness.Embedded(t)))
	for _, tab := range []string{"explore", "latest", "cardinality", "rules"} {
		p.open("tab", tab)
		ink := func(text string) (dark int) {
			t.Helper()
			field := evaluate[place](p, fmt.Sprintf(`(() => {
				const field = %s.querySelector("input[placeholder]");
				field.placeholder = %q;
				field.blur();
				return field.getBoundingClientRect().toJSON();
			})()`, shown, text))
			clip := &protopage.Viewport{X: field.X, Y: field.Y, Width: 100, Height: field.Height, Scale: 1}
			shot := devtools(p, protopage.CaptureScreenshot, protopage.CaptureScreenshotParams{Clip: clip})
			picture, err := png.Decode(bytes.NewReader(shot.Data))
			if err != nil {
				t.Fatal(err)
			}
			for x := range picture.Bounds().Dx() {
				for y := range picture.Bounds().Dy() {
					if r, _, _, _ := picture.At(x, y).RGBA(); r < 0xb000 {
						dark++
					}
				}
			}
			return dark
		}
		if empty, lines := ink(" "), ink("______"); lines < empty+40 {
			t.Errorf("%s: a placeholder of underscores has %d pixels more than none", tab, lines-empty)
		}
	}
}

// TestPageExplainNarrow wants a plan of a long selector to fit on a telephone.
func TestPageExplainNarrow(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.eachLook(func(look string) {
		p.open("tab", "explain", "selector", `page_gauge{instance=~"a|b|`+strings.Repeat("c", 80)+`", code!="`+strings.Repeat("5", 60)+`"}`)
		wide := evaluate[[]string](p, `[document.documentElement, ...document.querySelectorAll("main *")]
			.filter((e) => e.checkVisibility() && e.matches("html, .scroll") && e.scrollWidth > e.clientWidth).map((e) => e.tagName + " " + e.scrollWidth + " > " + e.clientWidth)`)
		if len(wide) > 0 {
			t.Errorf("%s: too wide are %q", look, wide)
		}
		p.shoot("explain-long-" + look)
	})
}

// checkAsked wants all views to need nothing but the adapter. The browser reaches no other host, and what it asks of others is a
// problem in every test.
func (p *browserPage) checkAsked() {
	p.Helper()
	asked := map[string]bool{}
	for _, u := range p.asked("") {
		if u.Scheme == "data" {
			continue // an icon of the browser's own
		}
		if u.Host != p.host {
			p.Errorf("a request to %s", u)
		}
		asked[u.Path] = true
	}
	for _, want := range []string{
		"/", "/ui/style.css", "/ui/theme.js", "/ui/app.js", "/ui/query/graph.js", "/ui/query/graph.css", "/ui/common/table.css", "/ui/vendor/codemirror/codemirror.js", "/ui/vendor/uplot/uPlot.iife.min.js", "/ui/vendor/uplot/uPlot.min.css",
		"/api/v1/query", "/api/v1/query_range", "/api/v1/current", "/api/v1/status/tsdb", "/api/v1/explain", "/api/v1/status/adapter",
		"/api/v1/status/store", "/api/v1/metric_names",
	} {
		if !asked[want] {
			p.Errorf("%s was not asked for", want)
		}
	}
}

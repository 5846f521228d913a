//go:build browser

package page

import (
	"os"
	"strings"
	"testing"
)

// An axeViolation is a rule of axe-core that elements break.
type axeViolation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// axe returns what axe-core finds wrong in the page as it is. The rules are all that are on by default: those of WCAG 2,
// levels A and AA, and good practice.
func (p *browserPage) axe() []axeViolation {
	p.Helper()
	source, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		p.Fatal(err)
	}
	// By the protocol of the browser, as the policy of the page lets no such script in.
	evaluate[bool](p, string(source)+`; window.axed = undefined; axe.run(document, { resultTypes: ["violations"] }).then((r) => window.axed = r, (err) => window.axed = { error: String(err) }); true`)
	p.await("window.axed !== undefined")
	if text := evaluate[string](p, `window.axed.error ?? ""`); text != "" {
		p.Fatalf("axe: %s", text)
	}
	if passed := evaluate[int](p, "window.axed.passes.length"); passed < 10 {
		p.Errorf("axe has only %d rules that hold", passed)
	}
	return evaluate[[]axeViolation](p, `window.axed.violations.map((v) => ({ ID: v.id, Impact: v.impact ?? "", Help: v.help,
		Nodes: v.nodes.slice(0, 3).map((n) => ({ HTML: n.html.slice(0, 200), FailureSummary: n.failureSummary })) }))`)
}

// checkAxe wants axe-core to find nothing wrong.
func (p *browserPage) checkAxe(what string) {
	p.Helper()
	for _, v := range p.axe() {
		for _, n := range v.Nodes {
			p.Errorf("%s: %s (%s): %s: %s: %s", what, v.ID, v.Impact, v.Help, n.HTML, strings.Join(strings.Fields(n.FailureSummary), " "))
		}
	}
}

// TestPageAxe wants axe-core to find what is wrong.
func TestPageAxe(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	evaluate[bool](p, `(() => { document.querySelector("main").prepend(document.createElement("img")); return true })()`)
	if found := p.axe(); len(found) != 1 || found[0].ID != "image-alt" {
		t.Fatalf("of an image without a text axe finds %+v", found)
	}
}

// TestPageAxeOpened runs axe-core over what is folded away, or opens above the page.
func TestPageAxeOpened(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.eachLook(func(look string) {
		for _, parameters := range [][]string{{"expr", "page_seconds"}, {"expr", "page_gauge[1h]"}} {
			p.open(parameters...)
			evaluate[bool](p, `(() => { document.querySelectorAll("details").forEach((d) => { d.open = true; }); return true })()`)
			p.await(`[...document.querySelectorAll("#query details")].every((d) => d.querySelector("ol, ul"))`)
			p.checkAxe(look + " " + parameters[1])
		}
		if evaluate[bool](p, `document.getElementById("settings").checkVisibility()`) {
			p.click("#settings")
			p.checkAxe(look + " settings")
		}
		p.focusMain()
		p.press("?")
		p.checkAxe(look + " keys")
	})
}

//go:build browser

package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// startDescribed starts an adapter that holds what the tests of the page look at, with metadata of some of it.
func startDescribed(t testing.TB) *harness.Adapter {
	t.Helper()
	a := startPaged(t)
	request := prompb.WriteRequest{Metadata: []prompb.MetricMetadata{
		{MetricFamilyName: "page_gauge", Type: prompb.MetricMetadata_GAUGE, Help: "What a page shows, " + pageMarkup},
		{MetricFamilyName: "page_requests_total", Type: prompb.MetricMetadata_COUNTER, Help: "Requests that were answered, by their status code."},
	}}
	body, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	header := map[string]string{"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
	if resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), header, snappy.Encode(nil, body)); err != nil || resp.Status != http.StatusNoContent {
		t.Fatalf("send metadata: %v, %v", resp, err)
	}
	return a
}

// An offered option of completion.
type offered struct {
	Label, Detail string
	Chosen        bool
}

// offers returns what completion offers, or nothing.
func (p *browserPage) offers() []offered {
	p.Helper()
	return evaluate[[]offered](p, `[...document.querySelectorAll(".cm-tooltip-autocomplete li")].map((li) => ({
		Label: li.querySelector(".cm-completionLabel").textContent, Detail: li.querySelector(".cm-completionDetail")?.textContent ?? "", Chosen: li.ariaSelected === "true",
	}))`)
}

// awaitOffer waits until completion offers an option first, and returns it.
func (p *browserPage) awaitOffer(label string) (first offered) {
	p.Helper()
	harness.Eventually(p, "completion offers "+label, func() error {
		all := p.offers()
		if len(all) == 0 || all[0].Label != label {
			return fmt.Errorf("it offers %v, of %q", all[:min(5, len(all))], p.expressions())
		}
		first = all[0]
		return nil
	})
	return first
}

// awaitNoOffer waits until completion is closed.
func (p *browserPage) awaitNoOffer() {
	p.Helper()
	p.await(`document.querySelector(".cm-tooltip-autocomplete") === null`)
}

// typeNew types in the place of all that the first editor has.
func (p *browserPage) typeNew(text string) {
	p.Helper()
	p.selectText(expression)
	p.press(kb.Backspace + text)
}

// wantExpressions wants these texts in the editors.
func (p *browserPage) wantExpressions(want ...string) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("the expressions are %q", want), func() error {
		if got := p.expressions(); !slices.Equal(got, want) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// button clicks a button of the tab by its text.
func (p *browserPage) button(text string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { [...document.querySelectorAll("dialog[open] button, main section:not([hidden]) button")].find((b) => b.textContent === %q).click(); return true })()`, text))
	p.settle()
}

// TestPageEditorSwap types before the editor is there: the text, the cursor and the keyboard stay when it comes.
func TestPageEditorSwap(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.onOpen(`window.requestIdleCallback = (f) => { window.letIn = f }`)
	p.open()
	p.wantFocus("PromQL expression")
	p.press("pagegauge" + strings.Repeat(kb.ArrowLeft, 5))
	if evaluate[bool](p, `document.querySelector(".cm-editor") !== null`) {
		t.Fatal("the editor does not wait")
	}
	before := evaluate[float64](p, `document.querySelector(".editor").getBoundingClientRect().height`)
	evaluate[bool](p, `(() => { window.letIn(); return true })()`)
	p.awaitEditors()
	p.wantFocus("PromQL expression")
	if after := evaluate[float64](p, `document.querySelector(".editor").getBoundingClientRect().height`); after != before {
		t.Errorf("the field is %g px high, the editor %g", before, after)
	}
	p.press("_" + kb.Enter)
	p.wantRows(0, pageGauges())
	p.wantExpressions("page_gauge")

	// What is being composed is not broken off.
	p.load()
	devtools(p, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "pa", SelectionStart: 2, SelectionEnd: 2})
	evaluate[bool](p, `(() => { window.letIn(); return true })()`)
	p.await(`performance.getEntriesByName(new URL("ui/vendor/codemirror/codemirror.js", location.href).href).length > 0`)
	devtools(p, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "page", SelectionStart: 4, SelectionEnd: 4})
	if evaluate[bool](p, `document.querySelector(".cm-editor") !== null`) {
		t.Error("the editor does not wait for what is being composed")
	}
	devtools(p, input.InsertText, input.InsertTextParams{Text: "page_"})
	p.awaitEditors()
	p.press("gauge" + kb.Enter)
	p.wantParameters("expr", "page_gauge")

	// Without it the field can be used.
	p.load()
	p.press("1/4" + kb.Enter)
	p.wantParameters("expr", "1/4")
	if rows := p.rows(0); len(rows) != 1 || rows[0][0] != "0.25" {
		t.Errorf("1/4 is %q", rows)
	}
}

// TestPageCompletion wants metrics, functions, labels and values where they belong, from few requests.
func TestPageCompletion(t *testing.T) {
	t.Parallel()
	p := newPage(t, startDescribed(t))
	p.eachLook(func(look string) {
		p.open("range", "21600")
		p.typeNew("page_")
		p.awaitOffer("page_gauge")
		p.typeNew("page_reque")
		if got, want := p.awaitOffer("page_requests_total"), (offered{"page_requests_total", "counter", true}); got != want {
			t.Errorf("of a metric it says %v, want %v", got, want)
		}
		p.await(`document.querySelector(".cm-completionInfo")?.innerText === "Requests that were answered, by their status code."`)
		p.checkContrast(look)
		p.shoot("completion-" + look)
		if wide := evaluate[int](p, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s: the page is %d px too wide", look, wide)
		}
		p.press(kb.Enter)
		p.wantExpressions("page_requests_total")
		p.awaitNoOffer()
		p.press(kb.Enter)
		p.wantParameters("expr", "page_requests_total")
		p.typeNew("age_gaug") // a part of the name
		if got := p.awaitOffer("page_gauge"); got.Detail != "gauge" {
			t.Errorf("of a metric it says %v", got)
		}
		p.await(`document.querySelector(".cm-completionInfo")?.innerText === "What a page shows, ` + pageMarkup + `"`)

		p.typeNew("histogram_quan")
		if got, want := p.awaitOffer("histogram_quantile"), (offered{"histogram_quantile", "(scalar, vector)", true}); got != want {
			t.Errorf("of a function it says %v, want %v", got, want)
		}
		p.shoot("completion-function-" + look)
		p.press(kb.Enter)
		p.wantExpressions("histogram_quantile()")
		p.press("0.9, ra")
		p.awaitOffer("rate") // and not range, whose arguments are none
		p.press(kb.Enter)
		p.wantExpressions("histogram_quantile(0.9, rate())")
		p.press(kb.Escape)
		p.awaitNoOffer()

		for name, want := range map[string]string{"round": "(vector, [scalar])", "label_joi": "(vector, string, string, [string …])", "timestam": "(vector)", "bottom": "(k, vector)"} {
			p.typeNew(name)
			harness.Eventually(t, "completion says the arguments of "+name, func() error {
				if all := p.offers(); len(all) == 0 || !strings.HasPrefix(all[0].Label, name) || all[0].Detail != want {
					return fmt.Errorf("it offers %v", all)
				}
				return nil
			})
		}

		p.typeNew("page_gauge{")
		if p.awaitOffer("__name__").Chosen {
			t.Error("of a name of which nothing is typed one is chosen")
		}
		p.press("inst")
		p.awaitOffer("instance")
		p.press(kb.Enter)
		p.wantExpressions("page_gauge{instance}")
		p.press(`="`)
		p.awaitOffer(pageMarkup)
		var values []string
		for _, o := range p.offers() {
			values = append(values, o.Label)
		}
		if !slices.Equal(values, []string{pageMarkup, "a", "b"}) {
			t.Errorf("the values of a label are %q", values)
		}
		p.checkContrast(look)
		p.shoot("completion-values-" + look)
		p.press(kb.ArrowDown + kb.ArrowDown + kb.ArrowDown + kb.Enter)
		p.wantExpressions(`page_gauge{instance="b"}`)
		p.press(kb.Enter)
		p.wantParameters("expr", `page_gauge{instance="b"}`)
		p.wantRows(0, [][]string{{`page_gauge{instance="b"}`, "42"}})

		p.typeNew("sum by (")
		p.awaitOffer("__name__")
		p.press("cod")
		p.awaitOffer("code")
		p.press(kb.Escape)
	})
	// Each question is asked once in each of the four pages, and says of which time. The start page asks for some names of its own.
	for path, most := range map[string]int{"/api/v1/label/__name__/values": 4, "/api/v1/metadata": 4, "/api/v1/labels": 8, "/api/v1/label/instance/values": 4} {
		asked := slices.DeleteFunc(p.asked(path), isStart)
		if len(asked) == 0 || len(asked) > most {
			t.Errorf("%s is asked for %d times", path, len(asked))
			continue
		}
		first := asked[0].Query()
		if path != "/api/v1/metadata" {
			if span := mustFloat(t, first.Get("end")) - mustFloat(t, first.Get("start")); span < 21600 || span > 21600+600 {
				t.Errorf("%s is asked for of %g s", path, span)
			}
		}
		if !first.Has("limit") {
			t.Errorf("%s is asked for without a limit", path)
		}
	}
	if got := p.asked("/api/v1/label/instance/values")[0].Query()["match[]"]; !slices.Equal(got, []string{`{"__name__"="page_gauge"}`}) {
		t.Errorf("values are asked for of %q", got)
	}
}

// isStart says whether a request is for the names of which the start page makes examples.
func isStart(u *url.URL) bool { return u.Query().Get("limit") == "2000" }

// TestPageCompletionMany finds a metric that is not among those that the page has.
func TestPageCompletionMany(t *testing.T) {
	t.Parallel()
	const many = 11_000
	a := harness.StartAdapter(t, harness.Embedded(t))
	now := harness.NowMillis()
	var series []harness.SentSeries
	for i := range many {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", fmt.Sprintf("many_%05d_total", i)}, Points: []harness.Point{harness.PointAt(now, 1)}})
	}
	series = append(series, harness.SentSeries{Labels: []string{"__name__", "zz_last_total"}, Points: []harness.Point{harness.PointAt(now, 1)}})
	for some := range slices.Chunk(series, 5000) {
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), some...)
	}
	p := newPage(t, a)
	p.open()
	p.typeNew("last_to")
	p.awaitOffer("zz_last_total")
	p.typeNew("many_109")
	p.awaitOffer("many_10900_total")
	p.press("99")
	p.awaitOffer("many_10999_total")
	p.press(kb.Enter)
	p.wantExpressions("many_10999_total")
	for _, u := range slices.DeleteFunc(p.asked("/api/v1/label/__name__/values"), isStart) {
		if limit := u.Query().Get("limit"); limit != "10000" && limit != "1000" {
			t.Errorf("names are asked for up to %s", limit)
		}
	}
}

// TestPageEditorKeys wants keys to do what they say, and the keyboard to come out of the editor.
func TestPageEditorKeys(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	p.typeNew("page_gauge")
	p.press(kb.Enter, kb.ModifierShift)
	p.press("* 2")
	p.wantExpressions("page_gauge\n* 2")
	p.press(kb.Enter, kb.ModifierCtrl)
	p.wantParameters("expr", "page_gauge\n* 2")
	if rows := p.rows(0); len(rows) != 3 || rows[2][1] != "84" {
		t.Errorf("the result is %q", rows)
	}
	// A text that is an option is run, also while options are shown.
	p.typeNew("page_gauge")
	if first := p.awaitOffer("page_gauge"); first.Chosen {
		t.Errorf("what is typed is chosen: %v", first)
	}
	p.press(kb.Enter)
	p.wantParameters("expr", "page_gauge")
	p.awaitNoOffer()
	// Escape closes; Enter runs then.
	p.typeNew("page_gaug")
	p.awaitOffer("page_gauge")
	p.press(kb.Escape)
	p.awaitNoOffer()
	p.press(kb.Enter)
	p.wantParameters("expr", "page_gaug")
	// Tab leaves, also while options are shown, and back.
	p.typeNew("page_gau")
	p.awaitOffer("page_gauge")
	p.press(kb.Tab)
	p.wantFocus("Format")
	p.awaitNoOffer()
	p.press(kb.Tab, kb.ModifierShift)
	p.wantFocus("PromQL expression")
	p.wantExpressions("page_gau")
	// Also of what is filled in by parts.
	p.typeNew("bottomk")
	p.awaitOffer("bottomk")
	p.press(kb.ArrowDown + kb.Enter + "3" + kb.Tab + "page_gauge")
	p.wantExpressions("bottomk(3, page_gauge)")
	p.press(kb.Escape + kb.Tab)
	p.wantFocus("Format")
	p.press(kb.Tab, kb.ModifierShift)
	p.typeNew("page_gau")
	p.press(" / /")
	p.wantExpressions("page_gau / /")
}

// errorsIn returns what is underlined as wrong.
func (p *browserPage) errorsIn() []string {
	p.Helper()
	return evaluate[[]string](p, `[...document.querySelectorAll("#query .cm-lintRange-error")].map((e) => e.textContent)`)
}

func (p *browserPage) wantErrors(want ...string) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("%q is underlined", want), func() error {
		if got := p.errorsIn(); !slices.Equal(got, want) {
			return fmt.Errorf("underlined is %q", got)
		}
		return nil
	})
}

// TestPageEditorErrors underlines what is wrong where it is.
func TestPageEditorErrors(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.eachLook(func(look string) {
		p.open()
		p.typeNew("sum(rate(page_gauge))")
		p.wantErrors("page_gauge") // by the page itself: it is no range vector
		p.expect("/api/v1/query", http.StatusBadRequest)
		p.press(kb.Enter)
		p.wantAlert(a, "/api/v1/query", url.Values{"query": {"sum(rate(page_gauge))"}})
		p.wantErrors("page_gauge")
		// Here the page finds nothing. The server counts bytes of what it is sent, which is trimmed.
		for _, text := range []string{`  {n="ü"} + page_gauge{instance=~"("}`, "page_many +\n  {n=\"ü\"} + page_gauge{instance=~\"(\"}"} {
			p.typeNew("")
			p.paste(text)
			p.expect("/api/v1/query", http.StatusBadRequest)
			p.press(kb.Enter, kb.ModifierCtrl)
			p.wantErrors("instance")
		}
		p.typeNew("page_gauge")
		p.wantErrors()
		p.typeNew("page_gauge[5m")
		p.press(kb.Delete) // the bracket that was closed
		p.expect("/api/v1/query", http.StatusBadRequest)
		p.press(kb.Enter, kb.ModifierCtrl)
		p.hoverError("unclosed left bracket")
		p.checkContrast(look)
		p.shoot("editor-error-" + look)
		p.do(chromedp.MouseEvent("mouseMoved", 1, 1))
		p.open() // another scheme asks again
	})
}

// hoverError moves the mouse over what is underlined, until the page says what is wrong. The line is made anew with each answer,
// and what the mouse rests on is told after a while.
func (p *browserPage) hoverError(want string) {
	p.Helper()
	away := 0.0
	harness.Eventually(p, "the page says "+want, func() error {
		at := evaluate[[]float64](p, `[...document.querySelectorAll("#query .cm-lintRange-error")].slice(0, 1).map((e) => e.getBoundingClientRect()).flatMap(({ left, bottom }) => [left + 3, bottom - 5])`)
		if len(at) == 0 {
			return errors.New("nothing is underlined")
		}
		away = 1 - away
		p.do(chromedp.MouseEvent("mouseMoved", at[0]+away, at[1]))
		const tip = `(document.querySelector(".cm-tooltip-lint, .cm-tooltip-hover")?.innerText ?? "")`
		if !p.soon(fmt.Sprintf("%s.includes(%q)", tip, want)) {
			return fmt.Errorf("it says %q", evaluate[string](p, tip))
		}
		return nil
	})
}

// paste inserts a text at the cursor.
func (p *browserPage) paste(text string) {
	p.Helper()
	encoded, err := json.Marshal(text)
	if err != nil {
		p.Fatal(err)
	}
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.setData("text/plain", %s);
		return document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })) || true;
	})()`, encoded))
}

// TestPageFormat formats an expression, and brings it back.
func TestPageFormat(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open("expr", "page_gauge")
	p.typeNew("sum by(instance)(page_gauge)+1")
	p.button("Format")
	p.wantExpressions("sum by (instance) (page_gauge) + 1")
	p.wantFocus("PromQL expression")
	p.press("z", kb.ModifierCtrl)
	p.wantExpressions("sum by(instance)(page_gauge)+1")
	p.eachLook(func(look string) {
		p.typeNew("sum(page_gauge) +")
		p.expect("/api/v1/format_query", http.StatusBadRequest)
		p.button("Format")
		p.await(`document.querySelector("#query .said [role=alert]")?.innerText === "Line 1, column 18: unexpected end of input"`)
		p.awaitNoOffer()
		p.checkContrast(look)
		p.shoot("format-error-" + look)
		p.press("x")
		p.await(`document.querySelector("#query .said").childElementCount === 0`)
	})
	p.wantParameters("expr", "page_gauge")
}

// named clicks a button by its name for assistive technology.
func (p *browserPage) named(name string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { document.querySelector(%q).click(); return true })()`, `#query [aria-label="`+name+`"]`))
	p.settle()
}

// wantExprs wants these expressions in the URL, and these numbers of hidden ones.
func (p *browserPage) wantExprs(hide string, want ...string) {
	p.Helper()
	p.settle()
	if got := p.parameters(); !slices.Equal(got["expr"], want) || got.Get("hide") != hide {
		p.Errorf("the URL says %v, want %q without %q", got, want, hide)
	}
}

// TestPageSeveral asks for several expressions, hides and removes some.
func TestPageSeveral(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	results := func(want ...string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("there are results of %q", want), func() error {
			if got := p.texts("h2"); !slices.Equal(got, want) {
				return fmt.Errorf("of %q", got)
			}
			return nil
		})
	}
	p.eachLook(func(look string) {
		p.open("expr", "page_gauge")
		p.awaitEditors()
		p.button("+ Add query")
		p.wantFocus("PromQL expression B")
		p.press("page_requests_total" + kb.Enter)
		p.wantExprs("", "page_gauge", "page_requests_total")
		results("A page_gauge", "B page_requests_total")
		p.button("+ Add query")
		p.press("page_many > 145" + kb.Enter)
		p.wantExprs("", "page_gauge", "page_requests_total", "page_many > 145")
		p.named("Show expression B")
		p.wantExprs("1", "page_gauge", "page_requests_total", "page_many > 145")
		results("A page_gauge", "C page_many > 145")
		p.checkContrast(look)
		p.shoot("several-" + look)
		p.reload()
		p.wantExpressions("page_gauge", "page_requests_total", "page_many > 145")
		results("A page_gauge", "C page_many > 145")
		if got := evaluate[[]string](p, `[...document.querySelectorAll("#query .eye")].map((e) => e.ariaPressed)`); !slices.Equal(got, []string{"true", "false", "true"}) {
			t.Errorf("after a reload the eyes are %q", got)
		}
		p.named("Remove expression A")
		p.wantExprs("0", "page_requests_total", "page_many > 145")
		p.wantExpressions("page_requests_total", "page_many > 145")
		p.wantFocus("PromQL expression A")
		p.back(`new URLSearchParams(location.search).getAll("expr").length === 3`)
		p.wantExpressions("page_gauge", "page_requests_total", "page_many > 145")
		results("A page_gauge", "C page_many > 145")
		p.named("Show expression A")
		p.named("Show expression C")
		p.wantExprs("0,1,2", "page_gauge", "page_requests_total", "page_many > 145")
		if got := p.texts(".hint"); !slices.Equal(got, []string{"All expressions are hidden."}) {
			t.Errorf("without an expression that is shown the page says %q", got)
		}
	})
	// An empty row is no expression, and stays while others are run.
	p.open("expr", "page_gauge")
	p.awaitEditors()
	p.button("+ Add query")
	p.enter(expression, "page_gauge * 2")
	p.wantExprs("", "page_gauge * 2")
	p.wantExpressions("page_gauge * 2", "")
	p.named("Remove expression B")
	p.wantExpressions("page_gauge * 2")
	// Links to Prometheus' page, of both of its layouts.
	for _, path := range []string{"graph", "query"} {
		p.do(chromedp.Navigate("http://" + p.host + "/" + path + "?g0.expr=page_gauge&g0.tab=0&g0.range_input=2h&g1.expr=page_requests_total&g1.tab=1"))
		p.settle()
		p.wantExprs("", "page_gauge", "page_requests_total")
		p.wantParameters("view", "graph", "range", "7200")
		p.wantExpressions("page_gauge", "page_requests_total")
	}
}

// pastList returns the expressions that the open list shows.
func (p *browserPage) pastList() []string {
	p.Helper()
	return evaluate[[]string](p, `[...document.querySelectorAll("dialog.past li")].map((e) => e.innerText)`)
}

// TestPagePast brings back what was run.
func TestPagePast(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open()
	for _, expr := range []string{"page_gauge", "page_gauge * 2", "page_gauge * 3", "page_gauge"} {
		p.enter(expression, expr)
		p.wantParameters("expr", expr)
	}
	p.expect("/api/v1/query", http.StatusBadRequest)
	p.enter(expression, "page_gauge * * 2")
	want := []string{"page_gauge", "page_gauge * 3", "page_gauge * 2"} // no expression that cannot be read
	// With the keys, from what is typed and back to it.
	p.typeNew("typed")
	p.press(kb.Escape)
	for _, step := range []struct{ key, want string }{
		{kb.ArrowUp, want[0]}, {kb.ArrowUp, want[1]}, {kb.ArrowUp, want[2]}, {kb.ArrowUp, want[2]},
		{kb.ArrowDown, want[1]}, {kb.ArrowDown, want[0]}, {kb.ArrowDown, "typed"}, {kb.ArrowDown, "typed"}, {kb.ArrowUp, want[0]},
	} {
		p.press(step.key, kb.ModifierAlt)
		p.wantExpressions(step.want)
	}
	p.eachLook(func(look string) {
		p.open("expr", "page_gauge")
		p.awaitEditors()
		p.button("History")
		if got := p.pastList(); !slices.Equal(got, want) {
			t.Errorf("the list has %q, want %q", got, want)
		}
		p.checkContrast(look)
		p.shoot("past-" + look)
		p.press("* 3")
		p.await(`document.querySelectorAll("dialog.past li").length === 1`)
		p.press(kb.ArrowDown + kb.Enter)
		p.wantExpressions("page_gauge * 3")
		p.wantFocus("PromQL expression")
		p.press("z", kb.ModifierCtrl)
		p.wantExpressions("page_gauge")
	})
	p.press("h", kb.ModifierAlt)
	p.await(`document.querySelector("dialog.past")?.open ?? false`)
	p.press(kb.Escape)
	p.await(`document.querySelector("dialog.past") === null`)
	p.wantFocus("PromQL expression")
	// By completion: the whole expression, in the place of what is typed.
	p.typeNew("page_ga")
	p.awaitOffer("page_gauge")
	if all := p.offers(); !slices.Contains(all, offered{"page_gauge * 2", "run before", false}) || slices.Contains(all, offered{"page_gauge", "run before", false}) {
		t.Errorf("completion offers %v", all)
	}
	p.press(kb.Escape)
	// It stays, until it is cleared.
	p.reload()
	p.awaitEditors()
	p.button("History")
	if got := p.pastList(); len(got) != 3 {
		t.Errorf("after a reload the list has %q", got)
	}
	p.button("Clear")
	if got := p.pastList(); len(got) != 0 {
		t.Errorf("after it is cleared the list has %q", got)
	}
	p.button("Close")
	// A hundred are kept.
	evaluate[bool](p, `(() => { localStorage.setItem("expressions", JSON.stringify(Array.from({ length: 100 }, (_, i) => "vector(" + i + ")"))); return true })()`)
	p.enter(expression, "page_gauge * 4")
	p.button("History")
	if got := p.pastList(); len(got) != 100 || got[0] != "page_gauge * 4" || got[99] != "vector(98)" {
		t.Errorf("the list has %d expressions: %q", len(got), got)
	}
}

// newTab opens another tab of the browser, which shows the page with the parameters.
func (p *browserPage) newTab(parameters ...string) *browserPage {
	p.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	tab := &browserPage{TB: p.TB, ctx: ctx, host: p.host}
	p.Cleanup(cancel)
	p.Cleanup(func() {
		for _, problem := range tab.takeProblems() {
			p.Errorf("in another tab: %s", problem)
		}
	})
	if err := chromedp.Listen(ctx, tab.note); err != nil {
		p.Fatal(err)
	}
	tab.open(parameters...)
	return tab
}

// change sets a field, as a click on an option of it does.
func (p *browserPage) change(selector, value string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const field = document.querySelector(%q);
		field.value = %q;
		return field.dispatchEvent(new Event("change", { bubbles: true }));
	})()`, selector, value))
	p.settle()
}

// TestPageDrafts wants what was typed and not run to be there again, where it was typed.
func TestPageDrafts(t *testing.T) {
	t.Parallel()
	p := newPage(t, startPaged(t))
	p.open("expr", "page_gauge")
	p.awaitEditors()
	p.wantFocus("PromQL expression")
	p.press(" * 7") // at the end
	p.button("+ Add query")
	p.press("vector(1)")
	draft := []string{"page_gauge * 7", "vector(1)"}
	p.wantExpressions(draft...)
	p.wantExprs("", "page_gauge")
	for what, do := range map[string]func(){
		"another tab of the page": func() {
			p.click("nav a[data-tab=status]")
			p.click("nav a[data-tab=query]")
		},
		"a reload":          p.reload,
		"another page":      func() { p.open("expr", "page_many"); p.wantExpressions("page_many"); p.open("expr", "page_gauge") },
		"the zone of times": func() { p.change("#times", "UTC"); p.change("#times", "") },
		"another state, and back": func() {
			p.click("h1 a")
			p.wantExpressions("")
			p.back(`new URLSearchParams(location.search).get("expr") === "page_gauge"`)
		},
	} {
		do()
		p.wantExprs("", "page_gauge")
		harness.Eventually(t, "the draft is there after "+what, func() error {
			if got := p.expressions(); !slices.Equal(got, draft) {
				return fmt.Errorf("there is %q", got)
			}
			return nil
		})
	}
	p.eachLook(func(look string) {
		p.await(`document.querySelector("#query .changed").checkVisibility()`)
		p.checkContrast(look)
		p.shoot("changed-" + look)
	})
	// A link in another tab shows what it says, and the front page, too: the draft is in a tab that is open.
	for _, tab := range []struct {
		parameters []string
		want       string
	}{{[]string{"expr", "page_gauge"}, "page_gauge"}, {nil, ""}} {
		p.newTab(tab.parameters...).wantExpressions(tab.want)
	}
	// It can be dropped, and brought back.
	p.button("Undo edits")
	p.wantExpressions("page_gauge")
	p.await(`!document.querySelector("#query .changed").checkVisibility()`)
	p.press("z", kb.ModifierCtrl)
	p.wantExpressions("page_gauge * 7")
	p.button("+ Add query")
	p.press("vector(1)")
	// What is run is no draft any more.
	p.click("#query button.primary")
	p.wantExprs("", draft...)
	p.open("expr", "page_gauge")
	p.wantExpressions("page_gauge")

	// A tab that is closed leaves its draft for the next one without an expression, once.
	closed := p.newTab("expr", "page_many")
	closed.awaitEditors()
	closed.enter(expression, "page_gauge")
	closed.typeNew("page_gauge + 5")
	closed.do(chromedp.Navigate("about:blank"))
	p.newTab("expr", "page_gauge").wantExpressions("page_gauge")
	next := p.newTab()
	next.wantExpressions("page_gauge + 5")
	next.wantFocus("PromQL expression")
	p.newTab().wantExpressions("")
	next.reload()
	next.wantExpressions("page_gauge + 5")
}

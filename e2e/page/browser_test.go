//go:build browser

package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	protolog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	protopage "github.com/chromedp/cdproto/page"
	protoruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/promtable/promtable/e2e/harness"
)

// The page of the adapter is tested in a real Chromium, behind a build tag:
//
//	go test -tags browser ./e2e/page
//
// With E2E_SCREENSHOTS=DIR, an absolute path, the tests also write what they saw
// to DIR, as one PNG for each view.
const (
	screenshotsVariable = "E2E_SCREENSHOTS"
	installChromium     = "apt-get install -y --no-install-recommends chromium-headless-shell"
)

// A browserPage is a tab that shares nothing with those of other tests.
type browserPage struct {
	testing.TB
	ctx  context.Context
	host string // host:port of the adapter, or of a proxy before it
	path string // under which the page is, without a slash at its end

	mu       sync.Mutex
	requests []string // URLs, in order
	problems []string // what a page must not do
	refusals []string // what it may be answered, as refusal writes it
	// isLoaded says that open need not load the page.
	isLoaded bool
	// mouse is where the mouse was moved since the last key.
	mouse *place
}

// chromium starts the browser that the tests share, which knows no host but 127.0.0.1. The shell is
// Chromium without the windows around pages, and takes half as much of the CPU.
var chromium = sync.OnceValues(func() (browser context.Context, err error) {
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, fmt.Errorf("%w; install it with: %s", err, installChromium)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.WindowSize(1200, 900),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, cancel := chromedp.NewContext(allocator)
	stopChromium = func() {
		chromedp.Cancel(browser)
		cancel()
		stop()
	}
	return browser, chromedp.Do(browser)
})

// stopChromium ends the browser, if there is one.
var stopChromium = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopChromium()
	os.Exit(code)
}

// newPage opens a tab. Whatever goes wrong in the page, be it in the console or on the
// network, fails the test at its end.
func newPage(t testing.TB, a *harness.Adapter) *browserPage {
	t.Helper()
	p := startBrowser(t, a.Addr)
	t.Cleanup(func() {
		for _, problem := range p.takeProblems() {
			t.Errorf("in the page: %s", problem)
		}
	})
	return p
}

// startBrowser opens a tab, with storage, a cache and permissions of its own, and leaves it to the caller to look at problems.
func startBrowser(t testing.TB, host string) *browserPage {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		t.Fatalf("this test drives Chromium: %v", err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &browserPage{TB: t, ctx: ctx, host: host}
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	// Not UTC, and not whole hours from it: times are local in the page.
	devtools(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	devtools(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	p.width(1200)
	p.onOpen(`localStorage.getItem("controls") ?? localStorage.setItem("controls", "open")`) // folded away on a telephone, see TestPageOneHand
	return p
}

// owner is what the browser calls that which the tab shares with no other test.
func (p *browserPage) owner() cdp.BrowserContextID {
	return chromedp.FromContext(p.ctx).BrowserContextID
}

// TestPageProblems wants what the other tests rely on: that what goes wrong in a
// page is noticed.
func TestPageProblems(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	p := startBrowser(t, a.Addr)
	p.open()
	if problems := p.takeProblems(); len(problems) > 0 {
		t.Fatalf("the page alone has problems: %q", problems)
	}
	for _, c := range []struct{ name, script, want string }{
		{"console", `console.error("spoke")`, "spoke"},
		{"exception", `setTimeout(() => { throw new Error("thrown") })`, "thrown"},
		{"rejection", `Promise.reject(new Error("rejected"))`, "rejected"},
		{"inline style", `document.body.setAttribute("style", "color: red")`, "Content Security Policy"},
		{"fetch from elsewhere", `fetch("http://localhost/").catch(() => {})`, "Content Security Policy"},
		{"error", `fetch("api/v1/query")`, "400 for /api/v1/query"},
		{"no such file", `fetch("ui/none.js")`, "404 for /ui/none.js"},
		{"other host", `location.href = "http://localhost/"`, "another host: http://localhost/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			evaluate[bool](p, fmt.Sprintf("(() => { %s; return true })()", c.script))
			harness.Eventually(t, "the problem is noticed", func() error {
				if all := strings.Join(p.peekProblems(), "\n"); !strings.Contains(all, c.want) {
					return fmt.Errorf("no %q in %q", c.want, all)
				}
				return nil
			})
		})
	}
	p.expect("/never", 400)
	if all := p.takeProblems(); !slices.Contains(all, "not seen: 400 for /never") {
		t.Errorf("an expected error that does not come is no problem: %q", all)
	}
}

// note keeps the events of the browser that are problems.
func (p *browserPage) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *protoruntime.EventConsoleAPICalled:
		if e.Type == protoruntime.ConsoleAPICalledTypeError || e.Type == protoruntime.ConsoleAPICalledTypeWarning || e.Type == protoruntime.ConsoleAPICalledTypeAssert {
			p.problem("console.%s %s", e.Type, consoleText(e.Args))
		}
	case *protoruntime.EventExceptionThrown:
		p.problem("uncaught: %s", uncaughtText(e.ExceptionDetails))
	case *protolog.EventEntryAdded:
		// What the network did is told by the events below.
		if e.Entry.Source != protolog.EntrySourceNetwork && (e.Entry.Level == protolog.EntryLevelError || e.Entry.Level == protolog.EntryLevelWarning) {
			p.problem("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *protopage.EventJavascriptDialogOpening:
		p.problem("a dialog says %q", e.Message)
	case *network.EventRequestWillBeSent:
		p.request(e.Request.URL)
	case *network.EventResponseReceived:
		p.response(e.Response)
	case *network.EventLoadingFailed:
		if !e.Canceled { // an answer that the page no longer waits for
			p.problem("a request failed: %s %s", e.ErrorText, e.BlockedReason)
		}
	}
}

func (p *browserPage) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

func consoleText(args []*protoruntime.RemoteObject) string {
	var texts []string
	for _, a := range args {
		texts = append(texts, string(a.Value)+" "+a.Description)
	}
	return strings.Join(texts, " ")
}

func uncaughtText(e *protoruntime.ExceptionDetails) string {
	if e.Exception != nil {
		return e.Text + " " + consoleText([]*protoruntime.RemoteObject{e.Exception})
	}
	return e.Text
}

// request notes a request, which must be to the adapter.
func (p *browserPage) request(text string) {
	p.requests = append(p.requests, text)
	u, err := url.Parse(text)
	switch {
	case err != nil:
		p.problem("a request to %q: %v", text, err)
	case u.Scheme == "data" || u.Scheme == "about": // from no host
	case u.Scheme != "http" || u.Host != p.host:
		p.problem("a request to another host: %s", text)
	}
}

// refusal writes an answer that is an error.
func refusal(path string, status int64) string { return fmt.Sprintf("%d for %s", status, path) }

// response notes an answer, which must not be an error that is not expected.
func (p *browserPage) response(r *network.Response) {
	if r.Status < 400 {
		return
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		p.problem("an answer from %q: %v", r.URL, err)
		return
	}
	text := refusal(strings.TrimPrefix(u.Path, p.path), r.Status)
	if i := slices.Index(p.refusals, text); i >= 0 {
		p.refusals = slices.Delete(p.refusals, i, i+1)
		return
	}
	p.problem("%s", text)
}

// expect says that one request to path will be answered with an error.
func (p *browserPage) expect(path string, status int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = append(p.refusals, refusal(path, status))
}

// takeProblems returns all that went wrong, and forgets it.
func (p *browserPage) takeProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := p.problems
	for _, text := range p.refusals {
		problems = append(problems, "not seen: "+text)
	}
	p.problems, p.refusals = nil, nil
	return problems
}

// peekProblems returns what went wrong so far.
func (p *browserPage) peekProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// asked returns the URLs of the requests so far whose path is path, or all.
func (p *browserPage) asked(path string) (found []*url.URL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.requests {
		if u, err := url.Parse(text); err == nil && (path == "" || strings.TrimPrefix(u.Path, p.path) == path) {
			found = append(found, u)
		}
	}
	return found
}

// limited returns a context for one action.
func (p *browserPage) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, harness.Patience)
}

// do runs actions.
func (p *browserPage) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("drive the browser: %v; problems so far: %q", err, p.takeProblems())
	}
}

// devtools runs a command of Chromium's protocol.
func devtools[P, R any](p *browserPage, command cdp.Command[P, R], params P) R {
	p.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// evaluate returns the value of a JavaScript expression.
func evaluate[T any](p *browserPage, expression string, options ...chromedp.EvaluateOption) T {
	p.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		p.Fatalf("evaluate %s: %v", expression, err)
	}
	return value
}

// soon says whether a JavaScript expression becomes true within half a second.
func (p *browserPage) soon(expression string) bool {
	p.Helper()
	return evaluate[bool](p, `new Promise((resolve, reject) => {
		const began = performance.now();
		const look = () => {
			try {
				const passed = performance.now() - began;
				if (`+expression+`) { resolve(true); } else if (passed > 500) { resolve(false); } else { setTimeout(look, Math.min(5 + passed / 10, 25)); }
			} catch (err) { reject(err); }
		};
		look();
	})`, chromedp.EvalAwaitPromise)
}

// await waits until a JavaScript expression is true.
func (p *browserPage) await(expression string) {
	p.Helper()
	harness.Eventually(p, expression, func() error {
		if !p.soon(expression) {
			return fmt.Errorf("it is not; the page says %q, problems so far: %q", evaluate[string](p, "document.body.innerText"), p.peekProblems())
		}
		return nil
	})
}

// shown is the section that is to be seen, as JavaScript.
const shown = `document.querySelector("main section:not([hidden])")`

// settle waits until the page shows what was asked for.
func (p *browserPage) settle() {
	p.Helper()
	p.await(shown + `?.querySelector(".result").getAttribute("aria-busy") === "false"`)
}

// open shows the page with the parameters in the URL: names and values in turn.
func (p *browserPage) open(parameters ...string) {
	p.Helper()
	p.visit(search(parameters))
}

// visit shows the page with parameters as a URL has them. It follows a link within the page, if that is loaded and is to look as it did
// then: to load all of its modules again takes six times as long.
func (p *browserPage) visit(search string) {
	p.Helper()
	if !p.isLoaded {
		p.loadURL(search)
		return
	}
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const link = document.createElement("a");
		link.href = %q;
		document.body.append(link);
		link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
		link.remove();
		return true;
	})()`, search))
	p.settle()
}

// load is open of a page that knows nothing but its URL and what the browser keeps.
func (p *browserPage) load(parameters ...string) {
	p.Helper()
	p.loadURL(search(parameters))
}

func (p *browserPage) loadURL(search string) {
	p.Helper()
	p.do(chromedp.Navigate("http://" + p.host + p.path + "/" + search))
	p.settle()
	p.isLoaded = true
}

// search returns parameters, names and values in turn, as a URL has them.
func search(parameters []string) string {
	values := url.Values{}
	for pair := range slices.Chunk(parameters, 2) {
		values.Set(pair[0], pair[1])
	}
	return "?" + values.Encode()
}

// onOpen runs a script in pages that are opened from now on, before their own.
func (p *browserPage) onOpen(script string) {
	p.Helper()
	p.isLoaded = false
	devtools(p, protopage.AddScriptToEvaluateOnNewDocument, protopage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

// reload loads the page again.
func (p *browserPage) reload() {
	p.Helper()
	p.do(chromedp.Reload())
	p.settle()
}

// press types keys while modifiers are held down, and waits until the page shows
// what came of it.
func (p *browserPage) press(keys string, modifiers ...kb.Modifier) {
	p.Helper()
	p.mouse = nil
	for _, r := range keys {
		// Down with its text, and up: a text of its own would be typed even where
		// the page has taken the key for itself.
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		for _, m := range modifiers {
			down.Modifiers |= int64(m)
			up.Modifiers |= int64(m)
		}
		devtools(p, input.DispatchKeyEvent, down)
		devtools(p, input.DispatchKeyEvent, up)
	}
	p.settle()
}

// expression is the first editor of an expression of the tab Query, as a selector of CSS.
const expression = "#query [data-focus]"

// enter replaces the text of a field or an editor, and presses Enter.
func (p *browserPage) enter(field, text string) {
	p.Helper()
	p.selectText(field)
	p.press(text + "\r")
}

// selectText selects all of a field or an editor, once that is there. What is typed next replaces it.
func (p *browserPage) selectText(field string) {
	p.Helper()
	p.awaitEditors()
	if !evaluate[bool](p, fmt.Sprintf(`(() => {
		const f = document.querySelector(%q);
		f.focus();
		f.select?.();
		return f.select !== undefined;
	})()`, field)) {
		p.press("a", kb.ModifierCtrl) // by its key, as an editor hears later of what a script has selected
	}
}

// awaitEditors waits until no editor is a plain field any more.
func (p *browserPage) awaitEditors() {
	p.Helper()
	p.await(`document.querySelectorAll("main section:not([hidden]) .editor:not(.ready)").length === 0`)
}

// expressions returns the texts of the editors that are to be seen.
func (p *browserPage) expressions() []string {
	p.Helper()
	p.awaitEditors()
	return evaluate[[]string](p, shown+`.querySelectorAll(".editor .cm-content").values().map((e) =>
		[...e.querySelectorAll(".cm-line")].map((l) => l.querySelector(".cm-placeholder") ? "" : l.textContent).join("\n")).toArray()`)
}

// click clicks what a selector of CSS finds first, once it is there with nothing above it.
func (p *browserPage) click(selector string) {
	p.Helper()
	var at struct {
		X, Y  float64
		Wrong string
	}
	harness.Eventually(p, selector+" can be clicked", func() error {
		at.Wrong = ""
		at = evaluate[struct {
			X, Y  float64
			Wrong string
		}](p, fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			if (!e?.checkVisibility()) { return { Wrong: "it is not to be seen" }; }
			e.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
			const { left, top, width, height } = e.getClientRects()[0], X = left + width / 2, Y = top + height / 2;
			const hit = document.elementFromPoint(X, Y);
			return { X, Y, Wrong: e.contains(hit) || hit?.closest("label")?.contains(e) ? "" : "above it is " + (hit?.outerHTML.slice(0, 200) ?? "nothing") };
		})()`, selector))
		if at.Wrong != "" {
			return errors.New(at.Wrong)
		}
		return nil
	})
	p.do(chromedp.MouseClickXY(at.X, at.Y))
	p.settle()
}

// drag moves the mouse with the button held down.
func (p *browserPage) drag(fromX, fromY, toX, toY float64) {
	p.Helper()
	button := chromedp.ButtonType(input.MouseButtonLeft)
	p.do(
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, fromX, fromY),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, fromX, fromY, button, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, (fromX+toX)/2, toY, button),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, toX, toY, button),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, toX, toY, button, chromedp.ClickCount(1)))
	p.settle()
}

// width makes the page so many pixels wide.
func (p *browserPage) width(pixels int64) {
	p.Helper()
	p.isLoaded = false
	p.do(chromedp.EmulateViewport(pixels, 900))
}

// scheme makes the system prefer light or dark colours.
func (p *browserPage) scheme(name string) {
	p.Helper()
	p.isLoaded = false
	devtools(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// parameters returns those in the URL of the page.
func (p *browserPage) parameters() url.Values {
	p.Helper()
	values, err := url.ParseQuery(strings.TrimPrefix(evaluate[string](p, "location.search"), "?"))
	if err != nil {
		p.Fatal(err)
	}
	return values
}

// texts returns what is to be seen of what a selector finds in the result.
func (p *browserPage) texts(selector string) []string {
	p.Helper()
	return evaluate[[]string](p, fmt.Sprintf(`[...%s.querySelectorAll(%q)].map((e) => e.innerText)`, shown, ".result "+selector))
}

// rows returns the cells of the n-th table of the result, without its headings, or none if there is no such table.
func (p *browserPage) rows(n int) [][]string {
	p.Helper()
	return evaluate[[][]string](p, fmt.Sprintf(
		`[...%s.querySelectorAll(".result table")[%d]?.tBodies[0].rows ?? []].map((r) => [...r.cells].map((c) => c.innerText.trim()))`, shown, n))
}

// cell returns one of the cells of rows, or nothing if it is not there.
func (p *browserPage) cell(n, row, column int) string {
	p.Helper()
	if rows := p.rows(n); row < len(rows) && column < len(rows[row]) {
		return rows[row][column]
	}
	return ""
}

// tiles returns the facts that are shown large.
func (p *browserPage) tiles() map[string]string {
	p.Helper()
	return evaluate[map[string]string](p, fmt.Sprintf(
		`Object.fromEntries([...%s.querySelectorAll(".tiles div")].map((e) => [e.children[0].innerText, e.children[1].innerText]))`, shown))
}

// shoot writes a screenshot of the whole page, if E2E_SCREENSHOTS is set.
func (p *browserPage) shoot(name string) {
	p.Helper()
	dir := os.Getenv(screenshotsVariable)
	if dir == "" {
		return
	}
	ctx, cancel := p.limited()
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		p.Errorf("screenshot %s: %v", name, err)
	}
}

// wantRows wants the n-th table of the result to have these cells.
func (p *browserPage) wantRows(n int, want [][]string) {
	p.Helper()
	if got := p.rows(n); !slices.EqualFunc(got, want, slices.Equal) {
		p.Errorf("table %d is %q, want %q", n, got, want)
	}
}

// wantParameters wants these in the URL: names and values in turn.
func (p *browserPage) wantParameters(want ...string) {
	p.Helper()
	got := p.parameters()
	for pair := range slices.Chunk(want, 2) {
		if got.Get(pair[0]) != pair[1] {
			p.Errorf("the URL says %v, want %s=%s", got, pair[0], pair[1])
		}
	}
}

// wantAlert wants the page to say what the adapter says about the same request.
func (p *browserPage) wantAlert(a *harness.Adapter, path string, parameters url.Values) {
	p.Helper()
	resp := harness.MustGet(p, a.URL(path)+"?"+parameters.Encode(), nil)
	var envelope struct{ Error string }
	if err := json.Unmarshal([]byte(resp.Body), &envelope); err != nil || envelope.Error == "" {
		p.Fatalf("%s %v: no error in %v", path, parameters, resp)
	}
	want := regexp.MustCompile(`^(?:invalid parameter "query": )?(\d+):(\d+): parse error: `).ReplaceAllString(envelope.Error, "Line $1, column $2: ")
	if got := p.texts("[role=alert]"); !slices.Equal(got, []string{want}) {
		p.Errorf("%s %v: the page says %q, the adapter %q", path, parameters, got, envelope.Error)
	}
}

// mustAsk decodes the data of an answer of the adapter.
func (p *browserPage) mustAsk(a *harness.Adapter, path string, parameters url.Values, data any) {
	p.Helper()
	text, err := harness.GetAPI(a.URL(path), parameters)
	if err == nil {
		err = json.Unmarshal(text, data)
	}
	if err != nil {
		p.Fatalf("%s %v: %v", path, parameters, err)
	}
}

// plain reads a number as the page writes it for people.
func plain(t testing.TB, text string) float64 {
	t.Helper()
	return mustFloat(t, strings.ReplaceAll(text, ",", ""))
}

func mustFloat(t testing.TB, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// answerDialog presses a button of the open dialog, :first-child or :last-child, which closes it.
func (p *browserPage) answerDialog(which string) {
	p.Helper()
	p.click("dialog .buttons button" + which)
	p.await(`document.querySelector("dialog") === null`)
}

//go:build browser

package page

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

//go:embed testdata/grafana.json
var grafanaDashboard string

// startBoarded starts an adapter with an hour of samples up to drawEnd, one each minute, of two jobs with two hosts each.
func startBoarded(t testing.TB, args ...string) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Embedded(t), args...)
	var all []harness.SentSeries
	add := func(rate float64, labels ...string) {
		s := harness.SentSeries{Labels: labels}
		for minute := range 61 {
			s.Points = append(s.Points, harness.PointAt((drawEnd-int64(60-minute)*60)*1000, rate*float64(minute)))
		}
		all = append(all, s)
	}
	for i, job := range []string{"api", "db"} {
		for j, host := range []string{"a", "b"} {
			add(60*float64(1+2*i+j), "__name__", "board_total", "job", job, "host", host)
		}
	}
	add(0.5, "__name__", "board_speed")
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), all...)
	return a
}

// boardLink opens an hour up to drawEnd.
var boardLink = []string{"tab", "boards", "range", "3600", "end", "2026-03-04T05:00:00Z"}

// panelTexts returns what the panels of a board show: their titles, and their values and messages.
func (p *browserPage) panelTexts() (panels []string) {
	p.Helper()
	return evaluate[[]string](p, `[...document.querySelectorAll("#boards .board-panel")].map((panel) => [panel.querySelector("h3").textContent,
		...[...panel.querySelectorAll(".tiles div, tbody tr:not(.legend *), .message, .graph")].map((e) => e.matches(".graph") ? "graph" : e.innerText.replace(/\s+/g, " ").trim())].join("|"))`)
}

func (p *browserPage) wantPanels(want ...string) {
	p.Helper()
	if got := p.panelTexts(); !slices.Equal(got, want) {
		p.Errorf("the panels are %q, want %q", got, want)
	}
}

// setField sets a field of the tab Boards, as a change of it does.
func (p *browserPage) setField(selector, value string) {
	p.Helper()
	p.change("#boards "+selector, value)
}

// storedBoard returns a board as the adapter has it.
func storedBoard(t testing.TB, a *harness.Adapter, name string) (board map[string]any) {
	t.Helper()
	resp, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL("/api/v1/boards/"+name), nil, nil)
	var answer struct{ Data map[string]any }
	if err == nil {
		err = json.Unmarshal([]byte(resp.Body), &answer)
	}
	if err != nil || resp.Status != http.StatusOK {
		t.Fatalf("the board %s: %v, %v", name, resp, err)
	}
	return answer.Data
}

// TestPageBoards: a graph becomes a panel of a board, which is changed, saved and deleted, and of two who change it the second is told.
func TestPageBoards(t *testing.T) {
	t.Parallel()
	a := startBoarded(t)
	p := newPage(t, a)
	p.open("tab", "boards")
	if got := p.texts("p"); len(got) != 1 || !strings.HasPrefix(got[0], "There are no boards yet.") {
		t.Errorf("without boards the page says %q", got)
	}
	p.draw(`rate(board_total[5m])`, "unit", "/s", "mode", "bars")
	p.button("Add to board")
	p.await(`document.activeElement.closest("dialog")`)
	evaluate[bool](p, `(() => { document.querySelector("dialog input").value = "node"; document.querySelectorAll("dialog input")[1].value = "Requests"; document.querySelector("dialog form").requestSubmit(); return true })()`)
	p.await(`document.querySelector("dialog a")`)
	p.checkAxe("the dialog")
	p.click("dialog a")
	p.await(`document.querySelector("#boards .board-panel .u-over")`)
	p.settle()
	p.wantParameters(append([]string{"board", "node"}, boardLink...)...)
	p.wantPanels("Requests|graph")

	// It is changed, and nothing is stored before it is saved.
	p.button("Edit")
	p.setField(".panel-edit input", "Requests per second")
	p.await(`new URLSearchParams(location.search).has("draft")`)
	p.settle()
	p.setField(".board-edit input", "All of a node")
	p.settle()
	p.wantPanels("Requests per second|graph")
	if got := storedBoard(t, a, "node"); got["title"] != "node" {
		t.Errorf("what is not saved is stored: %v", got)
	}
	// A draft is in the URL.
	p.reload()
	p.wantPanels("Requests per second|graph")
	p.button("Save")
	p.await(`!new URLSearchParams(location.search).has("draft")`)
	p.settle()
	want := map[string]any{"title": "All of a node", "panels": []any{map[string]any{"title": "Requests per second", "kind": "graph", "exprs": []any{"rate(board_total[5m])"}, "mode": "bars", "unit": "/s"}}}
	if got := storedBoard(t, a, "node"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the board is stored as %v, want %v", got, want)
	}

	// Another user changes it meanwhile.
	p.button("Edit")
	p.setField(".panel-edit select", "table")
	p.await(`new URLSearchParams(location.search).has("draft")`)
	p.settle()
	body := []byte(`{"title":"Theirs","panels":[]}`)
	if resp, err := harness.RoundTrip(context.Background(), http.MethodPut, a.URL("/api/v1/boards/node"), nil, body); err != nil || resp.Status != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	p.expect("/api/v1/boards/node", http.StatusPreconditionFailed)
	p.button("Save")
	p.await(`document.querySelector("#boards .message.error")?.textContent.includes("was changed or deleted meanwhile")`)
	p.button("Discard")
	p.await(`document.querySelector("#boards h2").textContent === "Theirs"`)

	p.button("Edit")
	p.settle()
	p.button("Delete board")
	p.button("Delete board: click again")
	p.await(`document.querySelector("#boards .result").textContent.includes("There are no boards yet.")`)
}

// TestPageGrafanaBoard: a dashboard of Grafana becomes a board, with its variables; what does not is named.
func TestPageGrafanaBoard(t *testing.T) {
	t.Parallel()
	a := startBoarded(t)
	p := newPage(t, a)
	importJSON := func(text string) {
		t.Helper()
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		evaluate[bool](p, `(() => {
			const field = document.querySelector("#boards input[type=file]"), data = new DataTransfer();
			data.items.add(new File([`+string(quoted)+`], "board.json", { type: "application/json" }));
			field.files = data.files;
			return field.dispatchEvent(new Event("change"));
		})()`)
	}
	p.open(boardLink...)
	importJSON("{")
	p.await(`document.querySelector("#boards .board-import [role=alert]").textContent.includes("JSON")`)
	importJSON(grafanaDashboard)
	p.await(`document.querySelectorAll("#boards .board-panel").length === 4`)
	p.settle()
	left := []string{
		`"Totals": its transformation organize is left out.`, `"Logs" is left out: it asks loki.`, `"Notes" is left out: a panel of the kind text.`, `"Speed": its unit velocitykmh is left out.`,
		"The variable search is left out: it is of the kind textbox.", "Annotations are left out.",
	}
	if got := p.texts(".board-left li"); !slices.Equal(got, left) {
		t.Errorf("left out is %q, want %q", got, left)
	}
	if got := p.texts("select[name=var-short] option"); !slices.Equal(got, []string{"All", "d"}) {
		t.Errorf("a variable with a regular expression has the values %q", got)
	}
	p.wantPanels("Rate of api|graph", "Hosts|2", "Totals|board_total a api 3600|board_total b api 7200", "Speed|60")
	evaluate[bool](p, `(() => { document.querySelector("#boards input[aria-label^=Name]").value = "hosts"; return true })()`)
	p.button("Save")
	p.await(`new URLSearchParams(location.search).get("board") === "hosts"`)
	p.change("#boards select[name=var-job]", "db")
	p.await(`new URLSearchParams(location.search).get("var") === "job=db"`)
	p.settle()
	p.eachLook(func(look string) {
		p.open(append([]string{"board", "hosts", "var", "job=db"}, boardLink...)...)
		if got := p.panelTexts(); len(got) != 4 || got[1] != "Hosts|2" || !strings.Contains(got[2], "10800") {
			t.Errorf("%s: the panels are %q", look, got)
		}
		p.checkContrast(look)
		p.checkAxe(look)
		p.shoot("board-" + look)
	})
	// A value of a label is meant as it is, in a string and in a regular expression.
	for host, want := range map[string]string{"": ".*", `a.b"c`: `a\\.b\"c`, `$job`: `\\$job`} {
		link := append([]string{"board", "hosts"}, boardLink...)
		if host != "" {
			link = append(link, "var", "host="+host)
		}
		p.open(link...)
		links := evaluate[[]string](p, `[...document.querySelectorAll("#boards .panel-head a")].map((a) => new URLSearchParams(a.search).get("expr"))`)
		if want := `sum by (host) (rate(board_total{job="api", host=~"` + want + `"}[5m]))`; len(links) != 4 || links[0] != want {
			t.Errorf("for host %s a panel leads to %q, want %q", host, links, want)
		}
	}
}

// TestPageLongBoard: of a long board what is near is asked for, and the rest when it is scrolled to.
func TestPageLongBoard(t *testing.T) {
	t.Parallel()
	p := newPage(t, startBoarded(t))
	panels := make([]string, 60)
	for i := range panels {
		panels[i] = fmt.Sprintf(`{"title":"%d","kind":"graph","exprs":["board_speed + %d"],"wide":true}`, i, i)
	}
	p.open(append([]string{"draft", `{"title":"Long","panels":[` + strings.Join(panels, ",") + `]}`}, boardLink...)...)
	if drawn := evaluate[int](p, `document.querySelectorAll("#boards .u-over").length`); drawn < 3 || drawn > 20 {
		t.Errorf("%d of 60 panels are drawn at once", drawn)
	}
	evaluate[bool](p, `(() => { document.querySelector("#boards .board-panel:last-child").scrollIntoView(); return true })()`)
	p.await(`document.querySelector("#boards .board-panel:last-child .u-over")`)
	if drawn := evaluate[int](p, `document.querySelectorAll("#boards .u-over").length`); drawn > 40 {
		t.Errorf("%d panels are drawn after the last is scrolled to", drawn)
	}
}

// TestPageReadOnlyBoards: with --web.read-only-boards nothing is changed, and the page offers no change.
func TestPageReadOnlyBoards(t *testing.T) {
	t.Parallel()
	p := newPage(t, startBoarded(t, "--web.read-only-boards"))
	p.expect("/api/v1/query_range", http.StatusBadRequest)
	p.open(append([]string{"draft", `{"title":"Mine","panels":[{"title":"Speed","kind":"stat","exprs":["board_speed"]},{"title":"Bad","kind":"graph","exprs":["up{"]}]}`}, boardLink...)...)
	if got := p.texts(".board-tools button"); !slices.Equal(got, []string{"Export JSON"}) {
		t.Errorf("the buttons are %q", got)
	}
	p.wantPanels("Speed|board_speed 30", "Bad|Line 1, column 4: unexpected end of input inside braces")
}

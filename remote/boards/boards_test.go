package boards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/boards"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series"
)

func open(t *testing.T, tenancy, readOnly bool) http.Handler {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	schema, err := series.NewSchema(nil)
	if err == nil && tenancy {
		schema = schema.WithTenants()
	}
	if err != nil {
		t.Fatal(err)
	}
	return boards.Handler(boards.Config{Store: store, Schema: schema, ReadOnly: readOnly, Now: func() time.Time { return time.UnixMilli(1_700_000_000_500) }})
}

// ask sends a request with headers, names and values in turn, and returns the status, the data or the error of the answer, and its ETag.
func ask(t *testing.T, h http.Handler, tenants []string, method, name, body string, headers ...string) (status int, text, tag string) {
	t.Helper()
	ctx := context.Background()
	if tenants != nil {
		ctx = scope.With(ctx, tenants)
	}
	r := httptest.NewRequestWithContext(ctx, method, "/api/v1/boards"+name, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || (answer.Status == "success") != (w.Code == http.StatusOK) {
		t.Fatalf("%s %s: %d, %v: %s", method, name, w.Code, err, w.Body)
	}
	return w.Code, strings.Trim(string(answer.Data)+answer.Error, "\n"), w.Header().Get("ETag")
}

const node = `{"title":"Node & more","variables":[{"name":"job","label":"job","metric":"up"},{"name":"q","values":["0.5","0.9"]}],` +
	`"panels":[{"title":"CPU","kind":"graph","exprs":["rate(cpu[5m])","x < 1"],"mode":"stacked","unit":"ratio","wide":true},{"title":"","kind":"stat","exprs":["up"]}]}`

// TestBoards: a board comes back as it was saved, is listed, and is changed only where it is the one that is meant.
func TestBoards(t *testing.T) {
	h := open(t, false, false)
	want := func(wantStatus int, wantText, method, name, body string, headers ...string) (tag string) {
		t.Helper()
		status, text, tag := ask(t, h, nil, method, name, body, headers...)
		if status != wantStatus || !strings.Contains(text, wantText) {
			t.Errorf("%s %s %q: %d %s, want %d %s", method, name, headers, status, text, wantStatus, wantText)
		}
		return tag
	}
	want(200, `{"boards":[],"readOnly":false}`, "GET", "", "")
	want(404, `there is no board "node, a"`, "GET", "/node,%20a", "")
	first := want(200, "null", "PUT", "/node,%20a", node, "If-None-Match", "*")
	if got := want(200, "", "GET", "/node,%20a", ""); got != first || first == "" {
		t.Errorf("the version is %s, and %s when it is read", first, got)
	}
	_, text, _ := ask(t, h, nil, "GET", "/node,%20a", "")
	var got, wanted any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(node), &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("the board is %s, want %s", text, node)
	}
	want(412, `there is a board "node, a" already`, "PUT", "/node,%20a", node, "If-None-Match", "*")
	want(412, "was changed or deleted meanwhile", "PUT", "/node,%20a", `{"title":"x","panels":[]}`, "If-Match", `"other"`)
	second := want(200, "", "PUT", "/node,%20a", `{"title":"x","panels":[]}`, "If-Match", first)
	want(412, "was changed or deleted meanwhile", "DELETE", "/node,%20a", "", "If-Match", first)
	want(412, "was changed or deleted meanwhile", "PUT", "/new", node, "If-Match", "*")
	want(200, "", "PUT", "/Zürich", node)
	want(200, `{"boards":[{"name":"Zürich","title":"Node \u0026 more","panels":2,"saved":1700000000.5},{"name":"node, a","title":"x","panels":0,"saved":1700000000.5}],"readOnly":false}`, "GET", "", "")
	want(200, "", "DELETE", "/node,%20a", "", "If-Match", second)
	want(404, "there is no board", "DELETE", "/node,%20a", "")
	want(200, `{"boards":[{"name":"Zürich"`, "GET", "", "")
}

// TestBadBoards: what is no board is refused, by what is wrong with it.
func TestBadBoards(t *testing.T) {
	h := open(t, false, false)
	panel := func(text string) string { return `{"title":"x","panels":[` + text + `]}` }
	for body, want := range map[string]string{
		"":                                     "400 a board is JSON",
		"[]":                                   "400 a board is JSON",
		`{"title":"x","panels":[]}{}`:          "400 there is something behind the JSON",
		`{"titel":"x"}`:                        `400 a board is JSON: json: unknown field "titel"`,
		panel(`{"kind":"pie","exprs":["up"]}`): `400 panel 1: its kind is "pie"`,
		panel(`{"kind":"stat","exprs":["up"]},{"kind":"stat","exprs":[]}`):                               "400 panel 2: it has 0 expressions",
		panel(`{"kind":"stat","exprs":["up",""]}`):                                                       "400 panel 1: one of its expressions is empty",
		panel(strings.Repeat(`{"kind":"stat","exprs":["up"]},`, 300) + `{"kind":"stat","exprs":["up"]}`): "400 it has 301 panels",
		`{"title":"` + strings.Repeat("x", 301) + `","panels":[]}`:                                       "400 its title has more than 300",
		`{"title":"x","variables":[{"name":"a b","label":"x"}],"panels":[]}`:                             `400 variable 1: its name "a b"`,
		`{"title":"x","variables":[{"name":"a"}],"panels":[]}`:                                           "400 variable 1: it has a label or values",
		`{"title":"x","variables":[{"name":"a","label":"b","values":["c"]}],"panels":[]}`:                "400 variable 1: it has a label or values",
		panel(`{"kind":"stat","exprs":["` + strings.Repeat("x", boards.MaxBytes) + `"]}`):                "413 a board has at most 262144 bytes",
	} {
		status, text, _ := ask(t, h, nil, "PUT", "/x", body)
		if got := fmt.Sprint(status, " ", text); !strings.HasPrefix(got, want) {
			t.Errorf("%.60s: %s, want %s", body, got, want)
		}
	}
	for _, name := range []string{"/a%2Fb", "/a%5Cb", "/a%00b", "/" + strings.Repeat("x", 101), "/%ff"} {
		if status, text, _ := ask(t, h, nil, "PUT", name, node); status != http.StatusBadRequest {
			t.Errorf("the name %q: %d %s", name, status, text)
		}
	}
}

// TestReadOnlyBoards: boards are read, and not changed.
func TestReadOnlyBoards(t *testing.T) {
	h := open(t, false, true)
	for _, method := range []string{"PUT", "DELETE"} {
		if status, text, _ := ask(t, h, nil, method, "/x", node); status != http.StatusForbidden || !strings.Contains(text, "--web.read-only-boards") {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
	if status, text, _ := ask(t, h, nil, "GET", "", ""); status != http.StatusOK || text != `{"boards":[],"readOnly":true}` {
		t.Errorf("the list: %d %s", status, text)
	}
}

// TestBoardsOfTenants: a board is that of one tenant.
func TestBoardsOfTenants(t *testing.T) {
	h := open(t, true, false)
	if status, text, _ := ask(t, h, []string{"a"}, "PUT", "/x", node); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for tenants, want := range map[string]int{"a": http.StatusOK, "b": http.StatusNotFound, "a|b": http.StatusBadRequest} {
		if status, text, _ := ask(t, h, strings.Split(tenants, "|"), "GET", "/x", ""); status != want {
			t.Errorf("%s: %d %s, want %d", tenants, status, text, want)
		}
	}
	if _, text, _ := ask(t, h, []string{"b"}, "GET", "", ""); text != `{"boards":[],"readOnly":false}` {
		t.Errorf("b has %s", text)
	}
}

// TestConcurrentBoards: of many who change the same version one does.
func TestConcurrentBoards(t *testing.T) {
	h := open(t, false, false)
	_, _, tag := ask(t, h, nil, "PUT", "/x", node)
	var changing sync.WaitGroup
	statuses := make([]int, 16)
	for i := range statuses {
		changing.Go(func() {
			statuses[i], _, _ = ask(t, h, nil, "PUT", "/x", fmt.Sprintf(`{"title":"%d","panels":[]}`, i), "If-Match", tag)
		})
	}
	changing.Wait()
	changed := -1
	for i, status := range statuses {
		if status == http.StatusOK {
			if changed >= 0 {
				t.Errorf("%d and %d have both changed it", changed, i)
			}
			changed = i
		} else if status != http.StatusPreconditionFailed {
			t.Errorf("%d is answered with %d", i, status)
		}
	}
	if _, text, _ := ask(t, h, nil, "GET", "/x", ""); changed < 0 || !strings.Contains(text, fmt.Sprintf(`"title":"%d"`, changed)) {
		t.Errorf("%d has changed it, and it is %s", changed, text)
	}
}

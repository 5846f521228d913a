package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/queries"
)

// holding is a store that holds reads, while it is told to, until their contexts end.
type holding struct {
	bucketstore.Store
	holds atomic.Bool
}

func (s *holding) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if s.holds.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Scan(ctx, req, fn)
}

// noAdmin is an api.Admin that is only there.
type noAdmin struct{ api.Admin }

// serveHolding serves an API with an admin on a store that can hold reads.
func serveHolding(t *testing.T, change func(*api.Config)) (*fixture, *holding) {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: someNow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	held := &holding{Store: store}
	f := serveStore(t, held, func(cfg *api.Config, _ *engine.Config) {
		cfg.Admin = noAdmin{}
		if change != nil {
			change(cfg)
		}
	})
	f.fill(t)
	return f, held
}

// active waits until queries run, and returns them.
func (f *fixture) active(t *testing.T) (list []queries.Running) {
	t.Helper()
	for len(list) == 0 {
		got := f.ask(t, http.MethodGet, "/api/v1/status/active_queries", nil)
		if err := json.Unmarshal(got.Data, &list); err != nil || got.status != http.StatusOK {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	return list
}

// TestCancel: a query that is cancelled by its ID answers that an operator has cancelled it, whatever it asks for, and whether it runs or
// waits.
func TestCancel(t *testing.T) {
	var lines bytes.Buffer
	f, held := serveHolding(t, func(cfg *api.Config) {
		cfg.MaxConcurrent, cfg.Logger = 1, log.NewSyncLogger(log.NewLogfmtLogger(&lines))
	})
	held.holds.Store(true)
	const cancelled = "the query was cancelled by an operator"
	start, end := int64(someTime-60_000), int64(someTime)
	for _, tt := range []struct {
		path   string
		params url.Values
		want   queries.Running
	}{
		{"query", params("query", "sum(up)", "time", at(0)), queries.Running{Kind: "instant", Query: "sum(up)", Start: &end, End: &end}},
		{"query_range", params("query", "up + 1", "start", at(-60), "end", at(0), "step", "60"), queries.Running{Kind: "range", Query: "up + 1", Start: &start, End: &end, Step: 60_000}},
		{"series", params("match[]", "up", "match[]", `{n="3"}`, "start", at(-60), "end", at(0)), queries.Running{Kind: "series", Query: `up; {n="3"}`, Start: &start, End: &end}},
		{"labels", params("match[]", "up", "end", "1974-01-01T00:00:00Z"), queries.Running{Kind: "labels", Query: "up"}},
		{"label/n/values", params("match[]", "up"), queries.Running{Kind: "labels", Query: "up"}},
		{"query_exemplars", params("query", "up", "start", at(-60), "end", at(0)), queries.Running{Kind: "exemplars", Query: "up", Start: &start, End: &end}},
	} {
		answered := make(chan answer)
		go func() { answered <- f.ask(t, http.MethodGet, "/api/v1/"+tt.path, tt.params) }()
		got := f.active(t)[0]
		if got.Kind != tt.want.Kind || got.Query != tt.want.Query || got.Step != tt.want.Step || !strings.HasPrefix(got.Client, "127.0.0.1:") || !strings.HasPrefix(got.UserAgent, "Go-http-client") || got.Cancelled {
			t.Errorf("%s: %+v, want %+v", tt.path, got, tt.want)
		}
		if tt.want.Start != nil && (got.Start == nil || *got.Start != *tt.want.Start || got.End == nil || *got.End != *tt.want.End) {
			t.Errorf("%s: from %v to %v", tt.path, got.Start, got.End)
		}
		ended := f.ask(t, http.MethodDelete, "/api/v1/status/active_queries/"+got.ID, nil)
		var of queries.Running
		if err := json.Unmarshal(ended.Data, &of); err != nil || ended.status != http.StatusOK || of.ID != got.ID || !of.Cancelled {
			t.Errorf("%s: %+v, %v", tt.path, ended, err)
		}
		kind := "canceled"
		if tt.want.Kind == queries.Labels {
			kind = "execution" // which upstream's API says of any error of these
		}
		if got := <-answered; got.status != http.StatusUnprocessableEntity || got.ErrorType != kind || got.Error != cancelled {
			t.Errorf("%s: %+v", tt.path, got)
		}
		if line := " status=200 id=" + got.ID + " kind=" + got.Kind; !strings.Contains(lines.String(), line) || !strings.Contains(lines.String(), " client=127.0.0.1:") {
			t.Errorf("%s: %q lacks %q", tt.path, lines.String(), line)
		}
	}

	answered := make(chan answer)
	ask := func() { answered <- f.ask(t, http.MethodGet, "/api/v1/query", params("query", "up", "time", at(0))) }
	go ask()
	first := f.active(t)[0].ID
	go ask()
	list := f.active(t)
	for len(list) < 2 {
		list = f.active(t)
	}
	for _, id := range []string{list[1].ID, first} {
		f.ask(t, http.MethodDelete, "/api/v1/status/active_queries/"+id, nil)
		if got := <-answered; got.ErrorType != "canceled" || got.Error != cancelled {
			t.Errorf("of two, %s: %+v", id, got)
		}
	}
	held.holds.Store(false)
	if got := f.ask(t, http.MethodGet, "/api/v1/query", params("query", "up", "time", at(0))); got.status != http.StatusOK {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestCancelNothing: a query that does not run is not found, and without the admin API nothing is cancelled.
func TestCancelNothing(t *testing.T) {
	f, _ := serveHolding(t, nil)
	for _, id := range []string{"0", "x", "17f248b7dfeeb024"} {
		if got := f.ask(t, http.MethodDelete, "/api/v1/status/active_queries/"+id, nil); got.status != http.StatusNotFound || got.ErrorType != "not_found" {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if got := f.ask(t, http.MethodGet, "/api/v1/status/active_queries", nil); string(got.Data) != "[]" {
		t.Errorf("%+v", got)
	}
	f = serve(t, nil)
	if got := f.ask(t, http.MethodDelete, "/api/v1/status/active_queries/0", nil); got.status != http.StatusInternalServerError || got.ErrorType != "unavailable" || !strings.HasPrefix(got.Error, "admin APIs disabled") {
		t.Errorf("without the flag: %+v", got)
	}
}

// TestBlockedQuery: what a rule blocks is a 422 that names it, and the status lists the rules.
func TestBlockedQuery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte("# Ask the team.\n=~ .*up.*"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := queries.OpenBlockFile(path, log.NewNopLogger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := serve(t, func(cfg *api.Config, _ *engine.Config) {
		cfg.Active = queries.NewActive(queries.Config{Now: cfg.Now, Registerer: prometheus.NewRegistry(), Blocked: file})
	})
	for path, params := range map[string]url.Values{
		"query": params("query", "sum(up)"), "query_range": params("query", "up", "start", at(0), "end", at(0), "step", "1"),
		"series": params("match[]", "up"), "labels": params("match[]", "up"), "label/n/values": params("match[]", "up"), "query_exemplars": params("query", "up"),
	} {
		got := f.ask(t, http.MethodGet, "/api/v1/"+path, params)
		if got.status != http.StatusUnprocessableEntity || got.ErrorType != "execution" || got.Error != "the query is blocked by line 2 of --query.block-file: Ask the team." {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for path, params := range map[string]url.Values{"query": params("query", "down"), "labels": nil} {
		if got := f.ask(t, http.MethodGet, "/api/v1/"+path, params); got.status != http.StatusOK {
			t.Errorf("%s: %+v", path, got)
		}
	}
	var status struct {
		AdminAPI       bool
		BlockedQueries *queries.State
	}
	got := f.ask(t, http.MethodGet, "/api/v1/status/adapter", nil)
	if err := json.Unmarshal(got.Data, &status); err != nil || status.AdminAPI || status.BlockedQueries == nil {
		t.Fatalf("%s, %v", got.Data, err)
	}
	if rules := status.BlockedQueries.Rules; len(rules) != 1 || rules[0].Line != 2 || rules[0].Text != "=~ .*up.*" || rules[0].Reason != "Ask the team." || status.BlockedQueries.File != path {
		t.Errorf("the status lists %+v", status.BlockedQueries)
	}
}

// TestHangUp: a client that hangs up is no operator: its query has ended when it is no longer listed, and none is counted as cancelled.
func TestHangUp(t *testing.T) {
	f, held := serveHolding(t, nil)
	held.holds.Store(true)
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/api/v1/query?query=up", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	id := f.active(t)[0].ID
	hangUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for {
		got := f.ask(t, http.MethodGet, "/api/v1/status/active_queries", nil)
		if string(got.Data) == "[]" {
			break
		}
	}
	if got := f.ask(t, http.MethodDelete, "/api/v1/status/active_queries/"+id, nil); got.status != http.StatusNotFound {
		t.Errorf("%+v", got)
	}
}

package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/deletion"
)

// deleter is what deletes samples in a test.
type deleter struct {
	*engine.Engine
	*deletion.Executor
}

// serveAdmin serves an engine from which samples can be deleted.
func serveAdmin(t *testing.T, change ...func(*api.Config)) *fixture {
	t.Helper()
	admin := &deleter{}
	var records *deletion.Records
	f := serve(t, func(cfg *api.Config, e *engine.Config) {
		about, err := meta.Open(t.Context(), e.Store, e.Schema, e.Now)
		if err == nil {
			err = about.Init(t.Context())
		}
		cfg.Results = resultcache.New(1<<20, nil)
		e.Written = func(samples []bucketstore.Sample) { cfg.Results.Written("", samples) }
		if err == nil {
			records, err = deletion.Open(t.Context(), deletion.Config{Meta: about, Now: e.Now, Changed: cfg.Results.Drop})
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Appender.(*bucketstore.Direct).OnArrival(records.Arrival)
		e.Deletions, cfg.Admin = records, admin
		for _, f := range change {
			f(cfg)
		}
	})
	admin.Engine = f.engine
	admin.Executor = deletion.NewExecutor(deletion.ExecutorConfig{Records: records, Store: f.store, Find: deletion.FindIn(f.engine.SeriesBefore)})
	return f
}

// TestAdminOff: without the flag nothing is deleted, as Prometheus answers.
func TestAdminOff(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		for _, path := range []string{"delete_series", "clean_tombstones", "snapshot"} {
			got := f.ask(t, method, "/api/v1/admin/tsdb/"+path, params("match[]", "up"))
			if got.status != http.StatusInternalServerError || got.ErrorType != "unavailable" || got.Error != "admin APIs disabled" {
				t.Errorf("%s %s: %+v", method, path, got)
			}
		}
	}
}

// TestDelete compares the answers of a store from which samples were deleted with those of one
// that never had them: while queries are cached, at once, and when they are removed.
func TestDelete(t *testing.T) {
	fill := func(f *fixture, isDeleted func(n int, at int64) bool) {
		t.Helper()
		var batch []ingest.Series
		for i := range 3 {
			s := ingest.Series{Labels: labels.FromStrings("__name__", "up", "n", fmt.Sprint(i))}
			for at := int64(someTime - 3600_000); at <= someTime; at += 15_000 {
				if !isDeleted(i, at) {
					s.Samples = append(s.Samples, ingest.Sample{T: at, V: float64(at % 1_000_000)})
					s.Exemplars = append(s.Exemplars, exemplar.Exemplar{Value: 7, Ts: at, HasTs: true})
				}
			}
			batch = append(batch, s)
		}
		var rejected ingest.Rejected
		if _, err := f.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
	}
	all, kept := serveAdmin(t), serve(t, nil)
	fill(all, func(int, int64) bool { return false })
	fill(kept, func(n int, at int64) bool {
		return n == 0 && at >= someTime-2000_000 && at <= someTime-1500_000 || n == 1 || n == 2 && at >= someTime-60_000
	})
	query := func(compare func(path string, params url.Values)) {
		for _, expr := range []string{"up", "sum(rate(up[2m]))", "count_over_time(up[10m])", "topk(1, up)", "absent(up)", "max_over_time(rate(up[1m])[4m:30s])"} {
			compare("/api/v1/query_range", params("query", expr, "start", at(-3600), "end", at(0), "step", "30"))
			compare("/api/v1/query", params("query", expr, "time", at(0)))
		}
		compare("/api/v1/query_exemplars", params("query", "up", "start", at(-3600), "end", at(0)))
	}
	same := func(path string, params url.Values) { wantSame(t, all, kept, path, params) }
	for range 2 { // the second time from the cache
		query(func(path string, params url.Values) { all.ask(t, http.MethodGet, path, params) })
	}
	for i, form := range []url.Values{
		params("match[]", `up{n="0"}`, "start", at(-2000), "end", at(-1500)),
		params("match[]", `{n="1"}`),
		params("match[]", `up{n="2"}`, "match[]", `down`, "start", at(-60)),
	} {
		method := []string{http.MethodPost, http.MethodPut}[i%2]
		if got := all.ask(t, method, "/api/v1/admin/tsdb/delete_series", form); got.status != http.StatusNoContent {
			t.Fatalf("%s %s: %+v", method, form, got)
		}
	}
	query(same)
	if got := all.ask(t, http.MethodGet, "/api/v1/series", params("match[]", "up")); strings.Count(string(got.Data), "__name__") != 3 {
		t.Errorf("the index stays: %s", got.Data)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		if got := all.ask(t, method, "/api/v1/admin/tsdb/clean_tombstones", nil); got.status != http.StatusNoContent {
			t.Fatalf("%+v", got)
		}
		query(same)
		current := func(f *fixture) string {
			samples, _, _ := strings.Cut(string(f.ask(t, http.MethodGet, "/api/v1/current", nil).Data), `"rowsRead"`)
			return samples
		}
		if got, want := current(all), current(kept); got != want {
			t.Errorf("current samples %s, want %s", got, want)
		}
	}
}

// TestDeletionsAreLogged: a line names the client of a deletion, also of one that failed.
func TestDeletionsAreLogged(t *testing.T) {
	var logged bytes.Buffer
	f := serveAdmin(t, func(cfg *api.Config) { cfg.Logger = log.NewLogfmtLogger(log.NewSyncWriter(&logged)) })
	f.fill(t)
	target := f.url + "/api/v1/admin/tsdb/delete_series?" + params("match[]", `up{n="0"}`, "match[]", "down", "start", "1600000000.5").Encode()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("mona", "secret")
	req.Header.Set("X-Forwarded-For", "192.0.2.7")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	f.store.fail.Store(true)
	if got := f.ask(t, http.MethodPut, "/api/v1/admin/tsdb/delete_series", params("match[]", "up")); got.status != http.StatusServiceUnavailable {
		t.Errorf("a store that is down: %+v", got)
	}
	var lines []string
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "admin request") {
			lines = append(lines, line)
		}
	}
	want := [][]string{
		{`action="POST /api/v1/admin/tsdb/delete_series" status=204 selector="{n=\"0\",__name__=\"up\"}; {__name__=\"down\"}" start=2020-09-13T12:26:40.5Z end=none client=127.0.0.1:`, "user=mona", "forwarded_for=192.0.2.7"},
		{`action="PUT /api/v1/admin/tsdb/delete_series" status=503 selector="{__name__=\"up\"}" start=none`, "client=127.0.0.1:", "err="},
	}
	if len(lines) != len(want) || strings.Contains(logged.String(), "secret") {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), &logged)
	}
	for i, line := range lines {
		for _, part := range want[i] {
			if !strings.Contains(line, part) {
				t.Errorf("line %d has no %s: %s", i, part, line)
			}
		}
	}
}

// TestBadDeletes: what is no selector or time is a 400, and a store that is down a 503 that says when to come back.
func TestBadDeletes(t *testing.T) {
	f := serveAdmin(t)
	f.fill(t)
	const path = "/api/v1/admin/tsdb/delete_series"
	for _, form := range []url.Values{nil, params("match[]", "{"), params("match[]", "up", "start", "x"), params("match[]", "up", "end", "x")} {
		if got := f.ask(t, http.MethodPost, path, form); got.status != http.StatusBadRequest {
			t.Errorf("%s: %+v", form, got)
		}
	}
	f.store.fail.Store(true)
	resp, err := http.PostForm(f.url+path, params("match[]", "up"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v", resp)
	}
	f.store.fail.Store(false)
}

// stuck cleans until its request ends.
type stuck struct{ deleter }

func (stuck) Finish(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestCleanEnds: clean_tombstones ends with its request, or after the time of a query; then it says when to come back.
func TestCleanEnds(t *testing.T) {
	f := serve(t, func(cfg *api.Config, _ *engine.Config) {
		cfg.Admin, cfg.Timeout = stuck{}, 50*time.Millisecond
	})
	const path = "/api/v1/admin/tsdb/clean_tombstones"
	done := make(chan answer)
	for range 2 {
		go func() { done <- f.ask(t, http.MethodPost, path, nil) }()
	}
	for range 2 {
		if got := <-done; got.status != http.StatusServiceUnavailable {
			t.Errorf("%+v", got)
		}
	}
}

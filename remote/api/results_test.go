package api_test

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/ingest"
)

// TestCachedResults: a range query that is sent again reads no samples, unless its client asks for that,
// and a late sample changes its answer.
func TestCachedResults(t *testing.T) {
	const hour = 3_600_000
	f := serve(t, func(cfg *api.Config, e *engine.Config) {
		cfg.Results = resultcache.New(1<<20, nil)
		e.Written = func(samples []bucketstore.Sample) { cfg.Results.Written("", samples) }
	})
	write := func(job string, at int64) {
		var rejected ingest.Rejected
		batch := []ingest.Series{{Labels: labels.FromStrings("__name__", "up", "job", job), Samples: []ingest.Sample{{T: at, V: 1}}}}
		if _, err := f.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
	}
	start := int64(someTime - 2*hour - someTime%60_000)
	write("a", start+30_000)
	covered := func() int64 {
		t.Helper()
		held := f.api.Coverage(t.Context(), "up", time.Unix(start/1000, 0), time.Unix((start+hour)/1000, 0), time.Minute)
		if held.Why != "" || held.Steps != 61 || held.Closed != 61 {
			t.Errorf("coverage %+v", held)
		}
		return held.Cached
	}
	ask := func(cacheControl ...string) (found int, reads int64) {
		params := url.Values{"query": {"up"}, "start": {strconv.FormatInt(start/1000, 10)}, "end": {strconv.FormatInt((start+hour)/1000, 10)}, "step": {"60"}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/api/v1/query_range", strings.NewReader(params.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, v := range cacheControl {
			req.Header.Add("Cache-Control", v)
		}
		before := f.store.samples.Load()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		if read := resp.Header.Get("X-Promtable-Resolution"); read != "raw" {
			t.Errorf("the answer says that it is from %q", read)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), `"metric"`), f.store.samples.Load() - before
	}
	if n := covered(); n != 0 {
		t.Errorf("%d steps are cached of what was never asked", n)
	}
	for i, c := range []struct {
		header []string
		series int
		reads  bool
	}{
		{nil, 1, true}, {nil, 1, false}, {[]string{"no-cache"}, 1, true}, {[]string{"max-age=0, No-Store"}, 1, true},
		{[]string{"max-age=0", "no-store"}, 1, true}, {[]string{"max-age=0"}, 1, false},
	} {
		if series, reads := ask(c.header...); series != c.series || reads > 0 != c.reads {
			t.Errorf("query %d: %d series, %d reads", i, series, reads)
		}
	}
	if n := covered(); n != 61 {
		t.Errorf("%d steps are cached", n)
	}
	write("late", start+90_000)
	if n := covered(); n == 61 {
		t.Errorf("%d steps are cached after a late sample", n)
	}
	if series, reads := ask(); series != 2 || reads == 0 {
		t.Errorf("after a late sample: %d series, %d reads", series, reads)
	}
}

// TestNotCached: without a cache, and of an instant query, nothing is cached.
func TestNotCached(t *testing.T) {
	f := serve(t, nil)
	if held := f.api.Coverage(t.Context(), "up", time.Unix(0, 0), time.Unix(60, 0), time.Second); !strings.Contains(held.Why, "keeps no results") {
		t.Errorf("coverage %+v", held)
	}
	f = serve(t, func(cfg *api.Config, _ *engine.Config) { cfg.Results = resultcache.New(1<<20, nil) })
	if held := f.api.Coverage(t.Context(), "up", time.Unix(0, 0), time.Unix(0, 0), 0); !strings.Contains(held.Why, "instant") {
		t.Errorf("coverage %+v", held)
	}
}

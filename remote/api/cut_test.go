package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
)

// TestCut compares the answers of a store that has samples before the cut with those of one
// that has none: where expressions are evaluated while series are read, and where upstream's
// engine does it.
func TestCut(t *testing.T) {
	const cut = someTime - 300_000
	fill := func(f *fixture, from int64) {
		t.Helper()
		var batch []ingest.Series
		for i := range 3 {
			s := ingest.Series{Labels: labels.FromStrings("__name__", "up", "n", fmt.Sprint(i))}
			for at := int64(someTime - 600_000); at <= someTime; at += 15_000 {
				if at >= from {
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
	var cutting atomic.Int64 // It takes all samples before it cuts.
	all := serve(t, func(_ *api.Config, e *engine.Config) {
		e.Timeline = timelinetest.Cut(func(time.Time) int64 { return cutting.Load() })
	})
	fill(all, 0)
	cutting.Store(cut)
	kept := serve(t, nil)
	fill(kept, cut)
	for _, expr := range []string{
		"up", "rate(up[2m])", "sum by (n) (increase(up[3m]))", "topk(1, up)", "up offset 4m", "up - up offset 3m", "up @ start()",
		"quantile_over_time(0.5, up[2m])", "max_over_time(rate(up[1m])[4m:30s])", `label_replace(up, "m", "$1", "n", "(.*)")`, "absent(up)",
		"count_over_time(up[10m])", "last_over_time(up[10m])", "predict_linear(up[5m], 60)", "timestamp(up)",
	} {
		for _, seconds := range []int{-600, -301, -300, -299, -1, 0} {
			wantSame(t, all, kept, "/api/v1/query", params("query", expr, "time", at(seconds)))
		}
		wantSame(t, all, kept, "/api/v1/query_range", params("query", expr, "start", at(-600), "end", at(0), "step", "7"))
	}
	wantSame(t, all, kept, "/api/v1/query_exemplars", params("query", "up", "start", at(-600), "end", at(0)))
	wantSame(t, all, kept, "/api/v1/current", nil)
	wantSame(t, all, kept, "/api/v1/series", params("match[]", "up"))
	wantSame(t, all, kept, "/api/v1/labels", nil)
}

func wantSame(t *testing.T, a, b *fixture, path string, params url.Values) {
	t.Helper()
	got, want := a.ask(t, http.MethodGet, path, params), b.ask(t, http.MethodGet, path, params)
	if got.status != 200 || string(got.Data) != string(want.Data) {
		t.Errorf("%s %s: %d %s\n%.2000s\nwant\n%.2000s", path, params.Encode(), got.status, got.Error, got.Data, want.Data)
	}
}

// TestOneCutOfARequest: the selectors of an expression have one cut, though the cut moves
// while it is evaluated.
func TestOneCutOfARequest(t *testing.T) {
	var cutting atomic.Bool
	var calls atomic.Int64
	f := serve(t, func(_ *api.Config, e *engine.Config) {
		e.Timeline = timelinetest.Cut(func(now time.Time) int64 {
			if !cutting.Load() {
				return 0
			}
			return now.UnixMilli() - 300_000 + calls.Add(60_000)
		})
	})
	f.fill(t)
	cutting.Store(true)
	// Two selectors, which upstream's engine reads one after the other.
	got := f.ask(t, http.MethodGet, "/api/v1/query_range", params(
		"query", `count_over_time({__name__="up",n="1"}[10m]) - on() count_over_time({__name__="up",n="2"}[10m])`,
		"start", at(0), "end", at(0), "step", "1"))
	if want := []string{"0"}; fmt.Sprint(values(t, got)) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
}

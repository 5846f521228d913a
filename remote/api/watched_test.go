package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
)

// TestSlowQueries: a query that takes as long as the threshold is logged, with what it asked
// for and what it read, and counted; others are not. A clock that goes on by a second with
// each look says how long a query takes.
func TestSlowQueries(t *testing.T) {
	tests := []struct {
		name, path, query string
		slowerThan        time.Duration
		want              []string
	}{
		{"range", "query_range", `sum by (job) (rate(up[5m])) / ignoring (job) count(up)`, time.Second, []string{
			`level=warn msg="slow query" kind=range query="sum by (job) (rate(up[5m])) / ignoring (job) count(up)" `,
			`start=1974-`, ` step=1m0s seconds=1.000 status=`, `series=20 index_rows=`, ` rows=20 cells=`, ` bytes=`,
			` streamed="sum by (job) of rate; count of selector" gave_up=0`,
		}},
		{"instant", "query", `up{n="3"}`, time.Second, []string{`kind=instant query="up{n=\"3\"}" `, `step=0s seconds=1.000 status=success series=1 `, ` samples=1 peak_samples=1 streamed=selector gave_up=0`}},
		{"failed", "query", `label_replace(up, "n", "", "", "") + on (n) up`, time.Second, []string{`status=error`, `err="`}},
		{"fast", "query", `up`, time.Second + 1, nil},
		{"off", "query", `up`, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var lines strings.Builder
			var looks atomic.Int64
			reg := prometheus.NewRegistry()
			slow := request.NewSlowLog(request.SlowConfig{
				Logger: log.NewLogfmtLogger(&lines), Registerer: reg, SlowerThan: tt.slowerThan,
				Now: func() time.Time { return time.Unix(looks.Add(1), 0) },
			})
			f := serve(t, func(c *api.Config, _ *engine.Config) { c.SlowLog = slow })
			f.fill(t)
			f.ask(t, http.MethodGet, "/api/v1/"+tt.path, params("query", tt.query, "time", at(0), "start", at(-300), "end", at(0), "step", "60"))
			for _, want := range tt.want {
				if !strings.Contains(lines.String(), want) {
					t.Errorf("%q lacks %q", lines.String(), want)
				}
			}
			n, err := testutil.GatherAndCount(reg, "adapter_slow_queries_total")
			if err != nil || n != 3 {
				t.Errorf("%d counters, %v", n, err)
			}
			if got := strings.Count(lines.String(), "\n"); got != min(1, len(tt.want)) || countSlow(t, reg) != float64(got) {
				t.Errorf("%d lines, %g counted: %s", got, countSlow(t, reg), lines.String())
			}
		})
	}
}

// countSlow returns how many slow queries of all kinds were counted.
func countSlow(t *testing.T, reg *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}

// TestQueryStats: the statistics of a query are those of Prometheus, and what was read; they
// are the same whether the query is streamed or not.
func TestQueryStats(t *testing.T) {
	f := serve(t, func(c *api.Config, _ *engine.Config) { c.Features = []string{"promql-per-step-stats"} })
	f.fill(t)
	type queryStats struct {
		Timings map[string]float64
		Samples struct {
			TotalQueryableSamples, SamplesRead, PeakSamples int64
			TotalQueryableSamplesPerStep                    [][2]float64
		}
		Storage struct{ Series, Rows, Cells, Bytes int64 }
	}
	ask := func(query, stats string) (found *queryStats) {
		t.Helper()
		got := f.ask(t, http.MethodGet, "/api/v1/query_range", params("query", query, "start", at(-300), "end", at(0), "step", "60", "stats", stats))
		var data struct{ Stats *queryStats }
		if err := json.Unmarshal(got.Data, &data); err != nil || got.status != http.StatusOK {
			t.Fatalf("%s: %+v, %v", query, got, err)
		}
		return data.Stats
	}
	for _, query := range []string{`sum(rate(up[3m]))`, `sum(rate(up[3m]) + 0 * rate(up[3m]))`, `absent(up)`} {
		got := ask(query, "all")
		windows := map[string]int64{`sum(rate(up[3m]))`: 1, `sum(rate(up[3m]) + 0 * rate(up[3m]))`: 2, `absent(up)`: 0}[query]
		total, read := 10*3*6*windows, 10*8*windows // of ten series, three samples in each of six windows that overlap
		if windows == 0 {
			total, read, windows = 60, 60, 1
		}
		if s := got.Samples; s.TotalQueryableSamples != total || s.SamplesRead != read || s.PeakSamples < 6 || len(s.TotalQueryableSamplesPerStep) != 6 {
			t.Errorf("%s: samples %+v, want %d, %d read", query, s, total, read)
		}
		if s := got.Storage; s.Series != 10*windows || s.Rows != 10*windows || s.Cells < s.Rows || s.Bytes < s.Cells {
			t.Errorf("%s: read %+v", query, s)
		}
		if got.Timings["execTotalTime"] <= 0 || got.Timings["execTotalTime"] < got.Timings["innerEvalTime"] {
			t.Errorf("%s: timings %v", query, got.Timings)
		}
	}
	if got := ask(`up`, ""); got != nil {
		t.Errorf("statistics without being asked: %+v", got)
	}
	if got := ask(`up`, "true"); got == nil || got.Samples.TotalQueryableSamplesPerStep != nil {
		t.Errorf("statistics %+v", got)
	}
}

package limits_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/limits"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// A file of a test, with a clock that stands still.
type file struct {
	*limits.File
	t    *testing.T
	path string
	now  time.Time
	reg  *prometheus.Registry
}

func open(t *testing.T, text string) *file {
	t.Helper()
	f := &file{t: t, path: filepath.Join(t.TempDir(), "limits.yml"), now: time.UnixMilli(1_790_000_000_000), reg: prometheus.NewRegistry()}
	f.write(text)
	var err error
	if f.File, err = limits.Open(f.config(true)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *file) config(tenancy bool) limits.Config {
	return limits.Config{Path: f.path, Tenancy: tenancy, Now: func() time.Time { return f.now }, Logger: log.NewNopLogger(), Registerer: f.reg}
}

func (f *file) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// wantMetrics wants the samples of a metric, without its HELP and TYPE.
func (f *file) wantMetrics(metric, want string) {
	f.t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, mf := range families {
		if mf.GetName() == metric {
			want = "# HELP " + metric + " " + mf.GetHelp() + "\n# TYPE " + metric + " " + strings.ToLower(mf.GetType().String()) + "\n" + want
		}
	}
	if err := testutil.GatherAndCompare(f.reg, strings.NewReader(want), metric); err != nil {
		f.t.Error(err)
	}
}

// batch has so many samples of a metric, and one of another.
func batch(metric string, samples int) []ingest.Series {
	return []ingest.Series{
		{Labels: labels.FromStrings("__name__", "up"), Samples: make([]ingest.Sample, 1)},
		{Labels: labels.FromStrings("__name__", metric), Samples: make([]ingest.Sample, samples-1)},
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		if len(parts) > 0 {
			t.Errorf("no error, want %q", parts)
		}
		return
	}
	if len(parts) == 0 {
		t.Errorf("refused: %v", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q lacks %q", err, p)
		}
	}
}

// TestRates: each tenant has its own rates. What exceeds one is refused with the time after which it is not, the limit and the largest metric; the others, and those
// with track, go on. A write that is larger than the burst is not refused for ever.
func TestRates(t *testing.T) {
	f := open(t, `
defaults: {ingestion_rate: 100, request_rate: 10, request_burst_size: 20}
overrides:
  large: {ingestion_rate: 1000}
  seen: {track: [ingestion_rate]}
  free: {ingestion_rate: 0, request_rate: 0}
`)
	a, b := f.Of("a"), f.Of("b")
	wantError(t, a.Admit(batch("m", 60)))
	wantError(t, a.Admit(batch("m", 60)), "tenant a: more than 100 samples a second", "limit ingestion_rate", `59 are of "m"`, "try again in 200ms")
	wantError(t, b.Admit(batch("m", 60)))
	wantError(t, a.Admit(batch("m", 40))) // what was refused took nothing
	wantError(t, a.Admit(batch("m", 2)), "try again in 20ms")
	f.wantMetrics("adapter_limit_used_ratio", `
adapter_limit_used_ratio{limit="ingestion_rate",tenant="a"} 1
adapter_limit_used_ratio{limit="ingestion_rate",tenant="b"} 0.6
adapter_limit_used_ratio{limit="request_rate",tenant="a"} 0.2
adapter_limit_used_ratio{limit="request_rate",tenant="b"} 0.05
`)
	f.now = f.now.Add(time.Second)
	wantError(t, a.Admit(batch("m", 5000))) // the whole burst
	wantError(t, a.Admit(batch("m", 2)), "try again in 20ms")

	wantError(t, f.Of("large").Admit(batch("m", 900)))
	for range 5 {
		wantError(t, f.Of("seen").Admit(batch("m", 90)))
	}
	for range 100 {
		wantError(t, f.Of("free").Admit(batch("m", 1000)))
	}
	for range 19 {
		wantError(t, b.Admit(nil))
	}
	wantError(t, b.Admit(nil)) // ten of the second before
	for range 9 {
		_ = b.Admit(nil)
	}
	wantError(t, b.Admit(nil), "tenant b: more than 10 writes a second", "limit request_rate", "try again in 100ms")
	f.wantMetrics("adapter_limit_exceeded_total", `
adapter_limit_exceeded_total{limit="ingestion_rate",result="refused",tenant="a"} 3
adapter_limit_exceeded_total{limit="ingestion_rate",result="tracked",tenant="seen"} 4
adapter_limit_exceeded_total{limit="request_rate",result="refused",tenant="b"} 10
`)
}

// TestReload: rates change while tenants write, and a wrong file changes nothing.
func TestReload(t *testing.T) {
	f := open(t, "defaults: {ingestion_rate: 10}")
	a := f.Of("a")
	wantError(t, a.Admit(batch("m", 10)))
	wantError(t, a.Admit(batch("m", 2)), "more than 10 samples")
	f.write("defaults: {ingestion_rate: -1}")
	f.Reload()
	wantError(t, a.Admit(batch("m", 2)), "more than 10 samples")
	f.wantMetrics("adapter_limits_file_last_reload_successful", "adapter_limits_file_last_reload_successful 0\n")
	f.write("overrides: {a: {ingestion_rate: 100, ingestion_burst_size: 200}}")
	f.Reload()
	wantError(t, a.Admit(nil))
	f.now = f.now.Add(time.Second)
	wantError(t, a.Admit(batch("m", 100)))
	wantError(t, a.Admit(batch("m", 100)), "more than 100 samples")
	f.write("{}")
	f.Reload()
	wantError(t, a.Admit(batch("m", 1000)))
	f.wantMetrics("adapter_limits_file_last_reload_successful", "adapter_limits_file_last_reload_successful 1\n")
}

// TestLabels: series with more or longer labels are refused, with the worst of them.
func TestLabels(t *testing.T) {
	f := open(t, `
defaults: {max_label_names_per_series: 3, max_label_name_length: 10, max_label_value_length: 20}
overrides: {seen: {track: [max_label_names_per_series, max_label_name_length, max_label_value_length]}}
`)
	long, many := strings.Repeat("x", 21), []string{"__name__", "m", "a", "1", "b", "2", "c", "3"}
	for _, c := range []struct {
		labels []string
		want   []string
	}{
		{[]string{"__name__", "m", "abcdefghij", long[:20]}, nil},
		{many, []string{"tenant a: series", "m", "4 labels, the limit max_label_names_per_series is 3"}},
		{[]string{"__name__", "m", "abcdefghijk", "1"}, []string{`the name "abcdefghijk" has 11 bytes, the limit max_label_name_length is 10`}},
		{[]string{"__name__", "m", "a", long}, []string{`the value of "a" has 21 bytes, the limit max_label_value_length is 20`}},
	} {
		ls := labels.FromStrings(c.labels...)
		wantError(t, f.Of("a").CheckLabels(ls), c.want...)
		wantError(t, f.Of("seen").CheckLabels(ls))
	}
	f.wantMetrics("adapter_limit_exceeded_total", `
adapter_limit_exceeded_total{limit="max_label_name_length",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_label_name_length",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_label_names_per_series",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_label_names_per_series",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_label_value_length",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_label_value_length",result="tracked",tenant="seen"} 1
`)
}

// TestFile: what is wrong in a file is named.
func TestFile(t *testing.T) {
	f := open(t, "")
	for text, parts := range map[string][]string{
		"defaults: {ingestion_rte: 1}":                           {"ingestion_rte"},
		"overrides: {a: {ingestion_rte: 1}}":                     {"ingestion_rte"},
		"overrides: {a: {request_rate: -1}}":                     {"overrides: a: request_rate: -1"},
		"overrides: {..: {request_rate: 1}}":                     {"overrides", ".."},
		"defaults: {ingestion_rate: .nan}":                       {"defaults: ingestion_rate: NaN"},
		"defaults: {track: [burst]}":                             {`track: there is no limit "burst"`, "ingestion_rate"},
		"defaults: {max_label_names_per_series: 10000000000000}": {"max_label_names_per_series", "1e+13"},
	} {
		f.write(text)
		_, err := limits.Open(f.config(true))
		wantError(t, err, append(parts, f.path)...)
	}
	f.write("overrides: {a: {}}")
	_, err := limits.Open(f.config(false))
	wantError(t, err, "overrides: a: the store has no tenants")
}

// TestManyTenants: metrics name at most 100 tenants. The others are counted together.
func TestManyTenants(t *testing.T) {
	f := open(t, "defaults: {request_rate: 1}")
	for i := range 300 {
		_ = f.Of(string(rune('A'+i%26)) + strings.Repeat("x", i)).Admit(nil)
	}
	if n := testutil.CollectAndCount(f.reg, "adapter_limit_used_ratio"); n != 101 {
		t.Errorf("%d tenants in metrics", n)
	}
}

// TestSeries: new series are refused over each limit, with the count, the limit and the largest metric. The counts are those of the running period.
func TestSeries(t *testing.T) {
	f := open(t, `
defaults: {max_global_series_per_user: 10, max_global_series_per_metric: 5, max_new_series_per_minute: 3}
overrides:
  free: {max_global_series_per_user: 0, max_global_series_per_metric: 0, max_new_series_per_minute: 0}
  seen: {track: [max_global_series_per_user, max_global_series_per_metric, max_new_series_per_minute]}
`)
	if !f.Of("a").Limited() || !f.Of("seen").Limited() || f.Of("free").Limited() {
		t.Error("wrong are those that are limited")
	}
	period := series.PeriodOf(f.now.UnixMilli())
	ask := func(tenant string, all, ofMetric int) error {
		return f.Of(tenant).AdmitSeries(index.NewSeries{
			Labels: labels.FromStrings("__name__", "m", "i", "1"), Period: period, Series: all, OfMetric: ofMetric, Largest: "big", OfLargest: 4,
		})
	}
	wantError(t, ask("a", 9, 4))
	f.wantMetrics("adapter_limit_used_ratio", `
adapter_limit_used_ratio{limit="max_global_series_per_metric",tenant="a"} 1
adapter_limit_used_ratio{limit="max_global_series_per_metric",tenant="seen"} 0
adapter_limit_used_ratio{limit="max_global_series_per_user",tenant="a"} 1
adapter_limit_used_ratio{limit="max_global_series_per_user",tenant="seen"} 0
adapter_limit_used_ratio{limit="max_new_series_per_minute",tenant="a"} 0.3333333333333333
adapter_limit_used_ratio{limit="max_new_series_per_minute",tenant="seen"} 0
`[1:])
	wantError(t, ask("a", 10, 4), `tenant a: series {__name__="m", i="1"}`, "there are 10 series since 2026-09-", "max_global_series_per_user is 10", `the metric "big" there are most: 4`)
	wantError(t, ask("a", 9, 5), "the metric has 5 series since", "max_global_series_per_metric is 5")
	wantError(t, ask("a", 9, 4))
	wantError(t, ask("a", 9, 4))
	wantError(t, ask("a", 9, 4), "more than 3 new series in a minute, the limit max_new_series_per_minute")
	f.now = f.now.Add(20 * time.Second)
	wantError(t, ask("a", 9, 4))
	wantError(t, ask("a", 9, 4), "more than 3 new series in a minute")
	for range 10 {
		wantError(t, ask("seen", 100, 100))
	}
	f.wantMetrics("adapter_limit_exceeded_total", `
adapter_limit_exceeded_total{limit="max_global_series_per_metric",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_global_series_per_metric",result="tracked",tenant="seen"} 10
adapter_limit_exceeded_total{limit="max_global_series_per_user",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_global_series_per_user",result="tracked",tenant="seen"} 10
adapter_limit_exceeded_total{limit="max_new_series_per_minute",result="refused",tenant="a"} 2
adapter_limit_exceeded_total{limit="max_new_series_per_minute",result="tracked",tenant="seen"} 7
`[1:])
	f.now = f.now.Add(time.Duration(series.IndexPeriod) * time.Millisecond)
	f.Of("a").Counted(index.NewSeries{Period: period, Series: 1000}) // of the period before
	f.wantMetrics("adapter_limit_used_ratio", `
adapter_limit_used_ratio{limit="max_global_series_per_metric",tenant="a"} 0
adapter_limit_used_ratio{limit="max_global_series_per_metric",tenant="seen"} 0
adapter_limit_used_ratio{limit="max_global_series_per_user",tenant="a"} 0
adapter_limit_used_ratio{limit="max_global_series_per_user",tenant="seen"} 0
adapter_limit_used_ratio{limit="max_new_series_per_minute",tenant="a"} 0
adapter_limit_used_ratio{limit="max_new_series_per_minute",tenant="seen"} 0
`[1:])
}

// TestQueries: a query that is too long, one too many, or one that reads or holds too much is refused with what it needs to know; what track names is
// counted once a query. What a query has taken it gives back at its end.
func TestQueries(t *testing.T) {
	f := open(t, `
defaults: {max_total_query_length: 1d, max_fetched_series_per_query: 100, max_held_bytes_per_query: 1000, max_concurrent_queries: 2, max_query_age: 2d, max_answer_bytes_per_query: 10}
overrides:
  free: {max_total_query_length: 0s, max_fetched_series_per_query: 0, max_held_bytes_per_query: 0, max_concurrent_queries: 0, max_query_age: 0s, max_answer_bytes_per_query: 0}
  seen: {track: [max_total_query_length, max_fetched_series_per_query, max_held_bytes_per_query, max_concurrent_queries, max_query_age, max_answer_bytes_per_query]}
`)
	a := f.Of("a")
	begin := func(n *limits.Tenant, length time.Duration) func() {
		t.Helper()
		end, err := n.BeginQuery(f.now.Add(-length), f.now)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	_, err := a.BeginQuery(f.now.Add(-25*time.Hour), f.now)
	wantError(t, err, "tenant a: the query asks for 1d1h, the limit max_total_query_length of --limits.file is 1d")
	if status := request.Status(t.Context(), request.API, err); status != http.StatusUnprocessableEntity {
		t.Errorf("status %d", status)
	}
	_, err = a.BeginQuery(f.now.Add(-49*time.Hour), f.now.Add(-48*time.Hour))
	wantError(t, err, "the query begins at 2026-", "the limit max_query_age of --limits.file is 2d")
	wantError(t, a.CheckAnswer(5, 5))
	wantError(t, a.CheckAnswer(5, 6), "more than 10 bytes are in the answer, the limit max_answer_bytes_per_query")
	end, endSecond := begin(a, 24*time.Hour), begin(a, 0)
	_, err = a.BeginQuery(time.Time{}, time.Time{})
	wantError(t, err, "tenant a: 2 queries run or wait, the limit max_concurrent_queries")
	f.wantMetrics("adapter_limit_used_ratio", `
adapter_limit_used_ratio{limit="max_concurrent_queries",tenant="a"} 1
`[1:])
	end()
	end = begin(a, 0)
	end()
	endSecond()

	wantError(t, a.CheckFetched(0, 100))
	wantError(t, a.CheckFetched(60, 41), "more than 100 series are read, the limit max_fetched_series_per_query")
	wantError(t, a.CheckFetched(101, 1), "more than 100 series")
	wantError(t, a.CheckHeld(0, 1000))
	wantError(t, a.CheckHeld(1000, 1), "more than 1000 bytes are held, the limit max_held_bytes_per_query")
	for _, name := range []string{"free", "seen"} {
		n := f.Of(name)
		for range 3 {
			defer begin(n, 100*time.Hour)()
		}
		wantError(t, n.CheckFetched(0, 200))
		wantError(t, n.CheckFetched(200, 200))
		wantError(t, n.CheckHeld(999, 2))
		wantError(t, n.CheckAnswer(0, 20))
	}
	f.wantMetrics("adapter_limit_exceeded_total", `
adapter_limit_exceeded_total{limit="max_answer_bytes_per_query",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_answer_bytes_per_query",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_concurrent_queries",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_concurrent_queries",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_fetched_series_per_query",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_fetched_series_per_query",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_held_bytes_per_query",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_held_bytes_per_query",result="tracked",tenant="seen"} 1
adapter_limit_exceeded_total{limit="max_query_age",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_query_age",result="tracked",tenant="seen"} 3
adapter_limit_exceeded_total{limit="max_total_query_length",result="refused",tenant="a"} 1
adapter_limit_exceeded_total{limit="max_total_query_length",result="tracked",tenant="seen"} 3
`[1:])
}

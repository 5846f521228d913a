package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// someTime is in 1974, in the middle of an index period.
const someTime = 30*series.Period + 3*series.IndexPeriod + series.IndexPeriod/2

var errStore = errors.New("the store is down")

// spy is a store that counts scans of METRIC, and that can fail.
type spy struct {
	bucketstore.Store
	samples atomic.Int64
	fail    atomic.Bool
	failure atomic.Pointer[error] // nil is errStore
}

func (s *spy) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if s.fail.Load() {
		if failure := s.failure.Load(); failure != nil {
			return *failure
		}
		return errStore
	}
	if req.Table == bucketstore.Metric {
		s.samples.Add(1)
	}
	return s.Store.Scan(ctx, req, fn)
}

// fixture is an API over a real engine on an embedded store.
type fixture struct {
	url    string
	store  *spy
	engine *engine.Engine
	api    *api.API
}

func serve(t *testing.T, change func(*api.Config, *engine.Config)) *fixture {
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
	return serveStore(t, store, change)
}

func someNow() time.Time { return time.UnixMilli(someTime) }

// serveStore is serve on a store, which is closed later.
func serveStore(t *testing.T, store bucketstore.Store, change func(*api.Config, *engine.Config)) *fixture {
	t.Helper()
	now := someNow
	f := &fixture{store: &spy{Store: store}}
	engineConfig := engine.Config{Store: f.store, Appender: bucketstore.NewDirect(f.store, series.Schema{}, now, nil), Now: now, MaxFuture: engine.Unbounded}
	apiConfig := api.Config{Now: now, Registerer: prometheus.NewRegistry(), Flags: map[string]string{"some.flag": "some value"}}
	if change != nil {
		change(&apiConfig, &engineConfig)
	}
	var err error
	if f.engine, err = engine.New(engineConfig); err != nil {
		t.Fatal(err)
	}
	apiConfig.Engine = f.engine
	a, err := api.New(apiConfig)
	if err != nil {
		t.Fatal(err)
	}
	f.api = a
	audited := request.WithAudit(cmp.Or(apiConfig.Logger, log.NewNopLogger()), a)
	srv := httptest.NewServer(request.WithBodies(audited))
	t.Cleanup(func() {
		srv.Close()
		if err := errors.Join(a.Close(), f.engine.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	f.url = srv.URL
	return f
}

// fill stores a few series, exemplars and metadata.
func (f *fixture) fill(t *testing.T) {
	t.Helper()
	var batch []ingest.Series
	for i := range 10 {
		s := ingest.Series{Labels: labels.FromStrings("__name__", "up", "job", fmt.Sprint("job", i%3), "n", fmt.Sprint(i), "dot.ted", "ä")}
		for m := range int64(10) {
			s.Samples = append(s.Samples, ingest.Sample{T: someTime - m*60_000, V: float64(i)})
		}
		batch = append(batch, s)
	}
	batch[3].Exemplars = []exemplar.Exemplar{{Labels: labels.FromStrings("trace", "x"), Value: 7, Ts: someTime - 5, HasTs: true}}
	var rejected ingest.Rejected
	if _, err := f.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
	err := f.engine.AppendMetadata(t.Context(), []ingest.Metadata{
		{Family: "up", Metadata: metadata.Metadata{Type: model.MetricTypeGauge, Help: "Is it?"}},
		{Family: "a", Metadata: metadata.Metadata{Type: model.MetricTypeCounter, Unit: "s"}},
	}, &rejected)
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status    int
	Status    string
	Data      json.RawMessage
	ErrorType string
	Error     string
	Warnings  []string
}

// ask makes a request; a POST has its parameters in the body.
func (f *fixture) ask(t *testing.T, method, path string, params url.Values) (a answer) {
	t.Helper()
	target, body := f.url+path+"?"+params.Encode(), io.Reader(nil)
	if method == http.MethodPost {
		target, body = f.url+path, strings.NewReader(params.Encode())
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a.status = resp.StatusCode
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &a); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return a
}

func params(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

// at prints a time, someTime and seconds more, as the API reads it.
func at(seconds int) string { return fmt.Sprintf("%.3f", float64(someTime)/1000+float64(seconds)) }

func TestAnswers(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	post, get := http.MethodPost, http.MethodGet
	stamp := strings.TrimRight(strings.TrimRight(at(0), "0"), ".")
	for _, tt := range []struct {
		path    string
		methods []string
		params  url.Values
		want    string // JSON of the data
		index   bool   // answered without samples
	}{
		{"query", []string{get, post}, params("query", "sum by (job) (up)", "time", at(0)),
			`{"resultType":"vector","result":[{"metric":{"job":"job0"},"value":[` + stamp + `,"18"]},{"metric":{"job":"job1"},"value":[` + stamp + `,"12"]},{"metric":{"job":"job2"},"value":[` + stamp + `,"15"]}]}`, false},
		{"query_range", []string{get, post}, params("query", `count({"dot.ted"="ä"})`, "start", at(-60), "end", at(0), "step", "60"),
			`{"resultType":"matrix","result":[{"metric":{},"values":[[` + strings.TrimRight(strings.TrimRight(at(-60), "0"), ".") + `,"10"],[` + stamp + `,"10"]]}]}`, false},
		{"series", []string{get, post}, params("match[]", `up{n="3"}`, "match[]", `up{n=~"3|4"}`, "start", at(-60), "end", at(0)),
			`[{"__name__":"up","dot.ted":"ä","job":"job0","n":"3"},{"__name__":"up","dot.ted":"ä","job":"job1","n":"4"}]`, true},
		{"labels", []string{get, post}, params("start", at(-60), "end", at(0)), `["__name__","dot.ted","job","n"]`, true},
		{"labels", []string{get, post}, params("match[]", `up{n="3"}`), `["__name__","dot.ted","job","n"]`, true},
		{"label/job/values", []string{get}, nil, `["job0","job1","job2"]`, true},
		{"label/job/values", []string{get}, params("match[]", `up{n="3"}`, "match[]", `up{n="4"}`), `["job0","job1"]`, true},
		{"label/U__dot_2e_ted/values", []string{get}, nil, `["ä"]`, true},
		{"label/n/values", []string{get}, params("start", at(-40*86400), "end", at(-30*86400)), `[]`, true},
		{"query_exemplars", []string{get, post}, params("query", "rate(up[5m])", "start", at(-60), "end", at(0)),
			`[{"seriesLabels":{"__name__":"up","dot.ted":"ä","job":"job0","n":"3"},"exemplars":[{"labels":{"trace":"x"},"value":"7","timestamp":` + fmt.Sprintf("%.3f", float64(someTime-5)/1000) + `}]}]`, false},
		{"query_exemplars", []string{get}, params("query", "up", "start", "0", "end", "1"), `[]`, false},
		{"metadata", []string{get}, nil, `{"a":[{"type":"counter","help":"","unit":"s"}],"up":[{"type":"gauge","help":"Is it?","unit":""}]}`, true},
		{"metadata", []string{get}, params("metric", "up"), `{"up":[{"type":"gauge","help":"Is it?","unit":""}]}`, true},
		{"metadata", []string{get}, params("limit", "1"), `{"a":[{"type":"counter","help":"","unit":"s"}]}`, true},
		{"metadata", []string{get}, params("limit", "0"), `{}`, true},
		{"metadata", []string{get}, params("metric", "nothing"), `{}`, true},
		{"format_query", []string{get, post}, params("query", "a+b"), `"a + b"`, true},
		{"rules", []string{get}, nil, `{"groups":[]}`, true},
		{"alerts", []string{get}, nil, `{"alerts":[]}`, true},
		{"status/flags", []string{get}, nil, `{"some.flag":"some value"}`, true},
	} {
		for _, method := range tt.methods {
			t.Run(method+" "+tt.path+" "+tt.params.Encode(), func(t *testing.T) {
				before := f.store.samples.Load()
				got := f.ask(t, method, "/api/v1/"+tt.path, tt.params)
				var have, want any
				if err := errors.Join(json.Unmarshal(got.Data, &have), json.Unmarshal([]byte(tt.want), &want)); err != nil {
					t.Fatalf("%v: %+v", err, got)
				}
				if got.status != 200 || !reflect.DeepEqual(have, want) {
					t.Errorf("status %d %s\n%s\nwant\n%s", got.status, got.Error, got.Data, tt.want)
				}
				if n := f.store.samples.Load() - before; tt.index && n != 0 {
					t.Errorf("%d scans of samples", n)
				}
			})
		}
	}
}

// TestSubqueryStep: a subquery that names no step is evaluated at the interval of the
// API, one that names a step at that. A count is the number of multiples of the step
// in the range.
func TestSubqueryStep(t *testing.T) {
	const none, given = `count_over_time(up{n="3"}[5m:])`, `count_over_time(up{n="3"}[5m:30s])`
	for _, tt := range []struct {
		name     string
		interval time.Duration // 0 is the default
		query    string
		want     string
	}{
		{"default", 0, none, "5"},
		{"every 100 seconds", 100 * time.Second, none, "3"},
		{"a millisecond", time.Millisecond, `count_over_time(up{n="3"}[5s:])`, "5000"},
		{"within another one", 0, `sum_over_time(count_over_time(up{n="3"}[2m:])[5m:100s])`, "6"},
		{"default, a step given", 0, given, "10"},
		{"every 100 seconds, a step given", 100 * time.Second, given, "10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, func(a *api.Config, _ *engine.Config) { a.EvaluationInterval = tt.interval })
			f.fill(t)
			got := f.ask(t, http.MethodGet, "/api/v1/query", params("query", tt.query, "time", at(0)))
			if want := []string{tt.want}; !slices.Equal(values(t, got), want) {
				t.Errorf("query: %+v, want %s", got, want)
			}
			// The step of the query is another one.
			got = f.ask(t, http.MethodGet, "/api/v1/query_range", params("query", tt.query, "start", at(-40), "end", at(0), "step", "20"))
			if want := []string{tt.want, tt.want, tt.want}; !slices.Equal(values(t, got), want) {
				t.Errorf("query_range: %+v, want %s", got, want)
			}
		})
	}
}

// values returns the values of the one series in an answer of PromQL.
func values(t *testing.T, a answer) (vs []string) {
	t.Helper()
	var data struct {
		Result []struct {
			Value  []any
			Values [][]any
		}
	}
	if err := json.Unmarshal(a.Data, &data); err != nil || len(data.Result) != 1 {
		t.Fatalf("not one series: %+v, %v", a, err)
	}
	for _, pair := range append(data.Result[0].Values, data.Result[0].Value) {
		if len(pair) == 2 {
			vs = append(vs, fmt.Sprint(pair[1]))
		}
	}
	return vs
}

func TestLimitWarns(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	for path, p := range map[string]url.Values{
		"labels":         params("limit", "2"),
		"label/n/values": params("limit", "2"),
		"series":         params("limit", "2", "match[]", "up"),
	} {
		got := f.ask(t, http.MethodGet, "/api/v1/"+path, p)
		var list []any
		if err := json.Unmarshal(got.Data, &list); err != nil || len(list) != 2 || len(got.Warnings) != 1 {
			t.Errorf("%s: %s, warnings %q, %v", path, got.Data, got.Warnings, err)
		}
	}
}

// TestCardinality wants what Grafana and the page show.
func TestCardinality(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", params("limit", "2"))
	const want = `{"headStats":{"numSeries":10,"numLabelPairs":15,"chunkCount":0,"minTime":%d,"maxTime":%d},` +
		`"seriesCountByMetricName":[{"name":"up","value":10}],` +
		`"labelValueCountByLabelName":[{"name":"n","value":10},{"name":"job","value":3}],` +
		`"memoryInBytesByLabelName":[{"name":"job","value":12},{"name":"n","value":10}],` +
		`"seriesCountByLabelValuePair":[{"name":"__name__=up","value":10},{"name":"dot.ted=ä","value":10}],` +
		`"seriesCountByLabelName":[{"name":"__name__","value":10},{"name":"dot.ted","value":10}]}`
	period := series.PeriodOf(someTime)
	if want := fmt.Sprintf(want, period, period+series.IndexPeriod-1); string(got.Data) != want {
		t.Errorf("got\n%s\nwant\n%s", got.Data, want)
	}
	for _, limit := range []string{"0", "x", "10001"} {
		if got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", params("limit", limit)); got.status != 400 || got.ErrorType != "bad_data" {
			t.Errorf("limit %s: %+v", limit, got)
		}
	}
	// A second answer reads nothing.
	f.store.fail.Store(true)
	if got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", nil); got.status != 200 {
		t.Errorf("again: %+v", got)
	}
}

func TestErrors(t *testing.T) {
	f := serve(t, func(a *api.Config, e *engine.Config) { e.Limits.MaxSeries = 5 })
	f.fill(t)
	for _, tt := range []struct {
		path   string
		params url.Values
		broken bool
		status int
		kind   string
		text   string
	}{
		{"query", params("query", "up{"), false, 400, "bad_data", "parse error"},
		{"query", params("query", "up", "time", "yesterday"), false, 400, "bad_data", "time"},
		{"query_range", params("query", "up", "start", "2", "end", "1", "step", "1"), false, 400, "bad_data", "end timestamp"},
		{"series", nil, false, 400, "bad_data", "match[]"},
		{"metadata", params("limit", "x"), false, 400, "bad_data", "limit"},
		{"metadata", params("limit_per_metric", "x"), false, 400, "bad_data", "limit_per_metric"},
		{"query", params("query", "sum(up)", "time", at(0)), false, 422, "", "more than 5 match"},
		{"query_exemplars", params("query", "up", "start", at(-9), "end", at(0)), false, 422, "", "more than 5 match"},
		{"query", params("query", "up{n=\"1\"}", "time", at(0)), true, 503, "", errStore.Error()},
		{"query_range", params("query", "up{n=\"1\"}", "start", at(0), "end", at(0), "step", "1"), true, 503, "", errStore.Error()},
		{"series", params("match[]", "up"), true, 503, "", errStore.Error()},
		{"labels", nil, true, 503, "", errStore.Error()},
		{"label/job/values", nil, true, 503, "", errStore.Error()},
		{"query_exemplars", params("query", "up", "start", at(-9), "end", at(0)), true, 503, "", errStore.Error()},
		{"metadata", nil, true, 503, "", errStore.Error()},
		{"status/tsdb", nil, true, 503, "", errStore.Error()},
	} {
		t.Run(fmt.Sprint(tt.path, tt.params, tt.broken), func(t *testing.T) {
			f.store.fail.Store(tt.broken)
			defer f.store.fail.Store(false)
			got := f.ask(t, http.MethodGet, "/api/v1/"+tt.path, tt.params)
			if got.status != tt.status || got.Status != "error" || !strings.Contains(got.Error, tt.text) || (tt.kind != "" && got.ErrorType != tt.kind) {
				t.Errorf("%+v, want %d %s %q", got, tt.status, tt.kind, tt.text)
			}
		})
	}
}

// TestStoreFails: if the store fails, a query is a 503, however it is evaluated and whatever the error is: a store has deadlines of
// its own, and its errors are not the end of the query.
func TestStoreFails(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	for _, failure := range []error{errStore, fmt.Errorf("scan METRIC: %w", context.DeadlineExceeded), fmt.Errorf("scan METRIC: %w", context.Canceled)} {
		f.store.failure.Store(&failure)
		for _, query := range []string{`up{n="1"}`, `sum(rate(up[5m]))`, `up * on (n) up`, `max_over_time(up[5m:1m])`, `timestamp(up)`, `absent(up)`} {
			for _, path := range []string{"query", "query_range"} {
				f.store.fail.Store(true)
				got := f.ask(t, http.MethodGet, "/api/v1/"+path, params("query", query, "time", at(0), "start", at(-60), "end", at(0), "step", "60"))
				f.store.fail.Store(false)
				if got.status != http.StatusServiceUnavailable || !strings.Contains(got.Error, failure.Error()) {
					t.Errorf("%s %s: %+v, want 503 and %v", path, query, got, failure)
				}
			}
		}
	}
}

// TestNothingElse: what upstream's API could do beside that is not served.
func TestNothingElse(t *testing.T) {
	f := serve(t, nil)
	for _, path := range []string{"write", "read", "otlp/v1/metrics", "targets/relabel_steps", "rules/x", "scrape_pools/config", "status/tsdb/blocks", "status/self_metrics", "search/metric_names", "openapi.yaml"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			if got := f.ask(t, method, "/api/v1/"+path, nil); got.status != 404 {
				t.Errorf("%s %s: status %d", method, path, got.status)
			}
		}
	}
}

func TestBuildInfo(t *testing.T) {
	got := serve(t, nil).ask(t, http.MethodGet, "/api/v1/status/buildinfo", nil)
	var info struct{ Version string }
	if err := json.Unmarshal(got.Data, &info); err != nil || !strings.HasPrefix(info.Version, "3.") || len(strings.Split(info.Version, ".")) != 3 {
		t.Errorf("%s, %v", got.Data, err)
	}
	for _, path := range []string{"config", "runtimeinfo"} {
		if got := serve(t, nil).ask(t, http.MethodGet, "/api/v1/status/"+path, nil); got.status != 200 || len(got.Data) < 10 {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestConcurrency: with one slot, a second query waits for the first, and for
// no longer than its timeout.
func TestConcurrency(t *testing.T) {
	for _, logged := range []bool{false, true} {
		t.Run(fmt.Sprintf("logged %t", logged), func(t *testing.T) {
			dir := t.TempDir()
			f := serve(t, func(a *api.Config, _ *engine.Config) {
				a.MaxConcurrent, a.Timeout = 1, 2*time.Second
				if logged {
					a.ActiveQueries = dir
				}
			})
			f.fill(t)
			statuses := make([]int, 8)
			done := make(chan int)
			for i := range statuses {
				go func() {
					statuses[i] = f.ask(t, http.MethodGet, "/api/v1/query", params("query", "up", "time", at(0))).status
					done <- i
				}()
			}
			for range statuses {
				<-done
			}
			if slices.ContainsFunc(statuses, func(status int) bool { return status != 200 }) {
				t.Errorf("statuses %v", statuses)
			}
			if _, err := os.Stat(filepath.Join(dir, "queries.active")); (err == nil) != logged {
				t.Errorf("log of active queries: %v", err)
			}
		})
	}
}

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
)

// eachBackend serves an API on each real store, which has metrics in the running index period and in that before.
func eachBackend(t *testing.T, change func(*api.Config, *engine.Config), do func(t *testing.T, f *fixture)) {
	for name, open := range map[string]func(t *testing.T) bucketstore.Store{
		"pebble": func(t *testing.T) bucketstore.Store {
			store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: someNow})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return store
		},
		"bigtable": func(t *testing.T) bucketstore.Store { return bigtabletest.Open(t) },
	} {
		t.Run(name, func(t *testing.T) {
			f := serveStore(t, open(t), change)
			f.fillPeriods(t)
			do(t, f)
		})
	}
}

// fillPeriods stores 6 series of x_total in both periods, 4 of gone in the one before, and 3 of page_new_bucket now.
func (f *fixture) fillPeriods(t *testing.T) {
	t.Helper()
	var batch []ingest.Series
	add := func(at int64, ls ...string) {
		batch = append(batch, ingest.Series{Labels: labels.FromStrings(ls...), Samples: []ingest.Sample{{T: at, V: 1}}})
	}
	for i := range 6 {
		for _, at := range []int64{someTime, someTime - series.IndexPeriod} {
			add(at, "__name__", "x_total", "job", fmt.Sprint("j", i%2), "n", fmt.Sprint(i))
		}
	}
	for i := range 4 {
		add(someTime-series.IndexPeriod, "__name__", "gone", "n", fmt.Sprint(i))
	}
	for i := range 3 {
		add(someTime, "__name__", "page_new_bucket", "le", fmt.Sprint(i))
	}
	var rejected ingest.Rejected
	if _, err := f.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
	err := f.engine.AppendMetadata(t.Context(), []ingest.Metadata{
		{Family: "page_new", Metadata: metadata.Metadata{Type: model.MetricTypeHistogram, Help: "New.", Unit: "s"}},
		{Family: "x_total", Metadata: metadata.Metadata{Type: model.MetricTypeCounter}},
		{Family: "x", Metadata: metadata.Metadata{Type: model.MetricTypeGauge}},
	}, &rejected)
	if err != nil {
		t.Fatal(err)
	}
}

// wantData wants an answer to hold this JSON, with the start of the running index period for %[1]d and its end for %[2]d.
func (f *fixture) wantData(t *testing.T, path string, p url.Values, want string) {
	t.Helper()
	got := f.ask(t, http.MethodGet, path, p)
	if want = fmt.Sprintf(want+"%[3]s", series.PeriodOf(someTime), series.PeriodOf(someTime)+series.IndexPeriod-1, ""); string(got.Data) != want {
		t.Errorf("%s %v: %d %s\n%s\nwant\n%s", path, p, got.status, got.Error, got.Data, want)
	}
}

func TestCardinalityOf(t *testing.T) {
	eachBackend(t, nil, func(t *testing.T, f *fixture) {
		f.wantData(t, "/api/v1/status/tsdb", params("match[]", `{job="j0"}`, "topN", "2", "focusLabel", "n"),
			`{"headStats":{"numSeries":3,"numLabelPairs":5,"chunkCount":0,"minTime":%[1]d,"maxTime":%[2]d},`+
				`"seriesCountByMetricName":[{"name":"x_total","value":3}],`+
				`"labelValueCountByLabelName":[{"name":"n","value":3},{"name":"__name__","value":1}],`+
				`"memoryInBytesByLabelName":[{"name":"__name__","value":7},{"name":"n","value":3}],`+
				`"seriesCountByLabelValuePair":[{"name":"__name__=x_total","value":3},{"name":"job=j0","value":3}],`+
				`"seriesCountByLabelName":[{"name":"__name__","value":3},{"name":"job","value":3}],`+
				`"seriesCountByFocusLabelValue":[{"name":"0","value":1},{"name":"2","value":1}]}`)
		type counts struct {
			HeadStats               struct{ NumSeries, MinTime int64 }
			SeriesCountByMetricName []index.Count
			Comparison              *struct {
				HeadStats               struct{ NumSeries, MinTime int64 }
				SeriesCountByMetricName index.Changes
			}
		}
		ask := func(p url.Values) (c counts) {
			t.Helper()
			got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", p)
			if err := json.Unmarshal(got.Data, &c); err != nil {
				t.Fatalf("%v: %+v, %v", p, got, err)
			}
			return c
		}
		before := time.UnixMilli(someTime - series.IndexPeriod).UTC()
		for _, date := range []string{before.Format(time.DateOnly), before.Format(time.RFC3339), fmt.Sprint(before.Unix())} {
			if c := ask(params("date", date)); c.HeadStats.NumSeries != 10 || c.HeadStats.MinTime != series.PeriodOf(before.UnixMilli()) || len(c.SeriesCountByMetricName) != 2 {
				t.Errorf("at %s: %+v", date, c)
			}
		}
		if c := ask(params("date", someNow().UTC().Format(time.DateOnly))); c.HeadStats.NumSeries != 9 {
			t.Errorf("today: %+v", c)
		}
		if c := ask(params("match[]", "x_total", "match[]", `{n="5"}`, "match[]", "{le!=\"\"}")); c.HeadStats.NumSeries != 9 {
			t.Errorf("of three selectors: %+v", c)
		}
		for _, match := range []string{"", `{__name__!=""}`} {
			p := params("compare", before.Format(time.DateOnly), "limit", "1")
			if match != "" {
				p.Set("match[]", match)
			}
			want := index.Changes{New: 1, Gone: 1, Largest: nil}
			c := ask(p).Comparison
			if c == nil || c.HeadStats.NumSeries != 10 || c.SeriesCountByMetricName.New != want.New || c.SeriesCountByMetricName.Gone != want.Gone ||
				len(c.SeriesCountByMetricName.Largest) != 1 || c.SeriesCountByMetricName.Largest[0].Name != "gone" {
				t.Errorf("compared %q: %+v", match, c)
			}
		}
	})
}

func TestCardinalityErrors(t *testing.T) {
	limits := func(a *api.Config, e *engine.Config) {
		e.Limits.MaxSeries = 5
		e.Timeline = timelinetest.Cut(func(time.Time) int64 { return someTime - 2*series.IndexPeriod })
		a.MaxMemory = 1
	}
	f := serve(t, limits)
	f.fillPeriods(t)
	for _, tt := range []struct {
		params url.Values
		status int
		text   string
	}{
		{params("date", "yesterday"), 400, "neither a day"},
		{params("date", "2026-02-30"), 400, "neither a day"},
		{params("date", someNow().AddDate(0, 0, 1).UTC().Format(time.DateOnly)), 400, "after now"},
		{params("date", "1969-12-31"), 400, "before 1970"},
		{params("date", "-5"), 400, "before 1970"},
		{params("date", "NaN"), 400, "neither a day"},
		{params("date", "1e300"), 400, "neither a day"},
		{params("date", someNow().Add(-20*24*time.Hour).UTC().Format(time.DateOnly)), 400, "series are kept from"},
		{params("compare", someNow().Add(-20*24*time.Hour).UTC().Format(time.DateOnly)), 400, "series are kept from"},
		{params("compare", fmt.Sprint(someTime/1000-60)), 400, "same index period"},
		{params("compare", "x"), 400, "neither a day"},
		{params("topN", "0"), 400, "from 1 to"},
		{params("match[]", "{"), 400, "match[]"},
		{params("match[]", "x_total"), 422, "more than 5 match"},
		{params("match[]", `x_total{job="j0"}`), 422, "--query.max-memory-bytes"},
	} {
		got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", tt.params)
		if got.status != tt.status || !strings.Contains(got.Error, tt.text) {
			t.Errorf("%v: %d %q, want %d with %q", tt.params, got.status, got.Error, tt.status, tt.text)
		}
	}
	for _, path := range []string{"metric_names", "status/tsdb", "status/store"} {
		f.store.fail.Store(true)
		if got := f.ask(t, http.MethodGet, "/api/v1/"+path, nil); got.status != 503 {
			t.Errorf("%s of a broken store: %+v", path, got)
		}
		f.store.fail.Store(false)
	}
	if got := f.ask(t, http.MethodGet, "/api/v1/metric_names", params("limit", "1001")); got.status != 400 {
		t.Errorf("too many names: %+v", got)
	}
	if got := f.ask(t, http.MethodGet, "/api/v1/metric_names", params("date", "1971-01-01")); got.status != 400 || !strings.Contains(got.Error, "series are kept from") {
		t.Errorf("names of what is not kept: %+v", got)
	}
}

func TestMetricNames(t *testing.T) {
	eachBackend(t, nil, func(t *testing.T, f *fixture) {
		const tree = `{"minTime":%%[1]d,"maxTime":%%[2]d,"counted":%t,"total":2,"found":2,"groups":[],` +
			`"names":[{"name":"page_new_bucket","series":%d,"type":"histogram","unit":"s","help":"New."},{"name":"x_total","series":%d,"type":"counter"}],"left":0}`
		f.wantData(t, "/api/v1/metric_names", nil, fmt.Sprintf(tree, false, 0, 0))
		f.wantData(t, "/api/v1/metric_names", params("search", "NEW", "limit", "1"),
			`{"minTime":%[1]d,"maxTime":%[2]d,"counted":false,"total":2,"found":1,"groups":[],"names":[{"name":"page_new_bucket","series":0,"type":"histogram","unit":"s","help":"New."}],"left":0}`)
		if got := f.ask(t, http.MethodGet, "/api/v1/status/tsdb", nil); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		f.wantData(t, "/api/v1/metric_names", nil, fmt.Sprintf(tree, true, 3, 6))
		f.wantData(t, "/api/v1/metric_names", params("prefix", "x_"),
			`{"minTime":%[1]d,"maxTime":%[2]d,"counted":true,"total":2,"found":1,"groups":[],"names":[{"name":"x_total","series":6,"type":"counter"}],"left":0}`)
	})
}

func TestStoreStatus(t *testing.T) {
	const cut = someTime - series.IndexPeriod/4*5
	kept := func(a *api.Config, _ *engine.Config) {
		a.Resolutions = func(time.Time) []api.Resolution {
			return []api.Resolution{{Name: "raw", Age: time.Hour, From: someTime - 3600_000}, {Name: "1h", From: cut}}
		}
	}
	const resolutions = `"resolutions":[{"name":"raw","maxAgeSeconds":3600,"from":%d},{"name":"1h","maxAgeSeconds":0,"from":%d}]}`
	eachBackend(t, kept, func(t *testing.T, f *fixture) {
		f.wantData(t, "/api/v1/status/store", nil, fmt.Sprintf(`{"series":9,"seriesExact":true,"minTime":%%[1]d,"maxTime":%%[2]d,`+
			`"oldest":{"minTime":%d,"maxTime":%d},"newest":{"minTime":%%[1]d,"maxTime":%d},"newestSample":%d,"newestSampleExact":true,`+resolutions,
			int64(cut), series.PeriodOf(someTime)-1, int64(someTime), int64(someTime), int64(someTime)-3600_000, int64(cut)))
	})
	serve(t, nil).wantData(t, "/api/v1/status/store", nil, `{"series":0,"seriesExact":true,"minTime":%[1]d,"maxTime":%[2]d,"resolutions":[]}`)

	// Of many series some are looked at; those that have ended do not count.
	f := serve(t, nil)
	var batch []ingest.Series
	for i := range 1001 {
		batch = append(batch, ingest.Series{Labels: labels.FromStrings("__name__", "x", "i", strconv.Itoa(i)), Samples: []ingest.Sample{{T: someTime - 1000, V: 1}}})
	}
	appendAll := func(batch ...ingest.Series) {
		t.Helper()
		var rejected ingest.Rejected
		if _, err := f.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
	}
	ended := batch[0]
	ended.Samples = []ingest.Sample{{T: someTime, V: math.Float64frombits(value.StaleNaN)}}
	for _, c := range []struct {
		batch []ingest.Series
		want  string
	}{
		{batch, fmt.Sprintf(`"newestSample":%d,"resolutions"`, someTime-1000)},
		{[]ingest.Series{ended}, fmt.Sprintf(`"newestSample":%d,"newestSampleExact":true,"resolutions"`, someTime-1000)},
	} {
		appendAll(c.batch...)
		if got := string(f.ask(t, http.MethodGet, "/api/v1/status/store", nil).Data); !strings.Contains(got, c.want) {
			t.Errorf("the answer %s has no %s", got, c.want)
		}
	}
}

// TestUsage: what a query for samples has named or found is read; all else is not, with its number of series. Lists of series and labels read nothing.
func TestUsage(t *testing.T) {
	limits := func(a *api.Config, _ *engine.Config) {
		a.LimitsUsed = func(context.Context) map[string]float64 { return map[string]float64{"a": 0.25, "b": 0.5} }
	}
	f := serve(t, limits)
	f.fillPeriods(t)
	type usage struct {
		From                        int64
		UnreadMetrics, UnreadLabels []index.Count
		Limits                      []struct {
			Name string
			Used float64
		}
	}
	ask := func() (u usage) {
		t.Helper()
		got := f.ask(t, http.MethodGet, "/api/v1/status/usage", nil)
		if err := json.Unmarshal(got.Data, &u); err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return u
	}
	names := func(counts []index.Count) (all []string) {
		for _, c := range counts {
			if c.Value < 1 {
				t.Errorf("%s has %d series", c.Name, c.Value)
			}
			all = append(all, c.Name)
		}
		slices.Sort(all)
		return all
	}
	f.ask(t, http.MethodGet, "/api/v1/series", params("match[]", "x_total"))
	first := ask()
	if got := names(first.UnreadMetrics); !slices.Contains(got, "x_total") || first.From != someNow().UnixMilli() {
		t.Errorf("at first %q are not read since %d", got, first.From)
	}
	if len(first.Limits) != 2 || first.Limits[0].Name != "b" || first.Limits[0].Used != 0.5 {
		t.Errorf("the limits are %+v", first.Limits)
	}
	before := names(first.UnreadLabels)
	f.ask(t, http.MethodGet, "/api/v1/query", params("query", `sum by (n) (x_total{job="j0"})`))
	after := ask()
	if got := names(after.UnreadMetrics); slices.Contains(got, "x_total") || len(got) != len(first.UnreadMetrics)-1 {
		t.Errorf("after a query %q are not read", got)
	}
	if got := names(after.UnreadLabels); slices.Contains(got, "n") || slices.Contains(got, "job") || len(got) != len(before)-2 {
		t.Errorf("after a query the labels %q are not read, before %q", got, before)
	}
	f.ask(t, http.MethodGet, "/api/v1/query", params("query", `count_over_time({__name__=~".+"}[20d])`, "time", fmt.Sprint(someNow().Unix())))
	if got := ask().UnreadMetrics; len(got) > 0 {
		t.Errorf("after a query for all %+v are not read", got)
	}
}

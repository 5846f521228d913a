package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
)

// TestNothing: of rules and targets the adapter has none, and says so in the form of Prometheus 3.15, with its errors.
func TestNothing(t *testing.T) {
	f := serve(t, nil)
	for _, tt := range []struct {
		path   string
		params url.Values
		want   string
	}{
		{"rules", nil, `{"groups":[]}`},
		{"rules", params("type", "alert", "match[]", "up", "exclude_alerts", "true", "group_limit", "3"), `{"groups":[]}`},
		{"alerts", nil, `{"alerts":[]}`},
		{"targets", nil, `{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}`},
		{"targets", params("state", "active"), `{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":null}`},
		{"targets/metadata", nil, `[]`},
		{"scrape_pools", nil, `{"scrapePools":[]}`},
		{"alertmanagers", nil, `{"activeAlertmanagers":[],"droppedAlertmanagers":[]}`},
		{"notifications", nil, `[]`},
		{"status/walreplay", nil, `{"min":0,"max":0,"current":0}`},
	} {
		got := f.ask(t, http.MethodGet, "/api/v1/"+tt.path, tt.params)
		var have, want any
		if err := errors.Join(json.Unmarshal(got.Data, &have), json.Unmarshal([]byte(tt.want), &want)); err != nil {
			t.Errorf("%s: %v: %+v", tt.path, err, got)
		}
		if got.status != http.StatusOK || !reflect.DeepEqual(have, want) {
			t.Errorf("%s %v: %d %s %s, want %s", tt.path, tt.params, got.status, got.Data, got.Error, tt.want)
		}
	}
	for _, tt := range []struct {
		path   string
		params url.Values
		want   string
	}{
		{"rules", params("type", "bad"), `invalid parameter "type": not supported value "bad"`},
		{"rules", params("exclude_alerts", "x"), `invalid parameter "exclude_alerts": `},
		{"rules", params("match[]", "up{"), "parse error"},
		{"rules", params("group_next_token", "x"), `invalid parameter "group_next_token": `},
		{"targets/metadata", params("limit", "x"), "limit must be a number"},
	} {
		if got := f.ask(t, http.MethodGet, "/api/v1/"+tt.path, tt.params); got.status != http.StatusBadRequest || got.ErrorType != "bad_data" || !strings.Contains(got.Error, tt.want) {
			t.Errorf("%s %v: %+v, want %s", tt.path, tt.params, got, tt.want)
		}
	}
	if got := f.ask(t, http.MethodGet, "/api/v1/notifications/live", nil); got.status != http.StatusNoContent {
		t.Errorf("notifications as they come: %+v", got)
	}
	for _, path := range []string{"query", "labels", "rules", "targets"} {
		if got := f.ask(t, http.MethodDelete, "/api/v1/"+path, nil); got.status != http.StatusMethodNotAllowed {
			t.Errorf("DELETE %s: %+v", path, got)
		}
	}
}

// TestFeatureList: /api/v1/features says which parts of PromQL are on.
func TestFeatureList(t *testing.T) {
	f := serve(t, func(a *api.Config, _ *engine.Config) { a.Features = []string{"promql-delayed-name-removal"} })
	got := f.ask(t, http.MethodGet, "/api/v1/features", nil)
	var all map[string]map[string]bool
	if err := json.Unmarshal(got.Data, &all); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if promql := all["promql"]; !promql["delayed_name_removal"] || promql["per_step_stats"] || !all["promql_functions"]["rate"] {
		t.Errorf("%s", got.Data)
	}
}

// TestConfiguration: the configuration has the intervals of the adapter.
func TestConfiguration(t *testing.T) {
	for _, tt := range []struct {
		seconds float64
		want    string
	}{{0, "scrape_interval: 1m\n  scrape_timeout: 10s\n  evaluation_interval: 30s\n"}, {15, "scrape_interval: 15s\n  scrape_timeout: 10s\n  evaluation_interval: 30s\n"},
		{0.5, "scrape_interval: 500ms\n  scrape_timeout: 500ms\n  evaluation_interval: 30s\n"}} {
		f := serve(t, func(a *api.Config, _ *engine.Config) {
			a.Status.SelfScrape.IntervalSeconds, a.EvaluationInterval = tt.seconds, 30*time.Second
		})
		var data struct{ YAML string }
		got := f.ask(t, http.MethodGet, "/api/v1/status/config", nil)
		if err := json.Unmarshal(got.Data, &data); err != nil || !strings.Contains(data.YAML, tt.want) {
			t.Errorf("%g s: %v, %s", tt.seconds, err, data.YAML)
		}
	}
}

// TestCurrentNumbers: very large and very small numbers are as short as in the answer to an instant query.
func TestCurrentNumbers(t *testing.T) {
	f := serve(t, nil)
	h := &histogram.FloatHistogram{Count: 1e30, Sum: 1.7e308, ZeroThreshold: 1e-128, ZeroCount: 1e30 - 2e29, Schema: 0,
		PositiveSpans: []histogram.Span{{Offset: 900, Length: 1}}, PositiveBuckets: []float64{1e29}, NegativeSpans: []histogram.Span{{Offset: 1, Length: 1}}, NegativeBuckets: []float64{1e29}}
	series := []ingest.Series{{Labels: labels.FromStrings("__name__", "x", "n", "h"), Histograms: []ingest.Histogram{{T: someTime + 7, FH: h}}}}
	for name, v := range map[string]float64{"max": 1.7e308, "min": 5e-324, "-": -1e21, "below": 9.99e20, "small": 1e-6, "smaller": 9e-7, "0": math.Copysign(0, -1), "inf": math.Inf(-1), "nan": math.NaN()} {
		series = append(series, ingest.Series{Labels: labels.FromStrings("__name__", "x", "n", name), Samples: []ingest.Sample{{T: someTime + 7, V: v}}})
	}
	var rejected ingest.Rejected
	if _, err := f.engine.Append(t.Context(), series, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
	type sample struct {
		Metric           map[string]string
		Value, Histogram json.RawMessage
	}
	var current struct{ Samples []sample }
	var instant struct{ Result []sample }
	query := params("query", "x", "time", fmt.Sprintf("%.3f", float64(someTime+7)/1000))
	if err := errors.Join(json.Unmarshal(f.ask(t, http.MethodGet, "/api/v1/current", nil).Data, &current),
		json.Unmarshal(f.ask(t, http.MethodGet, "/api/v1/query", query).Data, &instant)); err != nil {
		t.Fatal(err)
	}
	wants := map[string]sample{}
	for _, s := range instant.Result {
		wants[s.Metric["n"]] = s
	}
	if len(current.Samples) != len(series) || len(wants) != len(series) {
		t.Fatalf("%d samples and %d in PromQL, want %d", len(current.Samples), len(wants), len(series))
	}
	for _, s := range current.Samples {
		if want := wants[s.Metric["n"]]; !reflect.DeepEqual(s, want) {
			t.Errorf("%s is written %s%s, want %s%s", s.Metric["n"], s.Value, s.Histogram, want.Value, want.Histogram)
		}
	}
}

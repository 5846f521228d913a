package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestCatalog: each panel is PromQL for each range of time, of metrics that a host has.
func TestCatalog(t *testing.T) {
	var names []string
	for _, s := range hostShapes() {
		names = append(names, s.name)
	}
	metric := regexp.MustCompile(`\b(node|http|go|process|queue)_[a-z0-9_A-Z]+`)
	p := parser.NewParser(parser.Options{})
	for _, z := range zooms {
		for _, panel := range catalog {
			text := z.query(panel)
			if _, err := p.ParseExpr(text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			for _, name := range metric.FindAllString(panel.text, -1) {
				if !slices.Contains(names, name) {
					t.Errorf("%s: no host has %s", text, name)
				}
			}
		}
	}
	year := zooms[len(zooms)-1]
	if got, want := year.query(panel{text: "rate(x[$__rate_interval]) + max_over_time(x[$__interval]) + x[$__range]"}), "rate(x[6h15s]) + max_over_time(x[6h]) + x[1y]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDifference: values that are missing, other or more are told from equal ones.
func TestDifference(t *testing.T) {
	want := map[string]string{"a": "1", "b": "NaN", "c": "200"}
	for _, tt := range []struct {
		got  map[string]string
		want string
	}{
		{map[string]string{"a": "1", "b": "NaN", "c": "200"}, "0"},
		{map[string]string{"a": "1", "b": "NaN", "c": "202"}, "0.01"},
		{map[string]string{"a": "1", "b": "3", "c": "200"}, "NaN"},
		{map[string]string{"a": "1", "c": "200", "d": "7"}, "1 missing, 1 more"},
	} {
		if got := difference(tt.got, want); got != tt.want {
			t.Errorf("%v differs from %v by %s, want %s", tt.got, want, got, tt.want)
		}
	}
}

// TestSendAll: each sample of a workload is sent once.
func TestSendAll(t *testing.T) {
	w := smallWorkload()
	w.Samples = 250
	type point struct {
		series uint64
		t      int64
	}
	var mu sync.Mutex
	got := map[point]float64{}
	requests, samples := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var req prompb.WriteRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = snappy.Decode(nil, body)
		}
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		requests++
		b := labels.NewScratchBuilder(0)
		for _, ts := range req.Timeseries {
			series := ts.ToLabels(&b, nil).Hash()
			for _, s := range ts.Samples {
				got[point{series, s.Timestamp}] = s.Value
				samples++
			}
		}
	}))
	defer server.Close()
	if err := sendAll(t.Context(), server.URL, w); err != nil {
		t.Fatal(err)
	}
	if requests < 2 || samples != w.total() {
		t.Errorf("%d requests have %d samples, want %d", requests, samples, w.total())
	}
	for g := newGenerator(w); g.scrape(); {
		for i, ls := range g.labelsOf(0, w.Series) {
			if v, ok := got[point{ls.Hash(), g.T[i]}]; !ok || v != g.V[i] {
				t.Fatalf("%v at %d is %v, want %v", ls, g.T[i], v, g.V[i])
			}
		}
	}
}

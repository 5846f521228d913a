package main

import (
	"regexp"
	"slices"
	"testing"

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

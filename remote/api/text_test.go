package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/promtable/promtable/remote/api"
)

// TestTextLimits: wherever PromQL or a selector is parsed, a text beyond a limit is a 400 that names the limit.
func TestTextLimits(t *testing.T) {
	f := serveAdmin(t)
	selectors := map[string]string{
		"the limit is 262144": `{a=~"` + strings.Repeat("b.*|", 1<<16) + `"}`,
		"10000 matchers":      "{" + strings.Repeat("a='b',", 10_001) + "}",
	}
	expressions := map[string]string{
		"5000 operators":    "x" + strings.Repeat(" or x", 5001),
		"200 parentheses":   strings.Repeat("(", 201) + "x" + strings.Repeat(")", 201),
		"100 labels":        "sum by (" + strings.Repeat("a,", 101) + ") (x)",
		"more than 10000 m": "x{" + strings.Repeat("a='b',", 10_001) + "}",
	}
	shown := map[string]string{"300 operators": "x" + strings.Repeat(" or x", 301), "16384": "x # " + strings.Repeat("y", 16<<10)}
	for _, tt := range []struct {
		path, param string
		texts       map[string]string
	}{
		{"query", "query", expressions}, {"query_range", "query", expressions}, {"query_exemplars", "query", expressions},
		{"parse_query", "query", shown}, {"format_query", "query", shown},
		{"series", "match[]", selectors}, {"labels", "match[]", selectors}, {"label/a/values", "match[]", selectors},
		{"current", "match[]", selectors}, {"status/tsdb", "match[]", selectors}, {"admin/tsdb/delete_series", "match[]", selectors},
	} {
		for says, text := range tt.texts {
			p := params(tt.param, text, "time", at(0), "start", at(-60), "end", at(0), "step", "60")
			for _, method := range methodsOf(tt.path) {
				if method == http.MethodGet && len(p.Encode()) > 512<<10 { // no server takes so long a URL
					continue
				}
				if got := f.ask(t, method, "/api/v1/"+tt.path, p); got.status != http.StatusBadRequest || !strings.Contains(got.Error, says) {
					t.Errorf("%s %s: %d %.200s, want %q", method, tt.path, got.status, got.Error, says)
				}
			}
		}
	}
}

// methodsOf returns the methods of a path.
func methodsOf(path string) (methods []string) {
	for _, pattern := range append(api.Patterns(), api.AdminPatterns()...) {
		method, of, _ := strings.Cut(pattern, " ")
		if of == "/api/v1/"+strings.ReplaceAll(path, "label/a/", "label/{name}/") {
			methods = append(methods, method)
		}
	}
	return methods
}

// TestTextAtLimits: texts at the limits of what is shown are evaluated, parsed and formatted.
func TestTextAtLimits(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	for name, text := range map[string]string{
		"or":         "up" + strings.Repeat(" or up", 300),
		"sum":        "1" + strings.Repeat("+1", 300),
		"functions":  strings.Repeat("abs(", 200) + "up" + strings.Repeat(")", 200),
		"subqueries": strings.Repeat("max_over_time((", 3) + "up" + strings.Repeat(")[5m:1m])", 3),
		"names":      `up{n=~"3|` + strings.Repeat("host-1|", 2000) + `x"}`,
	} {
		for _, path := range []string{"query", "query_range", "parse_query", "format_query"} {
			got := f.ask(t, http.MethodPost, "/api/v1/"+path, url.Values{"query": {text}, "time": {at(0)}, "start": {at(-60)}, "end": {at(0)}, "step": {"60"}})
			if got.status != http.StatusOK {
				t.Errorf("%s %s: %d %.200s", path, name, got.status, got.Error)
			}
		}
	}
}

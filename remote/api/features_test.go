package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
)

// TestFeatures: a feature is there when its name is given, and not before.
func TestFeatures(t *testing.T) {
	for _, tt := range []struct{ feature, query, want string }{
		{"promql-experimental-functions", `sort_by_label(up{n="3"}, "job")`, "3"},
		{"promql-binop-fill-modifiers", `sum by (n) (up{n="3"}) + fill(4) sum by (n) (up{n="none"})`, "7"},
		{"promql-delayed-name-removal", `max(label_replace(-up{n="3"}, "kept", "1", "__name__", "up")) by (kept) and label_replace(vector(1), "kept", "1", "", "")`, "-3"},
	} {
		t.Run(tt.feature, func(t *testing.T) {
			without, with := serve(t, nil), serve(t, func(a *api.Config, _ *engine.Config) { a.Features = []string{tt.feature} })
			without.fill(t)
			with.fill(t)
			ask := func(f *fixture) answer {
				return f.ask(t, http.MethodGet, "/api/v1/query", params("query", tt.query, "time", at(0)))
			}
			if got := ask(without); got.Status == "success" && len(got.Data) > len(`{"resultType":"vector","result":[]}`) {
				t.Errorf("without the feature: %+v", got)
			}
			if got := values(t, ask(with)); len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// TestAlwaysOn: duration expressions and extended range selectors need no feature, and take the names that they had.
func TestAlwaysOn(t *testing.T) {
	f := serve(t, func(a *api.Config, _ *engine.Config) {
		a.Features = []string{"promql-duration-expr", "promql-extended-range-selectors"}
	})
	f.fill(t)
	for query, want := range map[string]string{`count_over_time(up{n="3"}[1m+4m])`: "5", `increase(up{n="3"}[4m] anchored)`: "0"} {
		got := f.ask(t, http.MethodGet, "/api/v1/query", params("query", query, "time", at(0)))
		if vs := values(t, got); len(vs) != 1 || vs[0] != want {
			t.Errorf("%s: %+v", query, got)
		}
	}
}

func TestUnknownFeature(t *testing.T) {
	if err := api.CheckFeatures([]string{"promql-per-step-stats", "other"}); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Error(err)
	}
}

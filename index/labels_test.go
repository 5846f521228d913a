package index_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

func TestNamesAndValues(t *testing.T) {
	const period = series.IndexPeriod
	longA, longB := strings.Repeat("x,\n", 300)+"a", strings.Repeat("x,\n", 300)+"b"
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	mustWrite(t, x,
		entry(t, 0, "__name__", "up", "job", "b"),
		entry(t, period, "__name__", "up", "job", "b", "zone", "z"),
		entry(t, period+1, "__name__", "up", "job", "a"),
		entry(t, 2*period, "__name__", "up", "text", longA),
		entry(t, 2*period, "__name__", "up", "text", longB, longA, "a"),
		entry(t, 3*period, "job", "nameless"),
	)
	tests := []struct {
		name         string
		start, limit int64
		names        []string
		label        string
		values       []string
	}{
		{"one period", 0, 1, []string{"__name__", "job"}, "job", []string{"b"}},
		{"the end of that period", period - 1, period, []string{"__name__", "job"}, "job", []string{"b"}},
		{"one millisecond more", period - 1, period + 1, []string{"__name__", "job", "zone"}, "job", []string{"a", "b"}},
		{"all", 0, series.MaxTime + 1, []string{"__name__", "job", "text", longA, "zone"}, "job", []string{"a", "b", "nameless"}},
		{"long values", 2 * period, 3 * period, []string{"__name__", "text", longA}, "text", []string{longA, longB}},
		{"a long name", 2 * period, 3 * period, []string{"__name__", "text", longA}, longA, []string{"a"}},
		{"a name in two periods", 0, 2 * period, []string{"__name__", "job", "zone"}, "__name__", []string{"up"}},
		{"no name", 3 * period, 4 * period, []string{"job"}, "__name__", nil},
		{"nothing there", 4 * period, 5 * period, nil, "job", nil},
		{"an empty range", 5, 5, nil, "job", nil},
		{"a range that ends before it starts", 5, 4, nil, "job", nil},
		{"a label whose name begins like another", 0, series.MaxTime + 1, []string{"__name__", "job", "text", longA, "zone"}, "jo", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			names, err := x.Names(t.Context(), index.Query{Start: test.start, Limit: test.limit})
			if err != nil || !slices.Equal(names, test.names) {
				t.Errorf("names %q %v, want %q", names, err, test.names)
			}
			values, err := x.Values(t.Context(), test.label, index.Query{Start: test.start, Limit: test.limit})
			if err != nil || !slices.Equal(values, test.values) {
				t.Errorf("values %q %v, want %q", values, err, test.values)
			}
		})
	}
}

// Tenants do not see each other, also when the name of one looks like the keys
// of another.
func TestTenants(t *testing.T) {
	tab := newTable(t)
	indexOf := make(map[string]*index.Index)
	tenants := []string{"a", "a,p", "p", "a,p,__name__=up", "ab"}
	for _, tenant := range tenants {
		schema := newSchema(t, nil, tenant)
		x := index.New(index.Config{Schema: schema}, tab)
		indexOf[tenant] = x
		for _, job := range []string{"shared", "of " + tenant} {
			mustWrite(t, x, entryOf(t, schema, 0, labels.FromStrings("__name__", "up", "job", job)))
		}
	}
	n := len(tenants)
	wantWork(t, tab, "the same series for each tenant", work{putCalls: 4 * n, putRows: (6 + 3) * n, scanCalls: 2 * n})
	for _, tenant := range tenants {
		t.Run(tenant, func(t *testing.T) {
			x := indexOf[tenant]
			want := []string{"of " + tenant, "shared"}
			for _, pairs := range [][]string{nil, {"__name__=", "up"}, {"job=~", "shared|of.*"}, {"job!=", ""}} {
				result := mustSelect(t, x, index.Query{Matchers: matchers(t, pairs...), Limit: 1})
				var got []string
				for _, s := range result.Series {
					got = append(got, s.Labels.Get("job"))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q: series of jobs %q, want %q", pairs, got, want)
				}
			}
			values, err := x.Values(t.Context(), "job", index.Query{Start: 0, Limit: 1})
			if err != nil || !slices.Equal(values, want) {
				t.Errorf("values %q %v, want %q", values, err, want)
			}
			names, err := x.Names(t.Context(), index.Query{Start: 0, Limit: 1})
			if err != nil || !slices.Equal(names, []string{"__name__", "job"}) {
				t.Errorf("names %q %v", names, err)
			}
		})
	}
}

func TestReadFailure(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "a"))
	tab.onScan = func(int) error { return errStore }
	if _, err := x.Names(t.Context(), index.Query{Start: 0, Limit: 1}); !errors.Is(err, errStore) {
		t.Errorf("names: %v", err)
	}
	if _, err := x.Values(t.Context(), "job", index.Query{Start: 0, Limit: 1}); !errors.Is(err, errStore) {
		t.Errorf("values: %v", err)
	}
	for _, pairs := range [][]string{nil, {"job=", "a"}, {"job=~", "a.*"}} {
		if _, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, pairs...), Limit: 1}); !errors.Is(err, errStore) {
			t.Errorf("%q: %v", pairs, err)
		}
	}
}

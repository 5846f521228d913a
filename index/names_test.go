package index_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// names writes a series of each metric name, and a second one of those that end with 2.
func names(t *testing.T, x *index.Index, all ...string) {
	t.Helper()
	var entries []index.Entry
	for _, name := range all {
		entries = append(entries, entry(t, 5, "__name__", name))
		if name[len(name)-1] == '2' {
			entries = append(entries, entry(t, 5, "__name__", name, "a", "b"))
		}
	}
	mustWrite(t, x, entries...)
}

// TestMetricTree: names are grouped by their prefixes, down to few of them.
func TestMetricTree(t *testing.T) {
	x := index.New(index.Config{Exclusive: true}, newTable(t))
	all := []string{"up", "node", "node_a1", "node_a2", "node_b_1", "node_b_2", "node_b_3", "node_b_4", "go_x_y_1", "go_x_y_2", "go_x_y_3", "go_x_z", "a_1", "a_2", "_x", "job:r:1"}
	names(t, x, all...)
	groups := func(counted uint64) map[string]*index.Metrics {
		return map[string]*index.Metrics{
			"": {Total: 16, Found: 16, Groups: []index.MetricGroup{{"go_x_", 4, 5 * counted}, {"node_", 6, 8 * counted}}, Names: []index.Count{
				{Name: "_x", Value: counted}, {Name: "a_1", Value: counted}, {Name: "a_2", Value: 2 * counted},
				{Name: "job:r:1", Value: counted}, {Name: "node", Value: counted}, {Name: "up", Value: counted},
			}},
			"node_": {Total: 16, Found: 6, Groups: []index.MetricGroup{{"node_b_", 4, 5 * counted}}, Names: []index.Count{
				{Name: "node_a1", Value: counted}, {Name: "node_a2", Value: 2 * counted},
			}},
			"node_b_": {Total: 16, Found: 4, Names: []index.Count{
				{Name: "node_b_1", Value: counted}, {Name: "node_b_2", Value: 2 * counted}, {Name: "node_b_3", Value: counted}, {Name: "node_b_4", Value: counted},
			}},
			"nothing": {Total: 16},
		}
	}
	for _, counted := range []uint64{0, 1} {
		if counted == 1 {
			if _, err := x.Cardinality(t.Context(), index.CountQuery{Time: 5, Top: 1}); err != nil {
				t.Fatal(err)
			}
		}
		for prefix, want := range groups(counted) {
			want.Maxt, want.Counted = series.IndexPeriod-1, counted == 1
			got, err := x.Metrics(t.Context(), index.MetricQuery{Time: 5, Prefix: prefix, Limit: 10})
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: got %v\n%+v\nwant\n%+v", prefix, err, got, want)
			}
		}
	}
	got, err := x.Metrics(t.Context(), index.MetricQuery{Time: 5, Limit: 3})
	if err != nil || len(got.Groups)+len(got.Names) != 3 || got.Left != 5 || got.Found != 16 {
		t.Errorf("three of them: %+v, %v", got, err)
	}
	if got, err := x.Metrics(t.Context(), index.MetricQuery{Time: 5, Prefix: "g", Limit: 10}); err != nil || len(got.Groups) != 0 || len(got.Names) != 4 {
		t.Errorf("where all have a longer prefix: %+v, %v", got, err)
	}
	names(t, x, "go_new")
	if got, err := x.Metrics(t.Context(), index.MetricQuery{Time: 5, Prefix: "go_", Limit: 10}); err != nil || got.Found != 5 || got.Names[0].Name != "go_new" {
		t.Errorf("with a new name: %+v, %v", got, err)
	}
}

// TestMetricSearch: the exact name is first, then those that begin with the text, then words.
func TestMetricSearch(t *testing.T) {
	x := index.New(index.Config{Exclusive: true}, newTable(t))
	names(t, x, "a_xcpu", "b_cpu", "cpu", "CPU", "cpu_1", "node_cpu_2", "other")
	got, err := x.Metrics(t.Context(), index.MetricQuery{Time: 5, Search: "cpu", Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, n := range got.Names {
		found = append(found, n.Name)
	}
	if want := []string{"cpu", "CPU", "cpu_1", "b_cpu", "node_cpu_2"}; !slices.Equal(found, want) || got.Found != 6 || got.Left != 1 || got.Total != 7 {
		t.Errorf("found %q of %+v, want %q", found, got, want)
	}
}

// TestExtent: which periods there are, and how many series the running one has, counted up to a bound.
func TestExtent(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{Exclusive: true}, tab)
	const now = 100*series.IndexPeriod + 9
	want := func(most int, want index.Extent) {
		t.Helper()
		want.Mint, want.Maxt = 100*series.IndexPeriod, 101*series.IndexPeriod-1
		if got, err := x.Extent(t.Context(), 0, now, most); err != nil || got != want {
			t.Errorf("up to %d: %+v, %v, want %+v", most, got, err, want)
		}
	}
	want(5, index.Extent{First: -1, Last: -1, Exact: true})
	var entries []index.Entry
	for i := range 7 {
		entries = append(entries, entry(t, now, "__name__", fmt.Sprint("m", i%3), "id", fmt.Sprint(i)))
	}
	mustWrite(t, x, append(entries, entry(t, 3*series.IndexPeriod+9, "__name__", "old"))...)
	const first, last = 3 * series.IndexPeriod, 100 * series.IndexPeriod
	want(7, index.Extent{First: first, Last: last, Series: 7, Exact: true})
	want(6, index.Extent{First: first, Last: last, Series: 6})
	want(1, index.Extent{First: first, Last: last, Series: 1})
	before := tab.work().scanRows
	want(2, index.Extent{First: first, Last: last, Series: 2})
	if rows := tab.work().scanRows - before; rows > 10 {
		t.Errorf("to count two series takes %d rows", rows)
	}
	if _, err := x.Cardinality(t.Context(), index.CountQuery{Time: now, Top: 1}); err != nil {
		t.Fatal(err)
	}
	want(1, index.Extent{First: first, Last: last, Series: 7, Exact: true})
	if got, err := x.Extent(t.Context(), 4*series.IndexPeriod, now, 1); err != nil || got.First != last {
		t.Errorf("after the first period: %+v, %v", got, err)
	}
}

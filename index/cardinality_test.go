package index_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// counts returns the largest of a map.
func counts(all map[string]uint64, top int) (list []index.Count) {
	for name, n := range all {
		list = append(list, index.Count{Name: name, Value: n})
	}
	slices.SortFunc(list, func(a, b index.Count) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), top)]
}

// Cardinality is what one would count by hand, in its period and no other.
func TestCardinality(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	// Values that sort otherwise behind their separator, and one that is cut.
	values := []string{"a", "a+", "a,b", "ab", "ä", strings.Repeat("long", 300), "\n"}
	const top = 5
	metrics, labelValues, labelBytes, pairs := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	bySeries, zones := map[string]uint64{}, map[string]uint64{}
	seen := map[string]bool{}
	n := 0
	var entries []index.Entry
	for i := range 3000 {
		ls := []string{"__name__", fmt.Sprint("metric", rng.IntN(20)), "id", fmt.Sprint(i), "v", values[rng.IntN(len(values))]}
		if rng.IntN(3) == 0 {
			ls = append(ls, "zone", values[rng.IntN(2)])
		}
		// Times near the beginning of a period: nothing is prewritten.
		at := int64(rng.IntN(3)) * series.IndexPeriod
		entries = append(entries, entry(t, at, ls...))
		if at != series.IndexPeriod {
			continue
		}
		n++
		metrics[ls[1]]++
		for l := 0; l < len(ls); l += 2 {
			pairs[ls[l]+"="+ls[l+1]]++
			bySeries[ls[l]]++
			if ls[l] == "zone" {
				zones[ls[l+1]]++
			}
			if key := ls[l] + "\xff" + ls[l+1]; !seen[key] {
				seen[key] = true
				labelValues[ls[l]]++
				labelBytes[ls[l]] += uint64(len(ls[l+1]))
			}
		}
	}
	mustWrite(t, x, entries...)
	got, err := x.Cardinality(t.Context(), index.CountQuery{Time: series.IndexPeriod + 12345, Top: top, Focus: "zone"})
	want := &index.Cardinality{
		Mint: series.IndexPeriod, Maxt: 2*series.IndexPeriod - 1, Series: n, Pairs: len(seen),
		Metrics: counts(metrics, top), Labels: counts(labelValues, top), LabelBytes: counts(labelBytes, top), SeriesByPair: counts(pairs, top),
		SeriesByLabel: counts(bySeries, top), Focus: counts(zones, top),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("seed %d: got %v\n%+v\nwant\n%+v", seed, err, got, want)
	}
	if got, err := x.Cardinality(t.Context(), index.CountQuery{Time: 5 * series.IndexPeriod, Top: top}); err != nil || got.Series != 0 || len(got.Labels) != 0 {
		t.Errorf("an empty period: %+v, %v", got, err)
	}
}

// stock writes series to two periods: 30 of x_total in the first, of which 20 are in the second
// one, too, and there 5 of y.
func stock(t *testing.T, x *index.Index) {
	t.Helper()
	var entries []index.Entry
	for i := range 30 {
		ls := []string{"__name__", "x_total", "job", fmt.Sprint("j", i%3), "id", fmt.Sprint(i)}
		if entries = append(entries, entry(t, 5, ls...)); i < 20 {
			entries = append(entries, entry(t, series.IndexPeriod+5, ls...))
		}
	}
	for i := range 5 {
		entries = append(entries, entry(t, series.IndexPeriod+5, "__name__", "y", "job", "j0", "id", fmt.Sprint(i)))
	}
	mustWrite(t, x, entries...)
}

// TestCardinalityOfSelectors: only what a selector matches is counted, once.
func TestCardinalityOfSelectors(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{Exclusive: true}, tab)
	stock(t, x)
	q := index.CountQuery{Time: 7, Top: 3, Focus: "job", Selectors: [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchRegexp, "job", "j[01]"), labels.MustNewMatcher(labels.MatchEqual, "__name__", "x_total")},
		{labels.MustNewMatcher(labels.MatchEqual, "job", "j0")},
	}}
	got, err := x.Cardinality(t.Context(), q)
	want := &index.Cardinality{
		Maxt: series.IndexPeriod - 1, Series: 20, Pairs: 23,
		Metrics: []index.Count{{Name: "x_total", Value: 20}}, Labels: []index.Count{{Name: "id", Value: 20}, {Name: "job", Value: 2}, {Name: "__name__", Value: 1}},
		LabelBytes:    []index.Count{{Name: "id", Value: 33}, {Name: "__name__", Value: 7}, {Name: "job", Value: 4}},
		SeriesByLabel: []index.Count{{Name: "__name__", Value: 20}, {Name: "id", Value: 20}, {Name: "job", Value: 20}},
		SeriesByPair:  []index.Count{{Name: "__name__=x_total", Value: 20}, {Name: "job=j0", Value: 10}, {Name: "job=j1", Value: 10}},
		Focus:         []index.Count{{Name: "j0", Value: 10}, {Name: "j1", Value: 10}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\n%+v\nwant\n%+v", err, got, want)
	}
	q.MaxSeries = 19
	if _, err := x.Cardinality(t.Context(), q); !errors.Is(err, index.ErrTooManySeries) {
		t.Errorf("more series than are allowed: %v", err)
	}
	q.MaxSeries = 0
	full := errors.New("no memory")
	q.Hold = func(int) error { return full }
	if _, err := x.Cardinality(t.Context(), q); !errors.Is(err, full) {
		t.Errorf("more memory than is allowed: %v", err)
	}
}

// TestCompare: what is new, gone, grown and shrunk, largest difference first.
func TestCompare(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{Exclusive: true}, tab)
	stock(t, x)
	q := index.CountQuery{Time: series.IndexPeriod + 7, Top: 2, Focus: "job"}
	for _, backwards := range []bool{false, true} {
		other := int64(9)
		if backwards {
			q.Time, other = 9, q.Time
		}
		now, got, err := x.Compare(t.Context(), q, other)
		want := &index.Comparison{
			Maxt: series.IndexPeriod - 1, Series: 30, Pairs: 34,
			Metrics: index.Changes{New: 1, Shrunk: 1, Largest: []index.Change{{Name: "x_total", Before: 30, Value: 20}, {Name: "y", Value: 5}}},
			Labels:  index.Changes{Grown: 1, Shrunk: 1, Largest: []index.Change{{Name: "id", Before: 30, Value: 20}, {Name: "__name__", Before: 1, Value: 2}}},
			SeriesByLabel: index.Changes{Shrunk: 3, Largest: []index.Change{
				{Name: "__name__", Before: 30, Value: 25}, {Name: "id", Before: 30, Value: 25},
			}},
			SeriesByPair: index.Changes{New: 1, Gone: 10, Grown: 6, Shrunk: 3, Largest: []index.Change{
				{Name: "__name__=x_total", Before: 30, Value: 20}, {Name: "__name__=y", Value: 5},
			}},
			Focus: index.Changes{Grown: 1, Shrunk: 2, Largest: []index.Change{{Name: "j2", Before: 10, Value: 6}, {Name: "j1", Before: 10, Value: 7}}},
		}
		if backwards {
			want.Mint, want.Maxt, want.Series, want.Pairs = series.IndexPeriod, 2*series.IndexPeriod-1, 25, 25
			for _, c := range []*index.Changes{&want.Metrics, &want.Labels, &want.SeriesByLabel, &want.SeriesByPair, &want.Focus} {
				c.New, c.Gone, c.Grown, c.Shrunk = c.Gone, c.New, c.Shrunk, c.Grown
				for i, l := range c.Largest {
					c.Largest[i].Before, c.Largest[i].Value = l.Value, l.Before
				}
			}
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v\n%+v\nwant\n%+v", err, got, want)
		}
		if now.Series+got.Series != 55 {
			t.Errorf("%d series, and %d before", now.Series, got.Series)
		}
	}
	if _, _, err := x.Compare(t.Context(), q, q.Time+1); !errors.Is(err, index.ErrSamePeriod) {
		t.Errorf("a period with itself: %v", err)
	}
}

// TestCompareMany: of many changes the largest are kept.
func TestCompareMany(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	x := index.New(index.Config{Exclusive: true}, tab)
	const many = 40
	var entries []index.Entry
	for i := range many {
		for n := range i + 1 {
			entries = append(entries, entry(t, 5, "__name__", fmt.Sprintf("m%02d", i), "id", fmt.Sprint(i, "-", n)))
		}
	}
	mustWrite(t, x, entries...)
	_, got, err := x.Compare(t.Context(), index.CountQuery{Time: series.IndexPeriod, Top: 3}, 5)
	if err != nil || got.Metrics.Gone != many || got.SeriesByPair.Gone != many+many*(many+1)/2 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := []index.Change{{Name: "__name__=m39", Before: 40}, {Name: "__name__=m38", Before: 39}, {Name: "__name__=m37", Before: 38}}
	if !slices.Equal(got.SeriesByPair.Largest, want) {
		t.Errorf("the largest are %+v, want %+v", got.SeriesByPair.Largest, want)
	}
}

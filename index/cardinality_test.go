package index_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

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
	seen := map[string]bool{}
	n := 0
	var entries []index.Entry
	for i := range 3000 {
		ls := []string{"__name__", fmt.Sprint("metric", rng.IntN(20)), "id", fmt.Sprint(i), "v", values[rng.IntN(len(values))]}
		if rng.IntN(3) == 0 {
			ls = append(ls, "zone", values[rng.IntN(2)])
		}
		// Times near the beginning of a period: nothing is written ahead.
		at := int64(rng.IntN(3)) * series.IndexPeriod
		entries = append(entries, entry(t, at, ls...))
		if at != series.IndexPeriod {
			continue
		}
		n++
		metrics[ls[1]]++
		for l := 0; l < len(ls); l += 2 {
			pairs[ls[l]+"="+ls[l+1]]++
			if key := ls[l] + "\xff" + ls[l+1]; !seen[key] {
				seen[key] = true
				labelValues[ls[l]]++
				labelBytes[ls[l]] += uint64(len(ls[l+1]))
			}
		}
	}
	mustWrite(t, x, entries...)
	got, err := x.Cardinality(t.Context(), series.IndexPeriod+12345, top)
	want := &index.Cardinality{
		Mint: series.IndexPeriod, Maxt: 2*series.IndexPeriod - 1, Series: n, Pairs: len(seen),
		Metrics: counts(metrics, top), Labels: counts(labelValues, top), LabelBytes: counts(labelBytes, top), SeriesByPair: counts(pairs, top),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("seed %d: got %v\n%+v\nwant\n%+v", seed, err, got, want)
	}
	if got, err := x.Cardinality(t.Context(), 5*series.IndexPeriod, top); err != nil || got.Series != 0 || len(got.Labels) != 0 {
		t.Errorf("an empty period: %+v, %v", got, err)
	}
}

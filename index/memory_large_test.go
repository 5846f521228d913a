//go:build !race

package index_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Of a label with very many values only some are held at a time, in each period.
func TestVeryManyValues(t *testing.T) {
	const count = 51_234
	tab := newTable(t)
	tab.countOnly = true
	var entries []index.Entry
	for i := range count {
		entries = append(entries, entry(t, 0, "__name__", fmt.Sprint("m", i), "id", fmt.Sprint(i)))
	}
	entries = append(entries, entry(t, series.IndexPeriod, "__name__", "m1", "id", "1"), entry(t, series.IndexPeriod, "__name__", "m2", "id", "later"), entry(t, 0, "id", "nameless"))
	mustWrite(t, index.New(index.Config{WrittenSeries: 1}, tab), entries...)
	for _, test := range []struct {
		pairs []string
		want  int
	}{{[]string{"id!=", ""}, count + 2}, {[]string{"id!=", "5"}, count + 1}, {[]string{"id=~", ".*[05]"}, count/5 + 1}, {nil, count + 2}} {
		for _, limit := range []int{0, 1} {
			x := index.New(index.Config{Exclusive: true, MaxMemory: limit}, tab)
			for n := range 2 {
				tab.reset()
				q := index.Query{Matchers: matchers(t, test.pairs...), Limit: 2 * series.IndexPeriod}
				result := mustSelect(t, x, q)
				checkLists(t, tab, q, result)
				if len(result.Series) != test.want {
					t.Errorf("%q: %d series, want %d", test.pairs, len(result.Series), test.want)
				}
				if rows := tab.work().scanRows; (rows == 0) != (n == 1 && limit == 0) {
					t.Errorf("%q, %d bytes, call %d: %d rows are read", test.pairs, limit, n, rows)
				}
			}
		}
	}
}

// Random writes of this process and of another one, random queries, with little and with
// much memory: the answer is what brute force finds.
func TestMemoryModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for n, limit := range []int{0, 1, 100_000, 1_000_000} {
		for _, exclusive := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d bytes, exclusive %v", limit, exclusive), func(t *testing.T) {
				tab := newTable(t)
				tab.countOnly = true
				m := newModel(t, tab, seed+uint64(n), nil, "")
				now := time.Unix(1e9, 0)
				cfg := index.Config{Exclusive: exclusive, Refresh: 15 * time.Second, MaxMemory: limit, Now: func() time.Time { return now }, ParallelLists: 1 + m.rng.IntN(3)}
				m.index = index.New(cfg, tab)
				other := index.New(index.Config{}, tab)
				m.write(t, 300)
				for range 60 {
					mine := m.index
					if !exclusive && m.rng.IntN(2) == 0 {
						m.index = other
					}
					m.write(t, m.rng.IntN(40))
					if m.index == other {
						m.index, now = mine, now.Add(15*time.Second)
					}
					for range 3 {
						q := m.randomQuery()
						m.check(t, q)
						m.checkTexts(t, q, m.randomLabel())
					}
					m.checkTexts(t, index.Query{Start: q0(m), Limit: series.MaxTime}, m.randomLabel())
				}
			})
		}
	}
}

package index_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// TestCheck removes and changes rows of some series. The check finds each of them and nothing
// else, and the repair writes them, marks last.
func TestCheck(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprintf("atomic %t", atomic), func(t *testing.T) {
			tab := newTable(t)
			cfg := index.Config{Schema: newSchema(t, []string{"host"}, ""), AtomicPuts: atomic}
			var entries []index.Entry
			for n := range 3000 {
				ls := labels.FromStrings("__name__", fmt.Sprint("m", n%7), "host", fmt.Sprint(n%5), "n", fmt.Sprint(n))
				if n == 0 {
					ls = labels.FromStrings("n", "nameless")
				}
				key, err := cfg.Schema.AppendSeriesKey(nil, ls)
				if err != nil {
					t.Fatal(err)
				}
				for period := range int64(1 + n%2) {
					entries = append(entries, index.Entry{Key: key, Labels: ls, T: (100 + period) * series.IndexPeriod})
				}
			}
			if err := index.New(cfg, tab).Write(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			want := tab.lines()
			check := func(repair bool) (marked int, found []string) {
				t.Helper()
				marked, err := index.New(cfg, tab).Check(t.Context(), entries, repair, func(row index.Row) { found = append(found, string(row.Key)) })
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(found)
				return marked, found
			}
			if marked, found := check(false); marked != len(entries) || len(found) > 0 {
				t.Fatalf("%d of %d marks, %q", marked, len(entries), found)
			}
			var broken []string
			marks := len(entries)
			for i, line := range want {
				key := line.key
				if i%13 > 0 {
					continue
				}
				if isMark := key[:len("p,__name__=")] == "p,__name__="; isMark {
					marks--
				}
				if i%2 == 0 {
					tab.remove(key)
				} else {
					tab.set(key, "another")
				}
				broken = append(broken, key)
			}
			tab.reset()
			if marked, found := check(false); marked != marks || !slices.Equal(found, broken) {
				t.Errorf("%d of %d marks, %d rows of %d", marked, marks, len(found), len(broken))
			}
			if tab.work().putRows > 0 {
				t.Error("a check writes")
			}
			if _, found := check(true); !slices.Equal(found, broken) {
				t.Errorf("the repair finds %d rows of %d", len(found), len(broken))
			}
			if n := tab.work().putRows; n != len(broken) {
				t.Errorf("the repair writes %d rows, want %d", n, len(broken))
			}
			if got := tab.lines(); !slices.Equal(got, want) {
				t.Errorf("%d rows after the repair, want %d, or others", len(got), len(want))
			}
		})
	}
}

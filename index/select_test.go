package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// fill writes the series that make tells of, 0 to count-1, in batches.
func fill(t testing.TB, x *index.Index, count int, make func(i int) labels.Labels) {
	t.Helper()
	var batch []index.Entry
	for i := range count {
		batch = append(batch, entryOf(t, series.Schema{}, 0, make(i)))
		if len(batch) == 10_000 || i == count-1 {
			mustWrite(t, x, batch...)
			batch = batch[:0]
		}
	}
}

// firstPage is how many rows Select reads of each list before it looks at the
// next.
const firstPage = 512

// The list that ends first is the answer: however many series the other
// matchers match, a query costs about the number of lists times the smallest.
func TestSelectCost(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	x := index.New(index.Config{}, tab)
	const huge = 50_000
	counts := []struct {
		name  string
		count int
	}{{"five", 5}, {"page", firstPage}, {"pages", 3 * firstPage}, {"many", 3000}, {"huge", huge}}
	for _, c := range counts {
		fill(t, x, c.count, func(i int) labels.Labels {
			return labels.FromStrings("__name__", c.name, "env", "prod", "id", fmt.Sprint(i), "zone", fmt.Sprint("z", i%2))
		})
	}
	tests := []struct {
		name     string
		matchers []string
		// want is how many series match, smallest how long the shortest list is and
		// complete whose it is.
		want, smallest int
		complete       string
	}{
		{"one series of a metric", []string{"__name__=", "five", "id=", "3"}, 1, 5, `__name__="five"`},
		{"small after big", []string{"env=", "prod", "__name__=", "five"}, 5, 5, `__name__="five"`},
		{"small before big", []string{"__name__=", "five", "env=", "prod"}, 5, 5, `__name__="five"`},
		{"small after values", []string{"id=~", ".*0", "__name__=", "five"}, 1, 5, `__name__="five"`},
		{"small after any value", []string{"id!=", "", "id=~", ".+", "__name__=", "five"}, 5, 5, `__name__="five"`},
		{"small among matchers of absence", []string{"id!=", "3", "gone=", "", "id!~", "4", "__name__=", "five"}, 3, 5, `__name__="five"`},
		{"a page", []string{"env=", "prod", "__name__=", "page"}, firstPage, firstPage, `__name__="page"`},
		{"pages to their last row", []string{"env=", "prod", "__name__=", "pages"}, 3 * firstPage, 3 * firstPage, `__name__="pages"`},
		{"many", []string{"zone=~", "z.*", "env=~", "prod|test", "__name__=~", "many"}, 3000, 3000, `__name__=~"many"`},
		{"half of many", []string{"zone=", "z1", "env=", "prod", "__name__=", "many"}, 1500, 3000, `__name__="many"`},
		{"nobody", []string{"env=", "prod", "__name__=", "nobody"}, 0, 0, `__name__="nobody"`},
		{"no value", []string{"env=", "prod", "__name__=~", "no.*"}, 0, 0, `__name__=~"no.*"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tab.reset()
			q := index.Query{Matchers: matchers(t, test.matchers...), Limit: 1}
			result := mustSelect(t, x, q)
			if len(result.Series) != test.want {
				t.Errorf("%d series, want %d", len(result.Series), test.want)
			}
			// Pages double: the list that is ahead has read at most twice as much and a page.
			most := len(result.Lists) * (2*test.smallest + firstPage)
			if rows := tab.work().scanRows; rows > most {
				t.Errorf("%d rows were read, want at most %d", rows, most)
			}
			checkLists(t, tab, q, result)
			for _, l := range result.Lists {
				if !l.Complete {
					continue
				}
				if l.Matcher.String() != test.complete {
					t.Errorf("the answer is that of %s, want %s", l.Matcher, test.complete)
				}
				if l.Matcher.Type == labels.MatchEqual && l.Rows[0] != test.smallest {
					t.Errorf("its %d rows were read as %d: no page repeats one", test.smallest, l.Rows[0])
				}
			}
		})
	}
	t.Run("a single list is read in one go", func(t *testing.T) {
		tab.reset()
		mustSelect(t, x, index.Query{Matchers: matchers(t, "__name__=", "huge"), Limit: 1})
		wantWork(t, tab, "huge", work{scanCalls: 1, scanRows: huge})
	})
	t.Run("the limit ends it early", func(t *testing.T) {
		tab.reset()
		q := index.Query{Matchers: matchers(t, "__name__=", "huge", "env=", "prod"), Limit: 1, MaxSeries: 100}
		if _, err := x.Select(t.Context(), q); !errors.Is(err, index.ErrTooManySeries) {
			t.Errorf("%v, want ErrTooManySeries", err)
		}
		wantWork(t, tab, "huge", work{scanCalls: 1, scanRows: 101})
	})
}

// A query that takes some of the series reads no more than it needs.
func TestSelectEnough(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	var entries []index.Entry
	for i := range 5000 {
		entries = append(entries, entry(t, 0, "__name__", "up", "id", fmt.Sprintf("%04d", i), "odd", fmt.Sprint(i%2)))
	}
	mustWrite(t, x, entries...)
	for _, test := range []struct {
		name     string
		matchers []string
		enough   int
		want     int
		rows     int // read at most
	}{
		{"one list", []string{"__name__=", "up"}, 10, 10, 10},
		{"one list, every second", []string{"__name__=", "up", "id=~", ".*[13579]"}, 10, 10, 20},
		{"several lists", []string{"__name__=", "up", "odd=", "1", "id!=", "x"}, 10, 10, 3 * 512},
		{"all but one", []string{"__name__=", "up"}, 4999, 4999, 4999},
		{"as many as there are", []string{"__name__=", "up"}, 5000, 5000, 5000},
		{"more than there are", []string{"__name__=", "up"}, 5001, 5000, 5000},
		{"none", []string{"__name__=", "down"}, 10, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			tab.reset()
			result := mustSelect(t, x, index.Query{Matchers: matchers(t, test.matchers...), Limit: 1, Enough: test.enough})
			if len(result.Series) != test.want {
				t.Errorf("%d series, want %d", len(result.Series), test.want)
			}
			if !slices.IsSortedFunc(result.Series, func(a, b index.Series) int { return labels.Compare(a.Labels, b.Labels) }) {
				t.Error("not sorted")
			}
			rows := 0
			for _, l := range result.Lists {
				for _, n := range l.Rows {
					rows += n
				}
			}
			if rows > test.rows {
				t.Errorf("%d rows read, want at most %d", rows, test.rows)
			}
		})
	}
}

// However many lists are read at the same time, the answer is the same, and that
// of the same list.
func TestSelectParallelLists(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	fill(t, index.New(index.Config{}, tab), 4000, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "up", "id", fmt.Sprint(i), "third", fmt.Sprint(i%3), "half", fmt.Sprint(i%2))
	})
	for _, pairs := range [][]string{
		{"__name__=", "up", "third=", "1"},
		{"__name__=", "up", "third=", "1", "half=", "1", "id=~", "1.*"},
		{"id=~", ".*7", "__name__=", "up", "half=~", "1|2"},
		{"third=", "1", "__name__=", "up", "third!=", "0"},
		{"__name__=", "up", "id=", "none", "half=", "1"},
		{"__name__=", "up", "id=~", "no.*", "id=", "none"},
	} {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			var want string
			for lists := range 5 {
				x := index.New(index.Config{ParallelLists: lists}, tab)
				for _, enough := range []int{0, 5} {
					tab.reset()
					q := index.Query{Matchers: matchers(t, pairs...), Limit: 1, Enough: enough}
					result := mustSelect(t, x, q)
					checkLists(t, tab, q, result)
					got := fmt.Sprint(texts(result), completeOf(result))
					switch {
					case enough > 0:
						if n := len(result.Series); n > enough {
							t.Errorf("%d lists: %d series, want at most %d", lists, n, enough)
						}
					case lists == 0:
						want = got
					case got != want:
						t.Errorf("%d lists: %.200s, want %.200s", lists, got, want)
					}
				}
			}
		})
	}
}

func completeOf(result *index.Result) string {
	i := slices.IndexFunc(result.Lists, func(l index.ListRead) bool { return l.Complete })
	return result.Lists[i].Matcher.String()
}

// watchedTable is a table that is asked before each scan.
type watchedTable struct {
	*table
	before func(ctx context.Context, first series.RowRange) error
}

func (w watchedTable) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
	if err := w.before(ctx, ranges[0]); err != nil {
		return err
	}
	return w.table.ScanRows(ctx, ranges, limit, fn)
}

// So many lists are read at the same time, and no more.
func TestSelectAtTheSameTime(t *testing.T) {
	for _, test := range []struct{ lists, want int }{{0, 1}, {1, 1}, {2, 2}, {3, 3}, {9, 3}} {
		t.Run(fmt.Sprint(test.lists), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				held := make(chan struct{})
				tab := watchedTable{newTable(t), func(context.Context, series.RowRange) error {
					running.Add(1)
					<-held
					return nil
				}}
				x := index.New(index.Config{ParallelLists: test.lists}, tab)
				call := background(func() error {
					_, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, "a=", "1", "b=", "1", "c=", "1"), Limit: 1})
					return err
				})
				wantRunning(t, call, "a page is read")
				if n := running.Load(); int(n) != test.want {
					t.Errorf("%d scans, want %d", n, test.want)
				}
				close(held)
				wantEnded(t, call, nil)
			})
		})
	}
}

// A list that cannot be read ends the reading of the others, and is the error.
func TestSelectListFails(t *testing.T) {
	for _, fails := range []string{"p,a=", "p,c="} {
		t.Run(fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := watchedTable{newTable(t), func(ctx context.Context, first series.RowRange) error {
					if strings.HasPrefix(string(first.Start), fails) {
						return errStore
					}
					<-ctx.Done()
					return ctx.Err()
				}}
				x := index.New(index.Config{ParallelLists: 3}, tab)
				_, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, "a=", "1", "b=", "1", "c=", "1"), Limit: 1})
				if !errors.Is(err, errStore) {
					t.Errorf("%v, want %v", err, errStore)
				}
			})
		})
	}
}

func TestSelectMaxSeries(t *testing.T) {
	x := index.New(index.Config{}, newTable(t))
	fill(t, x, 10, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "up", "job", "node", "id", fmt.Sprint(i))
	})
	for _, pairs := range [][]string{nil, {"__name__=", "up"}, {"job=", "node", "__name__=", "up"}, {"id!=", ""}, {"id=~", "[0-9]"}, {"gone=", ""}} {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			q := index.Query{Matchers: matchers(t, pairs...), Limit: 1}
			for q.MaxSeries = range 12 {
				result, err := x.Select(t.Context(), q)
				switch tooMany := q.MaxSeries > 0 && q.MaxSeries < 10; {
				case tooMany && !errors.Is(err, index.ErrTooManySeries):
					t.Errorf("at most %d: %v, want ErrTooManySeries", q.MaxSeries, err)
				case !tooMany && err != nil:
					t.Errorf("at most %d: %v", q.MaxSeries, err)
				case !tooMany && len(result.Series) != 10:
					t.Errorf("at most %d: %d series, want 10", q.MaxSeries, len(result.Series))
				}
			}
		})
	}
}

// What an answer holds is told before it is all found, in the same way whether its lists are
// read or in memory, and an error ends the query.
func TestSelectHold(t *testing.T) {
	const count = 3000
	tab := newTable(t)
	x := index.New(index.Config{Exclusive: true}, tab)
	mustWrite(t, x, ups(t, count, 0)...)
	for _, pairs := range [][]string{{"__name__=", "up"}, {"__name__=~", "u.*"}, {"__name__=", "up", "id!=", "none"}} {
		for range 2 {
			for _, limit := range []int{10, 2000, count - 1, count} {
				most := 0
				q := index.Query{Matchers: matchers(t, pairs...), Limit: 1, Hold: func(series int) error {
					if most = max(most, series); series > limit {
						return errStore
					}
					return nil
				}}
				found, err := x.Select(t.Context(), q)
				if tooMany := limit < count; tooMany != errors.Is(err, errStore) || !tooMany && (len(found.Series) != count || most != count) {
					t.Errorf("%q with room for %d: %v, held %d", pairs, limit, err, most)
				}
			}
		}
	}
}

// What each kind of matcher turns into.
func TestSelectRanges(t *testing.T) {
	const count = 1001
	tab := newTable(t)
	tab.countOnly = true
	x := index.New(index.Config{}, tab)
	fill(t, x, count, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "up", "id", fmt.Sprintf("v%04d", i), "job", "node")
	})
	set := func(n int) string {
		var values []string
		for i := range n {
			values = append(values, fmt.Sprintf("v%04d", i))
		}
		return strings.Join(values, "|")
	}
	values, metrics := `["v,id,0000000000000,`, `["v,__name__,0000000000000,`
	one := func(value string) string {
		return fmt.Sprintf(`["p,id=%s,0000000000000,", "p,id=%s,0000000000000-")`, value, value)
	}
	tests := []struct {
		name    string
		matcher []string
		// ranges is how many there are, first and last their beginnings as text.
		ranges      int
		first, last string
		series      int
	}{
		// Series without a metric name have postings of an empty one.
		{"none", nil, 1 + 2, metrics, `["p,__name__=up,`, count},
		{"not useful", []string{"id!=", "v0000"}, 1 + 2, metrics, `["p,__name__=up,`, count - 1},
		{"equal", []string{"id=", "v0007"}, 1, one("v0007"), "", 1},
		{"literal", []string{"id=~", "v0007"}, 1, one("v0007"), "", 1},
		{"set", []string{"id=~", "v0007|v0003|v0007|gone"}, 3, one("gone"), one("v0007"), 2},
		{"set in brackets", []string{"id=~", "v000[37]"}, 2, one("v0003"), one("v0007"), 2},
		{"255 literals", []string{"id=~", set(255)}, 255, one("v0000"), one("v0254"), 255},
		{"256 literals", []string{"id=~", set(256)}, 256, one("v0000"), one("v0255"), 256},
		{"1000 literals", []string{"id=~", set(1000)}, 1000, one("v0000"), one("v0999"), 1000},
		{"1001 literals", []string{"id=~", set(1001)}, 1001, one("v0000"), one("v1000"), 1001},
		{"1000 values", []string{"id=~", "v0.*"}, 1 + 1000, values + `v0"`, one("v0999"), 1000},
		// Of more values than that the postings of a thousand are one range.
		{"1001 values", []string{"id=~", "v.*"}, 1 + 2, values + `v"`, one("v1000"), 1001},
		{"values without a prefix", []string{"id=~", ".*3"}, 1 + 100, values + `"`, one("v0993"), 100},
		{"values in any case", []string{"id=~", "(?i)V000.*"}, 1 + 10, values + `"`, one("v0009"), 10},
		{"values not matched", []string{"id!~", "|v0.*"}, 1 + 1, values + `"`, one("v1000"), 1},
		{"no value", []string{"id=~", "w.*"}, 1, values + `w"`, "", 0},
		{"not empty", []string{"id!=", ""}, 1 + 2, values + `"`, one("v1000"), 1001},
		{"plus", []string{"id=~", ".+"}, 1 + 2, values + `"`, one("v1000"), 1001},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tab.reset()
			q := index.Query{Matchers: matchers(t, test.matcher...), Limit: 1}
			result := mustSelect(t, x, q)
			checkLists(t, tab, q, result)
			if len(result.Series) != test.series {
				t.Errorf("%d series, want %d", len(result.Series), test.series)
			}
			ranges := result.Lists[0].Ranges
			if len(ranges) != test.ranges {
				t.Fatalf("%d ranges, want %d", len(ranges), test.ranges)
			}
			if got := ranges[0].String(); !strings.HasPrefix(got, test.first) {
				t.Errorf("the first range is %s, want %s", got, test.first)
			}
			if got := ranges[len(ranges)-1].String(); !strings.HasPrefix(got, test.last) {
				t.Errorf("the last range is %s, want %s", got, test.last)
			}
		})
	}
}

// The values with a prefix are a range in each period. In more than eight periods only
// those are asked for that have rows: label names tell which.
func TestSelectPrefixInManyPeriods(t *testing.T) {
	const periods = 140
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	var entries []index.Entry
	for i := range int64(periods) {
		entries = append(entries, entry(t, i*series.IndexPeriod, "__name__", "up", "job", fmt.Sprint("node", i%3)),
			entry(t, i*series.IndexPeriod, "__name__", "up", "job", "other"))
	}
	mustWrite(t, x, entries...)
	for _, test := range []struct {
		name    string
		periods int64
		ranges  int
	}{{"one", 1, 1}, {"eight", 8, 8}, {"nine", 9, 1 + 9}, {"all", periods, 1 + periods}, {"more", 1000, 1 + periods}} {
		t.Run(test.name, func(t *testing.T) {
			tab.reset()
			q := index.Query{Matchers: matchers(t, "job=~", "node.*"), Limit: test.periods * series.IndexPeriod}
			result := mustSelect(t, x, q)
			checkLists(t, tab, q, result)
			want := min(3, int(test.periods))
			if ranges := len(result.Lists[0].Ranges); ranges != test.ranges+want {
				t.Errorf("%d ranges, want %d of values and %d of postings", ranges, test.ranges, want)
			}
			if len(result.Series) != want {
				t.Fatalf("%q, want %d series", texts(result), want)
			}
			last := (min(test.periods, periods) - 1) / 3 * 3 // when node0 was written last
			bases := int(last/8) + 1
			if got := len(result.Series[0].Bases); got != bases {
				t.Errorf("%d bases, want %d", got, bases)
			}
		})
	}
}

// A series has the bases of the periods asked for in which it was written.
func TestSelectBases(t *testing.T) {
	const base = series.Period
	x := index.New(index.Config{}, newTable(t))
	up := func(at int64) index.Entry { return entry(t, at, "__name__", "up") }
	// The first and the last period of base 1, both in base 3.
	mustWrite(t, x, up(base), up(2*base-series.IndexPeriod), up(3*base), up(4*base-series.IndexPeriod))
	tests := []struct {
		name         string
		start, limit int64
		want         []int64
	}{
		{"all", 0, series.MaxTime + 1, []int64{base, 3 * base}},
		{"before", 0, base, nil},
		{"the first millisecond", base, base + 1, []int64{base}},
		{"the end of the first period", base + series.IndexPeriod - 1, base + series.IndexPeriod, []int64{base}},
		{"periods of the base without it", base + series.IndexPeriod, 2*base - series.IndexPeriod, nil},
		{"between", 2 * base, 3 * base, nil},
		{"the last millisecond and the next base", 2*base - 1, 2*base + 1, []int64{base}},
		{"over the gap", 2*base - 1, 3*base + 1, []int64{base, 3 * base}},
		{"the end of time", 4 * base, series.MaxTime + 1, nil},
		{"nothing", base, base, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, pairs := range [][]string{nil, {"__name__=", "up"}, {"__name__=~", "u.*"}} {
				result := mustSelect(t, x, index.Query{Matchers: matchers(t, pairs...), Start: test.start, Limit: test.limit})
				var got []int64
				for _, s := range result.Series {
					got = append(got, s.Bases...)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%q: bases %d, want %d", pairs, got, test.want)
				}
			}
		})
	}
}

func TestSelectCorrupt(t *testing.T) {
	tests := []struct {
		name, tenant, key string
	}{
		{"no series key", "", "p,job=a,0000000000001"},
		{"series key of no labels", "", "p,job=a,0000000000000,"},
		{"series key with a bad escape", "", `p,job=a,0000000000000,up,job=\x`},
		{"no period", "", "p,job=a,0000000000001,up,job=a"},
		{"series of another tenant", "acme", "acme,p,job=a,0000000000000,other,up,job=a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tab := newTable(t)
			x := index.New(index.Config{Schema: newSchema(t, nil, test.tenant)}, tab)
			if err := tab.PutRows(t.Context(), []index.Row{{Key: []byte(test.key)}}); err != nil {
				t.Fatal(err)
			}
			_, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, "job=", "a"), Limit: 2 * series.IndexPeriod})
			if !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
		})
	}
}

// A caller that goes away ends the scan.
func TestSelectCancelled(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	mustWrite(t, x, entry(t, 0, "__name__", "up"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Select(ctx, index.Query{Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// FuzzWriteSelect writes one series of arbitrary texts, and another that has a
// little more of each, and finds the first by each of its labels.
func FuzzWriteSelect(f *testing.F) {
	f.Add("up", "job", "node", "instance", "127.0.0.1:80", int64(0))
	f.Add("", "A", "a,b", "a=b", "\\\n\x00=", int64(series.MaxTime))
	f.Add("x", "1299764477952", "\xff", strings.Repeat("é,", 300), strings.Repeat("=", 600), int64(series.IndexPeriod-1))
	f.Fuzz(func(t *testing.T, metric, name1, value1, name2, value2 string, at int64) {
		if name1 == "" || name2 == "" || at < 0 || at > series.MaxTime {
			return
		}
		b := labels.NewBuilder(labels.EmptyLabels())
		ls := b.Set(name1, value1).Set(name2, value2).Set(labels.MetricName, metric).Labels()
		b.Reset(labels.EmptyLabels())
		ls.Range(func(l labels.Label) { b.Set(l.Name, l.Value+"x") })
		b.Set(name1+"x", "x")
		key, err := series.Schema{}.AppendSeriesKey(nil, ls)
		otherKey, otherErr := series.Schema{}.AppendSeriesKey(nil, b.Labels())
		if err != nil || otherErr != nil {
			return // no labels, or too many of them
		}
		x := index.New(index.Config{}, newTable(t))
		mustWrite(t, x, index.Entry{Key: otherKey, Labels: b.Labels(), T: at}, index.Entry{Key: key, Labels: ls, T: at})
		base, _ := series.Split(at)
		want := index.Series{Identity: &index.Identity{Key: string(key), Labels: ls}, Bases: []int64{base}}
		ls.Range(func(l labels.Label) {
			m := labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value)
			result := mustSelect(t, x, index.Query{Matchers: []*labels.Matcher{m}, Start: at, Limit: at + 1})
			if len(result.Series) != 1 || !equalSeries(result.Series[0], want) {
				t.Errorf("%s: found %v, want %v", m, result.Series, want)
			}
			values, err := x.Values(t.Context(), l.Name, index.Query{Start: at, Limit: at + 1})
			if err != nil || !slices.Contains(values, l.Value) {
				t.Errorf("values of %q are %q, %v", l.Name, values, err)
			}
		})
	})
}

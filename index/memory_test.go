package index_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// metric returns the value of a counter or gauge. result is the value of its only label,
// empty if it has none.
func metric(t testing.TB, reg prometheus.Gatherer, name, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (len(m.Label) == 0 || m.Label[0].GetValue() == result) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s{%s}", name, result)
	return 0
}

// What was read once is not read again, and has all that is written since.
func TestMemory(t *testing.T) {
	for _, pairs := range [][]string{
		{"__name__=", "up"}, {"job=~", "a|b|new"}, {"id=~", "v.*"}, {"id=~", "v00.*"}, {"id!=", ""}, {"id=~", ".+"}, {"id!=", "v0001"}, {"id!~", "v000.|"},
		{"job=~", ".+"}, {"job!=", "a"}, nil, {"gone=", ""}, {"__name__=", "nothing", "job=", "a"}, {"__name__=", "up", "id=", "v0001"}, {"zone=", "new"},
	} {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			tab := newTable(t)
			x := index.New(index.Config{Exclusive: true}, tab)
			model := &model{table: tab, index: x, series: make(map[string]*stored)}
			write := func(from, to int, job string) {
				var entries []index.Entry
				for i := from; i < to; i++ {
					entries = append(entries, entry(t, 0, "__name__", "up", "id", fmt.Sprintf("v%04d", i), "job", job, "zone", job))
					model.note(entries[len(entries)-1], 0)
				}
				mustWrite(t, x, entries...)
			}
			write(0, 700, "a")
			write(700, 1400, "b")
			q := index.Query{Matchers: matchers(t, pairs...), Limit: 1}
			model.check(t, q)
			for _, job := range []string{"a", "new"} {
				tab.reset()
				model.check(t, q)
				if rows := tab.work().scanRows; rows != 0 {
					t.Errorf("%d rows are read again", rows)
				}
				write(1500, 1510, job)
				write(99, 100, job)
			}
			tab.reset()
			model.check(t, q)
			// The list of a new value is read once.
			if rows := tab.work().scanRows; rows > 11 {
				t.Errorf("%d rows are read again after writes", rows)
			}
			model.checkTexts(t, q, "job")
			model.checkTexts(t, q, "id")
		})
	}
}

// No query reads rows of periods that it does not ask for.
func TestReadsOnlyItsPeriods(t *testing.T) {
	const periods, count = 60, 100
	tab := newTable(t)
	tab.countOnly = true
	x := index.New(index.Config{}, tab)
	for p := range int64(periods) {
		var entries []index.Entry
		for i := range count {
			entries = append(entries, entry(t, p*series.IndexPeriod, "__name__", fmt.Sprint("m", i%10), "job", "a", "id", fmt.Sprintf("%02d-%03d", p, i)))
		}
		mustWrite(t, x, entries...)
	}
	var alternatives []string
	for i := range 1100 {
		alternatives = append(alternatives, fmt.Sprintf("%02d-%03d", 50+i/count, i%count))
	}
	for _, test := range []struct {
		name    string
		pairs   []string
		periods int64
		rows    int
	}{
		{"not empty", []string{"id!=", ""}, 1, 2 * count},
		{"plus", []string{"id=~", ".+"}, 1, 2 * count},
		{"few values", []string{"job=~", ".+"}, 1, 1 + count},
		{"alternatives", []string{"id=~", strings.Join(alternatives, "|")}, 1, count},
		{"no matcher", nil, 1, 10 + count},
		{"no usable matcher", []string{"gone=", ""}, 1, 10 + count},
		{"eight periods", []string{"id!=", ""}, 8, 8 * 2 * count},
		// Of nine and more the periods with rows are found among the label names.
		{"nine periods", []string{"id!=", ""}, 9, 9*2*count + 3*periods},
	} {
		t.Run(test.name, func(t *testing.T) {
			tab.reset()
			q := index.Query{Matchers: matchers(t, test.pairs...), Start: 50 * series.IndexPeriod, Limit: (50 + test.periods) * series.IndexPeriod}
			result := mustSelect(t, x, q)
			if len(result.Series) != count*int(test.periods) {
				t.Errorf("%d series", len(result.Series))
			}
			checkLists(t, tab, q, result)
			if rows := tab.work().scanRows; rows != test.rows {
				t.Errorf("%d rows are read, want %d", rows, test.rows)
			}
		})
	}
}

// A long list in memory is filtered if the others are not much shorter. That they are
// long is asked once.
func TestMemoryOrRows(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	x := index.New(index.Config{Exclusive: true}, tab)
	const count = 20_000
	fill(t, x, count, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "up", "half", fmt.Sprint(i%2), "ten", fmt.Sprint(i/10), "id", fmt.Sprint(i))
	})
	rowsOf := func(want int, pairs ...string) int {
		t.Helper()
		tab.reset()
		q := index.Query{Matchers: matchers(t, pairs...), Limit: 1}
		result := mustSelect(t, x, q)
		checkLists(t, tab, q, result)
		if len(result.Series) != want {
			t.Errorf("%q: %d series, want %d", pairs, len(result.Series), want)
		}
		return tab.work().scanRows
	}
	rowsOf(count, "__name__=", "up")
	for _, test := range []struct {
		pairs               []string
		want, first, second int // series, and rows of both readings
	}{
		{[]string{"__name__=", "up", "half=", "1"}, count / 2, count / 16, 0},
		{[]string{"__name__=", "up", "ten=", "7"}, 10, 10, 0},
		{[]string{"__name__=", "up", "ten=", "7", "id=", "75"}, 1, 0, 0},
		{[]string{"id=~", "(?i)7.", "__name__=", "up"}, 10, count / 16, 0},
		// The list of all series is in memory, too, once it is known which metrics there are.
		{[]string{"half=", "0"}, count / 2, count / 2, 0},
	} {
		if rows := rowsOf(test.want, test.pairs...); rows != test.first {
			t.Errorf("%q: %d rows, want %d", test.pairs, rows, test.first)
		}
		if rows := rowsOf(test.want, test.pairs...); rows != test.second {
			t.Errorf("%q: %d rows when asked again, want %d", test.pairs, rows, test.second)
		}
	}
}

// heldTable reads rows at once, and calls held before it delivers them.
type heldTable struct {
	*table
	held func()
}

func (h heldTable) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
	type row struct{ key, value string }
	var rows []row
	err := h.table.ScanRows(ctx, ranges, limit, func(key, value []byte) error {
		rows = append(rows, row{string(key), string(value)})
		return nil
	})
	h.held()
	for i := 0; i < len(rows) && err == nil; i++ {
		err = fn([]byte(rows[i].key), []byte(rows[i].value))
	}
	return err
}

// A series that is written while a list is read is in that list.
func TestMemoryWriteWhileReading(t *testing.T) {
	for _, pairs := range [][]string{{"__name__=", "up"}, {"job=~", "a|b"}, {"job=~", "[a-z]"}, {"job=~", "b.*"}, {"id!=", ""}, {"id=~", ".+"}, nil} {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab, scans := newTable(t), make(chan struct{})
				held := func() {}
				x := index.New(index.Config{Exclusive: true}, heldTable{tab, func() { held() }})
				for i := range 1001 {
					mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "a", "id", fmt.Sprint(i)))
				}
				q := index.Query{Matchers: matchers(t, pairs...), Limit: 1}
				held = func() { <-scans }
				call := background(func() error {
					_, err := x.Select(t.Context(), q)
					return err
				})
				for n := 0; ; n++ {
					synctest.Wait()
					select {
					case err := <-call:
						if err != nil {
							t.Fatal(err)
						}
						held = func() {}
						want, err := index.New(index.Config{}, tab).Select(t.Context(), q)
						if got := mustSelect(t, x, q); err != nil || !slices.Equal(texts(got), texts(want)) {
							t.Errorf("%d series, want %d, %v", len(got.Series), len(want.Series), err)
						}
						return
					default:
					}
					was := held
					held = func() {}
					mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "b", "id", fmt.Sprint("new", n)), entry(t, 0, "__name__", fmt.Sprint("other", n), "id", "5"))
					held = was
					scans <- struct{}{}
				}
			})
		})
	}
}

// What another process writes is found when lists are so old, and what this process
// writes at once.
func TestMemoryRefresh(t *testing.T) {
	now := time.Unix(0, 0)
	tab, reg := newTable(t), prometheus.NewRegistry()
	x := index.New(index.Config{Refresh: 15 * time.Second, Now: func() time.Time { return now }, Registerer: reg}, tab)
	other := index.New(index.Config{}, tab)
	count := func(pairs ...string) int {
		return len(mustSelect(t, x, index.Query{Matchers: matchers(t, pairs...), Limit: 1}).Series)
	}
	values := func() int {
		found, err := x.Values(t.Context(), "id", index.Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	want := func(what string, up, id, ids int) {
		t.Helper()
		if a, b, c := count("__name__=", "up"), count("id=~", "[0-9]"), values(); a != up || b != id || c != ids {
			t.Errorf("%s: %d series of the metric, %d with the label, %d values; want %d, %d, %d", what, a, b, c, up, id, ids)
		}
	}
	mustWrite(t, other, entry(t, 0, "__name__", "up", "id", "1"))
	want("at first", 1, 1, 1)
	mustWrite(t, other, entry(t, 0, "__name__", "up", "id", "2"))
	now = now.Add(14 * time.Second)
	want("another one writes", 1, 1, 1)
	mustWrite(t, x, entry(t, 0, "__name__", "up", "id", "3"))
	want("its own write", 2, 2, 2)
	// The rows are there, the other one has written them.
	mustWrite(t, x, entry(t, 0, "__name__", "up", "id", "2"))
	want("its own write of a series that is there", 3, 3, 3)
	mustWrite(t, other, entry(t, 0, "__name__", "up", "id", "4"))
	if rereads := metric(t, reg, "adapter_index_list_lookups_total", "reread"); rereads != 0 {
		t.Errorf("%g lists were too old", rereads)
	}
	now = now.Add(time.Second)
	want("15 s later", 4, 4, 4)
	if rereads := metric(t, reg, "adapter_index_list_lookups_total", "reread"); rereads == 0 {
		t.Error("no list was too old")
	}
}

// After a write that failed, rows may be there that no list has.
func TestMemoryAfterFailure(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{Exclusive: true, AtomicPuts: true}, failingTable{tab})
	q := index.Query{Matchers: matchers(t, "__name__=", "up"), Limit: 1}
	mustSelect(t, x, q)
	if err := x.Write(t.Context(), []index.Entry{entry(t, 0, "__name__", "up")}); err == nil {
		t.Fatal("the write has not failed")
	}
	mustWrite(t, x, entry(t, 0, "__name__", "up"))
	if found := mustSelect(t, x, q); len(found.Series) != 1 {
		t.Errorf("%d series, want 1", len(found.Series))
	}
}

// failingTable writes rows, and says that it has not.
type failingTable struct{ *table }

func (f failingTable) PutRows(ctx context.Context, rows []index.Row) error {
	if err := f.table.PutRows(ctx, rows); err != nil {
		return err
	}
	return errStore
}

// However little memory there is, the answers are the same, and it is not exceeded.
func TestMemoryBound(t *testing.T) {
	for _, limit := range []int{1, 50_000, 1_000_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			tab, reg := newTable(t), prometheus.NewRegistry()
			tab.countOnly = true
			x := index.New(index.Config{Exclusive: true, MaxMemory: limit, Registerer: reg}, tab)
			const count = 3000
			fill(t, x, count, func(i int) labels.Labels {
				return labels.FromStrings("__name__", "up", "id", fmt.Sprint(i), "ten", fmt.Sprint(i/10))
			})
			for i := range 600 {
				for _, test := range []struct {
					want  int
					pairs []string
				}{
					{10, []string{"ten=", fmt.Sprint(i % 300)}},
					{1, []string{"__name__=", "up", "id=", fmt.Sprint(i)}},
					{count, []string{"__name__=", "up"}},
					{count, []string{"id!=", ""}},
				}[:2+2*(1-min(i%100, 1))] {
					q := index.Query{Matchers: matchers(t, test.pairs...), Limit: 1}
					if found := mustSelect(t, x, q); len(found.Series) != test.want {
						t.Fatalf("%q: %d series, want %d", test.pairs, len(found.Series), test.want)
					}
					if size := metric(t, reg, "adapter_index_memory_bytes", ""); size > float64(limit) {
						t.Fatalf("%g bytes are in memory, want %d at most", size, limit)
					}
				}
			}
			lists, held := metric(t, reg, "adapter_index_memory_lists", ""), metric(t, reg, "adapter_index_memory_series", "")
			evicted, hits := metric(t, reg, "adapter_index_evicted_lists_total", ""), metric(t, reg, "adapter_index_list_lookups_total", "hit")
			if misses := metric(t, reg, "adapter_index_list_lookups_total", "miss"); misses == 0 {
				t.Error("no misses")
			}
			if kept := limit > 1; kept != (lists > 0) || kept != (held > 0) || (limit == 50_000) != (evicted > 100) && kept || limit == 1_000_000 && hits == 0 {
				t.Errorf("%g lists, %g series, %g evictions, %g hits", lists, held, evicted, hits)
			}
		})
	}
}

// The estimate of what lists take is about what they take.
func TestMemoryEstimate(t *testing.T) {
	tab, reg := newTable(t), prometheus.NewRegistry()
	tab.countOnly = true
	fill(t, index.New(index.Config{WrittenSeries: 1}, tab), 10_000, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "node_cpu_seconds_total", "cpu", fmt.Sprint(i%64), "env", "production",
			"instance", fmt.Sprintf("10.0.%d.%d:9100", i/256%256, i%256), "job", "node", "mode", fmt.Sprint("mode", i/8%8), "serial", fmt.Sprint(i))
	})
	mustSelect(t, index.New(index.Config{}, tab), index.Query{Limit: 1, Enough: 1}) // the table sorts its rows
	x := index.New(index.Config{Exclusive: true, Registerer: reg}, tab)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what sync.Pool keeps
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	before := heap()
	for _, pairs := range [][]string{{"__name__=", "node_cpu_seconds_total"}, {"mode=~", ".+"}, {"cpu=~", ".+"}, {"instance!=", ""}, {"serial!=", ""}} {
		mustSelect(t, x, index.Query{Matchers: matchers(t, pairs...), Limit: 1})
	}
	took, estimate := heap()-before, metric(t, reg, "adapter_index_memory_bytes", "")
	t.Logf("%.0f bytes a series, estimated are %.0f", took/10_000, estimate/10_000)
	if ratio := estimate / took; ratio < 0.8 || ratio > 1.25 {
		t.Errorf("%.0f bytes are taken, estimated are %.0f", took, estimate)
	}
	runtime.KeepAlive(x)
}

func q0(m *model) int64 { return modelFirst + m.rng.Int64N(modelPeriods)*series.IndexPeriod }

// Writers find what they have written at once, by each of its labels, while others write
// and lists are evicted.
func TestMemoryConcurrently(t *testing.T) {
	const writers, rounds = 6, 60
	for _, limit := range []int{20_000, 0} {
		tab := newTable(t)
		tab.countOnly = true
		x := index.New(index.Config{Exclusive: true, MaxMemory: limit, ParallelLists: 2}, tab)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for round := range rounds {
					at := int64(rng.IntN(2)) * series.IndexPeriod
					e := entry(t, at, "__name__", fmt.Sprint("m", rng.IntN(3)), "writer", fmt.Sprint(w), "round", fmt.Sprint(round), "shared", fmt.Sprint(rng.IntN(5)))
					if err := x.Write(t.Context(), []index.Entry{e}); err != nil {
						t.Error(err)
						return
					}
					e.Labels.Range(func(l labels.Label) {
						m := labels.MustNewMatcher(labels.MatchType(2*rng.IntN(2)), l.Name, l.Value)
						result, err := x.Select(t.Context(), index.Query{Matchers: []*labels.Matcher{m}, Start: at, Limit: at + 1})
						if err != nil || !slices.ContainsFunc(result.Series, func(s index.Series) bool { return s.Key == string(e.Key) }) {
							t.Errorf("%s does not find %s: %v", m, e.Key, err)
						}
						values, err := x.Values(t.Context(), l.Name, index.Query{Matchers: []*labels.Matcher{m}, Start: at, Limit: at + 1})
						if err != nil || !slices.Equal(values, []string{l.Value}) {
							t.Errorf("%s has the values %q: %v", m, values, err)
						}
					})
				}
			})
		}
		wg.Wait()
		q := index.Query{Limit: 2 * series.IndexPeriod}
		want := mustSelect(t, index.New(index.Config{}, tab), q)
		if got := mustSelect(t, x, q); !slices.EqualFunc(got.Series, want.Series, equalSeries) || len(want.Series) == 0 {
			t.Errorf("%d series, want %d", len(got.Series), len(want.Series))
		}
	}
}

// Of label calls a limit ends the reading, and no number of series is too large.
func TestLabelsOfMatching(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	const count = 10_000
	fill(t, index.New(index.Config{}, tab), count, func(i int) labels.Labels {
		return labels.FromStrings("__name__", "up", "id", fmt.Sprintf("%05d", i), "even", fmt.Sprint(i%2 == 0), "job", fmt.Sprint(i/1000))
	})
	mustWrite(t, index.New(index.Config{}, tab), entry(t, 0, "__name__", "other", "job", "x", "only", "here"))
	jobs := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
	tests := []struct {
		name, label string // no label asks for names
		pairs       []string
		limit       int
		want        []string
		rows        int // read at most when nothing is in memory
	}{
		{"values", "job", []string{"__name__=", "up"}, 0, jobs, count + 11},
		{"limit over all", "job", []string{"__name__=", "up"}, 100, jobs, count + 11},
		{"limit", "job", []string{"__name__=", "up"}, 3, jobs[:3], 2001},
		{"limit of many values", "id", []string{"__name__=", "up"}, 2, []string{"00001", "00003"}, 2}, // the first rows, by even
		{"two matchers", "job", []string{"__name__=", "up", "even=", "true"}, 0, jobs, 2*count + 20_000},
		{"names", "", []string{"__name__=", "up"}, 0, []string{"__name__", "even", "id", "job"}, count + 5},
		{"limit of names", "", []string{"__name__=", "up"}, 2, []string{"__name__", "even"}, 1},
		{"absent", "only", []string{"__name__=", "up"}, 0, nil, count + 1},
		{"nothing", "job", []string{"__name__=", "nothing"}, 0, nil, 0},
	}
	for _, exclusive := range []bool{false, true} {
		warm := index.New(index.Config{Exclusive: exclusive}, tab)
		for _, test := range tests {
			t.Run(fmt.Sprint(test.name, exclusive), func(t *testing.T) {
				tab.reset()
				q := index.Query{Matchers: matchers(t, test.pairs...), Limit: 1, Enough: test.limit, MaxSeries: 10}
				ask := func() (found []string, err error) {
					if test.label == "" {
						return warm.Names(t.Context(), q)
					}
					return warm.Values(t.Context(), test.label, q)
				}
				for range 2 {
					if got, err := ask(); err != nil || !slices.Equal(got, test.want) {
						t.Errorf("%.500q %v, want %q", got, err, test.want)
					}
					if rows := tab.work().scanRows; rows > test.rows {
						t.Errorf("%d rows are read, want %d at most", rows, test.rows)
					}
					if exclusive && test.limit == 0 {
						tab.reset()
						test.rows = 0 // all is in memory
					} else {
						tab.reset()
					}
				}
			})
		}
	}
	t.Run("without matchers", func(t *testing.T) {
		for _, exclusive := range []bool{false, true} {
			x := index.New(index.Config{Exclusive: exclusive}, tab)
			tab.reset()
			got, err := x.Values(t.Context(), "id", index.Query{Limit: 1, Enough: 3})
			if want := []string{"00000", "00001", "00002"}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%q %v, want %q", got, err, want)
			}
			wantWork(t, tab, "a limit", work{scanCalls: 1, scanRows: 3})
		}
	})
}

// Texts of a long list are kept beside it, and are those of its series after writes.
func TestLabelsAfterWrites(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	m := &model{table: tab, index: index.New(index.Config{Exclusive: true}, tab), series: make(map[string]*stored)}
	n := 0
	write := func(count int, pairs ...string) {
		var entries []index.Entry
		for range count {
			n++
			entries = append(entries, entry(t, 0, append([]string{"__name__", "up", "id", fmt.Sprint(n)}, pairs...)...))
			m.note(entries[len(entries)-1], 0)
		}
		mustWrite(t, m.index, entries...)
	}
	write(5000, "job", "a", "zone", "1")
	write(1000, "job", "b")
	check := func() {
		t.Helper()
		for _, pairs := range [][]string{{"__name__=", "up"}, {"job=", "a"}, {"__name__=", "up", "job=", "b"}, {"job=~", "a|b"}, {"id!=", ""}} {
			for _, label := range []string{"job", "zone", "absent"} {
				m.checkTexts(t, index.Query{Matchers: matchers(t, pairs...), Limit: 1}, label)
			}
		}
	}
	check()
	check()
	write(1, "job", "a", "zone", "2")
	check()
	write(2000, "job", "c", "zone", "1")
	check()
	write(1, "job", "a", "absent", "no more")
	check()
	tab.reset()
	check()
	if rows := tab.work().scanRows; rows != 0 {
		t.Errorf("%d rows are read again", rows)
	}
}

// Counts are exact after writes, and while the series are counted.
func TestCardinalityWhileWriting(t *testing.T) {
	tab := newTable(t)
	tab.countOnly = true
	n := 0
	var x *index.Index
	write := func() {
		n++
		mustWrite(t, x, entry(t, 0, "__name__", fmt.Sprint("m", n%3), "id", fmt.Sprint(n)), entry(t, series.IndexPeriod, "__name__", "later", "id", fmt.Sprint(n)))
	}
	writing := false
	x = index.New(index.Config{Exclusive: true}, heldTable{tab, func() {
		if writing {
			writing = false
			write()
			write()
			writing = true
		}
	}})
	for range 100 {
		write()
	}
	writing = true
	for range 5 {
		got, err := x.Cardinality(t.Context(), index.CountQuery{Time: 5, Top: 2})
		writing = false
		if err != nil {
			t.Fatal(err)
		}
		want, err := index.New(index.Config{}, tab).Cardinality(t.Context(), index.CountQuery{Time: 5, Top: 2})
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || got.Series != n {
			t.Errorf("%+v, want %d and %+v, %v", got, n, want, err)
		}
		tab.reset()
		write()
		if _, err := x.Cardinality(t.Context(), index.CountQuery{Time: 5, Top: 2}); err != nil {
			t.Fatal(err)
		}
		if rows := tab.work().scanRows; rows != 0 {
			t.Errorf("%d rows are read again", rows)
		}
	}
}

// checkTexts compares the names and the values of a label with brute force.
func (m *model) checkTexts(t *testing.T, q index.Query, label string) {
	t.Helper()
	q.MaxSeries = 0
	wantNames, wantValues := make(map[string]bool), make(map[string]bool)
	for _, s := range m.find(q) {
		s.Labels.Range(func(l labels.Label) {
			wantNames[l.Name] = true
			if l.Name == label {
				wantValues[l.Value] = true
			}
		})
	}
	names, err := m.index.Names(t.Context(), q)
	if want := slices.Sorted(maps.Keys(wantNames)); err != nil || !slices.Equal(names, want) {
		t.Fatalf("%s: names %q %v, want %q", show(q), names, err, want)
	}
	values, err := m.index.Values(t.Context(), label, q)
	if want := slices.Sorted(maps.Keys(wantValues)); err != nil || !slices.Equal(values, want) {
		t.Fatalf("%s: values of %q %q %v, want %q", show(q), label, values, err, want)
	}
}

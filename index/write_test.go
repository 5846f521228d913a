package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// lastPeriod is the start of the index period that holds series.MaxTime.
const lastPeriod = 9999757606912

func TestWriteRows(t *testing.T) {
	tests := []struct {
		name     string
		resource []string
		tenant   string
		labels   []string
		times    []int64
		// rows are what is put first, marks what is put after them.
		rows, marks []string
		// ahead are those of the call of Prewrite that follows.
		ahead [][]string
	}{
		{
			name:   "a series",
			labels: []string{"__name__", "up", "job", "node"},
			times:  []int64{1300000000000},
			rows: []string{
				`n,1299764477952,__name__ = "__name__" @1300301348864`,
				`n,1299764477952,job = "job" @1300301348864`,
				`p,job=node,1299764477952,up,job=node @1300301348864`,
				`v,__name__,1299764477952,up = "up" @1300301348864`,
				`v,job,1299764477952,node = "node" @1300301348864`,
			},
			marks: []string{`p,__name__=up,1299764477952,up,job=node @1300301348864`},
		},
		{
			name:   "no metric name",
			labels: []string{"job", "node"},
			times:  []int64{0},
			rows: []string{
				`n,0000000000000,job = "job" @536870912`,
				`p,job=node,0000000000000,,job=node @536870912`,
				`v,job,0000000000000,node = "node" @536870912`,
			},
			marks: []string{`p,__name__=,0000000000000,,job=node @536870912`},
		},
		{
			name:   "escapes, and a name before __name__",
			labels: []string{"A=B", "x,y\n", "__name__", `a\b`},
			times:  []int64{0},
			rows: []string{
				`n,0000000000000,A\=B = "A=B" @536870912`,
				`n,0000000000000,__name__ = "__name__" @536870912`,
				`p,A\=B=x\,y\n,0000000000000,a\\b,A\=B=x\,y\n @536870912`,
				`v,A\=B,0000000000000,x\,y\n = "x,y\n" @536870912`,
				`v,__name__,0000000000000,a\\b = "a\\b" @536870912`,
			},
			marks: []string{`p,__name__=a\\b,0000000000000,a\\b,A\=B=x\,y\n @536870912`},
		},
		{
			name:     "tenant and resource label",
			resource: []string{"host"},
			tenant:   "acme",
			labels:   []string{"__name__", "up", "host", "h1"},
			times:    []int64{0},
			rows: []string{
				`acme,n,0000000000000,__name__ = "__name__" @536870912`,
				`acme,n,0000000000000,host = "host" @536870912`,
				`acme,p,host=h1,0000000000000,acme,up,h1 @536870912`,
				`acme,v,__name__,0000000000000,up = "up" @536870912`,
				`acme,v,host,0000000000000,h1 = "h1" @536870912`,
			},
			marks: []string{`acme,p,__name__=up,0000000000000,acme,up,h1 @536870912`},
		},
		{
			name:   "two periods, one of them twice",
			labels: []string{"__name__", "up"},
			times:  []int64{0, 1000, series.IndexPeriod},
			rows: []string{
				`n,0000000000000,__name__ = "__name__" @536870912`,
				`n,0000536870912,__name__ = "__name__" @1073741824`,
				`v,__name__,0000000000000,up = "up" @536870912`,
				`v,__name__,0000536870912,up = "up" @1073741824`,
			},
			marks: []string{
				`p,__name__=up,0000000000000,up @536870912`,
				`p,__name__=up,0000536870912,up @1073741824`,
			},
		},
		{
			name:   "end of a period",
			labels: []string{"__name__", "up"},
			times:  []int64{lastPeriod - 1},
			rows: []string{
				`n,9999220736000,__name__ = "__name__" @9999757606912`,
				`v,__name__,9999220736000,up = "up" @9999757606912`,
			},
			marks: []string{`p,__name__=up,9999220736000,up @9999757606912`},
			ahead: [][]string{{
				`n,9999757606912,__name__ = "__name__" @10000294477824`,
				`v,__name__,9999757606912,up = "up" @10000294477824`,
			}, {
				`p,__name__=up,9999757606912,up @10000294477824`,
			}},
		},
		{
			name:   "end of time",
			labels: []string{"__name__", "up"},
			times:  []int64{series.MaxTime},
			rows: []string{
				`n,9999757606912,__name__ = "__name__" @10000294477824`,
				`v,__name__,9999757606912,up = "up" @10000294477824`,
			},
			marks: []string{`p,__name__=up,9999757606912,up @10000294477824`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			schema := newSchema(t, test.resource, test.tenant)
			tab := newTable(t)
			x := index.New(index.Config{Schema: schema}, tab)
			var entries []index.Entry
			for _, at := range test.times {
				entries = append(entries, entryOf(t, schema, at, labels.FromStrings(test.labels...)))
			}
			if err := x.Write(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			if len(tab.puts) != 2 || !slices.Equal(tab.puts[0], test.rows) || !slices.Equal(tab.puts[1], test.marks) {
				t.Errorf("put %q, want %q and then %q", tab.puts, test.rows, test.marks)
			}
			prewrite(t, x)
			if !slices.EqualFunc(tab.puts[2:], test.ahead, slices.Equal) {
				t.Errorf("put %q ahead, want %q", tab.puts[2:], test.ahead)
			}

			atOnce := newTable(t)
			x = index.New(index.Config{Schema: schema, AtomicPuts: true}, atOnce)
			if err := x.Write(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			prewrite(t, x)
			want := [][]string{slices.Concat(test.rows, test.marks)}
			if len(test.ahead) > 0 {
				want = append(want, slices.Concat(test.ahead...))
			}
			for _, rows := range want {
				slices.Sort(rows)
			}
			if !slices.EqualFunc(atOnce.puts, want, slices.Equal) {
				t.Errorf("put %q at once, want %q", atOnce.puts, want)
			}
		})
	}
}

// A row that is remembered as written is not written again, and a call that
// writes none of a kind does not bother the table.
func TestWriteSteadyState(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	mustWrite(t, x)
	wantWork(t, tab, "nothing", work{})

	mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "a"), entry(t, 0, "__name__", "up", "job", "b"))
	wantWork(t, tab, "two series", work{putCalls: 2, putRows: 5 + 2 + 2, scanCalls: 1})

	tab.reset()
	mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "a"), entry(t, 5, "__name__", "up", "job", "b"))
	wantWork(t, tab, "both again", work{})

	mustWrite(t, x, entry(t, 5, "__name__", "up", "job", "b", "zone", "z"))
	wantWork(t, tab, "a third with one value that is new", work{putCalls: 2, putRows: 2 + 2 + 1, scanCalls: 1})

	tab.reset()
	mustWrite(t, x, entry(t, 5, "__name__", "up"))
	wantWork(t, tab, "a fourth with nothing but its mark", work{putCalls: 1, putRows: 1, scanCalls: 1})

	tab.reset()
	mustWrite(t, x, entry(t, series.IndexPeriod, "__name__", "up", "job", "a"))
	wantWork(t, tab, "the next period", work{putCalls: 2, putRows: 6, scanCalls: 1})

	atOnce := newTable(t)
	x = index.New(index.Config{AtomicPuts: true}, atOnce)
	mustWrite(t, x, entry(t, 0, "__name__", "up", "job", "a"), entry(t, 0, "__name__", "up", "job", "b"))
	wantWork(t, atOnce, "two series at once", work{putCalls: 1, putRows: 5 + 2 + 2, scanCalls: 1})
}

func TestWriteFailure(t *testing.T) {
	errStore := errors.New("the store is away")
	entries := func(t *testing.T) []index.Entry {
		return []index.Entry{entry(t, 0, "__name__", "up", "job", "a"), entry(t, 0, "__name__", "down", "job", "a")}
	}
	whole := newTable(t)
	mustWrite(t, index.New(index.Config{}, whole), entries(t)...)

	for _, call := range []string{"scan 1", "put 1", "put 2"} {
		t.Run(call, func(t *testing.T) {
			tab := newTable(t)
			fail := func(kind string) func(int) error {
				return func(n int) error {
					if fmt.Sprint(kind, " ", n) == call {
						return errStore
					}
					return nil
				}
			}
			tab.onPut, tab.onScan = fail("put"), fail("scan")
			x := index.New(index.Config{}, tab)
			if err := x.Write(t.Context(), entries(t)); !errors.Is(err, errStore) {
				t.Fatalf("the error is %v, want %v", err, errStore)
			}
			for key := range tab.values {
				if call != "put 2" || key[:len("p,__name__=")] == "p,__name__=" {
					t.Errorf("%s is there", key)
				}
			}
			tab.onPut, tab.onScan = nil, nil
			tab.reset()
			mustWrite(t, x, entries(t)...)
			if !slices.EqualFunc(tab.puts, whole.puts, slices.Equal[[]string]) {
				t.Errorf("the retry put %q, want %q", tab.puts, whole.puts)
			}
			tab.reset()
			mustWrite(t, x, entries(t)...)
			wantWork(t, tab, "after the retry", work{})
		})
	}
}

// After a restart each request reads the marks of its series, and nothing else. Only what
// is new is written.
func TestWriteAfterRestart(t *testing.T) {
	const count, atOnce = 5000, 2000
	tab := newTable(t)
	var stored []index.Entry
	for i := range count {
		stored = append(stored, entry(t, 0, "__name__", fmt.Sprint("metric", i%5), "id", fmt.Sprint(i)))
	}
	mustWrite(t, index.New(index.Config{}, tab), stored...)

	tab.reset()
	x := index.New(index.Config{}, tab)
	mustWrite(t, x, stored[:5]...)
	wantWork(t, tab, "one series of each metric", work{scanCalls: 1, scanRows: 5})
	mustWrite(t, x, stored[:5]...)
	wantWork(t, tab, "again", work{scanCalls: 1, scanRows: 5})
	mustWrite(t, x, stored...)
	wantWork(t, tab, "all of them", work{scanCalls: 1 + 3, scanRows: count})
	if want := []int{5, atOnce, atOnce, count - 5 - 2*atOnce}; !slices.Equal(tab.scans, want) {
		t.Errorf("scans of %d keys, want %d", tab.scans, want)
	}

	tab.reset()
	mustWrite(t, x, stored[0], entry(t, 0, "__name__", "metric0", "id", "new"))
	want := [][]string{{
		`n,0000000000000,__name__ = "__name__" @536870912`,
		`n,0000000000000,id = "id" @536870912`,
		`p,id=new,0000000000000,metric0,id=new @536870912`,
		`v,__name__,0000000000000,metric0 = "metric0" @536870912`,
		`v,id,0000000000000,new = "new" @536870912`,
	}, {`p,__name__=metric0,0000000000000,metric0,id=new @536870912`}}
	if !slices.EqualFunc(tab.puts, want, slices.Equal[[]string]) {
		t.Errorf("one more series put %q, want %q", tab.puts, want)
	}
	if want := []int{1}; !slices.Equal(tab.scans, want) {
		t.Errorf("one more series cost scans of %d keys, want %d", tab.scans, want)
	}
}

// A series whose rows were put without the mark is not trusted.
func TestWriteAfterCrash(t *testing.T) {
	tab := newTable(t)
	up := entry(t, 0, "__name__", "up", "job", "a")
	tab.onPut = func(call int) error {
		if call == 2 {
			return errors.New("killed")
		}
		return nil
	}
	if err := index.New(index.Config{}, tab).Write(t.Context(), []index.Entry{up}); err == nil {
		t.Fatal("no error")
	}
	tab.onPut = nil
	tab.reset()
	mustWrite(t, index.New(index.Config{}, tab), up)
	wantWork(t, tab, "the next start", work{putCalls: 2, putRows: 6, scanCalls: 1})
}

func TestPrewrite(t *testing.T) {
	const (
		count  = 4000
		eighth = series.IndexPeriod / 8
		start  = 3 * series.IndexPeriod
	)
	tests := []struct {
		name     string
		offset   int64
		min, max int
	}{
		{"in the middle of the period", series.IndexPeriod / 2, 0, 0},
		{"before the last eighth", series.IndexPeriod - eighth - 1, 0, 0},
		{"a quarter into it", series.IndexPeriod - 3*eighth/4, count/4 - 200, count/4 + 200},
		{"half into it", series.IndexPeriod - eighth/2, count/2 - 200, count/2 + 200},
		{"at the end", series.IndexPeriod - 1, count, count},
	}
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	at := func(now int64) (entries []index.Entry) {
		for i := range count {
			entries = append(entries, entry(t, now, "__name__", "up", "id", fmt.Sprint(i)))
		}
		return entries
	}
	ahead := func() int {
		result := mustSelect(t, x, index.Query{Start: start + series.IndexPeriod, Limit: start + 2*series.IndexPeriod})
		return len(result.Series)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := ahead()
			mustWrite(t, x, at(start+test.offset)...)
			if now := ahead(); now != before {
				t.Errorf("%d series are prewritten at once", now-before)
			}
			prewrite(t, x)
			got := ahead()
			if got < test.min || got > test.max {
				t.Errorf("%d of %d series are prewritten, want %d to %d", got, count, test.min, test.max)
			}
			mustWrite(t, x, at(start+test.offset)...)
			prewrite(t, x)
			if again := ahead(); again != got {
				t.Errorf("%d are when it is written again, %d before", again, got)
			}
		})
	}
	tab.reset()
	mustWrite(t, x, at(start+series.IndexPeriod)...)
	wantWork(t, tab, "the turn of the period", work{})
}

func prewrite(t *testing.T, x *index.Index) {
	t.Helper()
	if err := x.Prewrite(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What cannot be prewritten is written by the next call, or by the first sample
// of the period.
func TestPrewriteFails(t *testing.T) {
	const start, end = 3 * series.IndexPeriod, 4*series.IndexPeriod - 1
	tab := newTable(t)
	x := index.New(index.Config{}, tab)
	up := func(now int64) index.Entry { return entry(t, now, "__name__", "up", "id", "1") }
	mustWrite(t, x, up(end))
	tab.onPut = func(int) error { return errors.New("the store is down") }
	for range 2 {
		if err := x.Prewrite(t.Context()); err == nil {
			t.Fatal("no error")
		}
	}
	tab.onPut = nil
	tab.reset()
	mustWrite(t, x, up(end))
	wantWork(t, tab, "a sample beside", work{})
	mustWrite(t, x, up(start+series.IndexPeriod))
	wantWork(t, tab, "the turn of the period", work{putCalls: 2, putRows: 6, scanCalls: 1})
	tab.reset()
	prewrite(t, x)
	wantWork(t, tab, "writing ahead, too late", work{})
}

// Series for which the queue has no room are written at once.
func TestPrewriteQueueFull(t *testing.T) {
	const end, count = 4*series.IndexPeriod - 1, 30_000
	x := index.New(index.Config{}, newTable(t))
	var entries []index.Entry
	for i := range count {
		entries = append(entries, entry(t, end, "__name__", "up", "id", fmt.Sprint(i)))
	}
	mustWrite(t, x, entries...)
	ahead := func() int { return len(mustSelect(t, x, index.Query{Start: end + 1, Limit: end + 2}).Series) }
	if n := ahead(); n != 10_000 {
		t.Errorf("%d series are prewritten at once", n)
	}
	prewrite(t, x)
	if n := ahead(); n != count {
		t.Errorf("%d series are prewritten", n)
	}
}

// marks is how many commit marks were put since reset.
func (t *table) marks() (n int) {
	for _, lines := range t.puts {
		for _, line := range lines {
			if len(line) > 11 && line[:11] == "p,__name__=" {
				n++
			}
		}
	}
	return n
}

// A call with more series than are remembered, each of them twice, comes to an
// end and writes each once.
func TestWriteMoreThanRemembered(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tab := newTable(t)
	tab.onPut = func(call int) error {
		if call > 10 {
			return errors.New("too many calls")
		}
		return nil
	}
	x := index.New(index.Config{WrittenSeries: 1}, tab)
	var entries []index.Entry
	for i := range 40 {
		entries = append(entries, entry(t, 0, "__name__", "up", "id", fmt.Sprint(i%20)))
	}
	if err := x.Write(ctx, entries); err != nil {
		t.Fatal(err)
	}
	if tab.putCalls != 2 || tab.marks() != 20 {
		t.Errorf("%d calls with %d marks, want 2 with 20", tab.putCalls, tab.marks())
	}
}

// TestWriteWideSeries: each label of a series repeats its key, so that the rows
// of a small request may be many times as large. They are written in pieces.
func TestWriteWideSeries(t *testing.T) {
	const series, names, limit = 100, 300, 8 << 20
	tab := newTable(t)
	tab.countOnly = true
	tab.onRows = func(rows []index.Row) {
		size := 0
		for _, row := range rows {
			size += len(row.Key) + len(row.Value)
		}
		if size > limit {
			t.Errorf("%d bytes of rows in one piece, more than %d", size, limit)
		}
	}
	x := index.New(index.Config{}, tab)
	var entries []index.Entry
	for i := range series {
		pairs := []string{"__name__", "wide", "series", fmt.Sprint(i)}
		for l := range names {
			pairs = append(pairs, fmt.Sprintf("l%d", l), "v")
		}
		entries = append(entries, entry(t, 0, pairs...))
	}
	mustWrite(t, x, entries...)
	found := mustSelect(t, x, index.Query{Matchers: matchers(t, "__name__=", "wide"), Limit: 1})
	if got := len(found.Series); got != series {
		t.Errorf("%d series are found, want %d", got, series)
	}
	puts := tab.work()
	mustWrite(t, x, entries...)
	wantWork(t, tab, "writing them again", puts)
}

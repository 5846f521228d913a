package index_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// ups are so many series at a time.
func ups(t *testing.T, count int, at int64) (entries []index.Entry) {
	for i := range count {
		entries = append(entries, entry(t, at, "__name__", "up", "id", fmt.Sprint(i)))
	}
	return entries
}

// As many series as the index remembers cost nothing once they are written, through the
// turns of periods, whatever goes to older periods.
func TestWriteUpToCapacity(t *testing.T) {
	const count, first, periods = 100, 10, 6
	tab := newTable(t)
	reg := prometheus.NewRegistry()
	x := index.New(index.Config{WrittenSeries: count, Registerer: reg}, tab)
	for i := range int64(periods) {
		start := (first + i) * series.IndexPeriod
		next := start + series.IndexPeriod
		mustWrite(t, x, ups(t, count, start)...)
		mustWrite(t, x, ups(t, count, (first-1-i)*series.IndexPeriod)...)
		mustWrite(t, x, ups(t, count, next-1)...)
		prewrite(t, x)
		tab.reset()
		for range 3 {
			mustWrite(t, x, ups(t, count, start)...)
			mustWrite(t, x, ups(t, count, next-1)...)
			prewrite(t, x)
			mustWrite(t, x, ups(t, count, next)...)
		}
		wantWork(t, tab, fmt.Sprint("period ", i), work{})
	}
	const written = count * (periods + periods + 1)
	wantMetric(t, reg, `adapter_index_mark_lookups_total absent`, written)
	wantMetric(t, reg, `adapter_index_mark_lookups_total found`, 0)
	known := metricOf(t, reg, "adapter_index_known_series")
	if known > 2*count {
		t.Errorf("%v series are remembered, more than %d", known, 2*count)
	}
	wantMetric(t, reg, "adapter_index_evictions_total series", written-known)
}

// Series beyond those that the index remembers are looked up, and never written again:
// not in a period, not ahead and not at its turn.
func TestWriteBeyondCapacity(t *testing.T) {
	const capacity, count = 20, 200
	tab := newTable(t)
	reg := prometheus.NewRegistry()
	x := index.New(index.Config{WrittenSeries: capacity, Registerer: reg}, tab)
	send := func(at int64) {
		for one := range slices.Chunk(ups(t, count, at), 7) {
			mustWrite(t, x, one...)
		}
		prewrite(t, x)
	}
	wantMarks := func(what string, want int) {
		t.Helper()
		if got := tab.marks(); got != want {
			t.Errorf("%d marks are written %s, want %d", got, what, want)
		}
		tab.reset()
	}
	send(0)
	wantMarks("at first", count)
	for period := range int64(3) {
		start := period * series.IndexPeriod
		send(start + series.IndexPeriod/2)
		wantWork(t, tab, "in the middle of the period", work{scanCalls: tab.scanCalls, scanRows: tab.scanRows})
		wantMarks("in the middle of the period", 0)
		send(start + series.IndexPeriod - 1)
		wantMarks("ahead", count)
		for range 5 {
			send(start + series.IndexPeriod - 1)
		}
		send(start + series.IndexPeriod)
		wantWork(t, tab, "at the turn of the period", work{scanCalls: tab.scanCalls, scanRows: tab.scanRows})
	}
	if found := metricOf(t, reg, "adapter_index_mark_lookups_total found"); found < count {
		t.Errorf("%v marks are found", found)
	}
	wantMetric(t, reg, "adapter_index_mark_lookups_total absent", 4*count)
	// A series has a posting, a mark and a value of its own. Others are shared, and may have been forgotten.
	if rows := metricOf(t, reg, "adapter_index_written_rows_total"); rows < 4*count*3 || rows > 4*count*4 {
		t.Errorf("%v rows are written for %d series", rows, 4*count)
	}
}

// Any number of series can be remembered.
func TestWriteLargestCapacity(t *testing.T) {
	tab := newTable(t)
	x := index.New(index.Config{WrittenSeries: math.MaxInt}, tab)
	for range 2 {
		mustWrite(t, x, ups(t, 3, 0)...)
	}
	wantWork(t, tab, "three series", work{putCalls: 2, putRows: 2 + 4 + 3 + 3, scanCalls: 1})
}

// What cannot be read is counted and not written, and what could be written before is
// remembered.
func TestWriteLookupFails(t *testing.T) {
	const count = 2500
	tab := newTable(t)
	reg := prometheus.NewRegistry()
	x := index.New(index.Config{Registerer: reg}, tab)
	tab.onScan = func(call int) error {
		if call == 2 {
			return errStore
		}
		return nil
	}
	if err := x.Write(t.Context(), ups(t, count, 0)); err == nil {
		t.Fatal("no error")
	}
	wantMetric(t, reg, "adapter_index_mark_lookups_total absent", 2000)
	wantMetric(t, reg, "adapter_index_mark_lookups_total failure", 500)
	tab.reset()
	mustWrite(t, x, ups(t, count, 0)...)
	wantWork(t, tab, "the retry", work{putCalls: 2, putRows: 3 * 500, scanCalls: 1})
	wantMetric(t, reg, "adapter_index_known_series", count)
	wantMetric(t, reg, "adapter_index_written_rows_total", 3*count+3)
}

// Random series at random times, with an index that remembers next to nothing, that is
// started again, and with a store that fails: the mark of each series in a period is
// written once, and without failures so is each posting.
func TestWriteModel(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, atomic := range []bool{false, true} {
			t.Run(fmt.Sprintf("fails=%v/atomic=%v", fails, atomic), func(t *testing.T) {
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed %d", seed)
				m := newWriteModel(t, rand.New(rand.NewPCG(seed, seed)), fails, atomic)
				for range 400 {
					m.step(t)
				}
				m.check(t)
			})
		}
	}
}

// writeModel is an index, and what must be in its table.
type writeModel struct {
	rng   *rand.Rand
	table *table
	cfg   index.Config
	index *index.Index
	// sent has all entries, due the marks that must be there, ahead those that are due
	// unless the index was started again.
	sent       []index.Entry
	due, ahead map[string]bool
	// puts counts how often each row was put.
	puts map[string]int
}

func newWriteModel(t *testing.T, rng *rand.Rand, fails, atomic bool) *writeModel {
	m := &writeModel{
		rng: rng, table: newTable(t), cfg: index.Config{WrittenSeries: 1 + rng.IntN(10), AtomicPuts: atomic},
		due: make(map[string]bool), ahead: make(map[string]bool), puts: make(map[string]int),
	}
	m.index = index.New(m.cfg, m.table)
	m.table.onRows = func(rows []index.Row) {
		for _, row := range rows {
			m.puts[string(row.Key)]++
		}
	}
	if fails {
		fail := func(int) error {
			if rng.IntN(5) == 0 {
				return errStore
			}
			return nil
		}
		m.table.onPut, m.table.onScan = fail, fail
	}
	t.Cleanup(func() {
		for key, n := range m.puts {
			if n > 1 && strings.HasPrefix(key, "p,") && (!fails || strings.HasPrefix(key, "p,__name__=")) {
				t.Errorf("%s was put %d times", key, n)
			}
		}
	})
	return m
}

// step does one thing until it succeeds.
func (m *writeModel) step(t *testing.T) {
	switch m.rng.IntN(10) {
	case 0:
		m.index = index.New(m.cfg, m.table)
	case 1:
		for m.index.Prewrite(t.Context()) != nil {
			continue
		}
	case 2: // a request that is sent again
		m.send(t, m.sent[len(m.sent)-m.rng.IntN(min(len(m.sent), 20)+1):])
	default:
		var entries []index.Entry
		for range 1 + m.rng.IntN(15) {
			at := m.rng.Int64N(3)*series.IndexPeriod + series.IndexPeriod/2 + m.rng.Int64N(series.IndexPeriod/2)
			entries = append(entries, entry(t, at, "__name__", fmt.Sprint("metric", m.rng.IntN(3)), "id", fmt.Sprint(m.rng.IntN(20))))
		}
		m.send(t, entries)
		m.sent = append(m.sent, entries...)
	}
}

func (m *writeModel) send(t *testing.T, entries []index.Entry) {
	for m.index.Write(t.Context(), entries) != nil {
		continue
	}
	for _, e := range entries {
		mark := func(period int64) string {
			return string(append(series.Schema{}.AppendPostingPrefix(nil, "__name__", e.Labels.Get("__name__"), period), e.Key...))
		}
		period := series.PeriodOf(e.T)
		m.due[mark(period)] = true
		if e.T-period >= index.PrewriteFrom(e.Key) {
			m.ahead[mark(period+series.IndexPeriod)] = true
		}
	}
	for mark := range m.due {
		if !m.table.has(mark) {
			t.Fatalf("%s is not there", mark)
		}
	}
}

// check sends everything again, twice and each time to a new index. The second time
// nothing is written.
func (m *writeModel) check(t *testing.T) {
	for range 2 {
		m.table.reset()
		m.index = index.New(m.cfg, m.table)
		m.send(t, m.sent)
		for m.index.Prewrite(t.Context()) != nil {
			continue
		}
	}
	if m.table.putRows != 0 {
		t.Errorf("%d rows are put for series that are there", m.table.putRows)
	}
	maps.Copy(m.due, m.ahead)
	marks := make(map[string]bool)
	for key := range m.puts {
		if strings.HasPrefix(key, "p,__name__=") {
			marks[key] = true
		}
	}
	if !maps.Equal(marks, m.due) {
		t.Errorf("%d marks are there, want %d", len(marks), len(m.due))
	}
}

// metricOf returns the value of a metric. Its name is followed by the value of its label,
// if it has one.
func metricOf(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	name, label, _ := strings.Cut(name, " ")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of %q", name, label)
	return 0
}

func wantMetric(t *testing.T, reg *prometheus.Registry, name string, want float64) {
	t.Helper()
	if got := metricOf(t, reg, name); got != want {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// After a restart the exclusive writer looks up many series by point reads, and then reads the
// marks of the period once: no row is written twice, and a new series costs no read.
func TestWriteReadsMarks(t *testing.T) {
	const count = 13_000
	tests := []struct {
		name string
		cfg  index.Config
		// fails is the scan that fails, 0 for none.
		fails int
		// lookups is how many series are looked up, and scans how many scans there are.
		lookups float64
		scans   int
	}{
		{name: "exclusive writer", cfg: index.Config{Exclusive: true}, lookups: 9000, scans: 9 + 2},
		{name: "others write too", lookups: count, scans: 13},
		{name: "no room", cfg: index.Config{Exclusive: true, WrittenSeries: 50}, lookups: count, scans: 13 + 2},
		{name: "a failed read", cfg: index.Config{Exclusive: true}, fails: 10, lookups: count, scans: 13 + 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab := newTable(t)
			tab.countOnly = true
			mustWrite(t, index.New(tt.cfg, tab), ups(t, count, 0)...)
			tab.reset()
			tab.onScan = func(call int) error {
				if call == tt.fails {
					return errStore
				}
				return nil
			}
			reg := prometheus.NewRegistry()
			tt.cfg.Registerer = reg
			x := index.New(tt.cfg, tab)
			for some := range slices.Chunk(ups(t, count, 0), 1000) {
				if err := x.Write(t.Context(), some); err != nil {
					mustWrite(t, x, some...)
				}
			}
			// What is read before there is no room is remembered, too.
			if n := metricOf(t, reg, "adapter_index_mark_lookups_total found"); n > tt.lookups || n < tt.lookups-float64(2*tt.cfg.WrittenSeries) {
				t.Errorf("%v series are looked up, want %v", n, tt.lookups)
			}
			wantWork(t, tab, "the series again", work{scanCalls: tt.scans, scanRows: tab.scanRows})
			tab.reset()
			mustWrite(t, x, entry(t, 0, "__name__", "up", "id", "new"))
			wantMetric(t, reg, "adapter_index_mark_lookups_total absent", float64(tab.scanCalls))
			if whole := tt.name == "exclusive writer"; whole != (tab.scanCalls == 0) {
				t.Errorf("a new series cost %d scans", tab.scanCalls)
			}
		})
	}
}

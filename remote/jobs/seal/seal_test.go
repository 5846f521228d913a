package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

func slotOf(now int64) (int64, string, bool) { return seal.Slot(now) }

func newSealer(tb testing.TB, store bucketstore.Store, schema series.Schema, now func() time.Time, change ...func(*seal.Config)) *seal.Sealer {
	tb.Helper()
	cfg := seal.Config{Store: store, Tenants: jobs.NamedTenants(schema), Now: now, Holder: "test", RowsPerSecond: 1e9, Workers: 1}
	for _, f := range change {
		f(&cfg)
	}
	s := seal.New(cfg)
	s.SetHooks(noSleep, background)
	return s
}

func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func background(ctx context.Context, _ time.Time) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// A bench is a store with one writer and a clock that the test moves.
type bench struct {
	testing.TB
	store  bucketstore.Store
	schema series.Schema
	now    int64
	direct *bucketstore.Direct
	want   map[string]map[int64]string // by row key
	bases  map[string]int64
}

// window0 is a window in the middle of a base and of an index period.
const window0 = worldBase + 5*series.IndexPeriod + 30*series.Window

func newBench(tb testing.TB, store bucketstore.Store) *bench {
	schema, err := series.NewSchema(nil)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{TB: tb, store: store, schema: schema, now: window0, want: make(map[string]map[int64]string), bases: make(map[string]int64)}
	b.direct = bucketstore.NewDirect(store, schema, b.clock, nil)
	return b
}

func (b *bench) clock() time.Time { return time.UnixMilli(b.now) }

func (b *bench) sealer(change ...func(*seal.Config)) *seal.Sealer {
	return newSealer(b.TB, b.store, b.schema, b.clock, change...)
}

// seal seals the slot of the window n windows after window0.
func (b *bench) seal(n int64) {
	b.Helper()
	b.now = window0 + n*series.Window + hour
	if err := b.sealer().Once(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) named(name string) testSeries {
	return newTestSeries(b.TB, b.schema, labels.FromStrings("__name__", name))
}

// write writes a sample.
func (b *bench) write(s testSeries, t int64, v cell.Value) {
	b.Helper()
	if err := s.index(b.store, b.schema, t); err != nil {
		b.Fatal(err)
	}
	err := b.direct.Append(b.Context(), []bucketstore.Sample{{Ref: b.direct.Ref(s.key), T: t, Value: cell.Append(nil, v)}})
	if err != nil {
		b.Fatal(err)
	}
	b.expect(s, t, v)
}

func (b *bench) expect(s testSeries, t int64, v cell.Value) {
	base, _ := series.Split(t)
	key := string(b.schema.AppendRowKey(nil, s.key, base))
	if b.want[key] == nil {
		b.want[key], b.bases[key] = make(map[int64]string), base
	}
	b.want[key][t] = canonical(v)
}

// check reads everything, and returns the number of cells of each family.
func (b *bench) check() map[string]int {
	b.Helper()
	count := make(map[string]int)
	for key, want := range b.want {
		got, err := samplesOf(b.store, []byte(key), b.bases[key])
		if err != nil {
			b.Fatal(err)
		}
		if what := differ(got, want); what != "" {
			b.Fatalf("row %q: %s", key, what)
		}
		cells, err := cellsOf(b.store, []byte(key))
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cells {
			count[c.Family]++
		}
	}
	return count
}

func (b *bench) wantCells(what string, want map[string]int) {
	b.Helper()
	if got := b.check(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("%s: cells by family are %v, want %v", what, got, want)
	}
}

func float(v float64) cell.Value { return cell.Value{Float: v} }

// fill writes a sample a minute over a window, while the clock advances.
func (b *bench) fill(s testSeries, window int64) (n int) {
	for t := window; t < window+series.Window; t += minute {
		b.now = t
		b.write(s, t, float(float64(t%1000)))
		n++
	}
	return n
}

func stores() map[string]func(testing.TB) bucketstore.Store {
	return map[string]func(testing.TB) bucketstore.Store{
		"memory":   func(testing.TB) bucketstore.Store { return newMemory() },
		"bigtable": func(tb testing.TB) bucketstore.Store { return bigtabletest.Open(tb) },
	}
}

// TestSeal seals windows one after another, with late samples and overwrites
// between.
func TestSeal(t *testing.T) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, open(t))
			up, down := b.named("up"), b.named("down")
			n := 0
			for w := range int64(4) {
				n = b.fill(up, window0+w*series.Window)
			}
			b.fill(down, window0)
			b.now = window0 + 4*series.Window + hour
			f := func(w int64) string { return series.RawFamily(window0+w*series.Window, window0+w*series.Window) }
			b.wantCells("raw", map[string]int{f(0): 2 * n, f(1): n, f(2): n, f(3): n})

			b.seal(2) // window 0, of a time when 3 was not there, which has another family
			b.wantCells("first slot", map[string]int{"c": 2, f(1): n, f(2): n, f(3): n})
			b.seal(2)
			b.seal(3)
			b.wantCells("second slot", map[string]int{"c": 3, f(2): n, f(3): n})

			b.now = window0 + 3*series.Window + 2*hour
			b.write(up, window0+5*minute, float(-1))
			b.write(up, window0+5, float(-2))
			b.write(up, window0+2*series.Window, float(-3)) // its window is open yet
			b.wantCells("late", map[string]int{"c": 3, "l": 2, f(2): n, f(3): n})
			b.seal(4)
			b.wantCells("third slot", map[string]int{"c": 4, f(3): n})
			b.seal(5)
			b.wantCells("fourth slot", map[string]int{"c": 5})
		})
	}
}

// TestLate: samples of the last quarter of an hour stay in l.
func TestLate(t *testing.T) {
	b := newBench(t, newMemory())
	up := b.named("up")
	b.now = window0 + 5*series.Window + hour - 15*minute
	b.write(up, window0, float(1))
	b.write(up, window0+1, float(2))
	b.now--
	b.write(up, window0+2, float(3))
	b.seal(5)
	b.wantCells("sealed too early", map[string]int{"c": 1, "l": 2})
	b.seal(6)
	b.wantCells("sealed", map[string]int{"c": 1})
}

// TestMissedSlot: late samples wait for the slot of the raw cells that they win over.
func TestMissedSlot(t *testing.T) {
	b := newBench(t, newMemory())
	up := b.named("up")
	n := b.fill(up, window0)
	b.now = window0 + 2*series.Window
	b.write(up, window0, float(-1))
	raw := series.RawFamily(window0, window0)
	for w := int64(3); w < 6; w++ {
		b.seal(w)
		b.wantCells("not its slot", map[string]int{raw: n, "l": 1})
	}
	b.seal(6)
	b.wantCells("its slot", map[string]int{"c": 1})
}

// TestOldSeries: the rows of old series are sealed, too.
func TestOldSeries(t *testing.T) {
	b := newBench(t, newMemory())
	for i := range int64(6) {
		b.write(b.named("up"), window0-i*3*series.IndexPeriod, float(1))
	}
	slots := int64(0)
	for ; b.check()["c"] < 6; slots++ {
		if slots > 4*6 {
			t.Fatalf("after %d slots: %v", slots, b.check())
		}
		b.seal(slots)
	}
}

// TestNewPeriod: a window that missed its slot at the end of an index period is sealed at
// the next slot of its family, in the new period, even if there are many older periods.
func TestNewPeriod(t *testing.T) {
	const last = worldBase + 5*series.IndexPeriod - series.Window
	for missed := range int64(3) {
		t.Run(fmt.Sprint(missed, " slots missed"), func(t *testing.T) {
			b := newBench(t, newMemory())
			up, old := b.named("up"), b.named("old")
			for i := range int64(9) {
				if err := old.index(b.store, b.schema, last-i*series.IndexPeriod); err != nil {
					t.Fatal(err)
				}
			}
			b.now = last
			b.write(up, last, float(1))
			b.now = last + (2+4*missed)*series.Window + hour
			if err := b.sealer().Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.wantCells("sealed", map[string]int{"c": 1})
		})
	}
}

// TestKinds: values of several kinds need several chunks.
func TestKinds(t *testing.T) {
	b := newBench(t, newMemory())
	up := b.named("up")
	h, fh := tsdbutil.GenerateTestHistogram(1), tsdbutil.GenerateTestFloatHistogram(2)
	for i, v := range []cell.Value{
		float(1), float(2), {Start: 5, Float: 3}, {Start: 5, Float: 4}, {Histogram: h}, {Histogram: h}, {FloatHistogram: fh}, float(5),
	} {
		b.write(up, window0+int64(i), v)
	}
	b.seal(2)
	b.wantCells("sealed", map[string]int{"c": 5})
	b.now += hour
	b.write(up, window0+4, float(6))
	b.seal(3)
	b.wantCells("sealed again", map[string]int{"c": 6})
}

// TestMany: rows with more late samples than one mutation deletes, and more series and
// names than one step walks.
func TestMany(t *testing.T) {
	t.Run("late samples", func(t *testing.T) {
		b := newBench(t, newMemory())
		up := b.named("up")
		if err := up.index(b.store, b.schema, window0); err != nil {
			t.Fatal(err)
		}
		b.now = window0 + 10*series.Window
		var batch []bucketstore.Sample
		for i := range int64(seal.MaxLate + 1000) {
			at := window0 + i*series.Window/30_000
			batch = append(batch, bucketstore.Sample{Ref: b.direct.Ref(up.key), T: at, V: float64(i)})
			b.expect(up, at, float(float64(i)))
		}
		if err := b.direct.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		b.seal(11)
		b.wantCells("sealed", map[string]int{"c": 2})
	})
	t.Run("cells of old windows", func(t *testing.T) {
		b := newBench(t, newMemory())
		up, old := b.named("up"), b.named("old")
		b.now = window0 + 4*series.Window
		for i := range int64(10) {
			b.write(up, window0-i*series.Window, float(1))
			b.write(old, window0-9*series.IndexPeriod+i*series.Window, float(1))
		}
		for slot := int64(5); b.check()["l"] > 0; slot++ {
			if slot > 20 {
				t.Fatalf("after some slots: %v", b.check())
			}
			b.now = window0 + slot*series.Window + hour
			s := b.sealer()
			s.SetBounds(4, 3)
			if err := s.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("series", func(t *testing.T) {
		b := newBench(t, newMemory())
		total := 0
		for i := range 2*jobs.NamesAtOnce + 3 {
			b.write(b.named(fmt.Sprintf("m%d!", i)), window0, float(1))
			total++
		}
		for i := range 2*seal.RowsAtOnce + 3 {
			s := newTestSeries(t, b.schema, labels.FromStrings("__name__", "m7!", "i", fmt.Sprint(i)))
			b.write(s, window0, float(1))
			total++
		}
		spy := &spy{Store: b.store}
		b.store = spy
		b.seal(2)
		b.wantCells("sealed", map[string]int{"c": total})
		if spy.rows != total {
			t.Errorf("%d mutations for %d rows", spy.rows, total)
		}
	})
}

// A spy counts mutations of METRIC, and refuses them after some.
type spy struct {
	bucketstore.Store
	rows, batches int
	// refuse makes batches after so many fail.
	refuse      bool
	refuseAfter int
}

var errRefused = errors.New("refused")

func (s *spy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		if s.refuse && s.batches >= s.refuseAfter {
			return errRefused
		}
		s.batches++
		s.rows += len(muts)
	}
	return s.Store.Apply(ctx, table, muts)
}

// TestResume: a sealer continues where another one has stopped.
func TestResume(t *testing.T) {
	b := newBench(t, newMemory())
	const total = 5*seal.RowsAtOnce + 7
	for i := range total {
		s := newTestSeries(t, b.schema, labels.FromStrings("__name__", "up", "i", fmt.Sprint(i)))
		b.write(s, window0, float(1))
	}
	spy := &spy{Store: b.store, refuse: true, refuseAfter: 3}
	b.store = spy
	b.now += 2*series.Window + hour
	if err := b.sealer().Once(t.Context()); !errors.Is(err, errRefused) {
		t.Fatalf("Once: %v", err)
	}
	if n := b.check()["c"]; n != 3*seal.RowsAtOnce {
		t.Fatalf("%d rows are sealed", n)
	}
	spy.refuse = false
	reg := prometheus.NewRegistry()
	s := b.sealer(func(cfg *seal.Config) { cfg.Registerer = reg })
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCells("sealed", map[string]int{"c": total})
	want := fmt.Sprintf(`
# HELP adapter_seal_chunks_total Chunks that were written.
# TYPE adapter_seal_chunks_total counter
adapter_seal_chunks_total %[1]d
# HELP adapter_seal_failures_total Slots that ended early, and rows that could not be sealed.
# TYPE adapter_seal_failures_total counter
adapter_seal_failures_total 0
# HELP adapter_seal_holds_lease 1 while this adapter is the one that seals.
# TYPE adapter_seal_holds_lease gauge
adapter_seal_holds_lease 0
# HELP adapter_seal_lag_seconds Age of the start of the oldest window that no slot has sealed. Up to 26,000 is usual: three windows. 0 if it is unknown.
# TYPE adapter_seal_lag_seconds gauge
adapter_seal_lag_seconds %[2]v
# HELP adapter_seal_raw_cells_total Raw cells that were replaced by chunks.
# TYPE adapter_seal_raw_cells_total counter
adapter_seal_raw_cells_total %[1]d
# HELP adapter_seal_rows_total Rows with sealed windows.
# TYPE adapter_seal_rows_total counter
adapter_seal_rows_total %[1]d
# HELP adapter_seal_walked_ratio Share of the rows that the last slot of the sealer walked. 1 is all of them, or no slot yet.
# TYPE adapter_seal_walked_ratio gauge
adapter_seal_walked_ratio 1
`, total-3*seal.RowsAtOnce, float64(series.Window+hour)/1000)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestCorrupt: a row that cannot be sealed is left unchanged, and others are sealed.
func TestCorrupt(t *testing.T) {
	own := series.RawFamily(window0, window0)
	set := func(family string, qualifier, value []byte) bucketstore.Op {
		return bucketstore.Op{Kind: bucketstore.SetCell, Family: family, Qualifier: qualifier, Time: window0, Value: value}
	}
	_, delta := series.Split(window0)
	at := func(d int64) []byte { return series.AppendQualifier(nil, delta+uint32(d)) }
	for _, tt := range []struct {
		name string
		op   bucketstore.Op
	}{
		{"qualifier", set(own, []byte{1, 2, 3}, make([]byte, 8))},
		{"value", set(own, at(1), nil)},
		{"chunk", set(series.FamilyChunk, append(at(2), at(2)...), []byte("chunk"))},
		{"a window to come", set(own, at(4*series.Window), make([]byte, 8))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			b := newBench(t, store)
			b.write(b.named("good"), window0, float(1))
			bad := b.named("bad")
			b.write(bad, window0, float(2))
			base, _ := series.Split(window0)
			key := b.schema.AppendRowKey(nil, bad.key, base)
			store.apply(bucketstore.Metric, bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{tt.op}})
			before, _ := cellsOf(store, key)
			reg := prometheus.NewRegistry()
			b.now += 2*series.Window + hour
			if err := b.sealer(func(cfg *seal.Config) { cfg.Registerer = reg }).Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			after, _ := cellsOf(store, key)
			if fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("the row was %v, is %v", before, after)
			}
			if n := counter(t, reg, "adapter_seal_rows_total"); n != 1 {
				t.Errorf("%v rows are sealed", n)
			}
			if n := counter(t, reg, "adapter_seal_failures_total"); n != 1 {
				t.Errorf("%v failures", n)
			}
		})
	}
}

func counter(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestFailedRow: a large row that the store refuses is left unchanged, and others are
// sealed.
func TestFailedRow(t *testing.T) {
	b := newBench(t, newMemory())
	bad := b.named("bad")
	for i := range int64(3) {
		b.now = window0 + 4*series.Window
		b.write(bad, window0+i, float(1))
		b.write(b.named("good"), window0+i, float(1))
	}
	b.store = &badRow{b.store, string(b.schema.AppendRowKey(nil, bad.key, worldBase))}
	b.now = window0 + 5*series.Window + hour
	reg := prometheus.NewRegistry()
	s := b.sealer(func(cfg *seal.Config) { cfg.Registerer = reg })
	s.SetBounds(2, 1)
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCells("sealed", map[string]int{"c": 1, "l": 3})
	for name, want := range map[string]float64{
		"adapter_seal_failures_total": 1, "adapter_seal_rows_total": 2, "adapter_seal_chunks_total": 2, "adapter_seal_raw_cells_total": 3,
	} {
		if got := counter(t, reg, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// badRow refuses one row of METRIC.
type badRow struct {
	bucketstore.Store
	key string
}

func (s *badRow) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	for i := range muts {
		if table == bucketstore.Metric && string(muts[i].Key) == s.key {
			rest := append(muts[:i:i], muts[i+1:]...)
			if err := s.Store.Apply(ctx, table, rest); err != nil {
				return err
			}
			return &bucketstore.RowsError{Failed: map[int]error{i: errRefused}}
		}
	}
	return s.Store.Apply(ctx, table, muts)
}

// TestPace: no more rows a second are read than allowed, even if a metric has few series.
func TestPace(t *testing.T) {
	b := newBench(t, newMemory())
	const total = 3 * jobs.NamesAtOnce
	for i := range total {
		b.write(b.named(fmt.Sprintf("m%d", i)), window0, float(1))
	}
	b.now += 2*series.Window + hour
	slept := time.Duration(0)
	s := b.sealer(func(cfg *seal.Config) { cfg.RowsPerSecond = 10 })
	s.SetHooks(func(ctx context.Context, d time.Duration) error {
		slept += d
		b.now += d.Milliseconds()
		return ctx.Err()
	}, background)
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := total / 10 * time.Second; slept != want {
		t.Errorf("slept %s over %d rows, want %s", slept, total, want)
	}
}

// TestTenants: one sealer seals the rows of several tenants, and a walk that is ended
// goes on where it was.
func TestTenants(t *testing.T) {
	store := newMemory()
	tenants := []string{"a", "a,b", "c"}
	var benches []*bench
	var n int
	for _, tenant := range tenants {
		b := newBench(t, store)
		var err error
		if b.schema, err = b.schema.ForTenant(tenant); err != nil {
			t.Fatal(err)
		}
		n = b.fill(b.named("up"), window0)
		benches = append(benches, b)
	}
	first, last := benches[0], benches[len(benches)-1]
	first.now = window0 + 2*series.Window + hour
	s := first.sealer(func(c *seal.Config) { c.Tenants = jobs.NamedTenants(series.Schema{}, tenants...) })
	ended := errors.New("ended")
	s.SetHooks(func(context.Context, time.Duration) error {
		if last.check()["c"] == 0 && benches[1].check()["c"] > 0 {
			return ended
		}
		return nil
	}, background)
	if err := s.Once(t.Context()); !errors.Is(err, ended) {
		t.Fatal(err)
	}
	first.wantCells("the first tenant", map[string]int{"c": 1})
	last.wantCells("the last tenant, not yet", map[string]int{series.RawFamily(window0, window0): n})
	s.SetHooks(noSleep, background)
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, b := range benches {
		b.wantCells(tenants[i], map[string]int{"c": 1})
	}
}

// TestHeld: rows that are held are left as they are, and sealed by a later slot.
func TestHeld(t *testing.T) {
	b := newBench(t, newMemory())
	up, down := b.named("up"), b.named("down")
	for n := range int64(5) {
		b.write(up, window0+n*1000, float(1))
		b.write(down, window0+n*1000, float(2))
	}
	b.now = window0 + 2*series.Window + hour
	held := func(cfg *seal.Config) {
		cfg.Held = func(context.Context, series.Schema) (func([]byte, int64) bool, error) {
			return func(key []byte, base int64) bool {
				return bytes.Equal(key, up.key) && base == window0&^(series.Period-1)
			}, nil
		}
	}
	if err := b.sealer(held).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.check(); n[series.FamilyChunk] != 1 || n[series.RawFamily(window0, window0)] != 5 {
		t.Errorf("cells: %v", n)
	}
	failed := errors.New("META is down")
	err := b.sealer(func(cfg *seal.Config) {
		cfg.Held = func(context.Context, series.Schema) (func([]byte, int64) bool, error) { return nil, failed }
	}).Once(t.Context())
	if err != nil { // the slot is done
		t.Error(err)
	}
	b.seal(6)
	if n := b.check(); n[series.FamilyChunk] != 2 || n[series.RawFamily(window0, window0)] != 0 {
		t.Errorf("cells after the next slot: %v", n)
	}
	b.write(up, b.now, float(3))
	b.now += 2 * series.Window
	err = b.sealer(func(cfg *seal.Config) {
		cfg.Held = func(context.Context, series.Schema) (func([]byte, int64) bool, error) { return nil, failed }
	}).Once(t.Context())
	if !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}

package deletion_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// base is that of a bucket, and now the time of the tests, a week into it.
const (
	base = 30 * series.Period
	now  = base + 7*86_400_000
)

// bench is a store in memory with what a process knows of deletions.
type bench struct {
	*testing.T
	store    *faulty
	reg      *prometheus.Registry
	now      atomic.Int64
	meta     *meta.Store
	records  *deletion.Records
	executor *deletion.Executor
	keys     map[string][]int64
	changed  int
	// flush is what flushing CURRENT does, and admit says whether writes are admitted.
	flush, admit func() error
}

// A faulty store fails after some writes to METRIC, if left is not negative.
type faulty struct {
	storetest.Memory
	left    int
	applied []string
	// metaDown says that conditional writes fail, as those of META are.
	metaDown bool
	// shared says that other processes use the store.
	shared bool
}

func (s *faulty) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: s.shared} }

func (s *faulty) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if s.metaDown {
		return false, errStore
	}
	return s.Memory.CheckAndApply(ctx, table, cond, mut)
}

var errStore = errors.New("the store is down")

func (s *faulty) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		if s.left == 0 {
			return errStore
		}
		s.left--
		for _, m := range muts {
			s.applied = append(s.applied, string(m.Key))
		}
	}
	return s.Memory.Apply(ctx, table, muts)
}

func newBench(t *testing.T, change ...func(*deletion.Config)) *bench {
	b := &bench{T: t, store: &faulty{left: -1}, keys: make(map[string][]int64)}
	b.now.Store(now)
	t.Cleanup(func() { storetest.CheckMeta(t, b.store, series.Schema{}) })
	var err error
	if b.meta, err = meta.Open(t.Context(), b.store, series.Schema{}, b.clock); err == nil {
		err = b.meta.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b.start(change...)
	return b
}

func (b *bench) clock() time.Time { return time.UnixMilli(b.now.Load()) }

// start starts a process.
func (b *bench) start(change ...func(*deletion.Config)) {
	b.reg = prometheus.NewRegistry()
	cfg := deletion.Config{Meta: b.meta, Now: b.clock, Registerer: b.reg, Changed: func() { b.changed++ }}
	for _, fn := range change {
		fn(&cfg)
	}
	var err error
	if b.records, err = deletion.Open(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	b.executor = deletion.NewExecutor(deletion.ExecutorConfig{Records: b.records, Store: b.store, Holder: "host:1", RowsPerSecond: 1e9, Find: deletion.FindIn(b.find), Flush: func(context.Context) error {
		if b.flush == nil {
			return nil
		}
		return b.flush()
	}, Admit: func() error {
		if b.admit == nil {
			return nil
		}
		return b.admit()
	}})
}

func (b *bench) find(_ context.Context, ms []*labels.Matcher, limit int64, fn func([]byte, []int64)) error {
	for key, bases := range b.keys {
		ls, err := series.Schema{}.ParseSeriesKey([]byte(key), new(labels.ScratchBuilder))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			fn([]byte(key), slices.DeleteFunc(slices.Clone(bases), func(base int64) bool { return base >= limit }))
		}
	}
	return nil
}

// key returns the key of the series up with this job, which has rows from base on and in the bucket before.
func (b *bench) key(job string) string {
	key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings("__name__", "up", "job", job))
	if err != nil {
		b.Fatal(err)
	}
	b.keys[string(key)] = []int64{base - series.Period, base}
	return string(key)
}

// put writes cells of a row of METRIC.
func (b *bench) put(key string, base int64, cells ...bucketstore.Cell) {
	b.Helper()
	mut := bucketstore.Mutation{Key: series.Schema{}.AppendRowKey(nil, []byte(key), base)}
	for _, c := range cells {
		mut.Ops = append(mut.Ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: c.Family, Qualifier: c.Qualifier, Time: c.Time, Value: c.Value})
	}
	if err := b.store.Memory.Apply(b.Context(), bucketstore.Metric, []bucketstore.Mutation{mut}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) putCurrent(key string, at int64, v float64) {
	b.Helper()
	op := bucketstore.Op{Kind: bucketstore.SetCell, Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent), Time: at, Value: cell.AppendFloat(nil, v)}
	if err := b.store.Apply(b.Context(), bucketstore.Current, []bucketstore.Mutation{{Key: []byte(key), Ops: []bucketstore.Op{op}}}); err != nil {
		b.Fatal(err)
	}
}

// raw returns a cell of a raw family with the value v, at a distance from base.
func raw(family string, delta uint32, v float64, arrival int64) bucketstore.Cell {
	return bucketstore.Cell{Family: family, Qualifier: series.AppendQualifier(nil, delta), Time: arrival, Value: cell.AppendFloat(nil, v)}
}

// floats returns a chunk with a sample each 1000 ms from base + from on, whose values count from v on.
func floats(stamp, from int64, n int, v float64) bucketstore.Cell {
	var ts []int64
	var vs []float64
	for i := range n {
		ts, vs = append(ts, base+from+int64(i)*1000), append(vs, v+float64(i))
	}
	return bucketstore.ChunkCell(chunk.EncodingDense, stamp, ts[0], ts[n-1], dense.Append(nil, ts, vs))
}

func newExemplar(delta uint32, v float64) bucketstore.Cell {
	value := cell.AppendExemplar(nil, exemplar.Exemplar{Value: v, Ts: base + int64(delta), HasTs: true})
	return bucketstore.Cell{Family: series.FamilyExemplar, Qualifier: cell.AppendExemplarQualifier(nil, delta, value), Time: base + int64(delta), Value: value}
}

// read returns the samples of a store as text, each as job delta=value, with rows of CURRENT as job! and the
// exemplars as job*.
func (b *bench) read(store bucketstore.Store) (text []string) {
	b.Helper()
	all := []bucketstore.FamilyRange{{Family: series.FamilyChunk}, {Family: series.FamilyExemplar}}
	for _, family := range series.RawFamilies {
		all = append(all, bucketstore.FamilyRange{Family: family})
	}
	jobOf := func(key []byte) string {
		ls, err := series.Schema{}.ParseSeriesKey(key, new(labels.ScratchBuilder))
		if err != nil {
			b.Fatal(err)
		}
		return ls.Get("job")
	}
	err := store.Scan(b.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: all}, func(row bucketstore.Row) error {
		key, rowBase, err := series.Schema{}.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		var samples merge.Row
		samples.Reset(rowBase, rowBase, rowBase+series.Period, merge.Options{})
		for _, c := range row.Cells {
			switch c.Family {
			case series.FamilyExemplar:
				delta, _ := series.ParseQualifier(c.Qualifier[:4])
				text = append(text, fmt.Sprintf("%s* %d", jobOf(key), delta))
			case series.FamilyChunk:
				sealed, err := chunk.Parse(c.Qualifier, c.Value)
				if err != nil {
					return err
				}
				samples.AddChunk(sealed)
			default:
				if err := samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
					return err
				}
			}
		}
		for samples.Next() == merge.Floats {
			ts, vs := samples.Floats()
			for i := range ts {
				text = append(text, fmt.Sprintf("%s %d=%g", jobOf(key), ts[i]-base, vs[i]))
			}
		}
		return samples.Err()
	})
	if err == nil {
		err = store.Scan(b.Context(), bucketstore.ScanRequest{Table: bucketstore.Current, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}}}, func(row bucketstore.Row) error {
			text = append(text, fmt.Sprintf("%s! %d", jobOf(row.Key), row.Cells[0].Time-base))
			return nil
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func (b *bench) want(what string, store bucketstore.Store, want ...string) {
	b.Helper()
	if got := b.read(store); !slices.Equal(got, want) {
		b.Errorf("%s: found\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (b *bench) delete(start, limit int64, matchers ...*labels.Matcher) {
	b.Helper()
	if err := b.records.Delete(b.Context(), matchers, start, limit); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) advance() {
	b.Helper()
	b.now.Add(1)
	if err := b.executor.Advance(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func job(value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, "job", value)
}

// TestDelete: each kind of cell is hidden at once, and then removed; what is outside the range,
// of other series, or written later, stays.
func TestDelete(t *testing.T) {
	b := newBench(t)
	x, y := b.key("x"), b.key("y")
	b.put(x, base, floats(now-5, 0, 5, 10), floats(now+1, 2000, 2, 20),
		raw(series.FamilyLate, 2500, 1, now), raw(series.FamilyLate, 2600, 2, now+1), raw(series.FamilyR0, 2700, 3, base+2700), raw(series.FamilyR3, 4001, 4, base+4001),
		newExemplar(999, 1), newExemplar(2000, 2), newExemplar(4000, 3))
	b.put(x, base-series.Period, raw(series.FamilyLate, math.MaxUint32, 7, now))
	b.put(y, base, floats(now-5, 1000, 2, 30))
	b.putCurrent(x, base+3000, 21)
	b.putCurrent(y, base+2000, 31)
	plan, err := b.executor.Plan(t.Context(), "", []*labels.Matcher{job("x")}, base+1000, base+4000)
	if want := (deletion.Plan{Series: 1, Rows: 1, Samples: 6, Exemplars: 1}); err != nil || plan.Bytes < 50 {
		t.Errorf("%+v, %v", plan, err)
	} else if plan.Bytes = 0; plan != want {
		t.Errorf("plan %+v, want %+v", plan, want)
	}
	before := b.read(b.store)
	b.delete(base+1000, base+4000, job("x"))
	if b.changed != 1 {
		t.Errorf("%d changes", b.changed)
	}
	left := []string{"x -1=7", "x* 999", "x* 4000", "x 0=10", "x 2000=20", "x 2600=2", "x 3000=21", "x 4000=14", "x 4001=4", "y 1000=30", "y 2000=31"}
	b.want("hidden", b.records.Filter(b.store), append(left, "y! 2000")...)
	b.want("of the store itself", b.store, before...)
	other := b.records
	b.start()
	b.want("hidden after a start", b.records.Filter(b.store), append(left, "y! 2000")...)
	b.advance()
	b.want("removed", b.store, append(left, "x! 4001", "y! 2000")...)
	if err := other.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, records := range []*deletion.Records{b.records, other} {
		b.want("done", records.Filter(b.store), append(left, "x! 4001", "y! 2000")...)
	}
	if all, err := b.meta.Deletions(t.Context()); err != nil || len(all) > 0 { // no family of an old range takes samples
		t.Errorf("META has %v, %v", all, err)
	}
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP adapter_deletion_cells_total Deleted cells that were removed or replaced by what is left: chunks, raw samples and exemplars.
# TYPE adapter_deletion_cells_total counter
adapter_deletion_cells_total 4
# HELP adapter_deletion_failures_total Attempts to learn of deletions, or to remove what is deleted, that failed and are repeated.
# TYPE adapter_deletion_failures_total counter
adapter_deletion_failures_total 0
# HELP adapter_deletion_pending Deletions that are hidden from reads and not removed from the store yet.
# TYPE adapter_deletion_pending gauge
adapter_deletion_pending 0
# HELP adapter_deletion_rows_total Rows of METRIC from which deleted cells were removed.
# TYPE adapter_deletion_rows_total counter
adapter_deletion_rows_total 1
# HELP adapter_deletion_unreadable_chunks_total Damaged chunks, of which a part is deleted, that were left as they are.
# TYPE adapter_deletion_unreadable_chunks_total counter
adapter_deletion_unreadable_chunks_total 0
`)); err != nil {
		t.Error(err)
	}
}

// TestTakenBack: a deletion that META does not take is taken back, and readers learn of that, too.
func TestTakenBack(t *testing.T) {
	b := newBench(t)
	b.put(b.key("x"), base, floats(1, 0, 1, 1))
	b.store.metaDown = true
	if err := b.records.Delete(t.Context(), []*labels.Matcher{job("x")}, 0, math.MaxInt64); !errors.Is(err, errStore) {
		t.Fatal(err)
	}
	b.store.metaDown = false
	if b.changed != 2 {
		t.Errorf("%d changes", b.changed)
	}
	b.want("taken back", b.records.Filter(b.store), "x 0=1")
}

// TestMatchers: names of metrics are compared as any label, though a name alone bounds the keys that are looked at.
func TestMatchers(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b"} {
		b.put(b.key(name), base, floats(1, 0, 1, 1))
	}
	match := func(kind labels.MatchType, name, value string) *labels.Matcher {
		return labels.MustNewMatcher(kind, name, value)
	}
	for _, ms := range [][]*labels.Matcher{
		{match(labels.MatchEqual, "__name__", "u")}, {match(labels.MatchEqual, "__name__", "upp")}, {match(labels.MatchNotEqual, "__name__", "up")},
		{match(labels.MatchEqual, "__name__", "up"), match(labels.MatchNotRegexp, "job", "a|b")}, {match(labels.MatchEqual, "other", "x")}, {match(labels.MatchEqual, "job", "")},
	} {
		b.delete(0, math.MaxInt64, ms...)
	}
	b.want("of other series", b.records.Filter(b.store), "a 0=1", "b 0=1")
	b.delete(0, math.MaxInt64, match(labels.MatchEqual, "__name__", "up"), match(labels.MatchRegexp, "job", "a|c"), match(labels.MatchEqual, "other", ""))
	b.want("of a", b.records.Filter(b.store), "b 0=1")
	b.advance()
	b.want("removed", b.store, "b 0=1")
}

// TestLimit: a scan delivers as many rows as are left, up to its limit.
func TestLimit(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		b.put(b.key(name), base, floats(1, 0, 1, 1))
	}
	b.delete(0, math.MaxInt64, labels.MustNewMatcher(labels.MatchRegexp, "job", "a|c"))
	for limit, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 2} {
		n := 0
		err := b.records.Filter(b.store).Scan(t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}}, Limit: limit,
		}, func(bucketstore.Row) error { n++; return nil })
		if err != nil || n != want {
			t.Errorf("limit %d: %d rows, %v", limit, n, err)
		}
	}
}

// TestCurrent: CURRENT gets the latest sample that is left, of an earlier bucket too, or none.
func TestCurrent(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"before", "none", "later"} {
		b.put(b.key(name), base, floats(1, 0, 3, 1))
		b.putCurrent(b.key(name), base+2000, 3)
	}
	b.put(b.key("before"), base-series.Period, raw(series.FamilyLate, math.MaxUint32, 7, 1))
	b.put(b.key("later"), base, floats(now+1, 5000, 1, 9)) // not in CURRENT yet
	b.delete(base, base+10_000, labels.MustNewMatcher(labels.MatchNotEqual, "job", ""))
	b.want("hidden", b.records.Filter(b.store), "before -1=7", "later 5000=9")
	b.advance()
	b.want("removed", b.store, "before -1=7", "later 5000=9", "before! -1", "later! 5000")
}

// TestFlush: what waits for CURRENT in the memory of any process is there before CURRENT is corrected.
func TestFlush(t *testing.T) {
	b := newBench(t)
	b.put(b.key("x"), base, floats(1, 0, 3, 1))
	failing := true
	b.flush = func() error {
		if failing {
			return errStore
		}
		b.putCurrent(b.key("x"), base+2000, 3)
		return nil
	}
	b.delete(base+1000, base+10_000, job("x"))
	if err := b.executor.Advance(t.Context()); !errors.Is(err, errStore) {
		t.Errorf("%v", err)
	}
	failing = false
	b.advance()
	b.want("removed", b.store, "x 0=1", "x! 0")
	failing = true
	b.advance() // there is no new deletion
}

// TestResume: an executor goes on where another one has stopped.
func TestResume(t *testing.T) {
	b := newBench(t)
	for i := range 250 {
		b.put(b.key(fmt.Sprintf("%03d", i)), base, floats(1, 0, 3, 1))
	}
	b.delete(base, base+10_000, labels.MustNewMatcher(labels.MatchRegexp, "job", ".+"))
	b.store.left = 1 // of 100 series
	if err := b.executor.Advance(t.Context()); !errors.Is(err, errStore) {
		t.Fatal(err)
	}
	b.want("hidden", b.records.Filter(b.store))
	b.store.left, b.store.applied = -1, nil
	b.start()
	b.want("hidden", b.records.Filter(b.store))
	b.advance()
	b.want("removed", b.store)
	if n := len(b.store.applied); n != 150 {
		t.Errorf("%d rows were written by the second executor", n)
	}
}

// TestAdmit: nothing is removed while writes are refused, from the first or from some series on.
func TestAdmit(t *testing.T) {
	for _, admitted := range []int{0, 2} {
		t.Run(fmt.Sprint(admitted), func(t *testing.T) {
			b := newBench(t)
			for i := range 250 {
				b.put(b.key(fmt.Sprintf("%03d", i)), base, floats(1, 0, 3, 1))
			}
			b.delete(base, base+10_000, labels.MustNewMatcher(labels.MatchRegexp, "job", ".+"))
			left := admitted
			b.admit = func() error {
				if left--; left < 0 {
					return errStore
				}
				return nil
			}
			for range 2 {
				if err := b.executor.Advance(t.Context()); !errors.Is(err, errStore) {
					t.Errorf("error %v", err)
				}
			}
			if n := len(b.store.applied); n > 100*admitted || n == 250 {
				t.Errorf("%d rows were written", n)
			}
			b.want("hidden", b.records.Filter(b.store))
			b.admit = nil
			b.advance()
			b.want("removed", b.store)
		})
	}
}

// TestDamaged: a damaged chunk is left as it is if a part of it is deleted, and removed as a
// whole.
func TestDamaged(t *testing.T) {
	b := newBench(t)
	bad := bucketstore.ChunkCell(chunk.EncodingDense, 1, base, base+5000, []byte{0xff, 0xff})
	b.put(b.key("bad"), base, bad)
	b.put(b.key("good"), base, floats(1, 0, 3, 1))
	b.delete(base+1000, base+10_000, labels.MustNewMatcher(labels.MatchRegexp, "job", ".+"))
	b.advance()
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP adapter_deletion_unreadable_chunks_total Damaged chunks, of which a part is deleted, that were left as they are.
# TYPE adapter_deletion_unreadable_chunks_total counter
adapter_deletion_unreadable_chunks_total 1
`), "adapter_deletion_unreadable_chunks_total"); err != nil {
		t.Error(err)
	}
	delete(b.keys, b.key("good"))
	b.delete(base, base+10_000, job("bad"))
	b.advance()
	b.want("removed", b.store, "good 0=1")
}

// TestWaits: nothing is removed while a log may hold something from before, while another process has the lease, or
// while other adapters may not know the deletion.
func TestWaits(t *testing.T) {
	waits := func(b *bench, part string) {
		b.Helper()
		if err := b.executor.Advance(b.Context()); !deletion.IsWaiting(err) || !strings.Contains(err.Error(), part) {
			b.Errorf("%v, want a wait for %q", err, part)
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Millisecond)
		defer cancel()
		if err := b.executor.Finish(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Error(err)
		}
	}
	for name, run := range map[string]func(b *bench){
		"log": func(b *bench) {
			if err := b.meta.PutLog(b.Context(), meta.Log{ID: "L", Host: "there", Path: "/p"}); err != nil {
				b.Fatal(err)
			}
			waits(b, "log L of /p on there")
			if err := b.meta.RemoveLog(b.Context(), "L"); err != nil {
				b.Fatal(err)
			}
		},
		"lease": func(b *bench) {
			b.now.Add(11 * 60_000)
			b.awaitLease()
		},
		"propagation": func(b *bench) {
			waits(b, "10m0s more")
			b.now.Add(9 * 60_000)
			waits(b, "1m0s more")
			b.now.Add(60_000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.store.shared = name != "log"
			b.start()
			b.put(b.key("x"), base, floats(1, 0, 3, 1))
			b.delete(0, math.MaxInt64, job("x"))
			run(b)
			if err := b.executor.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.want("removed", b.store)
		})
	}
}

// awaitLease has another process take the lease, and lets it expire.
func (b *bench) awaitLease() {
	b.Helper()
	lease := jobs.NewLease(b.store, series.MetaDelete, b.clock, "other", func(h *meta.Holding) *meta.Holding { return h })
	err := lease.Run(b.Context(), nil, func(ctx context.Context) error {
		if err := b.executor.Advance(ctx); !deletion.IsWaiting(err) || !strings.Contains(err.Error(), "other") {
			b.Error(err)
		}
		b.now.Add(jobs.LeaseTime.Milliseconds() + 1)
		return b.executor.Finish(ctx)
	})
	if err != nil {
		b.Error(err)
	}
}

// TestWritesThatRun: a deletion waits for the writes that began before it.
func TestWritesThatRun(t *testing.T) {
	b := newBench(t)
	end := b.records.Begin()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.records.Delete(ctx, []*labels.Matcher{job("x")}, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	deleted := make(chan error)
	go func() { deleted <- b.records.Delete(t.Context(), []*labels.Matcher{job("x")}, 0, 1) }()
	b.records.Begin()() // one that begins later
	select {
	case err := <-deleted:
		t.Errorf("it did not wait: %v", err)
	default:
	}
	end()
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}

// TestEmptyRange: nothing is in a range without times.
func TestEmptyRange(t *testing.T) {
	b := newBench(t)
	for _, r := range [][2]int64{{5, 5}, {7, 3}, {-9, 0}, {series.MaxTime + 1, math.MaxInt64}} {
		b.delete(r[0], r[1], job("x"))
	}
	if all, err := b.meta.Deletions(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if err := b.records.Delete(t.Context(), []*labels.Matcher{job("\xff")}, 0, 9); err == nil {
		t.Error("a matcher that cannot be stored")
	}
}

// TestCorruptRecords: what is no selector is an error that names the deletion.
func TestCorruptRecords(t *testing.T) {
	b := newBench(t)
	for _, matchers := range []string{`[{"name":"a","type":"~","value":"b"}]`, `[{"name":"a","type":"=~","value":"("}]`} {
		if err := meta.Overwrite(t.Context(), b.store, "delete,ID", []byte(`{"matchers":`+matchers+`,"start":0,"limit":1}`), now); err != nil {
			t.Fatal(err)
		}
		if err := b.records.Poll(t.Context()); !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), "ID") {
			t.Errorf("%v", err)
		}
	}
}

// TestWidened: a sentence says what a deletion takes beside its times where only rollups are kept, and there is none where it takes nothing else.
func TestWidened(t *testing.T) {
	b := newBench(t)
	const closed = 10 * rollup.Day
	for _, c := range []struct {
		name                 string
		closed, start, limit int64
		want                 string
	}{
		{"no day is closed", 0, 0, math.MaxInt64, ""},
		{"samples are there", closed, closed + 1, closed + 500, ""},
		{"everything", closed, 0, math.MaxInt64, ""},
		{"whole buckets", closed, 300_001, 900_001, ""},
		{"up to samples", closed, 300_001, closed + 77, ""},
		{"a part of the first", closed, 300_002, 900_001, "from 1970-01-01T00:05:00Z to 1970-01-01T00:15:00Z"},
		{"a part of the last", closed, 300_001, 900_002, "from 1970-01-01T00:05:00Z to 1970-01-01T00:20:00Z"},
		{"one sample", closed, 300_000, 300_001, "from 1970-01-01T00:00:00Z to 1970-01-01T00:05:00Z"},
		{"a part of the first, up to samples", closed, closed - 5, closed + 5, "from 1970-01-10T23:55:00Z to 1970-01-11T00:00:00Z"},
	} {
		x := deletion.NewExecutor(deletion.ExecutorConfig{Records: b.records, Timeline: timelinetest.Bounds{Closes: func() int64 { return c.closed }}})
		got, err := x.Widened(t.Context(), c.start, c.limit)
		if err != nil || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// someTime is in 1974, in the middle of a window.
const someTime = 30*series.Period + 100*series.Window + series.Window/2

// clock is a clock that tests set.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// openPebble opens an embedded store that outlives its buffers.
func openPebble(t testing.TB) bucketstore.Store {
	t.Helper()
	now := func() time.Time { return time.UnixMilli(someTime) } // old cells of CURRENT expire
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		storetest.CheckMeta(t, store, series.Schema{})
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// lasting is a store that the buffer does not close, and that can fail.
type lasting struct {
	bucketstore.Store
	fail    atomic.Bool
	applied atomic.Int64 // rows of METRIC
	// left is how many rows the store accepts before it fails, if limited is set.
	limited atomic.Bool
	left    atomic.Int64
}

var errStore = errors.New("the store is down")

func (s *lasting) Close() error { return nil }

func (s *lasting) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if s.fail.Load() {
		return errStore
	}
	if table == bucketstore.Metric {
		s.applied.Add(int64(len(muts)))
	}
	if s.limited.Load() {
		if n := max(0, s.left.Add(-int64(len(muts)))+int64(len(muts))); n < int64(len(muts)) {
			return errors.Join(errStore, s.Store.Apply(ctx, table, muts[:n]))
		}
	}
	return s.Store.Apply(ctx, table, muts)
}

// config is a configuration and the directory of the log.
type config struct {
	buffer.Config
	Dir string
}

// openLog opens the log of cfg, not bound to a store.
func openLog(ctx context.Context, cfg config) (*buffer.Buffer, error) {
	since := time.Now()
	if cfg.Now != nil {
		since = cfg.Now()
	}
	dir, err := buffer.OpenDir(cfg.Dir, since)
	if err != nil {
		return nil, err
	}
	return buffer.Open(ctx, dir, cfg.Config)
}

// fixture is a buffer over a store, with everything that was written to it.
type fixture struct {
	*buffer.Buffer
	store *lasting
	clock *clock
	cfg   config
	want  map[string]map[int64]string // values by series key and time
}

func open(t testing.TB, store bucketstore.Store, change func(*config)) *fixture {
	t.Helper()
	f := &fixture{store: &lasting{Store: store}, clock: new(clock), want: make(map[string]map[int64]string)}
	f.clock.ms.Store(someTime)
	f.cfg = config{
		Config: buffer.Config{
			Store: f.store, Now: f.clock.now, SweepInterval: time.Hour,
			Die: func(err error) { t.Errorf("Die: %v", err) },
		},
		Dir: filepath.Join(t.TempDir(), "log"),
	}
	if change != nil {
		change(&f.cfg)
	}
	f.reopen(t)
	t.Cleanup(func() {
		if f.Buffer == nil {
			return
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if left := segmentsOf(t, f.cfg.Dir); len(left) > 0 {
			t.Errorf("the log is still there: %v", left)
		}
	})
	return f
}

// segmentsOf returns the files of the segments in dir, ascending.
func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func (f *fixture) reopen(t testing.TB) {
	t.Helper()
	b, err := openLog(t.Context(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Buffer = b
}

// kill ends the buffer as the death of the process would.
func (f *fixture) kill() {
	f.Kill()
	f.Buffer = nil
}

// sample returns a sample of the series with this number.
func (f *fixture) sample(n int, t int64, v float64) bucketstore.Sample {
	return bucketstore.Sample{Ref: f.Ref(key(n)), T: t, V: v}
}

func key(n int) []byte {
	var schema series.Schema
	key, err := schema.AppendSeriesKey(nil, labels.FromStrings("__name__", "some_metric", "n", fmt.Sprint(n)))
	if err != nil {
		panic(err)
	}
	return key
}

// append appends samples and records them.
func (f *fixture) append(t testing.TB, samples ...bucketstore.Sample) {
	t.Helper()
	if err := f.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	f.remember(samples)
}

func (f *fixture) remember(samples []bucketstore.Sample) {
	for _, s := range samples {
		key := string(s.Ref.SeriesKey())
		if f.want[key] == nil {
			f.want[key] = make(map[int64]string)
		}
		f.want[key][s.T] = valueText(s.V, s.Value)
	}
}

func valueText(v float64, value []byte) string {
	if value == nil {
		value = cell.AppendFloat(nil, v)
	}
	return fmt.Sprintf("%x", value)
}

// check compares everything that can be read with everything that was written.
func (f *fixture) check(t testing.TB, when string) {
	t.Helper()
	got := readAll(t, f.Buffer)
	for _, key := range slices.Sorted(maps.Keys(f.want)) {
		if want := f.want[key]; !maps.Equal(got[key], want) {
			t.Errorf("%s: series %s has %d samples, want %d%s", when, key, len(got[key]), len(want), difference(got[key], want))
		}
	}
	if len(got) != len(f.want) {
		t.Errorf("%s: %d series, want %d", when, len(got), len(f.want))
	}
}

func difference(got, want map[int64]string) string {
	for _, t := range slices.Sorted(maps.Keys(want)) {
		if got[t] != want[t] {
			return fmt.Sprintf(", the first other one at %d: %q, want %q", t, got[t], want[t])
		}
	}
	return ""
}

// sampleFamilies are the families of METRIC with samples.
func sampleFamilies() (families []bucketstore.FamilyRange) {
	for _, name := range []string{"c", "l", "r0", "r1", "r2", "r3"} {
		families = append(families, bucketstore.FamilyRange{Family: name})
	}
	return families
}

// readAll reads every sample of a store.
func readAll(t testing.TB, store bucketstore.Store) map[string]map[int64]string {
	t.Helper()
	found := make(map[string]map[int64]string)
	last := ""
	err := store.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: sampleFamilies(),
	}, func(row bucketstore.Row) error {
		if string(row.Key) <= last {
			return fmt.Errorf("row %q after %q", row.Key, last)
		}
		last = string(row.Key)
		key, base, err := series.Schema{}.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		if found[string(key)] == nil {
			found[string(key)] = make(map[int64]string)
		}
		return readRow(found[string(key)], base, row.Cells)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// openConforming opens a buffer in front of an embedded store, for storetest.
func openConforming(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store {
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: tables, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	b, err := openLog(t.Context(), config{Config: buffer.Config{Store: store, Now: now}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestConcurrentConformance(t *testing.T) { storetest.RunConcurrent(t, openConforming) }

// TestReads: samples can be read at once, after sealing, and after the next start; on both
// backends.
func TestReads(t *testing.T) {
	for name, openStore := range map[string]func(testing.TB) bucketstore.Store{
		"pebble":   openPebble,
		"bigtable": func(t testing.TB) bucketstore.Store { return bigtabletest.Open(t) },
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t)
			f := open(t, store, func(c *config) { c.MaxOpenBytes, c.PartSamples = 4<<10, 20 })
			for i := range int64(300) {
				var batch []bucketstore.Sample
				for n := range 10 {
					batch = append(batch, f.sample(n, someTime+i*15_000, float64(n)*1.5+float64(i)))
				}
				batch = append(batch, bucketstore.Sample{Ref: f.Ref(key(77)), T: someTime + i*15_000, Value: histogramValue(uint64(i))})
				if i%3 == 0 {
					batch[3].V = math.Float64frombits(0x7ff0000000000002)
					batch[10].Value = cell.Append(nil, cell.Value{Start: someTime, Float: float64(i)})
				}
				f.clock.ms.Store(someTime + i*15_000)
				f.append(t, batch...)
			}
			f.check(t, "at once")
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.check(t, "after a flush")
			if n := f.cells(t); n < 50 {
				t.Errorf("%d chunks, though memory was short", n)
			}
			f.append(t, f.sample(1, someTime+1, 7), f.sample(1, someTime+300*15_000, 8))
			f.kill()
			f.reopen(t)
			f.check(t, "after a death")
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			f.reopen(t)
			f.check(t, "after a stop")
		})
	}
}

func histogramValue(count uint64) []byte {
	return cell.Append(nil, cell.Value{Histogram: &histogram.Histogram{
		Count: count, Sum: float64(count), PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{int64(count)},
	}})
}

// TestTornWrite: a log may end anywhere in a write.
func TestTornWrite(t *testing.T) {
	f := open(t, openPebble(t), nil)
	path := filepath.Join(f.cfg.Dir, buffer.SegmentName(1))
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	f.append(t, f.sample(1, someTime, 1))
	f.append(t, f.sample(2, someTime, 2))
	whole := size()
	if err := f.Append(t.Context(), []bucketstore.Sample{f.sample(3, someTime, 3), f.sample(1, someTime+1, 4)}); err != nil {
		t.Fatal(err)
	}
	all := size()
	f.kill()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := whole; cut < all; cut++ {
		for _, tail := range [][]byte{nil, make([]byte, 100)} {
			torn := append(slices.Clone(content[:cut]), tail...)
			again := open(t, new(storetest.Memory), func(c *config) { writeSegment(t, c.Dir, 1, torn) })
			again.want = f.want
			again.check(t, fmt.Sprintf("cut at %d of %d, %d zeros after it", cut, all, len(tail)))
			again.want = make(map[string]map[int64]string)
		}
	}
	f.reopen(t)
	f.remember([]bucketstore.Sample{f.sample(3, someTime, 3), f.sample(1, someTime+1, 4)})
	f.check(t, "whole")
}

func writeSegment(t testing.TB, dir string, segment uint64, content []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, buffer.SegmentName(segment)), content, 0o640); err != nil {
		t.Fatal(err)
	}
}

// TestDamage: damage before the last write stops the start.
func TestDamage(t *testing.T) {
	f := open(t, openPebble(t), nil)
	path := filepath.Join(f.cfg.Dir, buffer.SegmentName(1))
	f.append(t, f.sample(0, someTime, 1))
	f.append(t, f.sample(1, someTime, 1))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f.append(t, f.sample(2, someTime, 1))
	f.kill()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range info.Size() {
		damaged := slices.Clone(content)
		damaged[at] ^= 0x40
		cfg := f.cfg
		cfg.Dir = t.TempDir()
		writeSegment(t, cfg.Dir, 1, damaged)
		b, err := openLog(t.Context(), cfg)
		if err == nil {
			b.Kill()
			t.Fatalf("byte %d of %d damaged: no error", at, len(content))
		}
		if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), buffer.SegmentName(1)) {
			t.Errorf("byte %d damaged: %v", at, err)
		}
	}
	// In front of the last segment nothing may be torn.
	cfg := f.cfg
	cfg.Dir = t.TempDir()
	writeSegment(t, cfg.Dir, 1, content[:len(content)-1])
	writeSegment(t, cfg.Dir, 2, nil)
	if _, err := openLog(t.Context(), cfg); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("a torn segment in the middle: %v", err)
	}
	writeSegment(t, cfg.Dir, 1, content)
	writeSegment(t, cfg.Dir, 4, nil)
	if _, err := openLog(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), buffer.SegmentName(3)) {
		t.Errorf("a missing segment: %v", err)
	}
	f.reopen(t)
	f.check(t, "undamaged")
}

// TestStoreDown: while the store is down samples are accepted and read, late ones too, and
// none is lost when the process dies.
func TestStoreDown(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.MaxOpenBytes = 64 })
	f.store.fail.Store(true)
	for i := range int64(100) {
		f.append(t, f.sample(1, someTime+i*1000, float64(i)))
		f.Sweep()
	}
	if f.Sealing() < 5 {
		t.Errorf("%d chunks wait for the store", f.Sealing())
	}
	f.check(t, "down")
	f.append(t, f.sample(1, someTime-10*series.Window, 1)) // the older of two open windows
	f.append(t, f.sample(1, someTime-20*series.Window, 1))
	f.check(t, "down, with a late sample")
	f.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := openLog(ctx, f.cfg); err == nil {
		t.Fatal("opened without the store")
	}
	f.store.fail.Store(false)
	f.reopen(t)
	f.check(t, "up again")
}

// TestLogIsCut: a segment is removed when its samples are in the store; chunks that need an
// old one are sealed.
func TestLogIsCut(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.SegmentBytes, c.MaxLogBytes = 1000, 3000 })
	f.append(t, f.sample(99, someTime, 1)) // it would keep the log for ever
	segments := func() int { return len(segmentsOf(t, f.cfg.Dir)) }
	most := 0
	for i := range int64(1000) {
		f.append(t, f.sample(int(i%5), someTime+i*1000, float64(i)*1.1))
		if most = max(most, segments()); i%100 == 99 {
			f.Sweep()
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the log is short", func() bool { return segments() == 1 })
		}
	}
	if most < 2 {
		t.Errorf("never more than %d segments", most)
	}
	f.check(t, "after all")
}

// TestSweep: the clock seals windows, and forgets series.
func TestSweep(t *testing.T) {
	f := open(t, openPebble(t), nil)
	for n := range 100 {
		f.append(t, f.sample(n, someTime, 1))
	}
	f.Sweep()
	if n := f.store.applied.Load(); n != 0 {
		t.Errorf("%d rows while the window is open", n)
	}
	f.clock.ms.Store(someTime + 3*series.Window)
	f.Sweep()
	eventually(t, "all is stored", func() bool { return f.store.applied.Load() == 100 })
	f.check(t, "sealed")
	held := f.sample(5, someTime+3*series.Window, 2)
	eventually(t, "all is forgotten", func() bool {
		f.Sweep()
		return f.SeriesCount() == 0
	})
	f.append(t, held, f.sample(5, someTime+3*series.Window+1, 3))
	f.check(t, "by an old reference and a new one")
}

// TestSweepWaits: a past window is not sealed while its samples come, so that a sender that
// catches up gets long chunks.
func TestSweepWaits(t *testing.T) {
	f := open(t, openPebble(t), nil)
	f.clock.ms.Store(someTime + 100*series.Window)
	for i := range int64(50) {
		f.append(t, f.sample(1, someTime+i*1000, float64(i)))
		f.Sweep()
	}
	if f.Sealing() > 0 || f.store.applied.Load() > 0 {
		t.Fatal("sealed while its samples come")
	}
	f.check(t, "open")
	f.clock.ms.Add(2*time.Minute.Milliseconds() + 1000)
	f.append(t, f.sample(2, someTime, 1))
	f.Sweep()
	eventually(t, "the first series is stored, and not the second", func() bool { return f.store.applied.Load() == 1 && f.Sealing() == 0 })
	f.check(t, "sealed")
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestConcurrent: readers see every acknowledged sample, whatever is sealed meanwhile.
func TestConcurrent(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.PartSamples, c.SegmentBytes, c.MaxLogBytes = 8, 5000, 10_000 })
	const writers, each = 4, 300
	var acknowledged [writers]atomic.Int64
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range int64(each) {
				if err := f.Append(t.Context(), []bucketstore.Sample{f.sample(w, someTime+i*1000, float64(i))}); err != nil {
					t.Error(err)
					return
				}
				acknowledged[w].Store(i + 1)
			}
		})
	}
	group.Go(func() {
		for acknowledged[0].Load() < each && !t.Failed() {
			var before [writers]int64
			for w := range before {
				before[w] = acknowledged[w].Load()
			}
			found := readAll(t, f.Buffer)
			for w, n := range before {
				if have := int64(len(found[string(key(w))])); have < n {
					t.Errorf("series %d has %d samples, %d are acknowledged", w, have, n)
				}
			}
			f.Sweep()
		}
	})
	group.Wait()
}

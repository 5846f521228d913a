package buffer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// A choosy store takes some rows and not others.
type choosy struct {
	bucketstore.Store
	mu sync.Mutex
	// rows has the errors of rows whose keys begin so. An ErrRefused spoils every request
	// for more than one row.
	rows map[string]error
	// spoils says that one refused row fails the whole request.
	spoils bool
}

func (s *choosy) Close() error { return nil }

func (s *choosy) set(prefix string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows = make(map[string]error)
	}
	s.rows[prefix] = err
}

func (s *choosy) errorOf(key []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for prefix, err := range s.rows {
		if bytes.HasPrefix(key, []byte(prefix)) {
			return err
		}
	}
	return nil
}

func (s *choosy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	failed := make(map[int]error)
	var taken []bucketstore.Mutation
	for i, m := range muts {
		if err := s.errorOf(m.Key); err != nil {
			if s.spoils {
				return err
			}
			failed[i] = err
			continue
		}
		taken = append(taken, m)
	}
	if len(taken) > 0 {
		if err := s.Store.Apply(ctx, table, taken); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return &bucketstore.RowsError{Failed: failed}
	}
	return nil
}

func openChoosy(t *testing.T, change func(*choosy)) (*fixture, *choosy) {
	t.Helper()
	store := &choosy{Store: openPebble(t)}
	if change != nil {
		change(store)
	}
	f := open(t, store, nil)
	t.Cleanup(func() { // before the fixture closes the buffer
		store.set(string(key(3)), nil)
		awaitFailing(t, f, 0)
	})
	return f, store
}

// awaitFailing waits until so many rows fail.
func awaitFailing(t *testing.T, f *fixture, want int) []bucketstore.FailingRow {
	t.Helper()
	eventually(t, fmt.Sprintf("%d rows fail", want), func() bool { return len(f.FailingRows()) == want })
	return f.FailingRows()
}

var errBusy = errors.New("the tablet is busy")

// TestFailingRow: of many rows one fails. The others are sealed, the log is cut, readers
// see all samples, the next start succeeds, and the row is stored once the store takes it.
func TestFailingRow(t *testing.T) {
	f, store := openChoosy(t, nil)
	store.set(string(key(3)), errBusy)
	write := func(from, to int64) {
		for i := from; i < to; i++ {
			var batch []bucketstore.Sample
			for n := range 20 {
				batch = append(batch, f.sample(n, someTime+i*15_000, float64(n)+float64(i)))
			}
			batch = append(batch, bucketstore.Sample{Ref: f.Ref(key(3)), T: someTime + i*15_000 + 1, Value: histogramValue(uint64(i))})
			f.append(t, batch...)
		}
	}
	write(0, 50)
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := awaitFailing(t, f, 2)
	for _, row := range rows {
		if !bytes.HasPrefix(row.Key, key(3)) || !errors.Is(row.Err, errBusy) || row.Refused {
			t.Errorf("%s row %q fails: %v, refused: %v", row.Table, row.Key, row.Err, row.Refused)
		}
	}
	if rows[0].Table == rows[1].Table {
		t.Errorf("rows of %s and %s fail, want METRIC and CURRENT", rows[0].Table, rows[1].Table)
	}
	f.check(t, "while a row fails")
	write(50, 60) // so that the row fails twice
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.check(t, "while a row fails twice")
	f.kill()
	f.reopen(t)
	f.check(t, "after a death")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if files := rowFilesOf(t, f); len(files) == 0 {
		t.Error("a stop left no file of rows")
	}
	f.reopen(t)
	f.check(t, "after a stop")
	store.set(string(key(3)), nil)
	awaitFailing(t, f, 0)
	if files := rowFilesOf(t, f); len(files) > 0 {
		t.Errorf("all rows are stored, and there are still %v", files)
	}
	f.check(t, "once the store takes the row")
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, f.store); len(got) != len(f.want) {
		t.Errorf("%d series are in the store, want %d", len(got), len(f.want))
	}
}

// TestOldest: no sample that is not in the store is before Oldest, wherever it is: in an open, late or sealed chunk, or in a row that fails.
// If all is in the store Oldest is 0.
func TestOldest(t *testing.T) {
	r := seriestest.NewRand(t)
	f, store := openChoosy(t, nil)
	unstored := func() (oldest int64) {
		stored := readAll(t, f.store)
		oldest = math.MaxInt64
		for key, samples := range f.want {
			for at, v := range samples {
				if stored[key][at] != v {
					oldest = min(oldest, at)
				}
			}
		}
		return oldest
	}
	check := func(when string) {
		t.Helper()
		before := unstored()
		oldest := f.Oldest()
		after := unstored()
		// A row that fails may be left of one that was written since.
		isEarly := oldest != 0 && oldest < series.WindowOf(before) && len(f.FailingRows()) == 0
		if after < math.MaxInt64 && (oldest == 0 || oldest > after) || isEarly {
			t.Fatalf("%s: Oldest is %d, samples from %d on were not stored before, and from %d on after", when, oldest, before, after)
		}
	}
	empty := 0
	for round := range 60 {
		if round == 30 {
			store.set(string(key(3)), errBusy)
		}
		for range r.IntN(30) {
			at := f.clock.ms.Load() - r.Int64N(1000)
			if r.IntN(4) == 0 { // a late one
				at -= r.Int64N(30 * series.Window)
			}
			f.append(t, f.sample(r.IntN(5), at, r.Float64()))
			check("after a sample")
		}
		switch r.IntN(4) {
		case 0:
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			check("after a flush")
			if len(f.FailingRows()) == 0 {
				if empty++; f.Oldest() != 0 {
					t.Errorf("all is stored: Oldest is %d", f.Oldest())
				}
			}
		case 1:
			f.Sweep()
			check("after a sweep")
		case 2:
			if round%5 == 0 {
				f.kill()
				f.reopen(t)
				check("after a death")
			}
		}
		f.clock.ms.Add(r.Int64N(2 * series.Window))
	}
	if empty == 0 {
		t.Error("too few flushes for a test")
	}
}

// TestFailingRowFreesLog: while a row fails, the segments of the log go.
func TestFailingRowFreesLog(t *testing.T) {
	store := &choosy{Store: openPebble(t)}
	store.set(string(key(3)), errBusy)
	f := open(t, store, func(c *config) { c.SegmentBytes, c.MaxLogBytes = 4<<10, 16<<10 })
	for i := range int64(2000) {
		f.clock.ms.Store(someTime + i*15_000)
		f.append(t, f.sample(3, someTime+i*15_000, float64(i)*1.7), f.sample(4, someTime+i*15_000, float64(i)*1.3))
		if i%50 == 0 {
			f.Sweep()
		}
	}
	f.Sweep()
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentsOf(t, f.cfg.Dir)); n != 1 {
		t.Errorf("the log has %d segments, want 1", n)
	}
	f.check(t, "with a short log")
	f.kill()
	f.reopen(t)
	f.check(t, "after a death with a short log")
	store.set(string(key(3)), nil)
	awaitFailing(t, f, 0)
}

// TestRefusedRow: a row that can never be stored spoils its request, and no other row. It
// is not tried for ever, stays readable, and is tried again by the next start.
func TestRefusedRow(t *testing.T) {
	reg := prometheus.NewRegistry()
	store := &choosy{Store: openPebble(t), spoils: true}
	store.set(string(key(3)), fmt.Errorf("%w: it has 257 MB", bucketstore.ErrRefused))
	f := open(t, store, func(c *config) { c.Registerer = reg })
	for i := range int64(10) {
		var batch []bucketstore.Sample
		for n := range 20 {
			batch = append(batch, f.sample(n, someTime+i*15_000, float64(n)+float64(i)))
		}
		f.append(t, batch...)
	}
	f.append(t, f.sample(3, someTime-10*series.Window, 5))
	f.append(t, f.sample(3, someTime-20*series.Window, 6)) // a late one
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.check(t, "at once")
	isGivenUp := func(rows []bucketstore.FailingRow) bool {
		for _, row := range rows {
			if !row.Refused || !bytes.HasPrefix(row.Key, key(3)) {
				return false
			}
		}
		return true
	}
	eventually(t, "only the refused row fails", func() bool { return isGivenUp(f.FailingRows()) })
	if n := len(f.FailingRows()); n == 0 {
		t.Fatal("no row fails")
	} else if got := testutil.ToFloat64(failingGauge(t, reg, "refused")); int(got) != n {
		t.Errorf("adapter_buffer_failing_rows has %v refused rows, want %d", got, n)
	}
	f.check(t, "with a refused row")
	f.kill()
	reg = prometheus.NewRegistry()
	f.cfg.Registerer = reg
	f.reopen(t)
	if got := testutil.ToFloat64(failingGauge(t, reg, "retried")) + testutil.ToFloat64(failingGauge(t, reg, "refused")); got == 0 {
		t.Error("adapter_buffer_failing_rows is 0 after a start with failing rows")
	}
	f.check(t, "after a death")
	store.set(string(key(3)), nil)
	awaitFailing(t, f, 0)
	f.check(t, "once the store takes the row")
}

// failingGauge returns adapter_buffer_failing_rows as a collector with one value.
func failingGauge(t *testing.T, reg *prometheus.Registry, state string) prometheus.Collector {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "copy"})
	for _, family := range families {
		if family.GetName() != "adapter_buffer_failing_rows" {
			continue
		}
		for _, m := range family.Metric {
			if m.Label[0].GetValue() == state {
				g.Set(m.Gauge.GetValue())
			}
		}
	}
	return g
}

// TestRowFiles: a damaged file of rows stops the start and is named.
func TestRowFiles(t *testing.T) {
	store := &choosy{Store: openPebble(t)}
	store.set(string(key(3)), errBusy)
	f := open(t, store, nil)
	f.append(t, f.sample(3, someTime, 1))
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.kill()
	files := rowFilesOf(t, f)
	if len(files) == 0 {
		t.Fatal("there is no file of rows")
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range content {
		damaged := bytes.Clone(content)
		damaged[i] ^= 0x10
		if err := os.WriteFile(files[0], damaged, 0o640); err != nil {
			t.Fatal(err)
		}
		b, err := openLog(t.Context(), f.cfg)
		if err == nil {
			t.Fatalf("a start with a flipped bit in byte %d succeeds: %v", i, b.Close())
		}
		if !bytes.Contains([]byte(err.Error()), []byte(filepath.Base(files[0]))) {
			t.Errorf("the error of a flipped bit in byte %d does not name the file: %v", i, err)
		}
	}
	if err := os.WriteFile(files[0], content, 0o640); err != nil {
		t.Fatal(err)
	}
	store.set(string(key(3)), nil)
	f.reopen(t)
	awaitFailing(t, f, 0)
}

// rowFilesOf returns the files of failing rows.
func rowFilesOf(t *testing.T, f *fixture) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.cfg.Dir, "*.rows"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

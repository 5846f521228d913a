package pebble_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// A retained is a store that keeps METRIC for ten days and sweeps without a pause.
type retained struct {
	*pebble.Store
	registry *prometheus.Registry
	clock    *atomic.Int64
}

const (
	dayMillis = 2 * halfDay
	keptDays  = 10
	// firstDay is where the tests begin, some days into testBase, at midnight.
	firstDay = 11_440
)

func openRetained(t *testing.T, disk vfs.FS, clock *atomic.Int64) retained {
	t.Helper()
	r := retained{registry: prometheus.NewRegistry(), clock: clock}
	cfg := pebble.Config{
		Dir: "/data", SweepInterval: time.Millisecond, Registerer: r.registry,
		Now:    func() time.Time { return time.UnixMilli(clock.Load()) },
		Tables: []bucketstore.TableSpec{{Table: bucketstore.Metric, Families: metricFamilies(keptDays * 24 * time.Hour)}},
	}
	var err error
	if r.Store, err = pebble.Open(cfg.WithFS(disk)); err != nil {
		t.Fatal(err)
	}
	return r
}

// keyAt returns the row key and the qualifier of t.
func keyAt(name string, t int64) (key string, qual []byte) {
	base, delta := series.Split(t)
	return fmt.Sprintf("%s,%013d", name, base), series.AppendQualifier(nil, delta)
}

// put writes a cell of sample time t and cell time at.
func (r retained) put(tb testing.TB, name, family string, t, at int64) {
	tb.Helper()
	key, qual := keyAt(name, t)
	apply(tb, r.Store, bucketstore.Metric, key, setOp(family, string(qual), at, "x"))
}

func (r retained) close(t *testing.T) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantDays checks how many cells each day has on the disk. It closes the store.
func (r retained) wantDays(t *testing.T, disk vfs.FS, want map[int]int) {
	t.Helper()
	r.close(t)
	text := make(map[string]int)
	for day, cells := range want {
		text[fmt.Sprintf("%08x", day)] = cells
	}
	if got := storedDays(t, disk); fmt.Sprint(got) != fmt.Sprint(text) {
		t.Errorf("cells by day: %v, want %v", got, text)
	}
}

func TestDropDays(t *testing.T) {
	const drops = "adapter_pebble_sweep_drops_total"
	begin := int64(firstDay * dayMillis)
	// fill writes six cells in each of twenty days, over two bases.
	fill := func(t *testing.T, r retained) {
		for day := int64(firstDay); day < firstDay+60; day += 3 {
			for n := range int64(3) {
				at := day*dayMillis + n*halfDay*2/3
				r.put(t, "up", "c", at, at)
				r.put(t, "down", "r0", at, at)
			}
		}
	}
	t.Run("nothing has expired", func(t *testing.T) {
		disk, clock := vfs.NewMem(), new(atomic.Int64)
		clock.Store(begin)
		r := openRetained(t, disk, clock)
		fill(t, r)
		clock.Store(begin + (keptDays+1)*dayMillis - 1) // the last instant before the first day is old
		for i := range 2 {                              // Between two drops of the first day a sweep has seen all others.
			r.put(t, "other", "l", 0, 0)
			waitForMetric(t, r.registry, drops, float64(i+1))
		}
		r.wantDays(t, disk, daysFrom(0, nil))
	})
	t.Run("days go as a whole", func(t *testing.T) {
		disk, clock := vfs.NewMem(), new(atomic.Int64)
		clock.Store(begin)
		r := openRetained(t, disk, clock)
		fill(t, r)
		clock.Store(begin + (keptDays+58)*dayMillis - 1) // the last instant of the last day
		waitForMetric(t, r.registry, drops, 19)
		waitForMetric(t, r.registry, "adapter_pebble_swept_cells_total", 19*6)
		clock.Store(begin) // What is only hidden would come back.
		if got := strings.Count(dumpChunks(t, r.Store), ":"); got != 6 {
			t.Errorf("%d cells are left, want 6", got)
		}
		// A day that is gone can come back.
		r.put(t, "up", "c", begin, begin)
		if got := strings.Count(dumpChunks(t, r.Store), ":"); got != 7 {
			t.Errorf("%d cells after a write, want 7", got)
		}
		r.wantDays(t, disk, map[int]int{firstDay: 1, firstDay + 57: 6})
	})
	t.Run("a late cell keeps its day", func(t *testing.T) {
		disk, clock := vfs.NewMem(), new(atomic.Int64)
		clock.Store(begin)
		r := openRetained(t, disk, clock)
		fill(t, r)
		arrival := begin + (keptDays+2)*dayMillis
		r.put(t, "up", "l", begin, arrival)
		clock.Store(arrival)
		waitForMetric(t, r.registry, "adapter_pebble_swept_cells_total", 6) // one by one
		clock.Store(arrival + keptDays*dayMillis)                           // the last instant of the late cell
		waitForMetric(t, r.registry, drops, 3)                              // the days after it
		r.wantDays(t, disk, daysFrom(12, map[int]int{firstDay: 1}))
		r = openRetained(t, disk, clock)
		clock.Add(1)
		waitForMetric(t, r.registry, drops, 1)
		r.wantDays(t, disk, daysFrom(12, nil))
	})
	t.Run("rows without days", func(t *testing.T) {
		disk, clock := vfs.NewMem(), new(atomic.Int64)
		clock.Store(begin)
		r := openRetained(t, disk, clock)
		apply(t, r.Store, bucketstore.Metric, "old", setOp("l", "q", begin, "x"))
		apply(t, r.Store, bucketstore.Metric, "young", setOp("l", "q", begin+1, "x"))
		clock.Store(begin + keptDays*dayMillis + 1)
		waitForMetric(t, r.registry, "adapter_pebble_swept_cells_total", 1)
		r.wantDays(t, disk, map[int]int{noDay: 1})
	})
}

// daysFrom returns the days that TestDropDays fills, from the one of this number
// on, and others.
func daysFrom(first int, others map[int]int) map[int]int {
	want := maps.Clone(others)
	if want == nil {
		want = make(map[int]int)
	}
	for day := first; day < 60; day += 3 {
		want[firstDay+day] = 6
	}
	return want
}

func dumpChunks(t *testing.T, s *pebble.Store) string {
	t.Helper()
	return scanText(t, s, allChunks())
}

// TestDropDaysWhileWriting writes late cells to old days while these are dropped. No living
// cell may be lost.
func TestDropDaysWhileWriting(t *testing.T) {
	const days, cells, writers = 40, 4000, 3
	clock := new(atomic.Int64)
	begin := int64(firstDay * dayMillis)
	clock.Store(begin + 100*dayMillis)
	r := openRetained(t, vfs.NewMem(), clock)
	defer r.close(t)
	var writing sync.WaitGroup
	for w := range int64(writers) {
		writing.Go(func() {
			for n := w; n < cells; n += writers {
				at := begin + n%days*dayMillis + n
				arrival := clock.Load()
				if n/days%2 == 0 {
					arrival = at // It has expired when it comes.
				}
				key, qual := keyAt("up", at)
				err := r.Apply(context.Background(), bucketstore.Metric, []bucketstore.Mutation{{
					Key: []byte(key), Ops: []bucketstore.Op{setOp("l", string(qual), arrival, "x")},
				}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if got := strings.Count(dumpChunks(t, r.Store), ":"); got != cells/2 {
		t.Errorf("%d cells live, want %d", got, cells/2)
	}
	waitForMetric(t, r.registry, "adapter_pebble_swept_cells_total", cells/2)
	if got := strings.Count(dumpChunks(t, r.Store), ":"); got != cells/2 {
		t.Errorf("%d cells live after the sweep, want %d", got, cells/2)
	}
}

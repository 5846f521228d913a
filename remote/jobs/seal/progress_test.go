package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
)

// moveClock makes the sleeps of a sealer move the clock of a bench.
func (b *bench) moveClock(s *seal.Sealer) {
	s.SetHooks(func(ctx context.Context, d time.Duration) error {
		b.now += max(0, d.Milliseconds())
		return ctx.Err()
	}, background)
}

// many returns series of one metric.
func (b *bench) many(n int) (all []testSeries) {
	for i := range n {
		all = append(all, newTestSeries(b.TB, b.schema, labels.FromStrings("__name__", "up", "i", fmt.Sprint(i))))
	}
	return all
}

// unsealed counts raw cells before a time.
func (b *bench) unsealed(limit int64) (n int) {
	b.Helper()
	for key := range b.want {
		cells, err := cellsOf(b.store, []byte(key))
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cells {
			if c.Family == series.FamilyChunk {
				continue
			}
			delta, err := series.ParseQualifier(c.Qualifier)
			if err != nil {
				b.Fatal(err)
			}
			if b.bases[key]+int64(delta) < limit {
				n++
			}
		}
	}
	return n
}

// slotSeconds is how long a slot lasts.
const slotSeconds = float64(series.Window-2*15*minute) / 1000

// TestHalf: a sealer whose time in a slot is enough for half of the rows seals all of them
// in slots: each family goes on where its last slot ended.
func TestHalf(t *testing.T) {
	b := newBench(t, newMemory())
	all := b.many(6 * seal.RowsAtOnce)
	rate := float64(len(all)/2) / slotSeconds
	for w := range int64(14) {
		b.now = window0 + w*series.Window
		for _, s := range all {
			b.write(s, b.now, float(float64(w)))
		}
		if w < 2 {
			continue // the first slot is that of window 0
		}
		b.now += 15 * minute
		s := b.sealer(func(c *seal.Config) { c.RowsPerSecond = rate })
		b.moveClock(s)
		if err := s.Once(t.Context()); !errors.Is(err, seal.ErrTurnOver) {
			t.Fatalf("slot %d: %v", w-2, err)
		}
	}
	// Of 12 slots each family had three, which is one and a half times all rows. Each row
	// was last walked in slot 4 or later.
	if n := b.unsealed(window0 + 8*series.Window); n > 0 {
		t.Errorf("%d raw cells are left of windows that ended before slot 4", n)
	}
	b.check()
}

// TestLeaseByTime: the lease is renewed by time, its row keeps one version, and a crash
// between two renewals only repeats work.
func TestLeaseByTime(t *testing.T) {
	versions := storetest.NewVersions(newMemory())
	b := newBench(t, versions)
	all := b.many(6 * seal.RowsAtOnce)
	for _, s := range all {
		b.write(s, window0, float(1))
	}
	b.now += 2*series.Window + hour
	started := b.now
	spy := &spy{Store: versions}
	dies := &dying{Store: spy, left: 4}
	s := b.sealer(func(c *seal.Config) { c.Store, c.RowsPerSecond = dies, 5 }) // 40 s for a batch
	b.moveClock(s)
	if err := s.Once(t.Context()); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	if n := b.unsealed(window0 + series.Window); n != 2*seal.RowsAtOnce {
		t.Fatalf("%d rows are left", n)
	}
	// One write takes the lease; the others are at 100 s, or a batch later.
	if most := int(1 + (b.now-started)/100_000); dies.meta < 2 || dies.meta > most {
		t.Errorf("META was written %d times, want 2 to %d", dies.meta, most)
	}
	b.now += 6 * minute
	rows := spy.rows
	if err := b.sealer(func(c *seal.Config) { c.Store = spy }).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCells("sealed", map[string]int{"c": len(all)})
	if n := spy.rows - rows; n != 2*seal.RowsAtOnce {
		t.Errorf("%d rows were written after the crash", n)
	}
	if n := versions.Most(bucketstore.Meta); n != 1 {
		t.Errorf("META/seal has %d versions", n)
	}
}

// dying takes some mutations of METRIC. Then the process dies: nothing reaches the store.
type dying struct {
	bucketstore.Store
	left, meta int
}

func (s *dying) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if s.left--; s.left < 0 {
		return errDead
	}
	return s.Store.Apply(ctx, table, muts)
}

func (s *dying) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if s.left < 0 {
		return false, errDead
	}
	s.meta++
	return s.Store.CheckAndApply(ctx, table, cond, mut)
}

// TestWorkers: several workers seal batches of rows at the same time.
func TestWorkers(t *testing.T) {
	b := newBench(t, newMemory())
	all := b.many(3*seal.RowsAtOnce + 7)
	for _, s := range all {
		b.write(s, window0, float(1))
	}
	b.now += 2*series.Window + hour
	const workers = 3
	var meet sync.WaitGroup
	meet.Add(workers)
	var first atomic.Int64
	s := b.sealer(func(c *seal.Config) {
		c.Workers = workers
		c.Store = &applyHook{Store: b.store, before: func([]bucketstore.Mutation) error {
			if first.Add(1) <= workers {
				meet.Done()
				meet.Wait() // for ever, if they do not work at the same time
			}
			return nil
		}}
	})
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCells("sealed", map[string]int{"c": len(all)})
}

// applyHook calls before when METRIC is written, and returns its error.
type applyHook struct {
	bucketstore.Store
	before func(muts []bucketstore.Mutation) error
}

func (h *applyHook) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		if err := h.before(muts); err != nil {
			return err
		}
	}
	return h.Store.Apply(ctx, table, muts)
}

// scanHook calls before when rows of METRIC are read, and returns its error.
type scanHook struct {
	bucketstore.Store
	before func(rows []series.RowRange) error
}

func (h *scanHook) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if req.Table == bucketstore.Metric {
		if err := h.before(req.Rows); err != nil {
			return err
		}
	}
	return h.Store.Scan(ctx, req, fn)
}

// TestRefusedRows: rows for whose sake the store refuses whole requests are counted, and the
// others are sealed. If it refuses all of them the walk stops, and later goes on.
func TestRefusedRows(t *testing.T) {
	refused := func(key []byte) bool { return strings.Contains(string(key), "3,") } // i=3, i=13 ...
	for name, wrap := range map[string]func(store bucketstore.Store, refused func([]byte) bool) bucketstore.Store{
		"read": func(store bucketstore.Store, refused func([]byte) bool) bucketstore.Store {
			return &scanHook{store, func(rows []series.RowRange) error {
				if slices.ContainsFunc(rows, func(r series.RowRange) bool { return refused(r.Start) }) {
					return errRefused
				}
				return nil
			}}
		},
		"write": func(store bucketstore.Store, refused func([]byte) bool) bucketstore.Store {
			return &applyHook{store, func(muts []bucketstore.Mutation) error {
				if slices.ContainsFunc(muts, func(m bucketstore.Mutation) bool { return refused(m.Key) }) {
					return errRefused
				}
				return nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newMemory())
			all := b.many(2*seal.RowsAtOnce + 50)
			bad := 0
			for _, s := range all {
				b.write(s, window0, float(1))
				if refused(append(bytes.Clone(s.key), ',')) {
					bad++
				}
			}
			b.now += 2*series.Window + hour
			var reg *prometheus.Registry
			var logged bytes.Buffer
			once := func(refused func([]byte) bool) error {
				reg = prometheus.NewRegistry()
				logged.Reset()
				return b.sealer(func(c *seal.Config) {
					c.Store, c.Registerer, c.Logger = wrap(b.store, refused), reg, log.NewLogfmtLogger(&logged)
				}).Once(t.Context())
			}
			if err := once(func([]byte) bool { return true }); !errors.Is(err, errRefused) {
				t.Fatalf("all rows are refused: %v", err)
			}
			if n := len(all) - b.unsealed(window0+series.Window); n > 0 {
				t.Fatalf("%d rows are sealed", n)
			}
			if err := once(refused); err != nil {
				t.Fatal(err)
			}
			if n := b.unsealed(window0 + series.Window); n != bad {
				t.Errorf("%d rows are not sealed, want %d", n, bad)
			}
			if n := counter(t, reg, "adapter_seal_failures_total"); n != float64(bad) {
				t.Errorf("%v failures, want %d", n, bad)
			}
			if n := strings.Count(logged.String(), "level=warn"); n != seal.MaxLogged+1 || bad <= n {
				t.Errorf("%d warnings about %d rows", n, bad)
			}
			b.now += 4 * series.Window
			if err := once(func([]byte) bool { return false }); err != nil {
				t.Fatal(err)
			}
			b.wantCells("the next slot of the family", map[string]int{"c": len(all)})
		})
	}
}

// TestWalkedRatio: the share of the rows that the last slot has walked.
func TestWalkedRatio(t *testing.T) {
	b := newBench(t, newMemory())
	all := b.many(4 * seal.RowsAtOnce)
	for i, step := range []struct{ capacity, want float64 }{
		{2, 1}, {0.5, 1}, {2, 0.5}, {0.25, 1}, {2, 0.25}, {0.25, 1}, {0.25, 0.25}, {2, 0.25}, {2, 1},
	} {
		b.now = window0 + int64(i)*series.Window
		for _, s := range all {
			b.write(s, b.now, float(1))
		}
		b.now += 2*series.Window + 15*minute
		reg := prometheus.NewRegistry()
		s := b.sealer(func(c *seal.Config) {
			c.Registerer, c.RowsPerSecond = reg, step.capacity*float64(len(all))/slotSeconds
		})
		ratio := 0.0
		s.SetHooks(func(ctx context.Context, d time.Duration) error {
			if b.now += max(0, d.Milliseconds()); d > 0 && ratio == 0 {
				ratio = counter(t, reg, "adapter_seal_walked_ratio")
			}
			return ctx.Err()
		}, background)
		err := s.Once(t.Context())
		if isOver := errors.Is(err, seal.ErrTurnOver); isOver != (step.capacity < 1) || !isOver && err != nil {
			t.Errorf("slot %d: %v", i, err)
		}
		// A slot may have one batch more than its time is enough for.
		if batch := 1.0 / 4; ratio < step.want || ratio > min(1, step.want+batch) || (ratio < 1) != (step.want < 1) {
			t.Errorf("slot %d: during it the ratio is %v, want %v", i, ratio, step.want)
		}
		if ratio = counter(t, reg, "adapter_seal_walked_ratio"); step.capacity > 1 && ratio != 1 {
			t.Errorf("slot %d: after it the ratio is %v", i, ratio)
		}
	}
}

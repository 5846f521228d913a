package seal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// TestFence: nothing is sealed near the ends of a window, after a stale read, or without
// the lease.
func TestFence(t *testing.T) {
	for _, tt := range []struct {
		name string
		// meanwhile is called between the read of a row and its mutation.
		meanwhile func(b *bench)
		want      int
		reads     int
		fails     bool
	}{
		{"nothing happens", func(*bench) {}, 1, 1, false},
		{"four minutes pass", func(b *bench) { b.now += 4 * minute }, 1, 1, false},
		{"six minutes pass", func(b *bench) { b.now += 6 * minute }, 1, 2, false},
		{"the slot ends", func(b *bench) { b.now += hour + 40*minute }, 0, 1, true},
		{"it is another slot", func(b *bench) { b.now += 2 * hour }, 0, 1, true},
		{"the clock is set back", func(b *bench) { b.now -= minute }, 1, 2, false},
		{"another takes the lease", func(b *bench) { takeLease(b, 2*minute) }, 0, 1, true},
		{"another takes the lease, by another clock", func(b *bench) { takeLease(b, 0) }, 1, 1, false}, // two may work at once
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			b := newBench(t, store)
			b.write(b.named("up"), window0, float(1))
			b.now += 2*series.Window + hour - 30*minute
			scans := 0
			s := b.sealer(func(cfg *seal.Config) {
				cfg.Store = &rowHook{Store: store, after: func() {
					if scans++; scans == 1 {
						tt.meanwhile(b)
					}
				}}
			})
			err := s.Once(t.Context())
			if tt.fails != (err != nil) {
				t.Errorf("Once: %v", err)
			}
			if got := b.check()["c"]; got != tt.want {
				t.Errorf("%d chunks, want %d (%v)", got, tt.want, err)
			}
			if scans != tt.reads {
				t.Errorf("the row was read %d times, want %d", scans, tt.reads)
			}
		})
	}
}

// takeLease makes another sealer take the lease, which ends it before it has sealed anything.
// Then the clock is so much later than before.
func takeLease(b *bench, later int64) {
	b.Helper()
	before := b.now
	b.now += 5*minute + 1
	if err := b.sealer(func(cfg *seal.Config) { cfg.Store = &firstOnly{Store: b.store} }).Once(b.Context()); !errors.Is(err, context.DeadlineExceeded) {
		b.Fatal(err)
	}
	b.now = before + later
}

// rowHook calls after when METRIC has been read.
type rowHook struct {
	bucketstore.Store
	after func()
}

func (h *rowHook) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	err := h.Store.Scan(ctx, req, fn)
	if req.Table == bucketstore.Metric {
		h.after()
	}
	return err
}

// TestLease: one holder at a time, until the lease expires; a lease that ends in a far
// future does not count.
func TestLease(t *testing.T) {
	for _, tt := range []struct {
		name    string
		expires int64
		held    bool
	}{
		{"expired", 0, false},
		{"running", 1, true},
		{"of a clock that is ahead", 15 * minute, true},
		{"of a clock that is wrong", 21 * minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			b := newBench(t, store)
			b.now += hour
			store.apply(bucketstore.Meta, bucketstore.Mutation{Key: []byte(series.MetaSeal), Ops: []bucketstore.Op{{
				Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: []byte(series.QualifierMeta), Time: b.now + hour,
				Value: fmt.Appendf(nil, `{"holder":"host:7","token":"x","expires":%d}`, b.now+tt.expires),
			}}})
			err := b.sealer().Once(t.Context())
			if errors.Is(err, jobs.ErrHeld) != tt.held || !tt.held && err != nil {
				t.Fatalf("Once: %v", err)
			}
			if tt.held && !strings.Contains(err.Error(), "host:7") {
				t.Errorf("%v does not name the holder", err)
			}
		})
	}
}

// TestCrossing: of two mutations in flight at once the one with more samples counts, in
// whatever order they arrive.
func TestCrossing(t *testing.T) {
	for _, firstArrives := range []bool{true, false} {
		t.Run(fmt.Sprintf("the first read arrives first %v", firstArrives), func(t *testing.T) {
			store := newMemory()
			b := newBench(t, store)
			up := b.named("up")
			b.write(up, window0, float(1))
			b.now += 2*series.Window + hour - 15*minute
			b.write(up, window0, float(2)) // at the cut of the first: for the second only
			b.now += 15 * minute
			early := catch(b)
			b.now += 1000
			late := catch(b)
			if !firstArrives {
				early, late = late, early
			}
			for _, muts := range [][]bucketstore.Mutation{early, late} {
				for _, mut := range muts {
					store.apply(bucketstore.Metric, mut)
					b.check()
				}
			}
			b.wantCells("two chunks", map[string]int{"c": 2})
		})
	}
}

// TestCrossingParts: a mutation that deletes only some of the late samples has all of them
// in its chunk. So it may arrive after the mutation of another sealer that deleted the
// rest.
func TestCrossingParts(t *testing.T) {
	store := newMemory()
	b := newBench(t, store)
	up := b.named("up")
	for i := range int64(3) {
		b.write(up, window0+i, float(1))
	}
	b.seal(2)
	for i := range int64(3) {
		b.write(up, window0+i, float(2))
	}
	b.now = window0 + 3*series.Window + hour
	ahead := &firstOnly{Store: store}
	s := b.sealer(func(cfg *seal.Config) {
		cfg.Store, cfg.Now = ahead, func() time.Time { return b.clock().Add(5 * time.Minute) }
	})
	s.SetBounds(2, 1)
	if err := s.Once(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	s = b.sealer()
	s.SetBounds(2, 1)
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCells("sealed", map[string]int{"c": 1})
	store.apply(bucketstore.Metric, ahead.first)
	b.wantCells("the other mutation has arrived", map[string]int{"c": 2})
}

// firstOnly keeps the first mutation of METRIC, and answers none in time.
type firstOnly struct {
	bucketstore.Store
	first bucketstore.Mutation
}

func (s *firstOnly) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table != bucketstore.Metric {
		return s.Store.Apply(ctx, table, muts)
	}
	s.first = muts[0]
	return context.DeadlineExceeded
}

// catch returns the mutation of a sealer.
func catch(b *bench) (muts []bucketstore.Mutation) {
	b.Helper()
	copied := &memory{b.store.(*memory).Clone()}
	if err := copied.Drop(b.Context(), bucketstore.Meta, series.RowRange{}); err != nil {
		b.Fatal(err)
	}
	c := &writer{}
	s := b.sealer(func(cfg *seal.Config) { cfg.Store = catcher{copied, c} })
	if err := s.Once(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c.caught
}

// TestStamp: a chunk is stamped with the time of the read, or with the highest stamp of its
// content if that is more.
func TestStamp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead int64
	}{{"older chunk", -hour}, {"chunk of a clock ahead", 5 * minute}} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			b := newBench(t, store)
			up := b.named("up")
			b.write(up, window0+1, float(1))
			read := window0 + 2*series.Window + hour
			base, delta := series.Split(window0)
			value := chunk.Append(nil, chunk.Sealed{
				Encoding: chunk.EncodingDense, Stamp: read + tt.ahead, Data: dense.Append(nil, []int64{window0}, []float64{7}),
			})
			key := b.schema.AppendRowKey(nil, up.key, base)
			store.apply(bucketstore.Metric, bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{
				Kind: bucketstore.SetCell, Family: series.FamilyChunk, Qualifier: chunk.AppendQualifier(nil, delta, delta, value), Time: window0, Value: value,
			}}})
			b.expect(up, window0, float(7))
			b.check()
			b.seal(2)
			b.wantCells("sealed", map[string]int{"c": 1})
			cells, _ := cellsOf(store, key)
			chunk, err := chunk.Parse(cells[0].Qualifier, cells[0].Value)
			if want := max(read, read+tt.ahead); err != nil || chunk.Stamp != want {
				t.Errorf("stamp %d, want %d, %v", chunk.Stamp, want, err)
			}
		})
	}
}

func TestSlot(t *testing.T) {
	const w = int64(7 * series.Window)
	for _, tt := range []struct {
		name   string
		now    int64
		window int64
		ok     bool
		next   int64
	}{
		{"the begin of time", 0, 0, false, 2*series.Window + 15*minute},
		{"the begin of a window", w, 0, false, w + 15*minute},
		{"too early", w + 15*minute - 1, 0, false, w + 15*minute},
		{"the first moment", w + 15*minute, w - 2*series.Window, true, w + 15*minute},
		{"the last moment", w + series.Window - 15*minute, w - 2*series.Window, true, w + series.Window - 15*minute},
		{"too late", w + series.Window - 15*minute + 1, 0, false, w + series.Window + 15*minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			window, family, ok := seal.Slot(tt.now)
			if window != tt.window || ok != tt.ok || ok && family != series.RawFamily(window, window) {
				t.Errorf("slot %d, %s, %v", window, family, ok)
			}
			if next := seal.NextSlot(tt.now); next != tt.next {
				t.Errorf("next slot at %d, want %d", next, tt.next)
			}
		})
	}
}

// TestDeadline: a mutation ends a minute after the clock was read, by the wall clock. A
// context with a monotonic deadline would go on when a machine resumes.
func TestDeadline(t *testing.T) {
	b := newBench(t, newMemory())
	b.now = 900 * series.Period // after now, or the deadline would have passed
	up := b.named("up")
	b.write(up, b.now, float(1))
	b.now += 2*series.Window + hour
	asked := false
	s := seal.New(seal.Config{Store: &deadlineSpy{b.store, func(ctx context.Context) {
		d, ok := ctx.Deadline()
		asked = true
		if want := b.now + minute; !ok || d.UnixMilli() != want || d != d.Round(0) {
			t.Errorf("deadline %v (%v), want %v", d, ok, time.UnixMilli(want))
		}
	}}, Tenants: jobs.NamedTenants(b.schema), Now: b.clock})
	if err := s.Once(t.Context()); err != nil || !asked {
		t.Fatal(err, asked)
	}
	b.wantCells("sealed", map[string]int{"c": 1})
}

type deadlineSpy struct {
	bucketstore.Store
	look func(context.Context)
}

func (s *deadlineSpy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	s.look(ctx)
	return s.Store.Apply(ctx, table, muts)
}

// TestRun: it seals slot after slot until its context ends, and then releases the lease.
func TestRun(t *testing.T) {
	b := newBench(t, newMemory())
	b.write(b.named("up"), window0, float(1))
	b.write(b.named("down"), window0+series.Window, float(1))
	b.now += 2 * series.Window
	s := b.sealer()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s.SetHooks(func(ctx context.Context, d time.Duration) error {
		if b.now += max(0, d.Milliseconds()); b.now > window0+5*series.Window {
			stop()
		}
		return ctx.Err()
	}, background)
	s.Run(ctx, 10*time.Minute)
	b.wantCells("sealed", map[string]int{"c": 2})
	b.now = window0 + 5*series.Window + hour
	if err := b.sealer().Once(t.Context()); err != nil {
		t.Errorf("another one: %v", err)
	}
}

package seal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
)

// TestClock: several processes compare their clocks, a minute apart.
func TestClock(t *testing.T) {
	for _, tt := range []struct {
		name    string
		offsets []time.Duration // ahead of the first
		good    []bool
		skew    float64 // that the first sees, at least, in seconds
	}{
		{"alone", []time.Duration{0}, []bool{true}, 0},
		{"together", []time.Duration{0, time.Second}, []bool{true, true}, 0},
		{"four minutes ahead", []time.Duration{0, 4 * time.Minute}, []bool{true, true}, 180},
		{"ten minutes ahead", []time.Duration{0, 10 * time.Minute}, []bool{false, false}, 540},
		{"ten minutes behind", []time.Duration{0, -10 * time.Minute}, []bool{false, false}, -540},
		{"a day behind, and one that is not", []time.Duration{0, time.Second, -24 * time.Hour}, []bool{false, false, false}, -86340},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			now := time.UnixMilli(window0)
			reg := prometheus.NewRegistry()
			var clocks []*seal.Clock
			for i, offset := range tt.offsets {
				cfg := seal.ClockConfig{Store: store, Now: func() time.Time { return now.Add(offset) }}
				if i == 0 {
					cfg.Registerer = reg
				}
				clocks = append(clocks, seal.NewClock(cfg))
				if err := clocks[i].Err(); !errors.Is(err, seal.ErrClock) {
					t.Errorf("clock %d before it was compared: %v", i, err)
				}
			}
			for range 3 {
				for i, c := range clocks {
					if err := c.Compare(t.Context()); err != nil {
						t.Fatalf("clock %d: %v", i, err)
					}
				}
				now = now.Add(time.Minute)
			}
			for i, c := range clocks {
				if err := c.Err(); (err == nil) != tt.good[i] || err != nil && !errors.Is(err, seal.ErrClock) {
					t.Errorf("clock %d: %v", i, err)
				}
			}
			got := counter(t, reg, "adapter_clock_skew_seconds")
			if tt.skew == 0 && got != 0 || tt.skew > 0 && got < tt.skew || tt.skew < 0 && got > tt.skew {
				t.Errorf("skew %v, want %v", got, tt.skew)
			}
		})
	}
}

// TestFirstSight: that a clock is ahead, or that a process has a buffer, is known
// from the first look at it on; that it is behind only when it has moved.
func TestFirstSight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		offset time.Duration
		buffer bool
		want   error
	}{
		{"good", 0, false, nil},
		{"ahead", 10 * time.Minute, false, seal.ErrClock},
		{"behind", -10 * time.Minute, false, nil},
		{"with a buffer", 0, true, seal.ErrBuffer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			now := time.UnixMilli(window0)
			other := seal.NewClock(seal.ClockConfig{Store: store, Now: func() time.Time { return now.Add(tt.offset) }, Buffered: tt.buffer})
			c := seal.NewClock(seal.ClockConfig{Store: store, Now: func() time.Time { return now }})
			if err := other.Compare(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := c.Compare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Err(); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			now = now.Add(61 * time.Minute)
			for range 2 {
				if err := c.Compare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Err(); err != nil {
				t.Errorf("an hour after the other one was gone: %v", err)
			}
		})
	}
}

// TestClockForgets: a clock that differs no longer counts when its process is
// gone, or it was set; one that cannot be compared counts for half an hour.
func TestClockForgets(t *testing.T) {
	store := newMemory()
	now := time.UnixMilli(window0)
	broken := false
	c := seal.NewClock(seal.ClockConfig{Store: &brokenStore{store, &broken}, Now: func() time.Time { return now }})
	offset := time.Hour
	other := seal.NewClock(seal.ClockConfig{Store: store, Now: func() time.Time { return now.Add(offset) }})
	compare := func(all ...*seal.Clock) {
		t.Helper()
		for range 2 {
			for _, c := range all {
				if err := c.Compare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(time.Minute)
		}
	}
	want := func(what string, good bool) {
		t.Helper()
		if err := c.Err(); (err == nil) != good {
			t.Errorf("%s: %v", what, err)
		}
	}
	compare(c, other, c)
	want("an hour ahead", false)
	offset = 0
	compare(other, c)
	want("the other clock is set", true)
	offset = time.Hour
	compare(other, c)
	want("ahead again", false)
	now = now.Add(31 * time.Minute)
	compare(c)
	want("the other process is gone", true)
	now = now.Add(31 * time.Minute)
	compare(c, c)
	cells := store.tables[bucketstore.Meta]["clock"]
	if len(cells) != 1 {
		t.Errorf("META/clock has %d columns, want one", len(cells))
	}
	broken = true
	if err := c.Compare(t.Context()); err == nil {
		t.Error("the store is broken, and nobody says so")
	}
	now = now.Add(25 * time.Minute)
	want("no answer for 26 minutes", true)
	now = now.Add(5 * time.Minute)
	want("no answer for 31 minutes", false)
}

// TestLeave: a process with a buffer that leaves holds nobody up, not even one that
// has only just begun; one that dies does, and who goes on with its log takes its
// mark over.
func TestLeave(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(open func(id string) *seal.Clock, first *seal.Clock) // what becomes of the buffer
		want error
	}{
		{"it is there", func(func(string) *seal.Clock, *seal.Clock) {}, seal.ErrBuffer},
		{"it left", func(_ func(string) *seal.Clock, first *seal.Clock) { leave(t, first) }, nil},
		{"the next on its log left", func(open func(string) *seal.Clock, _ *seal.Clock) { leave(t, open("log")) }, nil},
		{"the next on another log left", func(open func(string) *seal.Clock, _ *seal.Clock) { leave(t, open("other log")) }, seal.ErrBuffer},
		{"the next on its log is there", func(open func(string) *seal.Clock, first *seal.Clock) { leave(t, first); open("log") }, seal.ErrBuffer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory()
			now := time.UnixMilli(window0)
			clock := func() time.Time { return now }
			open := func(id string) *seal.Clock {
				c := seal.NewClock(seal.ClockConfig{Store: store, Now: clock, Buffered: true, ID: id})
				compare(t, c)
				return c
			}
			old := seal.NewClock(seal.ClockConfig{Store: store, Now: clock})
			first := open("log")
			compare(t, old, old)
			if err := old.Err(); !errors.Is(err, seal.ErrBuffer) {
				t.Errorf("beside a buffer: %v", err)
			}
			now = now.Add(time.Minute)
			tt.then(open, first)
			fresh := seal.NewClock(seal.ClockConfig{Store: store, Now: clock})
			compare(t, old, fresh, old, fresh)
			for name, c := range map[string]*seal.Clock{"one that was there": old, "one that is new": fresh} {
				if err := c.Err(); !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", name, err, tt.want)
				}
			}
		})
	}
}

func leave(t *testing.T, c *seal.Clock) {
	t.Helper()
	if err := c.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}

// compare lets clocks compare, one after the other.
func compare(t *testing.T, clocks ...*seal.Clock) {
	t.Helper()
	for _, c := range clocks {
		if err := c.Compare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaveFails: that a mark is still there is said.
func TestLeaveFails(t *testing.T) {
	broken := true
	c := seal.NewClock(seal.ClockConfig{Store: &brokenStore{newMemory(), &broken}, Now: time.Now})
	if err := c.Leave(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("Leave: %v", err)
	}
}

type brokenStore struct {
	*memory
	broken *bool
}

func (s *brokenStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if *s.broken {
		return errRefused
	}
	return s.memory.Apply(ctx, table, muts)
}

// TestUntrusted: a sealer whose clock is in doubt seals nothing.
func TestUntrusted(t *testing.T) {
	b := newBench(t, newMemory())
	b.write(b.named("up"), window0, float(1))
	b.now += 2*series.Window + hour
	clock := seal.NewClock(seal.ClockConfig{Store: b.store, Now: b.clock})
	far := seal.NewClock(seal.ClockConfig{Store: b.store, Now: func() time.Time { return b.clock().Add(time.Hour) }})
	compare := func(all ...*seal.Clock) {
		for range 2 {
			for _, c := range all {
				if err := c.Compare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			b.now += minute
		}
	}
	s := b.sealer(func(cfg *seal.Config) { cfg.Clock = clock })
	compare(far, clock)
	if err := s.Once(t.Context()); !errors.Is(err, seal.ErrClock) {
		t.Errorf("Once: %v", err)
	}
	b.now += 31 * minute
	compare(clock)
	if err := s.Once(t.Context()); err != nil {
		t.Errorf("Once: %v", err)
	}
	b.wantCells("sealed", map[string]int{"c": 1})
}

package seal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
)

// clocks are processes on one store that compare their clocks. Its own clock stands still
// until the test moves it.
type clocks struct {
	*testing.T
	store *memory
	now   time.Time
}

func newClocks(t *testing.T) *clocks {
	return &clocks{T: t, store: newMemory(), now: time.UnixMilli(window0)}
}

// open returns the clock of a process that is ahead.
func (b *clocks) open(ahead time.Duration, change ...func(*seal.ClockConfig)) *seal.Clock {
	cfg := seal.ClockConfig{Store: b.store, Now: func() time.Time { return b.now.Add(ahead) }}
	for _, f := range change {
		f(&cfg)
	}
	return seal.NewClock(cfg)
}

// withBuffer gives a process a buffer, whose log has a name.
func withBuffer(log string) func(*seal.ClockConfig) {
	return func(cfg *seal.ClockConfig) { cfg.Buffered, cfg.ID = true, log }
}

// compare lets clocks compare once, one after another.
func (b *clocks) compare(all ...*seal.Clock) {
	b.Helper()
	for _, c := range all {
		if err := c.Compare(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// minutes lets minutes pass, and clocks compare before each.
func (b *clocks) minutes(n int, all ...*seal.Clock) {
	b.Helper()
	for range n {
		b.compare(all...)
		b.now = b.now.Add(time.Minute)
	}
}

// want checks Err, and that samples go to raw families unless it is an ErrClock.
func (b *clocks) want(what string, c *seal.Clock, want error) {
	b.Helper()
	if err := c.Err(); !errors.Is(err, want) {
		b.Errorf("%s: %v, want %v", what, err, want)
	}
	if err := c.TimeErr(); errors.Is(want, seal.ErrClock) != errors.Is(err, seal.ErrClock) || errors.Is(err, seal.ErrBuffer) {
		b.Errorf("%s: as for work beside buffers: %v, want only %v", what, err, seal.ErrClock)
	}
	if isRaw := c.RawFrom(c.Now()) <= series.MaxTime; isRaw == errors.Is(want, seal.ErrClock) {
		b.Errorf("%s: samples go to raw families: %v", what, isRaw)
	}
}

// TestClock: several processes compare their clocks, a minute apart.
func TestClock(t *testing.T) {
	for _, tt := range []struct {
		name    string
		offsets []time.Duration // ahead of the first
		want    error
		skew    float64 // that the first sees, at least, in seconds
	}{
		{"alone", []time.Duration{0}, nil, 0},
		{"together", []time.Duration{0, time.Second}, nil, 0},
		{"four minutes ahead", []time.Duration{0, 4 * time.Minute}, nil, 180},
		{"four minutes behind", []time.Duration{0, -4 * time.Minute}, nil, -180},
		{"ten minutes ahead", []time.Duration{0, 10 * time.Minute}, seal.ErrClock, 540},
		{"ten minutes behind", []time.Duration{0, -10 * time.Minute}, seal.ErrClock, -540},
		{"a day behind, and one that is not", []time.Duration{0, time.Second, -24 * time.Hour}, seal.ErrClock, -86340},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			reg := prometheus.NewRegistry()
			var all []*seal.Clock
			for i, offset := range tt.offsets {
				all = append(all, b.open(offset, func(cfg *seal.ClockConfig) {
					if i == 0 {
						cfg.Registerer = reg
					}
				}))
				b.want("before the first comparison", all[i], seal.ErrClock)
			}
			b.minutes(1, all...)
			for _, c := range all {
				b.want("after the first comparison", c, seal.ErrClock)
			}
			if doubt := counter(t, reg, "adapter_clock_in_doubt"); doubt != 1 {
				t.Errorf("after the first comparison adapter_clock_in_doubt is %v", doubt)
			}
			b.minutes(2, all...)
			for _, c := range all {
				b.want("after the third comparison", c, tt.want)
			}
			if doubt := counter(t, reg, "adapter_clock_in_doubt"); (doubt == 1) != (tt.want != nil) {
				t.Errorf("after the third comparison adapter_clock_in_doubt is %v", doubt)
			}
			got := counter(t, reg, "adapter_clock_skew_seconds")
			if tt.skew == 0 && got != 0 || tt.skew > 0 && got < tt.skew || tt.skew < 0 && got > tt.skew {
				t.Errorf("skew %v, want %v", got, tt.skew)
			}
		})
	}
}

// TestFirstRead: a mark of the first read says only that its clock is ahead, until it
// changes. After seven minutes its process is gone, but for its buffer.
func TestFirstRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		offset time.Duration
		change []func(*seal.ClockConfig)
		// wants are after two reads, if the mark has changed since and if it never does.
		changed, gone error
	}{
		{"good", 0, nil, nil, nil},
		{"ahead", 10 * time.Minute, nil, seal.ErrClock, nil},
		{"behind", -10 * time.Minute, nil, seal.ErrClock, nil},
		{"with a buffer", 0, []func(*seal.ClockConfig){withBuffer("log")}, seal.ErrBuffer, seal.ErrBuffer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			other := b.open(tt.offset, tt.change...)
			b.minutes(1, other)
			first, second := b.open(0), b.open(0)
			b.minutes(2, first)
			b.want("the mark has not changed", first, seal.ErrClock)
			if isPending := tt.offset <= 0; first.IsPending() != isPending {
				t.Errorf("the mark has not changed: the clock is to be compared: %v", !isPending)
			}
			b.minutes(2, other, first)
			b.want("the mark has changed", first, tt.changed)
			leave(t, first)
			b.minutes(8, second)
			b.want("the mark has not changed for seven minutes", second, seal.ErrClock)
			b.minutes(2, second)
			b.want("the mark has not changed for eight minutes", second, tt.gone)
			b.minutes(55, second)
			b.want("the mark has not changed for an hour", second, nil)
			err := b.store.Scan(t.Context(), bucketstore.ScanRequest{
				Table: bucketstore.Meta, Rows: []series.RowRange{series.SingleRow([]byte("clock"))}, Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
			}, func(row bucketstore.Row) error {
				if len(row.Cells) != 1 {
					t.Errorf("META/clock has %d columns, want one", len(row.Cells))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNewcomer: a mark that was not there at the last read is exact; the mark of a process
// that was gone is not at first.
func TestNewcomer(t *testing.T) {
	b := newClocks(t)
	c := b.open(0)
	b.minutes(3, c)
	b.want("alone", c, nil)
	other := b.open(time.Second)
	b.minutes(1, other, c)
	b.want("a process has started", c, nil)
	b.minutes(1, other, c)
	slow := b.open(-10 * time.Minute)
	b.minutes(1, slow, c)
	b.want("one that is behind has started", c, seal.ErrClock)
	leave(t, slow)
	b.minutes(2, other, c)
	b.want("it has left", c, nil)
	b.minutes(4, other)
	b.minutes(1, c)
	b.want("no comparison for four minutes", c, seal.ErrClock)
	b.minutes(2, other, c)
	b.want("compared again", c, nil)
}

// TestClockIsSet: earlier comparisons do not count after our clock was set, or our machine
// suspended. The same holds for a difference that another clock shows.
func TestClockIsSet(t *testing.T) {
	for _, tt := range []struct {
		name     string
		wall, up time.Duration
		want     error
	}{
		{"time passes", time.Minute, time.Minute, nil},
		{"set a little", time.Minute + 20*time.Second, time.Minute, nil},
		{"set ahead", 2 * time.Minute, time.Minute, seal.ErrClock},
		{"set back", -3 * time.Hour, time.Minute, seal.ErrClock},
		{"suspended", time.Hour, time.Minute, seal.ErrClock},
		{"silent", 6 * time.Minute, 6 * time.Minute, seal.ErrClock},
		{"silent for less", 5 * time.Minute, 5 * time.Minute, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			c := b.open(0)
			var up time.Duration
			c.SetUptime(func(time.Time) time.Duration { return up })
			for range 2 {
				b.compare(c)
			}
			b.want("before", c, nil)
			b.now, up = b.now.Add(tt.wall), up+tt.up
			b.want("after", c, tt.want)
			b.now, up = b.now.Add(-tt.wall), up-tt.up
			b.want("back as before", c, tt.want)
			b.now, up = b.now.Add(tt.wall), up+tt.up
			b.compare(c)
			if tt.name == "silent" {
				tt.want = nil
			}
			b.want("compared once", c, tt.want)
			b.compare(c)
			b.want("compared twice", c, nil)
		})
	}
}

// TestRawFrom: when doubt ends, only samples newer than all earlier ones go to raw
// families.
func TestRawFrom(t *testing.T) {
	const twoWindows = 2 * series.Window * int64(time.Millisecond)
	for _, tt := range []struct {
		name         string
		future, want time.Duration
	}{
		{"ten minutes", 10 * time.Minute, 10 * time.Minute},
		{"no bound", 0, time.Duration(twoWindows)},
		{"a wide bound", 24 * time.Hour, time.Duration(twoWindows)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			c := b.open(0, func(cfg *seal.ClockConfig) { cfg.MaxFuture = tt.future })
			want := func(what string, want int64) {
				t.Helper()
				if got := c.RawFrom(b.now); got != want {
					t.Errorf("%s: from %d on, want %d", what, got-window0, want-window0)
				}
			}
			after := func(since time.Time) int64 { return since.Add(tt.want).UnixMilli() + 1 }
			want("at first", series.MaxTime+1)
			b.minutes(1, c)
			want("after the first comparison", series.MaxTime+1)
			since := b.now
			b.minutes(5, c)
			want("doubt has ended", after(since))
			slow := b.open(-time.Hour)
			b.minutes(1, slow, c)
			want("in doubt again", series.MaxTime+1)
			leave(t, slow)
			other := b.open(0)
			since = b.now.Add(time.Minute) // what others did in doubt is over then
			b.minutes(1, other, c)
			b.now = b.now.Add(-time.Second)
			want("doubt ends in a second", series.MaxTime+1)
			b.now = b.now.Add(time.Second)
			want("doubt has ended again", after(since))
			b.compare(b.open(0, withBuffer("log")), c)
			b.want("beside a buffer", c, seal.ErrBuffer)
			want("beside a buffer", after(since))
		})
	}
	var none *seal.Clock
	if got := none.RawFrom(time.UnixMilli(window0)); got != 0 {
		t.Errorf("without a clock: from %d on", got)
	}
}

// TestClockForgets: a clock that differs no longer counts after it was set, or its process
// is gone.
func TestClockForgets(t *testing.T) {
	b := newClocks(t)
	broken := false
	c := b.open(0, func(cfg *seal.ClockConfig) { cfg.Store = &brokenStore{b.store, &broken} })
	ahead := time.Hour
	other := b.open(0, func(cfg *seal.ClockConfig) { cfg.Now = func() time.Time { return b.now.Add(ahead) } })
	b.minutes(3, c, other)
	b.want("an hour ahead", c, seal.ErrClock)
	ahead = 0
	b.minutes(3, other, c)
	b.want("the other clock is set", c, nil)
	b.want("the other clock is set", other, nil)
	ahead = time.Hour
	b.minutes(1, other, c)
	b.want("ahead again", c, seal.ErrClock)
	b.minutes(8, c)
	b.want("the other process is gone", c, nil)
	broken = true
	if err := c.Compare(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("the store is broken: %v", err)
	}
	b.now = b.now.Add(4 * time.Minute)
	b.want("no answer for five minutes", c, nil)
	b.now = b.now.Add(time.Minute)
	b.want("no answer for six minutes", c, seal.ErrClock)
}

// TestClockReports: Run logs each change once.
func TestClockReports(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change []func(*seal.ClockConfig)
		want   []string
	}{
		{"without a buffer", nil, []string{
			"level=info nothing is sealed until clocks are compared; samples are stored as late ones (column family l) until then",
			"level=info the clock of this machine agrees with those of the other adapters: sealing may run",
			"level=error nothing is sealed while the clock of this machine is in doubt; samples are stored as late ones (column family l)",
			"level=info the clock of this machine agrees with those of the other adapters: sealing may run",
			"level=error nothing is sealed, for the reason in err",
		}},
		{"with a buffer", []func(*seal.ClockConfig){withBuffer("another log")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			var got []string
			c := b.open(0, append(tt.change, func(cfg *seal.ClockConfig) {
				cfg.Logger = log.LoggerFunc(func(pairs ...any) error {
					got = append(got, fmt.Sprintf("level=%v %v", pairs[1], pairs[3]))
					return nil
				})
			})...)
			var last error
			minutes := func(n int, others ...*seal.Clock) {
				for range n {
					b.minutes(1, append(others, c)...)
					last = c.Report(last)
				}
			}
			minutes(4)
			slow := b.open(-time.Hour)
			minutes(3, slow)
			leave(t, slow)
			minutes(4)
			minutes(3, b.open(0, withBuffer("log")))
			if !slices.Equal(got, tt.want) {
				t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestLeave: a process with a buffer that leaves does not delay others, not even one that
// has just started. A process that dies does, and the next on its log takes over its mark.
func TestLeave(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(b *clocks, first *seal.Clock) (others []*seal.Clock) // what becomes of the buffer
		want error
	}{
		{"it is there", func(_ *clocks, first *seal.Clock) []*seal.Clock { return []*seal.Clock{first} }, seal.ErrBuffer},
		{"it left", func(_ *clocks, first *seal.Clock) []*seal.Clock {
			leave(t, first)
			return nil
		}, nil},
		{"the next on its log left", func(b *clocks, _ *seal.Clock) []*seal.Clock {
			next := b.open(0, withBuffer("log"))
			b.compare(next)
			leave(t, next)
			return nil
		}, nil},
		{"the next on another log left", func(b *clocks, _ *seal.Clock) []*seal.Clock {
			next := b.open(0, withBuffer("other log"))
			b.compare(next)
			leave(t, next)
			return nil
		}, seal.ErrBuffer},
		{"the next on its log is there", func(b *clocks, first *seal.Clock) []*seal.Clock {
			leave(t, first)
			return []*seal.Clock{b.open(0, withBuffer("log"))}
		}, seal.ErrBuffer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newClocks(t)
			old, first := b.open(0), b.open(0, withBuffer("log"))
			b.minutes(3, first, old)
			b.want("beside a buffer", old, seal.ErrBuffer)
			others := tt.then(b, first)
			fresh := b.open(0)
			b.minutes(10, append(others, old, fresh)...)
			b.want("one that was there", old, tt.want)
			b.want("one that is new", fresh, tt.want)
		})
	}
}

func leave(t *testing.T, c *seal.Clock) {
	t.Helper()
	if err := c.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLeaveFails: a mark that could not be deleted is an error.
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

// TestSealInDoubt: a sealer whose clock is in doubt waits or seals nothing, and does not
// seal rows that it read in doubt.
func TestSealInDoubt(t *testing.T) {
	b := newBench(t, newMemory())
	b.write(b.named("up"), window0, float(1))
	b.now += 2*series.Window + hour
	c := &clocks{T: t, store: b.store.(*memory)}
	open := func(ahead time.Duration) *seal.Clock {
		return c.open(ahead, func(cfg *seal.ClockConfig) { cfg.Now = func() time.Time { return b.clock().Add(ahead) } })
	}
	minutes := func(n int, all ...*seal.Clock) {
		for range n {
			c.compare(all...)
			b.now += minute
		}
	}
	clock, far := open(0), open(time.Hour)
	minutes(2, far, clock)
	var afterRead func()
	s := b.sealer(func(cfg *seal.Config) {
		cfg.Clock = clock
		cfg.Store = &rowHook{Store: b.store, after: func() { afterRead() }}
	})
	afterRead = func() { t.Error("rows were read") }
	if err := s.Once(t.Context()); !errors.Is(err, seal.ErrClock) {
		t.Errorf("beside a clock that is far away: %v", err)
	}
	b.wantCells("in doubt", map[string]int{series.RawFamily(window0, window0): 1})
	leave(t, far)

	waits := 0
	s.SetHooks(func(ctx context.Context, d time.Duration) error {
		if d == time.Second {
			waits++
			minutes(1, clock)
		}
		return ctx.Err()
	}, background)
	reads := 0
	afterRead = func() {
		if reads++; reads > 1 {
			return
		}
		slow := open(-time.Hour)
		c.compare(slow, clock)
		if err := clock.Err(); !errors.Is(err, seal.ErrClock) {
			t.Errorf("beside a clock that is behind: %v", err)
		}
		leave(t, slow)
		b.now += minute
		c.compare(clock)
		if err := clock.Err(); err != nil {
			t.Errorf("alone again: %v", err)
		}
	}
	minutes(1, clock)
	if err := s.Once(t.Context()); err != nil {
		t.Errorf("Once: %v", err)
	}
	if reads != 2 {
		t.Errorf("the row was read %d times, want 2: once more when doubt had ended", reads)
	}
	b.wantCells("sealed", map[string]int{"c": 1})

	b.write(b.named("up"), window0+1, float(1))
	b.now += series.Window
	leave(t, clock)
	clock = open(0)
	s.SetClock(clock)
	if err := s.Once(t.Context()); err != nil {
		t.Errorf("Once: %v", err)
	}
	if waits != 2 {
		t.Errorf("a new process waited for %d minutes, want 2", waits)
	}
	b.wantCells("sealed again", map[string]int{"c": 1})
}

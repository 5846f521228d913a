package seal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

const (
	// clockInterval is how often clocks are compared: also how far they may differ
	// unnoticed, beside maxSkew.
	clockInterval = time.Minute
	// maxSkew is how far the clock of another process may certainly be from ours,
	// half of what the fence takes.
	maxSkew = 5 * time.Minute
	// maxSilence is how long a comparison counts.
	maxSilence = 30 * time.Minute
)

var (
	// ErrClock says that the clock of another process is too far from ours, or that
	// nobody knows.
	ErrClock = errors.New("clocks differ, or could not be compared")
	// ErrBuffer says that another process keeps samples in a buffer.
	ErrBuffer = errors.New("another adapter on the store has a buffer, beside which nothing may be sealed")
)

// A Clock compares our clock with those of the other processes that write to a
// store or seal it. All of them run one.
//
// Each puts its time into a column of its own of META/clock, again and again, and
// reads those of the others. If another's has changed between two reads that we
// began at a and ended at b by our clock, it was written in between: a time after b
// is that of a clock that is ahead by that much at least, a time before a that of
// one that is behind. A difference of less than clockInterval may so go unnoticed.
// That of one that is ahead shows when it is first seen. What all clocks have wrong
// alike does no harm and is not noticed, nor is what became of processes that are
// gone, nor a clock that is set between two comparisons. The store has a clock,
// too, but no way to ask for it. Writers need not ask theirs: while nobody seals
// a sample is safe in whatever family it is put.
//
// Beside the time each says whether it has a buffer. The chunks of a buffer are
// stamped with the time of receipt and stored any time later, after a crash even
// days: one that was received before a sealer read its row, and stored after, would
// lose to the chunk of the sealer, which does not know its samples. So nobody seals
// while one with a buffer is there, or was in the last hour and did not Leave.
type Clock struct {
	cfg ClockConfig
	id  string

	skew     prometheus.Gauge
	failures prometheus.Counter

	mu sync.Mutex
	// others are the clocks seen.
	others map[string]*otherClock
	// begun is when the last read that succeeded began, by our clock and by one
	// that cannot be set; zero if there was none.
	begun time.Time
	// compared says that two reads have succeeded; changed is closed and made anew
	// with each one that does.
	compared bool
	changed  chan struct{}
}

// ClockConfig says what a Clock compares.
type ClockConfig struct {
	Store bucketstore.Store
	// Now is our clock.
	Now func() time.Time
	// Buffered says that this process keeps samples in a buffer.
	Buffered bool
	// ID is the name under which this process shows its clock: that of its log, if
	// it has one, so that the mark of one that died with samples in the log is
	// taken over by the one that stores them. Empty is a name of its own.
	ID string
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_clock_*. It may be nil.
	Registerer prometheus.Registerer
}

// otherClock is what is known of the clock of another process.
type otherClock struct {
	// said is what it said last, in milliseconds, and seen when we saw that first.
	said int64
	seen time.Time
	// skew is how far it is ahead of ours at least, or behind if it is negative.
	skew     time.Duration
	buffered bool
}

// clockCell is the value of a column of META/clock, as JSON.
type clockCell struct {
	// Time is in milliseconds.
	Time int64 `json:"time"`
	// Buffered says that the process has a buffer.
	Buffered bool `json:"buffered,omitempty"`
}

// NewClock returns a Clock, which compares nothing before Run or Compare.
func NewClock(cfg ClockConfig) *Clock {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.ID == "" {
		cfg.ID = rand.Text()
	}
	f := promauto.With(cfg.Registerer)
	return &Clock{
		cfg: cfg,
		id:  cfg.ID,
		skew: f.NewGauge(prometheus.GaugeOpts{
			Name: "adapter_clock_skew_seconds",
			Help: "How far the clock of another adapter on the same store is from this one at least; positive if it is ahead. The largest of all.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_clock_failures_total",
			Help: "Comparisons of clocks that failed.",
		}),
		others:  make(map[string]*otherClock),
		changed: make(chan struct{}),
	}
}

// Run compares until ctx ends. It logs why nothing may be sealed, once each time.
func (c *Clock) Run(ctx context.Context) {
	for logged := false; ctx.Err() == nil; {
		if err := c.Compare(ctx); err != nil && ctx.Err() == nil {
			level.Warn(c.cfg.Logger).Log("msg", "clocks not compared", "err", err)
		}
		err := c.Err()
		if err != nil && !logged && c.hasCompared() && !c.cfg.Buffered {
			level.Error(c.cfg.Logger).Log("msg", "nothing is sealed until this has changed", "err", err)
		}
		logged = err != nil && c.hasCompared()
		if sleep(ctx, clockInterval) != nil {
			return
		}
	}
}

func (c *Clock) hasCompared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compared
}

// Compare writes our time and reads those of the others.
func (c *Clock) Compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	begun := c.cfg.Now()
	err := c.write(ctx, begun)
	var said map[string]clockCell
	if err == nil {
		said, err = c.read(ctx)
	}
	if err != nil {
		c.failures.Inc()
		return fmt.Errorf("compare clocks: %w", err)
	}
	c.learn(said, begun, c.cfg.Now())
	return nil
}

// Leave takes our time out of META/clock, when Run has ended. A process that leaves
// seals nothing any more, and if it had a buffer, nothing is in it or in its log:
// else its mark must stay, for the samples that somebody will store later.
func (c *Clock) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	err := c.cfg.Store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{{
		Key: []byte(series.MetaClock),
		Ops: []bucketstore.Op{{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(c.id)}},
	}})
	if err != nil {
		return fmt.Errorf("take our clock from META: %w", err)
	}
	return nil
}

func (c *Clock) write(ctx context.Context, now time.Time) error {
	value, err := json.Marshal(clockCell{Time: now.UnixMilli(), Buffered: c.cfg.Buffered})
	if err != nil {
		return err
	}
	ops := []bucketstore.Op{
		{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(c.id)}, // it may be of a later time, if the clock was set
		{Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: []byte(c.id), Time: now.UnixMilli(), Value: value},
	}
	c.mu.Lock()
	for id, o := range c.others {
		if now.Sub(o.seen) > 2*maxSilence { // it is gone
			ops = append(ops, bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(id)})
		}
	}
	c.mu.Unlock()
	return c.cfg.Store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{{Key: []byte(series.MetaClock), Ops: ops}})
}

// read returns what the others say.
func (c *Clock) read(ctx context.Context) (said map[string]clockCell, err error) {
	said = make(map[string]clockCell)
	err = c.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow([]byte(series.MetaClock))},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		for _, cell := range row.Cells {
			var value clockCell
			if err := json.Unmarshal(cell.Value, &value); err != nil {
				return fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, row.Key, err)
			}
			if id := string(cell.Qualifier); id != c.id {
				said[id] = value
			}
		}
		return nil
	})
	return said, err
}

// learn takes what was read between two times by our clock.
func (c *Clock) learn(said map[string]clockCell, begun, ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.others {
		if _, ok := said[id]; !ok {
			delete(c.others, id)
		}
	}
	for id, cell := range said {
		o, t := c.others[id], cell.Time
		switch {
		case o == nil:
			// When it was written is not known: any time before now.
			c.others[id] = &otherClock{t, ended, skewOf(t, time.Time{}, ended), cell.Buffered}
		case o.said != t:
			*o = otherClock{t, ended, skewOf(t, c.begun, ended), cell.Buffered}
		case ended.Sub(o.seen) > maxSilence:
			o.skew = 0
		}
	}
	c.compared = !c.begun.IsZero()
	c.begun = begun
	c.skew.Set(c.largest().Seconds())
	close(c.changed)
	c.changed = make(chan struct{})
}

// skewOf returns how far a clock is ahead at least that said t between two times
// by ours.
func skewOf(t int64, begun, ended time.Time) time.Duration {
	switch said := time.UnixMilli(t); {
	case said.After(ended):
		return said.Sub(ended)
	case said.Before(begun):
		return said.Sub(begun)
	}
	return 0
}

// largest returns the largest skew, with mu held.
func (c *Clock) largest() (largest time.Duration) {
	for _, o := range c.others {
		if o.skew.Abs() > largest.Abs() {
			largest = o.skew
		}
	}
	return largest
}

// Err returns an ErrClock while our clock cannot be relied on: nothing was
// compared in the last half hour, or another's clock is more than five minutes
// away. It returns an ErrBuffer while another process has a buffer.
func (c *Clock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch skew := c.largest(); {
	case !c.compared || c.cfg.Now().Sub(c.begun) > maxSilence:
		return fmt.Errorf("%w: no comparison in the last %s", ErrClock, maxSilence)
	case skew.Abs() > maxSkew:
		return fmt.Errorf("%w: that of another adapter is %s ahead of this one", ErrClock, skew)
	}
	for _, o := range c.others {
		if o.buffered {
			return ErrBuffer
		}
	}
	return nil
}

// Wait waits until clocks have been compared once, and returns Err.
func (c *Clock) Wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		compared, changed := c.compared, c.changed
		c.mu.Unlock()
		if compared {
			return c.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

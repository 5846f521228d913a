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

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

const (
	// clockInterval is how often clocks are compared.
	clockInterval = time.Minute
	// markTime is how long the mark of a process that is gone stays in META/clock. If it
	// had a buffer nothing is sealed that long.
	markTime = time.Hour
)

var (
	// ErrClock says that our clock is in doubt: it differs too much from another one, or
	// they could not be compared.
	ErrClock = errors.New("our clock is in doubt")
	// ErrBuffer says that another process keeps samples in a buffer.
	ErrBuffer = errors.New("another adapter on the store has a buffer, beside which nothing may be sealed")
)

// A Clock compares our clock with the clocks of all other processes that write to a store
// or seal it. Each has a Clock. While our clock is in doubt this process writes samples to
// l only, see RawFrom, and seals nothing, see Err.
//
// Every minute each process writes its time into its own column of META/clock, its mark,
// and then reads the marks of the others. comparison.go says what follows from them.
//
// Each mark also says whether the process has a buffer. The chunks of a buffer are stamped
// with the time of receipt and stored at any later time, after a crash even days later. If
// such a sample is received before a sealer reads its row, and stored after, the sealer's
// chunk wins without having the sample. So nothing is sealed while a process with a buffer
// runs, or ran in the last hour and did not Leave.
type Clock struct {
	cfg ClockConfig
	id  string
	// uptime converts a time of Now to a monotonic time. Tests replace it.
	uptime func(t time.Time) time.Duration

	skew     prometheus.Gauge
	failures prometheus.Counter

	mu sync.Mutex
	// comparison is guarded by mu.
	comparison
}

// ClockConfig configures a Clock.
type ClockConfig struct {
	Store bucketstore.Store
	// Now is our clock.
	Now func() time.Time
	// MaxFuture is how far ahead of our clock samples may be. 0 is no bound.
	MaxFuture time.Duration
	// Buffered says that this process keeps samples in a buffer.
	Buffered bool
	// ID is the column of this process. A process with a buffer uses the ID of its log: if
	// it dies with samples in the log, the next process on the log takes over its mark.
	// Empty is a random ID.
	ID string
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_clock_*. It may be nil.
	Registerer prometheus.Registerer
}

// clockCell is the value of a column of META/clock, as JSON.
type clockCell struct {
	// Time is in milliseconds.
	Time int64 `json:"time"`
	// Buffered says that the process has a buffer.
	Buffered bool `json:"buffered,omitempty"`
}

// NewClock returns a Clock. It compares nothing before Run or Compare.
func NewClock(cfg ClockConfig) *Clock {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.ID == "" {
		cfg.ID = rand.Text()
	}
	f := metricset.New(cfg.Registerer)
	c := &Clock{
		cfg: cfg,
		id:  cfg.ID,
		skew: f.Gauge("adapter_clock_skew_seconds",
			"How far the clock of another adapter on the store is certainly ahead of this one, or behind if negative. The largest of all."),
		failures:   f.Counter("adapter_clock_failures_total", "Comparisons of clocks that failed."),
		comparison: newComparison(),
	}
	begin := cfg.Now()
	c.uptime = func(t time.Time) time.Duration { return t.Sub(begin) }
	f.GaugeFunc("adapter_clock_in_doubt",
		"1 while the clock is in doubt: until then samples go to the family l, and nothing is sealed.", func() float64 {
			if c.TimeErr() != nil {
				return 1
			}
			return 0
		})
	return c
}

// Run compares until ctx ends. It logs when doubt begins and ends, and when nothing may be
// sealed for another reason.
func (c *Clock) Run(ctx context.Context) {
	var last error
	for ctx.Err() == nil {
		if err := c.Compare(ctx); err != nil && ctx.Err() == nil {
			level.Warn(c.cfg.Logger).Log("msg", "cannot compare the clock of this machine with those of other adapters, trying again", "err", err)
		}
		last = c.report(last)
		if bucketstore.Sleep(ctx, clockInterval) != nil {
			return
		}
	}
}

// report logs Err if its kind differs from last, the result of the previous report. It
// returns the kind: one of the errors of this package, or nil.
func (c *Clock) report(last error) error {
	err := c.Err()
	kind := err
	for _, k := range []error{errPending, ErrClock, ErrBuffer} {
		if errors.Is(err, k) {
			kind = k
			break
		}
	}
	switch {
	case kind == last || c.cfg.Buffered:
	case kind == nil:
		level.Info(c.cfg.Logger).Log("msg", "the clock of this machine agrees with those of the other adapters: sealing may run")
	case kind == errPending:
		level.Info(c.cfg.Logger).Log("msg", "nothing is sealed until clocks are compared; samples are stored as late ones (column family l) until then", "reason", err)
	case kind == ErrClock:
		level.Error(c.cfg.Logger).Log("msg", "nothing is sealed while the clock of this machine is in doubt; samples are stored as late ones (column family l)", "err", err)
	default:
		level.Error(c.cfg.Logger).Log("msg", "nothing is sealed, for the reason in err", "err", err)
	}
	return kind
}

// Compare writes our time and then reads those of the others. So of two processes that do
// it at once, at least one sees the other.
func (c *Clock) Compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	started := c.read()
	err := c.write(ctx, started)
	var marks map[string]clockCell
	if err == nil {
		marks, err = c.readMarks(ctx)
	}
	if err != nil {
		c.failures.Inc()
		return fmt.Errorf("compare clocks: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(marks, started, c.read())
	c.skew.Set(c.largest().Seconds())
	return nil
}

// read reads our clock.
func (c *Clock) read() reading { return c.readingOf(c.cfg.Now()) }

func (c *Clock) readingOf(t time.Time) reading { return reading{t.Round(0), c.uptime(t)} }

// Leave deletes our mark from META/clock. Run must have ended, and the process must write
// and seal nothing any more. A process with a buffer may leave only if buffer and log are
// empty: its mark must stay for samples that are stored later.
func (c *Clock) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	err := c.cfg.Store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{{
		Key: []byte(series.MetaClock),
		Ops: []bucketstore.Op{{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(c.id)}},
	}})
	if err != nil {
		return fmt.Errorf("delete our clock from META: %w", err)
	}
	return nil
}

// write writes our mark, and deletes old marks of processes that are gone.
func (c *Clock) write(ctx context.Context, now reading) error {
	value, err := json.Marshal(clockCell{Time: now.wall.UnixMilli(), Buffered: c.cfg.Buffered})
	if err != nil {
		return err
	}
	ops := []bucketstore.Op{
		{Kind: bucketstore.DeleteColumn, Family: series.FamilyMeta, Qualifier: []byte(c.id)}, // it may have a later time, if the clock was set
		{Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: []byte(c.id), Time: now.wall.UnixMilli(), Value: value},
	}
	c.mu.Lock()
	for id, o := range c.others {
		if now.up-o.seen > markTime {
			ops = append(ops, bucketstore.Op{ // but not a newer mark
				Kind: bucketstore.DeleteColumnBefore, Family: series.FamilyMeta, Qualifier: []byte(id), Time: o.time + 1,
			})
		}
	}
	c.mu.Unlock()
	return c.cfg.Store.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{{Key: []byte(series.MetaClock), Ops: ops}})
}

// Latest returns the latest time that META has of another process, or of this one before its
// start. It is the zero time if there is none.
func (c *Clock) Latest(ctx context.Context) (latest time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	marks, err := c.readMarks(ctx)
	if err != nil {
		return latest, fmt.Errorf("read the clocks of other adapters: %w", err)
	}
	for _, mark := range marks {
		if t := time.UnixMilli(mark.Time); t.After(latest) {
			latest = t
		}
	}
	return latest, nil
}

// readMarks returns the marks of the others.
func (c *Clock) readMarks(ctx context.Context) (marks map[string]clockCell, err error) {
	marks = make(map[string]clockCell)
	err = c.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow([]byte(series.MetaClock))},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		for _, cell := range row.Cells {
			var mark clockCell
			if err := meta.ParseJSON(row.Key, cell.Value, &mark); err != nil {
				return err
			}
			if id := string(cell.Qualifier); id != c.id {
				marks[id] = mark
			}
		}
		return nil
	})
	return marks, err
}

// Err returns an ErrClock while our clock is in doubt, and else an ErrBuffer while
// another process has a buffer.
func (c *Clock) Err() error {
	_, err := c.relied(c.cfg.Now())
	return err
}

// TimeErr returns an ErrClock while our clock is in doubt, whatever buffers there are. It is for
// work that relies on the clock alone.
func (c *Clock) TimeErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errAt(c.read())
}

// relied returns since when our clock is not in doubt at now, in milliseconds, or the error
// of Err.
func (c *Clock) relied(now time.Time) (since int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errAt(c.readingOf(now)); err != nil {
		return 0, err
	}
	for _, o := range c.others {
		if o.isBuffered {
			return 0, ErrBuffer
		}
	}
	return c.since.wall.UnixMilli(), nil
}

// RawFrom is a [bucketstore.RawFrom] for the samples of this process. While our clock is in
// doubt it returns a time after all samples. After doubt it returns a time after all
// samples that may have been written before: of two cells of one time the cell in l counts,
// so a sample in l must be overwritten there. It may be called on a nil Clock, which is
// never in doubt.
func (c *Clock) RawFrom(now time.Time) int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errAt(c.readingOf(now)) != nil {
		return series.MaxTime + 1
	}
	// Samples after the next window never go to raw families.
	future := 2 * series.Window
	if f := c.cfg.MaxFuture.Milliseconds(); f > 0 {
		future = min(future, f)
	}
	return c.since.wall.UnixMilli() + future + 1
}

// isPending says whether our clock is in doubt only because it was not compared yet.
func (c *Clock) isPending() bool { return errors.Is(c.Err(), errPending) }

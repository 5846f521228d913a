package downsample

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// DefaultRowsPerSecond is how many rows a second a maker reads at most.
	DefaultRowsPerSecond = 5000
	// delay is how long after its end a day is made: then buffers have stored what came in time.
	delay = 9 * time.Hour
	// interval is the time between two calls of Once.
	interval = time.Minute
	// logInterval is the time between two lines of the log about many days, or rows.
	logInterval = time.Minute
	// leaseTime is how long a lease lasts without renewal. No answer depends on it.
	leaseTime = 30 * time.Minute
)

// ErrHeld says that another maker holds the lease.
var ErrHeld = errors.New("another process makes the rollups")

// ErrClock says that rollups wait until our clock agrees with those of other adapters.
var ErrClock = errors.New("rollups wait for clocks to agree")

// errChanged says that another process has changed META/rollup.
var errChanged = errors.New("another process has changed META/rollup, trying again")

// MakerConfig says how a Maker works.
type MakerConfig struct {
	// Resolutions are those that are made, at least one.
	Resolutions []rollup.Resolution
	// RowsPerSecond bounds how many rows are read. 0 is DefaultRowsPerSecond.
	RowsPerSecond float64
	// Timeline says what may have been deleted: no day that begins before that is made.
	Timeline Timeline
	// Flush, if set, stores all samples that the buffer of this process holds, or fails.
	Flush func(ctx context.Context) error
	// Logs, if set, returns the logs of other processes with samples that may not be in the store. A day is released when none has, or
	// may get, a sample of it.
	Logs func(ctx context.Context) ([]meta.Log, error)
	// ClockErr, if set, says why our clock is in doubt, or nil. Nothing is made while it is. Buffers of others are no reason: what they
	// store later is counted.
	ClockErr func() error
	// Holder names the process, for operators.
	Holder string
	// Registerer takes the metrics adapter_rollup_*. It may be nil.
	Registerer prometheus.Registerer
}

// A Maker makes rollups. Its methods may be called concurrently; one runs at a time.
type Maker struct {
	working sync.Mutex

	days    *Days
	cfg     MakerConfig
	row     rowMaker
	token   string
	metrics metrics
	// waits are why nothing is made, and nothing released. They are states and no failures.
	waits waits
	// firstDue is the start of the first day of which there may be samples while none is made, or -1 if that is not known.
	firstDue atomic.Int64
	// badLogged is when a row that cannot be read was last logged.
	badLogged time.Time
	// sleep waits, and propagationTime is the constant; tests replace both.
	sleep           jobs.Sleep
	pace            *jobs.Pace
	propagationTime time.Duration
}

type metrics struct {
	rows, days, failures prometheus.Counter
	cells, bytes         *prometheus.CounterVec
}

// NewMaker returns a Maker, which does nothing before Run or Once.
func NewMaker(days *Days, cfg MakerConfig) *Maker {
	if cfg.RowsPerSecond <= 0 {
		cfg.RowsPerSecond = DefaultRowsPerSecond
	}
	m := &Maker{days: days, cfg: cfg, token: rand.Text(), sleep: bucketstore.Sleep, propagationTime: propagationTime, row: rowMaker{resolutions: cfg.Resolutions}}
	m.pace = jobs.NewPace(cfg.RowsPerSecond, days.cfg.Now, func(ctx context.Context, d time.Duration) error { return m.sleep(ctx, d) })
	var resolutions []string
	for _, r := range cfg.Resolutions {
		resolutions = append(resolutions, r.String())
	}
	f := metricset.New(cfg.Registerer)
	m.metrics = metrics{
		rows: f.Counter("adapter_rollup_rows_total", "Rows that were read to make the rollups of a day."),
		days: f.Counter("adapter_rollup_walks_total", "Days whose rollups were made, or compared with their samples again."),
		failures: f.Counter("adapter_rollup_failures_total",
			"Attempts to make rollups that failed and are repeated, and rows of a day whose samples cannot be read."),
		cells: f.Counters("adapter_rollup_cells_total", "Rollups of a row and day that were written, by resolution.", "resolution", resolutions...),
		bytes: f.Counters("adapter_rollup_bytes_total", "Bytes of the rollups that were written, by resolution.", "resolution", resolutions...),
	}
	m.firstDue.Store(-1)
	m.waits = newWaits(f, days.cfg.Logger)
	f.GaugeFunc("adapter_rollup_lag_seconds",
		"Time since the first day ended whose rollups are due and not made. 0 if there is none.", m.lag)
	return m
}

// A Timeline is that of package timeline.
type Timeline interface {
	// Deleted returns the time before which samples may have been deleted when the clock says now, in milliseconds.
	Deleted(now time.Time) int64
	// KeyRules returns the same of single series. What it returns is at most as old as a state that a write relies on.
	KeyRules(ctx context.Context) (timeline.KeyRules, error)
}

// deleted returns the time before which samples may have been deleted now, in milliseconds.
func (m *Maker) deleted() int64 { return m.cfg.Timeline.Deleted(m.days.cfg.Now()) }

// due returns the end of the last day whose rollups are due, in milliseconds.
func (m *Maker) due() int64 { return dueAt(m.days.cfg.Now()) }

func (m *Maker) lag() float64 {
	made := m.days.get().Made
	if made == 0 {
		made = m.firstDue.Load()
	}
	if made < 0 || made >= m.due() {
		return 0
	}
	return m.days.cfg.Now().Sub(time.UnixMilli(made + rollup.Day)).Seconds()
}

// Run calls Once every minute until ctx ends, and logs errors. At the end it gives up the lease, so that another process goes on at once.
func (m *Maker) Run(ctx context.Context) {
	defer m.Leave(context.WithoutCancel(ctx))
	jobs.Loop{Interval: interval, Sleep: m.sleep, Work: m.Once, Failed: func(err error) {
		if !isWait(err) {
			m.metrics.failures.Inc()
			level.Warn(m.days.cfg.Logger).Log("msg", "rollups are not made, trying again", "interval", interval, "err", err)
		}
	}}.Run(ctx)
}

// isWait says whether an error is a state that ends by itself, and no failure.
func isWait(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrClock) }

// Once makes the rollups of all days that are due, and of those that were written to since. The error is ErrHeld while
// another process does, and ErrClock while our clock is in doubt.
func (m *Maker) Once(ctx context.Context) error {
	logged := m.days.cfg.Now()
	for made := int64(0); ; {
		more, err := m.makeDay(ctx)
		if err != nil {
			return err
		}
		if more {
			made++
		}
		if now := m.days.cfg.Now(); made > 0 && !more || now.Sub(logged) >= logInterval {
			s := m.days.get()
			level.Info(m.days.cfg.Logger).Log("msg", "made rollups", "up_to", dayText(s.Made-1), "days", made, "of", made+(s.Begun-s.Made)/rollup.Day)
			logged = now
		}
		if !more {
			return nil
		}
	}
}

// makeDay makes the rollups of the first day that is due. If none is, it returns false, and has made those of days that were
// written to since. Between two calls Release may run.
func (m *Maker) makeDay(ctx context.Context) (more bool, err error) {
	m.working.Lock()
	defer m.working.Unlock()
	hasWork, err := m.begin(ctx)
	if err != nil || !hasWork {
		return false, err
	}
	s := m.days.get()
	if s.Made >= s.Begun {
		return false, m.makeLate(ctx)
	}
	if err := m.walkDay(ctx, s.Made); err != nil {
		return false, err
	}
	return true, m.save(ctx, m.days.writing, func(now *state) { now.Made = max(now.Made, s.Made+rollup.Day) })
}

// begin takes the lease if there is something to do, and raises begun to the last day that is due.
func (m *Maker) begin(ctx context.Context) (hasWork bool, err error) {
	if err := m.look(ctx); err != nil {
		return false, err
	}
	s, due := m.days.get(), m.due()
	made := s.Made
	if horizon := m.deleted(); made == 0 || made < horizon { // else all samples from there on are there
		if made, err = m.days.firstDay(ctx, horizon); err != nil {
			return false, err
		}
	}
	begun := max(s.Begun, due)
	made = max(s.Made, min(made, begun))
	if made >= begun {
		if s.Made == 0 {
			return false, nil
		}
		if notes, err := m.days.notes(ctx, made); err != nil || len(notes) == 0 {
			return false, err
		}
	}
	if err := m.save(ctx, m.days.writing, func(s *state) { s.Made, s.Begun = max(made, s.Made), max(begun, s.Begun) }); err != nil {
		return false, err
	}
	if s.Made >= begun {
		return true, nil // a maker that has waited has made them all once
	}
	return true, m.propagate(ctx, &m.days.begunAt)
}

// look reads the state. The error is ErrClock if our clock is in doubt, or ErrHeld if another maker has the lease.
func (m *Maker) look(ctx context.Context) error {
	if err := m.days.refresh(ctx); err != nil {
		return err
	}
	if m.days.get().Made == 0 { // the lag is true also while nothing can be made
		first, err := m.days.firstDay(ctx, m.deleted())
		if err != nil {
			return err
		}
		m.firstDue.Store(first)
	}
	var clockErr error
	if m.cfg.ClockErr != nil {
		clockErr = m.cfg.ClockErr()
	}
	m.waits.set(waitClock, clockErr)
	if clockErr != nil {
		return fmt.Errorf("%w: %w", ErrClock, clockErr)
	}
	if m.isHeld(m.days.get()) {
		m.waits.set(waitLogs, nil) // the other process does
		return ErrHeld
	}
	return nil
}

// isHeld says whether another maker has the lease. One that ends later than any right clock could have set does not count.
func (m *Maker) isHeld(s state) bool {
	left := s.Expires - m.days.cfg.Now().UnixMilli()
	return m.days.cfg.Store.Traits().Shared && s.Token != "" && s.Token != m.token && left > 0 && left < 2*leaseTime.Milliseconds()
}

// propagate waits until every write obeys a state that this process first saw at a time, one of Days. Another maker may have
// written it, or an earlier process, at any time before that.
func (m *Maker) propagate(ctx context.Context, seen *time.Time) error {
	if !m.days.cfg.Store.Traits().Shared {
		return nil
	}
	for waited := false; ; waited = true {
		m.days.mu.Lock()
		at := *seen
		m.days.mu.Unlock()
		passed, _ := m.days.elapsed(at, m.days.cfg.Now())
		if passed >= m.propagationTime {
			if waited {
				return m.save(ctx, m.days.writing, func(*state) {}) // if the lease is still ours
			}
			return nil
		}
		if err := m.sleep(ctx, m.propagationTime-passed); err != nil {
			return err
		}
	}
}

// save changes the state, and renews the lease. What holds lock later obeys the change.
func (m *Maker) save(ctx context.Context, lock rwLocker, change func(*state)) error {
	isHeld := false
	ok, err := m.days.raise(ctx, lock, func(s *state) bool {
		if isHeld = m.isHeld(*s); isHeld {
			return false
		}
		s.Holder, s.Token, s.Expires = m.cfg.Holder, m.token, m.days.cfg.Now().Add(leaseTime).UnixMilli()
		change(s)
		return true
	})
	switch {
	case err != nil || ok:
		return err
	case isHeld:
		return ErrHeld
	}
	return errChanged
}

// renew renews the lease if half of it is over.
func (m *Maker) renew(ctx context.Context) error {
	if left := m.days.get().Expires - m.days.cfg.Now().UnixMilli(); !m.days.cfg.Store.Traits().Shared || left > leaseTime.Milliseconds()/2 {
		return nil
	}
	return m.save(ctx, m.days.writing, func(*state) {})
}

// Leave gives up the lease, if it is ours, and logs an error.
func (m *Maker) Leave(ctx context.Context) {
	if !m.days.cfg.Store.Traits().Shared {
		return
	}
	m.working.Lock()
	defer m.working.Unlock()
	ok, err := m.days.raise(ctx, m.days.writing, func(s *state) bool {
		isOurs := s.Token == m.token
		s.Holder, s.Token, s.Expires = "", "", 0
		return isOurs
	})
	if err != nil || !ok && m.days.get().Token == m.token {
		level.Warn(m.days.cfg.Logger).Log("msg", "cannot release the lease on rollups: no other adapter makes them until it expires", "expires", leaseTime, "err", err)
	}
}

// makeLate makes again what differs in days that were written to since.
func (m *Maker) makeLate(ctx context.Context) error {
	s := m.days.get()
	notes, err := m.days.notes(ctx, s.Made)
	if err != nil {
		return err
	}
	for _, n := range notes {
		if n.T >= s.Released {
			if err := m.walkDay(ctx, n.T); err != nil {
				return err
			}
		}
		if err := n.Remove(ctx, m.days.cfg.Store); err != nil {
			return err
		}
	}
	return nil
}

// Release makes the rollups of whole days before cut final, in milliseconds, and returns the end of the last day of
// which they are: the samples up to there may be deleted.
func (m *Maker) Release(ctx context.Context, cut int64) (int64, error) {
	m.working.Lock()
	defer m.working.Unlock()
	err := m.release(ctx, cut)
	if isWait(err) {
		err = nil
	}
	return m.days.Released(), err
}

func (m *Maker) release(ctx context.Context, cut int64) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	s := m.days.get()
	to := min(rollup.DayOf(cut), s.Made)
	if to <= s.Released {
		return nil
	}
	first, err := m.days.firstDay(ctx, m.deleted())
	if err != nil {
		return err
	}
	if err := m.save(ctx, m.days.appending, func(s *state) { s.Closed = max(s.Closed, to) }); err != nil {
		return fmt.Errorf("close days up to %s: %w", dayText(to-1), err)
	}
	if err := m.propagate(ctx, &m.days.closedAt); err != nil {
		return err
	}
	if m.cfg.Flush != nil {
		if err := m.cfg.Flush(ctx); err != nil {
			return fmt.Errorf("store samples of days that are closed: %w", err)
		}
	}
	if to, err = m.logsEnd(ctx, to); err != nil || to <= s.Released {
		return err
	}
	for day := min(to, max(s.Released, first)); ; day += rollup.Day {
		if day > s.Released {
			if err := m.save(ctx, m.days.writing, func(s *state) { s.Released = max(s.Released, day) }); err != nil {
				return err
			}
		}
		if day >= to {
			return nil
		}
		if err := m.walkDay(ctx, day); err != nil {
			return err
		}
	}
}

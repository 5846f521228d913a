package downsample

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// Config says what there are rollups of. Store, Schema and Now are required.
type Config struct {
	// Store is the store beneath all others.
	Store bucketstore.Store
	// Schema is the schema of the store.
	Schema series.Schema
	// Tenants are those of the store. Nil is that of Schema.
	Tenants jobs.Tenants
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
}

// Days knows of which days there may be rollups. It is safe for concurrent use.
type Days struct {
	cfg Config
	// writing is held for reading by writes to the store, and appending by calls of the Appender, if Sole.
	writing, appending rwLocker
	// elapsed returns the time between two times of Config.Now, by the monotonic and by the wall clock. Tests replace it, and
	// the locks.
	elapsed func(from, to time.Time) (monotonic, wall time.Duration)

	// mu guards what follows.
	mu    sync.Mutex
	cell  meta.Cell
	state state
	// readAt is when the request for state began.
	readAt time.Time
	// begunAt and closedAt are when this process first saw Begun and Closed of state.
	begunAt, closedAt time.Time
	// refused is the last result of Refused.
	refused int64
	// late are the notes of days that were written to.
	late *jobs.Notes
}

// A rwLocker is a sync.RWMutex.
type rwLocker interface {
	sync.Locker
	RLock()
	RUnlock()
}

// Open reads which days there are.
func Open(ctx context.Context, cfg Config) (*Days, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Tenants == nil {
		cfg.Tenants = jobs.NamedTenants(cfg.Schema)
	}
	d := &Days{cfg: cfg, writing: new(sync.RWMutex), appending: new(sync.RWMutex), elapsed: elapsed, late: newNotes(cfg)}
	err := d.refresh(ctx)
	d.refused = d.state.Closed // no call runs yet
	return d, err
}

// refresh reads the state again.
func (d *Days) refresh(ctx context.Context) error {
	at := d.cfg.Now()
	cell, s, err := readState(ctx, d.cfg.Store)
	if err != nil {
		return err
	}
	d.observe(cell, s, at)
	return nil
}

// observe takes over the state as it was read or written by a request that began at a time, unless a later one is known.
func (d *Days) observe(cell meta.Cell, s state, at time.Time) {
	now := d.cfg.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Writes < d.state.Writes {
		return
	}
	if s.Begun != d.state.Begun {
		d.begunAt = now
	}
	if s.Closed != d.state.Closed {
		d.closedAt = now
	}
	d.cell, d.state, d.readAt = cell, s, at
}

// get returns the state.
func (d *Days) get() state {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// at returns the state, and whether a write that began at a time may rely on it.
func (d *Days) at(begin time.Time) (s state, isFresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, !d.cfg.Store.Traits().Shared || d.age(d.readAt, begin) < maxStateAge
}

// tookLong says whether a write that began at a time took so long that days may have been begun or closed
// meanwhile.
func (d *Days) tookLong(begin time.Time) bool {
	return d.cfg.Store.Traits().Shared && d.age(begin, d.cfg.Now()) >= maxAttempt
}

// age returns the time between two times, by the clock that has gone further. The monotonic one stands still while the machine
// is suspended, and the wall clock may be set back.
func (d *Days) age(from, to time.Time) time.Duration {
	monotonic, wall := d.elapsed(from, to)
	return max(monotonic, wall)
}

func elapsed(from, to time.Time) (monotonic, wall time.Duration) {
	return to.Sub(from), to.Round(0).Sub(from.Round(0))
}

// Made returns the end of the last day up to which all rollups were made once, in milliseconds.
func (d *Days) Made() int64 {
	return d.get().Made
}

// Released returns the end of the last day whose rollups are final, in milliseconds: its samples may be deleted.
func (d *Days) Released() int64 {
	return d.get().Released
}

// TakenFrom returns the first time of which samples are taken, as this process knows it, in milliseconds. It is 0 if all are.
func (d *Days) TakenFrom() int64 {
	if closed := d.get().Closed; closed > 0 {
		return closed + 1
	}
	return 0
}

// Closed returns the end of the last day of which no sample is taken any more, in milliseconds, as META has it now.
func (d *Days) Closed(ctx context.Context) (int64, error) {
	if d.cfg.Store.Traits().Shared {
		if err := d.refresh(ctx); err != nil {
			return 0, err
		}
	}
	return d.get().Closed, nil
}

// Refused returns the end of the last day of which this process acknowledges no sample any more, in milliseconds: each call of the
// Appender that may have known less has ended, or fails.
func (d *Days) Refused() int64 {
	now := d.cfg.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if passed, _ := d.elapsed(d.closedAt, now); passed >= propagationTime {
		d.refused = max(d.refused, d.state.Closed)
	}
	return d.refused
}

// update changes the state in META and here, unless change returns false. It returns false also if another process has
// changed it meanwhile; then it is read again.
func (d *Days) update(ctx context.Context, change func(*state) bool) (ok bool, err error) {
	d.mu.Lock()
	cell, next := d.cell, d.state
	d.mu.Unlock()
	if !change(&next) {
		return false, nil
	}
	next.Writes++
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	at := d.cfg.Now()
	written := meta.Cell{Value: value, Time: at.UnixMilli()}
	set, err := meta.CompareAndSet(bounded, d.cfg.Store, series.MetaRollup, cell, written)
	if err != nil {
		return false, fmt.Errorf("write META/%s: %w", series.MetaRollup, err)
	}
	if !set {
		return false, d.refresh(ctx)
	}
	d.observe(written, next, at)
	return true, nil
}

// raise is update while no write holds a lock, if Sole: what begins later obeys the change.
func (d *Days) raise(ctx context.Context, lock rwLocker, change func(*state) bool) (ok bool, err error) {
	if !d.cfg.Store.Traits().Shared {
		lock.Lock()
		defer lock.Unlock()
	}
	return d.update(ctx, change)
}

// Run reads the state again and again, and writes notes of late days, until ctx ends. Where one process has the store
// it only does the latter.
func (d *Days) Run(ctx context.Context) {
	ticker := time.NewTicker(min(refreshInterval, jobs.NoteInterval))
	defer ticker.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-ticker.C:
		}
		d.tick(context.WithoutCancel(ctx), done)
	}
}

// tick is what Run does at an interval. At the end only notes are written.
func (d *Days) tick(ctx context.Context, atEnd bool) {
	d.mu.Lock()
	readAt := d.readAt
	d.mu.Unlock()
	if d.cfg.Store.Traits().Shared && !atEnd && d.age(readAt, d.cfg.Now()) >= refreshInterval {
		if err := d.refresh(ctx); err != nil {
			level.Warn(d.cfg.Logger).Log("msg", "cannot read which days have rollups, trying again; until then late samples of all days are noted", "err", err)
		}
	}
	if err := d.late.Write(ctx); err != nil {
		level.Warn(d.cfg.Logger).Log("msg", "cannot note in META which days got late samples, trying again; their rollups are made again later", "err", err)
	}
}

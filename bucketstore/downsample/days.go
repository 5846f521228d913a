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
	"github.com/promtable/promtable/series"
)

// Config says what there are rollups of. Store, Schema and Now are required.
type Config struct {
	// Store is the store beneath all others.
	Store bucketstore.Store
	// Schema is the schema of the store, without a tenant.
	Schema series.Schema
	// Now is the clock.
	Now func() time.Time
	// Sole says that no other process writes to the store.
	Sole bool
	// Logger may be nil.
	Logger log.Logger
}

// Days knows of which days there may be rollups. It is safe for concurrent use.
type Days struct {
	cfg Config
	// writing is held for reading by writes to the store, and appending by calls of the Appender, if Sole.
	writing, appending sync.RWMutex

	// mu guards what follows.
	mu    sync.Mutex
	cell  meta.Cell
	state state
	// readAt is when state was read or written.
	readAt time.Time
	// late are days that were written to and have no note yet, by their end.
	late map[int64]bool
}

// Open reads which days there are.
func Open(ctx context.Context, cfg Config) (*Days, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	d := &Days{cfg: cfg, late: make(map[int64]bool)}
	return d, d.refresh(ctx)
}

// refresh reads the state again.
func (d *Days) refresh(ctx context.Context) error {
	at := d.cfg.Now()
	cell, s, err := readState(ctx, d.cfg.Store)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Begun >= d.state.Begun && s.Closed >= d.state.Closed { // else it was read before another one that we know
		d.cell, d.state, d.readAt = cell, s, at
	}
	return nil
}

// get returns the state, and whether it is fresh enough to rely on.
func (d *Days) get() (s state, isFresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, d.cfg.Sole || d.since(d.readAt) < maxStateAge
}

// since returns the time since t, by the clock that has gone further of that of the wall and the monotonic one.
func (d *Days) since(t time.Time) time.Duration {
	now := d.cfg.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// Made returns the end of the last day up to which all rollups were made once, in milliseconds.
func (d *Days) Made() int64 {
	s, _ := d.get()
	return s.Made
}

// Released returns the end of the last day whose rollups are final, in milliseconds: its samples may be deleted.
func (d *Days) Released() int64 {
	s, _ := d.get()
	return s.Released
}

// Closed returns the end of the last day of which no sample is taken any more, in milliseconds, as META has it now.
func (d *Days) Closed(ctx context.Context) (int64, error) {
	if !d.cfg.Sole {
		if err := d.refresh(ctx); err != nil {
			return 0, err
		}
	}
	s, _ := d.get()
	return s.Closed, nil
}

// update changes the state in META and here. It returns false if another process has changed it meanwhile; then it is
// read again.
func (d *Days) update(ctx context.Context, change func(*state)) (ok bool, err error) {
	d.mu.Lock()
	cell, next := d.cell, d.state
	d.mu.Unlock()
	change(&next)
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	at := d.cfg.Now()
	written, set, err := meta.CompareAndSet(bounded, d.cfg.Store, series.MetaRollup, cell, value, at.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("write META/%s: %w", series.MetaRollup, err)
	}
	if !set {
		return false, d.refresh(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cell, d.state, d.readAt = written, next, at
	return true, nil
}

// raise is update while nobody else holds a lock, if Sole: what begins later obeys the change.
func (d *Days) raise(ctx context.Context, lock *sync.RWMutex, change func(*state)) (ok bool, err error) {
	if d.cfg.Sole {
		lock.Lock()
		defer lock.Unlock()
	}
	return d.update(ctx, change)
}

// Run reads the state again and again, and writes notes of late days, until ctx ends. Where one process has the store
// it only does the latter.
func (d *Days) Run(ctx context.Context) {
	ticker := time.NewTicker(min(refreshInterval, noteInterval))
	defer ticker.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-ticker.C:
		}
		ctx := context.WithoutCancel(ctx)
		if !d.cfg.Sole && !done && d.since(d.stateRead()) >= refreshInterval {
			if err := d.refresh(ctx); err != nil {
				level.Warn(d.cfg.Logger).Log("msg", "which days have rollups is not known, so all writes are counted", "err", err)
			}
		}
		if err := d.writeNotes(ctx); err != nil {
			level.Warn(d.cfg.Logger).Log("msg", "late days are not noted, so their rollups are made again later", "err", err)
		}
	}
}

func (d *Days) stateRead() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readAt
}

package downsample

import (
	"context"
	"time"
)

// RWLocker is rwLocker.
type RWLocker = rwLocker

// SetLocks replaces the locks of writers and appenders.
func (d *Days) SetLocks(writing, appending RWLocker) { d.writing, d.appending = writing, appending }

// SetElapsed replaces how time is measured between two times of Config.Now.
func (d *Days) SetElapsed(elapsed func(from, to time.Time) (monotonic, wall time.Duration)) {
	d.elapsed = elapsed
}

// Tick is tick.
func (d *Days) Tick(ctx context.Context) { d.tick(ctx, false) }

// SetSleep replaces how a maker waits.
func (m *Maker) SetSleep(sleep func(ctx context.Context, d time.Duration) error) { m.sleep = sleep }

// SetPropagationTime replaces propagationTime.
func (m *Maker) SetPropagationTime(d time.Duration) { m.propagationTime = d }

// Begun is that of the state as it is known.
func (d *Days) Begun() int64 { return d.get().Begun }

const (
	Delay           = delay
	NoteAge         = noteAge
	PropagationTime = propagationTime
	MaxStateAge     = maxStateAge
	MaxAttempt      = maxAttempt
	LeaseTime       = leaseTime
)

package seal

import (
	"context"
	"time"
)

// SetHooks replaces how a sealer waits, and how it gives a request a deadline.
func (s *Sealer) SetHooks(
	sleep func(ctx context.Context, d time.Duration) error,
	withDeadline func(ctx context.Context, t time.Time) (context.Context, context.CancelFunc),
) {
	s.sleep, s.withDeadline = sleep, withDeadline
}

// SetBounds replaces maxLate and batchCells.
func (s *Sealer) SetBounds(late, cells int) {
	for _, w := range s.workers {
		w.rows.maxLate = late
	}
	s.batchCells = cells
}

// Slot returns the window and the family that are sealed at a time in milliseconds.
func Slot(now int64) (window int64, family string, ok bool) {
	t, ok := slotAt(now)
	if !ok {
		return 0, "", false
	}
	return t.window, t.family(), true
}

// NextSlot is nextSlot.
func NextSlot(now int64) int64 { return nextSlot(now) }

// MaxLate is maxLate, MaxOps is maxOps.
const (
	MaxLate = maxLate
	MaxOps  = maxOps
)

// MaxLogged is maxLogged.
const MaxLogged = maxLogged

// RowsAtOnce is how many rows a worker reads at once.
const RowsAtOnce = rowsAtOnce

// SetUptime replaces the monotonic time of a time that Now has returned.
func (c *Clock) SetUptime(uptime func(t time.Time) time.Duration) { c.uptime = uptime }

// IsPending is isPending.
func (c *Clock) IsPending() bool { return c.isPending() }

// Now reads the clock.
func (c *Clock) Now() time.Time { return c.cfg.Now() }

// Report is report.
func (c *Clock) Report(last error) error { return c.report(last) }

// SetClock replaces the clock of a sealer.
func (s *Sealer) SetClock(c *Clock) { s.cfg.Clock = c }

// ClockInterval is clockInterval.
const ClockInterval = clockInterval

// Skew is skew, Freshness is freshness, and MutationTime is mutationTime, in
// milliseconds.
const (
	Skew         = skew
	Freshness    = freshness
	MutationTime = int64(mutationTime / time.Millisecond)
)

// Relied is relied.
func (c *Clock) Relied() (since int64, err error) { return c.relied(c.cfg.Now()) }

// ErrTurnOver is errSlotEnded.
var ErrTurnOver = errSlotEnded

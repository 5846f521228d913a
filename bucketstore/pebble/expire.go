package pebble

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// sweepDay deletes the expired cells of a day. A day whose cells have all expired is
// dropped by one tombstone, and compactions drop its files unread. The sweep does not even
// read the day before its end, so an expired cell may stay a day longer.
//
// A cell may be younger than its day: the time of a late sample is its arrival. So the
// sweep reads the times of all cells before it deletes any. If a cell still lives, the
// expired ones are deleted one by one.
func (s *Store) sweepDay(ctx context.Context, t *table, day uint32) error {
	if day == noDay {
		return s.sweep(ctx, t, day)
	}
	now := s.now().UnixMilli()
	if addAge(t.end(day), t.leastAge()) >= now || t.days.livesAt(day, now) {
		return nil
	}
	s.watch(t, day)
	last, cells, err := s.lastExpiry(ctx, t, day)
	switch {
	case err != nil:
		return err
	case last < now:
		return s.dropDay(t, day, cells)
	}
	if err := s.sweep(ctx, t, day); err != nil {
		return err
	}
	if last < math.MaxInt64 {
		t.days.keep(last)
	}
	return nil
}

// leastAge returns the smallest MaxAge of t, of the families that have one.
func (t *table) leastAge() (least time.Duration) {
	for _, family := range t.families {
		if family.MaxAge > 0 && (least == 0 || family.MaxAge < least) {
			least = family.MaxAge
		}
	}
	return least
}

// watch makes day the watched one. All batches that wrote to it before are visible.
func (s *Store) watch(t *table, day uint32) {
	s.columns.Lock()
	defer s.columns.Unlock()
	t.days.watch(day)
}

// lastExpiry returns the time in milliseconds at which the last cell of day expires, or 0
// if all have expired, and their number.
func (s *Store) lastExpiry(ctx context.Context, t *table, day uint32) (last int64, cells int, err error) {
	err = s.eachPage(ctx, t, day, func(from, upper []byte) (next []byte, err error) {
		p, err := s.readPage(t, from, upper)
		last = max(last, p.last)
		cells += len(p.expired)
		return p.next, err
	})
	return last, cells, err
}

// dropDay deletes the watched day, whose cells have all expired, unless a batch wrote to it
// since.
func (s *Store) dropDay(t *table, day uint32, cells int) error {
	s.columns.Lock()
	defer s.columns.Unlock()
	if t.days.isTouched() {
		return nil
	}
	// If a crash undoes this, the next sweep repeats it.
	err := s.db.DeleteRange(appendHead(nil, t.first, day), appendHeadLimit(nil, t.first, day), pebble.NoSync)
	if err != nil {
		return fmt.Errorf("drop a day: %w", err)
	}
	t.days.remove(day)
	s.metrics.swept.Add(float64(cells))
	s.metrics.days.Inc()
	return nil
}

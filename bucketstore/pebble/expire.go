package pebble

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// sweepDay deletes what has expired in a day. A day of which nothing
// is left to live goes as a whole, by a tombstone that costs as much for a
// million cells as for one, and compactions drop its files unread. Until then
// the sweep does not even look at it, so an expired cell may stay a day longer.
//
// A cell may well be younger than its day: late samples carry the time of their
// arrival. So the times of all cells are looked at once before anything is
// deleted, and if a cell still lives the others go one by one.
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

// leastAge is the least MaxAge of a family of t that has one.
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

// lastExpiry returns the time in milliseconds at which the last cell of day
// expires, 0 if that has passed for all of them, and how many those are.
func (s *Store) lastExpiry(ctx context.Context, t *table, day uint32) (last int64, cells int, err error) {
	err = s.eachPage(ctx, t, day, func(from, upper []byte) (next []byte, err error) {
		p, err := s.look(t, from, upper)
		last = max(last, p.last)
		cells += len(p.expired)
		return p.next, err
	})
	return last, cells, err
}

// dropDay deletes the watched day, all cells of which have expired, unless
// a batch wrote to it since.
func (s *Store) dropDay(t *table, day uint32, cells int) error {
	s.columns.Lock()
	defer s.columns.Unlock()
	if t.days.isTouched() {
		return nil
	}
	// What a crash undoes, the next sweep does again.
	err := s.db.DeleteRange(appendHead(nil, t.first, day), appendHeadLimit(nil, t.first, day), pebble.NoSync)
	if err != nil {
		return fmt.Errorf("drop a day: %w", err)
	}
	t.days.remove(day)
	s.metrics.swept.Add(float64(cells))
	s.metrics.days.Inc()
	return nil
}

package pebble

import (
	"context"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/series/rollup"
)

// ExpireBefore expires all cells of a resolution whose time is before cut, in milliseconds,
// beside those that are older than the MaxAge of their family. CURRENT expires with raw samples,
// INDEX with the resolution whose cut is the earliest, META never. Reads show cells until they
// are deleted, at some later time. A cut before an earlier one changes nothing, and none
// outlives the process.
func (s *Store) ExpireBefore(r rollup.Resolution, cut int64) {
	for {
		before := s.cuts[r].Load()
		if cut <= before {
			return
		}
		if s.cuts[r].CompareAndSwap(before, cut) {
			break
		}
	}
	select {
	case s.wakeSweep <- struct{}{}:
	default: // the next sweep has not begun
	}
}

// cutOf returns the cut of the cells of a layer.
func (s *Store) cutOf(l *layer) (cut int64) {
	switch l.first {
	case metaByte:
		return 0
	case indexByte:
		cut = math.MaxInt64
		for r := range s.cuts {
			cut = min(cut, s.cuts[r].Load())
		}
		return cut
	}
	return s.cuts[l.resolution()].Load()
}

// expiryLimits are the least times of cells that live, in milliseconds, as of one instant.
type expiryLimits struct {
	// byFamily has one for each family, in their order.
	byFamily []int64
	// latest is the greatest of them. If the limits of two families differ, times of both are
	// compared as if those of the family with the earlier limit were later by as much.
	latest int64
}

// expiryLimits returns the limits of a layer now.
func (s *Store) expiryLimits(l *layer) (limits expiryLimits) {
	now, cut := s.now(), s.cutOf(l)
	for i := range l.families {
		limit := max(cutoff(&l.families[i], now), cut)
		limits.byFamily = append(limits.byFamily, limit)
		limits.latest = max(limits.latest, limit)
	}
	return limits
}

// sweepDay deletes the expired cells of a day. A day whose cells have all expired is
// dropped by one tombstone. The sweep does not even read the day before its end, so an
// expired cell may stay a day longer.
//
// A cell may be younger than its day: the time of a late sample is its arrival. So the
// sweep reads the times of all cells before it deletes any. If a cell still lives, the
// expired ones are deleted one by one.
func (s *Store) sweepDay(ctx context.Context, l *layer, day uint32, limits expiryLimits) (dropped bool, err error) {
	if day == noDay {
		return false, s.sweep(ctx, l, day, limits)
	}
	if l.end(day) > limits.latest || l.days.livesAt(day, limits.latest) {
		return false, nil
	}
	s.watch(l, day)
	last, cells, err := s.lastExpiry(ctx, l, day, limits)
	switch {
	case err != nil:
		return false, err
	case last < limits.latest:
		return s.dropDay(l, day, cells)
	}
	if err := s.sweep(ctx, l, day, limits); err != nil {
		return false, err
	}
	l.days.keep(last)
	return false, nil
}

// watch makes day the watched one. All batches that wrote to it before are visible.
func (s *Store) watch(l *layer, day uint32) {
	s.columns.Lock()
	defer s.columns.Unlock()
	l.days.watch(day)
}

// lastExpiry returns until when the last cell of day lives, see livesUntil, or 0 if all have
// expired, and the number of those.
func (s *Store) lastExpiry(ctx context.Context, l *layer, day uint32, limits expiryLimits) (last int64, cells int, err error) {
	err = s.eachPage(ctx, l, day, func(from, upper []byte) (next []byte, err error) {
		p, err := s.readPage(l, from, upper, limits)
		last = max(last, p.last)
		cells += len(p.expired)
		return p.next, err
	})
	return last, cells, err
}

// dropDay deletes the watched day, whose cells have all expired, unless a batch wrote to it
// since.
func (s *Store) dropDay(l *layer, day uint32, cells int) (dropped bool, err error) {
	first, limit := appendHead(nil, l.first, day), appendHeadLimit(nil, l.first, day)
	size, err := s.db.EstimateDiskUsage(first, limit)
	if err != nil {
		return false, fmt.Errorf("drop a day: %w", err)
	}
	s.columns.Lock()
	defer s.columns.Unlock()
	if l.days.isTouched() {
		return false, nil
	}
	// If a crash undoes this, the next sweep repeats it.
	if err := s.db.DeleteRange(first, limit, pebble.NoSync); err != nil {
		return false, fmt.Errorf("drop a day: %w", err)
	}
	l.days.remove(day)
	s.freeing.Add(size)
	s.metrics.swept.Add(float64(cells))
	s.metrics.droppedBytes.Add(float64(size))
	s.metrics.days.Inc()
	return true, nil
}

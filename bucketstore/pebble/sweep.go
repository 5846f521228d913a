package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-kit/log/level"
)

const (
	// sweepPage is how many cells one step of the sweep reads. Writers wait a few
	// milliseconds while it deletes some of them.
	sweepPage = 4096

	// sweepRest is the pause after a step, in durations of the step. So the sweep takes at
	// most a quarter of a core.
	sweepRest = 3
)

// sweepUntil deletes expired cells, at once and then every interval, until ctx
// ends.
func (s *Store) sweepUntil(ctx context.Context, interval time.Duration) {
	for {
		for _, t := range s.tables {
			if t == nil || !t.hasMaxAge() {
				continue
			}
			if err := s.sweepTable(ctx, t); err != nil && ctx.Err() == nil {
				level.Error(s.guard.logger).Log("msg", "expired cells not deleted", "err", err)
			}
		}
		if !sleep(ctx, interval) {
			return
		}
	}
}

// sleep says whether d has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sweepTable sweeps a table once.
func (s *Store) sweepTable(ctx context.Context, t *table) error {
	if t.calendar == nil {
		return s.sweep(ctx, t, 0)
	}
	var errs []error
	for _, day := range t.days.all() {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, s.sweepDay(ctx, t, day)) // a damaged day does not keep the others
	}
	return errors.Join(errs...)
}

// sweep sweeps a table, or a day of it, once, cell by cell.
func (s *Store) sweep(ctx context.Context, t *table, day uint32) error {
	return s.eachPage(ctx, t, day, func(from, upper []byte) (next []byte, err error) {
		return s.sweepStep(t, from, upper)
	})
}

// eachPage calls step with the bounds of the rest of a table, or of a day of it, until it
// returns nil. It pauses between the steps.
func (s *Store) eachPage(ctx context.Context, t *table, day uint32, step func(from, upper []byte) (next []byte, err error)) error {
	from, upper := appendHead(nil, t.first, day), appendHeadLimit(nil, t.first, day)
	for from != nil {
		start := time.Now()
		next, err := step(from, upper)
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		from = next
		if !sleep(ctx, sweepRest*time.Since(start)) {
			return ctx.Err()
		}
	}
	return nil
}

// sweepStep deletes the expired cells of the page that begins at from. It returns the start
// of the next page, nil after the last. It reads the page without a lock first, and again
// with the lock only if a cell has expired.
func (s *Store) sweepStep(t *table, from, upper []byte) (next []byte, err error) {
	p, err := s.readPage(t, from, upper)
	if err != nil || len(p.expired) == 0 {
		return p.next, err
	}
	s.columns.Lock()
	defer s.columns.Unlock()
	next = p.next
	if p, err = s.readPage(t, from, upper); err != nil {
		return nil, err
	}
	batch := s.db.NewBatch()
	for _, key := range p.expired {
		if err := batch.Delete(key, nil); err != nil {
			return nil, errors.Join(err, batch.Close())
		}
	}
	// If a crash undoes this, the next sweep repeats it.
	if err := batch.Commit(pebble.NoSync); err != nil {
		return nil, errors.Join(err, batch.Close())
	}
	s.metrics.swept.Add(float64(len(p.expired)))
	return next, batch.Close()
}

// A page is the result of a sweep over a few thousand cells.
type page struct {
	expired [][]byte // stored keys
	// last is when the last living cell expires, in milliseconds, 0 if there is none.
	last int64
	// next is the start of the next page, nil after the last.
	next []byte
}

// readPage reads the page that begins at from.
func (s *Store) readPage(t *table, from, upper []byte) (p page, err error) {
	defer func() { err = readError(err) }()
	now := s.now().UnixMilli()
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: upper})
	if err != nil {
		return p, err
	}
	valid := iter.First()
	for n := 0; valid && n < sweepPage && err == nil; n++ {
		var end int64
		if end, err = t.expiry(iter); end < now {
			p.expired = append(p.expired, bytes.Clone(iter.Key()))
		} else {
			p.last = max(p.last, end)
		}
		valid = iter.Next()
	}
	if valid {
		p.next = bytes.Clone(iter.Key())
	}
	return p, errors.Join(err, iter.Close())
}

// expiry returns the last time, in milliseconds, at which the cell at iter is within the
// MaxAge of its family.
func (t *table) expiry(iter *pebble.Iterator) (int64, error) {
	stored, err := iter.ValueAndErr()
	if err != nil {
		return 0, err
	}
	at, _, err := parseCell(stored)
	if err != nil {
		return 0, err
	}
	key := iter.Key()
	name, _, _ := bytes.Cut(key[splitRow(key):], []byte{familyEnd})
	family, err := t.family(string(name))
	if err != nil {
		return 0, fmt.Errorf("stored key %q: %w", key, err)
	}
	return addAge(at, family.MaxAge), nil
}

// addAge returns at plus age, both in milliseconds. For an age of 0, and on overflow, it
// returns the end of time.
func addAge(at int64, age time.Duration) int64 {
	if age <= 0 || at > math.MaxInt64-age.Milliseconds() {
		return math.MaxInt64
	}
	return at + age.Milliseconds()
}

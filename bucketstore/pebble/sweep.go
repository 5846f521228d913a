package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
)

const (
	// sweepPage is how many cells one step of the sweep reads. Writers wait a few
	// milliseconds while it deletes some of them.
	sweepPage = 4096

	// sweepRest is the pause after a step, in durations of the step. So the sweep takes at
	// most a quarter of a core.
	sweepRest = 3
)

// sweepUntil deletes expired cells, at once, then every interval and after ExpireBefore,
// until ctx ends.
func (s *Store) sweepUntil(ctx context.Context, interval time.Duration) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		for _, t := range s.tables {
			if t == nil {
				continue
			}
			for _, l := range t.layers {
				if err := s.sweepLayer(ctx, l); err != nil && ctx.Err() == nil {
					level.Error(s.guard.logger).Log("msg", "cannot delete expired cells, trying again", "err", err)
				}
			}
		}
		timer.Reset(interval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wakeSweep:
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

// sweepLayer sweeps a layer once.
func (s *Store) sweepLayer(ctx context.Context, l *layer) error {
	limits := s.expiryLimits(l)
	if limits.latest == 0 {
		return nil
	}
	if l.calendar == nil {
		return s.sweep(ctx, l, 0, limits)
	}
	var errs []error
	var dropped []uint32
	for _, day := range l.days.all() {
		if ctx.Err() != nil {
			break
		}
		ok, err := s.sweepDay(ctx, l, day, limits)
		if ok {
			dropped = append(dropped, day)
		}
		errs = append(errs, err) // a damaged day does not keep the others
	}
	return errors.Join(append(errs, s.freeSpace(ctx, l, dropped))...)
}

// freeSpace compacts the dropped days, so that they take no space. Files in which nothing
// else is are deleted. Left alone, the tombstones would reach the files that the days share
// with others much later: these are large, and where days are small they hold many of them.
func (s *Store) freeSpace(ctx context.Context, l *layer, dropped []uint32) error {
	if len(dropped) == 0 || s.guard.untilRetry() > 0 { // the disk is full: Pebble's own compactions come later
		return nil
	}
	first, limit := appendHead(nil, l.first, dropped[0]), appendHeadLimit(nil, l.first, dropped[len(dropped)-1])
	if err := readError(s.db.Compact(ctx, first, limit, false)); err != nil {
		return fmt.Errorf("free the space of dropped days: %w", err)
	}
	s.freeing.Store(0)
	return nil
}

// sweep sweeps a layer, or a day of it, once, cell by cell.
func (s *Store) sweep(ctx context.Context, l *layer, day uint32, limits expiryLimits) error {
	return s.eachPage(ctx, l, day, func(from, upper []byte) (next []byte, err error) {
		return s.sweepStep(l, from, upper, limits)
	})
}

// eachPage calls step with the bounds of the rest of a layer, or of a day of it, until it
// returns nil. It pauses between the steps.
func (s *Store) eachPage(ctx context.Context, l *layer, day uint32, step func(from, upper []byte) (next []byte, err error)) error {
	from, upper := appendHead(nil, l.first, day), appendHeadLimit(nil, l.first, day)
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
func (s *Store) sweepStep(l *layer, from, upper []byte, limits expiryLimits) (next []byte, err error) {
	p, err := s.readPage(l, from, upper, limits)
	if err != nil || len(p.expired) == 0 {
		return p.next, err
	}
	s.columns.Lock()
	defer s.columns.Unlock()
	next = p.next
	if p, err = s.readPage(l, from, upper, limits); err != nil {
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
	// last is until when the living cells live, see expiryLimits, 0 if there are none.
	last int64
	// next is the start of the next page, nil after the last.
	next []byte
}

// readPage reads the page that begins at from.
func (s *Store) readPage(l *layer, from, upper []byte, limits expiryLimits) (p page, err error) {
	defer func() { err = readError(err) }()
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: upper})
	if err != nil {
		return p, err
	}
	valid := iter.First()
	for n := 0; valid && n < sweepPage && err == nil; n++ {
		var until int64
		if until, err = l.livesUntil(iter, limits); until < limits.latest {
			p.expired = append(p.expired, bytes.Clone(iter.Key()))
		} else {
			p.last = max(p.last, until)
		}
		valid = iter.Next()
	}
	if valid {
		p.next = bytes.Clone(iter.Key())
	}
	return p, errors.Join(err, iter.Close())
}

// livesUntil returns the greatest limits.latest with which the cell at iter lives.
func (l *layer) livesUntil(iter *pebble.Iterator, limits expiryLimits) (int64, error) {
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
	for i := range l.families {
		if l.families[i].Name == string(name) {
			return at + limits.latest - limits.byFamily[i], nil
		}
	}
	return 0, fmt.Errorf("stored key %q: %w: family %q", key, bucketstore.ErrTable, name)
}

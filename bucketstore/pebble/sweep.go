package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/series"
)

const (
	// sweepPage is how many cells one step of the sweep looks at. Writers wait
	// while it deletes some of them, a few milliseconds.
	sweepPage = 4096

	// sweepRest is how many times as long as a step the sweep rests after it, so
	// that it takes at most a quarter of a core.
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
			if err := s.sweep(ctx, t); err != nil && ctx.Err() == nil {
				level.Error(s.guard.logger).Log("msg", "expired cells not deleted", "err", err)
			}
		}
		if !sleep(ctx, interval) {
			return
		}
	}
}

// sleep says whether it came to its end before ctx did.
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

// sweep goes once through a table.
func (s *Store) sweep(ctx context.Context, t *table) error {
	from, upper := rangeBounds(t.first, series.RowRange{})
	for from != nil {
		start := time.Now()
		next, err := s.sweepStep(t, from, upper)
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

// sweepStep deletes what has expired in the page that begins at from, and
// returns where the next page begins, nil after the last. It looks first without
// hindering writers, and again, in their way, only where there is something.
func (s *Store) sweepStep(t *table, from, upper []byte) (next []byte, err error) {
	expired, next, err := s.findExpired(t, from, upper)
	if err != nil || len(expired) == 0 {
		return next, err
	}
	s.columns.Lock()
	defer s.columns.Unlock()
	if expired, _, err = s.findExpired(t, from, upper); err != nil {
		return nil, err
	}
	batch := s.db.NewBatch()
	for _, key := range expired {
		if err := batch.Delete(key, nil); err != nil {
			return nil, errors.Join(err, batch.Close())
		}
	}
	// What a crash undoes, the next sweep does again.
	if err := batch.Commit(pebble.NoSync); err != nil {
		return nil, errors.Join(err, batch.Close())
	}
	s.metrics.swept.Add(float64(len(expired)))
	return next, batch.Close()
}

// findExpired returns the stored keys of expired cells among the first
// sweepPage at or after from.
func (s *Store) findExpired(t *table, from, upper []byte) (expired [][]byte, next []byte, err error) {
	now := s.now()
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: upper})
	if err != nil {
		return nil, nil, err
	}
	valid := iter.First()
	for n := 0; valid && n < sweepPage && err == nil; n++ {
		var isExpired bool
		if isExpired, err = t.isExpired(iter, now); isExpired {
			expired = append(expired, bytes.Clone(iter.Key()))
		}
		valid = iter.Next()
	}
	if valid {
		next = bytes.Clone(iter.Key())
	}
	return expired, next, errors.Join(err, iter.Close())
}

// isExpired says whether the cell at iter is older than its family allows.
func (t *table) isExpired(iter *pebble.Iterator, now time.Time) (bool, error) {
	stored, err := iter.ValueAndErr()
	if err != nil {
		return false, err
	}
	at, _, err := parseCell(stored)
	if err != nil {
		return false, err
	}
	key := iter.Key()
	name, _, _ := bytes.Cut(key[splitRow(key):], []byte{familyEnd})
	family, err := t.family(string(name))
	if err != nil {
		return false, fmt.Errorf("stored key %q: %w", key, err)
	}
	return at < cutoff(family, now), nil
}

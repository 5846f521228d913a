package buffer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/rowfiles"
)

// AdoptAfter is how long the row of a log in META stays the same before another adapter takes the log. It is more than maxRowsSilence
// and sealTimeout together.
const AdoptAfter = 2 * time.Minute

// maxWatchGap is the longest time between two readings of META in which a row is known to have stayed the same. After a longer one, such
// as while Bigtable was away for all, a row has to stay for AdoptAfter again.
const maxWatchGap = 4 * registerInterval

// An Adopter takes the logs of processes that have died, if their files are rows of the store: it writes their samples to the store, and
// removes them. One process at a time does so: the row of a log in META is a lease, which the process of the log renews, or the one that has
// taken it. Another process takes it over by replacing the row on the condition that it is the same. Then a process that was only
// suspended cannot append to its log, and ends when it writes its row.
type Adopter struct {
	Terms Terms
	// Rows is the store, with table LOG.
	Rows bucketstore.Store
	// Config returns how a log is replayed, as of now.
	Config func(context.Context) (Config, error)
	// Own is the ID of the log of this process, if it has one.
	Own string

	seen map[string]sighting
	last time.Time
}

// A sighting is a row of META, and since when it is the same.
type sighting struct {
	log   meta.Log
	since time.Time
}

// Watch reads the logs in META, and adopts those whose rows have been the same for AdoptAfter. It returns the IDs of those that it has
// adopted. It is to be called every 15 s, by one goroutine.
func (a *Adopter) Watch(ctx context.Context) (adopted []string, err error) {
	now := a.Terms.Now()
	logs, err := a.Terms.Store.Logs(ctx)
	if err != nil {
		return nil, err
	}
	if a.last.IsZero() || bucketstore.Elapsed(a.last, now) > maxWatchGap {
		a.seen = nil
	}
	seen := make(map[string]sighting)
	for _, l := range logs {
		if !l.InRows || l.ID == a.Own {
			continue
		}
		seen[l.ID] = sighting{l, now}
		if before, ok := a.seen[l.ID]; ok && before.log == l {
			seen[l.ID] = before
		}
	}
	a.seen, a.last = seen, now
	for id, s := range seen {
		if bucketstore.Elapsed(s.since, now) < AdoptAfter {
			continue
		}
		delete(a.seen, id) // an attempt that fails is repeated after as long
		taken, adoptErr := a.adopt(ctx, s.log)
		if adoptErr != nil {
			err = errors.Join(err, fmt.Errorf("take the log %s of %s: %w", id, s.log.Host, adoptErr))
		} else if taken {
			adopted = append(adopted, id)
		}
	}
	slices.Sort(adopted)
	return adopted, err
}

// adopt takes a log, unless another process was faster or its own is back.
func (a *Adopter) adopt(ctx context.Context, l meta.Log) (taken bool, err error) {
	store := a.Terms.Store
	found, cell, err := store.ReadLog(ctx, l.ID)
	if err != nil || found != l {
		return false, err
	}
	rows := rowfiles.New(a.Rows, l.ID, a.Terms.Now)
	lease := &adoption{store: store, cell: cell, log: l, now: a.Terms.Now}
	lease.log.Token = rows.Token()
	if held, err := lease.renew(ctx); err != nil || !held {
		return false, err
	}
	level.Warn(a.Terms.logger()).Log("msg", "the adapter of a log has died: its samples are written to the store", "log", l.ID, "host", l.Host, "bytes", l.Bytes)
	replaying, stop := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { lease.keep(replaying, stop) })
	kept, err := a.replay(replaying, stop, rows)
	if lost := context.Cause(replaying); err != nil && lost != nil {
		err = lost
	}
	stop(nil)
	keeping.Wait()
	if err == nil { // all samples are in the store, also if another process has the row now
		err = errors.Join(store.RemoveLog(ctx, l.ID), store.RemoveLogStamp(ctx, l.ID))
	}
	if err == nil && !kept {
		err = rows.RemoveEnded()
	}
	return err == nil, err
}

// replay writes the samples of a log to the store. kept says that a file with samples that are older than samples are kept stays.
func (a *Adopter) replay(ctx context.Context, stop context.CancelCauseFunc, rows *rowfiles.Dir) (kept bool, err error) {
	if isForgotten, err := a.Terms.Store.IsForgotten(ctx, rows.ID()); err != nil {
		return false, err
	} else if isForgotten {
		return false, errors.New("the store was made to forget it")
	}
	if err := endLog(rows); err != nil {
		return false, err
	}
	cfg, err := a.Config(ctx) // after the row is ours: what is closed by now, and deleted, counts
	if err != nil {
		return false, err
	}
	cfg.Address, cfg.Registerer, cfg.Die = "", nil, stop
	dir, err := OpenRows(rows, a.Terms.Now())
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if _, err = a.Terms.checkAge(ctx, &dir.state, nil); err == nil {
		err = a.Terms.checkBinding(&dir.state)
	}
	if err != nil {
		return false, err
	}
	b := newBuffer(dir, cfg.withDefaults())
	background, end := context.WithCancel(context.Background())
	b.done.Go(func() { b.runSealing(background) })
	defer b.done.Wait()
	defer end()
	if err := b.retries.load(cfg.Now()); err != nil {
		return false, err
	}
	if err := b.replay(ctx); err != nil {
		return false, err
	}
	b.retryRows(ctx, b.retries.due(time.Now().Add(2*maxRetryPause)))
	if failing := b.FailingRows(); len(failing) > 0 {
		return false, fmt.Errorf("the store does not take %d rows, the first is %q of %s", len(failing), failing[0].Key, failing[0].Table)
	}
	return b.dropped > 0, nil
}

// endLog makes it impossible to append to the log, for the process that has it.
func endLog(rows *rowfiles.Dir) error {
	for range maxEndings {
		segments, err := segmentsIn(rows)
		if err != nil {
			return err
		}
		last := uint64(0)
		if n := len(segments); n > 0 {
			last = segments[n-1]
		}
		// First the segment that the process would begin: else it could do so between the two.
		done, err := rows.End(segmentName(last + 1))
		if err == nil && done {
			if segments, err = segmentsIn(rows); err == nil {
				done = len(segments) == 0 || segments[len(segments)-1] <= last
			}
		}
		if err == nil && done && last > 0 {
			done, err = rows.End(segmentName(last))
		}
		if err != nil || done {
			return err
		}
	}
	return errors.New("its process still appends to it")
}

// maxEndings is how often the end of a log is looked for: its process may append meanwhile.
const maxEndings = 10

// An adoption is the row of a log that another process has taken.
type adoption struct {
	store *meta.Store
	now   func() time.Time
	cell  meta.Cell
	log   meta.Log
}

// renew writes the row, and says whether it was still ours.
func (l *adoption) renew(ctx context.Context) (isOurs bool, err error) {
	l.log.Taken = l.now().UnixMilli()
	next, replaced, err := l.store.ReplaceLog(ctx, l.cell, l.log)
	if err == nil && replaced {
		l.cell = next
		return true, nil
	}
	// An attempt without an answer may have written it.
	found, cell, readErr := l.store.ReadLog(ctx, l.log.ID)
	if readErr != nil {
		return false, errors.Join(err, readErr)
	}
	if found.Token != l.log.Token {
		return false, nil
	}
	l.cell = cell
	return true, nil
}

// keep renews the row until ctx ends, and calls stop when another process has it.
func (l *adoption) keep(ctx context.Context, stop context.CancelCauseFunc) {
	every(ctx, registerInterval, nil, func() {
		if isOurs, err := l.renew(ctx); err == nil && !isOurs {
			stop(ErrForeignRow)
		}
	})
}

package buffer

import (
	"context"
	"errors"
	"fmt"
)

// A Barrier is between two requests. No chunk that it covers has samples from before and
// after it, so that the stamp of a chunk says on which side its samples are: those from
// before it have stamps up to its own.
type Barrier struct {
	Stamp int64
	// Covers says whether the barrier is about samples of a series in [start, limit), in
	// milliseconds. It may be called concurrently.
	Covers func(seriesKey []byte, start, limit int64) bool
}

// Barrier makes a barrier between the requests that were answered before the call and those
// that begin after it. It returns its stamp: that of bar, or a greater one if a request has
// that or a later one. A replay has the barrier only if it is in Config.Barriers.
func (b *Buffer) Barrier(ctx context.Context, bar Barrier) (stamp int64, err error) {
	err = b.betweenCommits(ctx, func() error {
		b.stamp = max(b.stamp+1, bar.Stamp)
		stamp = b.stamp
		b.sealCovered(bar)
		return nil
	})
	return stamp, err
}

// sealCovered seals the open chunks that a barrier covers. It is called by the committer, or by
// the replay.
func (b *Buffer) sealCovered(bar Barrier) {
	b.eachSeries(&b.mu, func(r *ref) {
		for c := range r.open {
			if c.n > 0 && bar.Covers(r.SeriesKey(), c.window, c.end()+1) {
				b.seal(r, c)
			}
		}
	})
}

// ErrNotPassed says that something from before a call of Pass is still in the buffer.
var ErrNotPassed = errors.New("the store has not taken all samples of the log")

// Pass writes all samples of requests that were answered before to the store, and removes their
// segments of the log, so that no replay writes them again. It is an ErrNotPassed if rows or
// segments stay.
func (b *Buffer) Pass(ctx context.Context) error {
	var segment uint64
	err := b.betweenCommits(ctx, func() (err error) {
		segment, err = b.nextSegment()
		return err
	})
	if err != nil {
		return fmt.Errorf("begin a segment of the log: %w", err)
	}
	if err = b.Flush(ctx); err == nil {
		err = b.segments.unpin(nil) // no chunk may have needed them
	}
	if err != nil {
		return err
	}
	if n := len(b.FailingRows()); n > 0 {
		return fmt.Errorf("%w: %d rows fail", ErrNotPassed, n)
	}
	if oldest := b.segments.first(); oldest < segment {
		return fmt.Errorf("%w: segment %s is not removed", ErrNotPassed, segmentName(oldest))
	}
	return nil
}

// nextSegment begins a segment of the log, without a request, and returns its number. It is 0
// if the log has no file.
func (b *Buffer) nextSegment() (segment uint64, err error) {
	if b.log.file == nil {
		return 0, nil
	}
	if err := writeStamp(b.dir.state, b.stamp); err != nil {
		return 0, refuseIfFull(err)
	}
	err = b.log.start()
	if err != nil && !isRefusal(err) {
		b.cfg.Die(fmt.Errorf("begin a segment of the log: %w", err))
	}
	return b.log.current, err
}

// betweenCommits calls fn in the committer, between two commits.
func (b *Buffer) betweenCommits(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	select {
	case b.between <- func() { done <- fn() }:
		return <-done
	case <-ctx.Done():
		return fmt.Errorf("wait for the log: %w", ctx.Err())
	}
}

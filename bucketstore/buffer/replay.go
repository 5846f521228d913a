package buffer

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// replay puts what is in the log into the store, and removes it.
func (b *Buffer) replay(ctx context.Context) error {
	found, err := segmentsIn(b.cfg.Dir)
	if err != nil {
		return err
	}
	for i := range found {
		if i > 0 && found[i] != found[i-1]+1 {
			return fmt.Errorf("segment %s is missing", segmentName(found[i-1]+1))
		}
	}
	if b.stamp, err = readStamp(b.cfg.Dir); err != nil {
		return err
	}
	for i, segment := range found {
		b.segments.begin(segment)
		n, err := b.replaySegment(ctx, segment, i == len(found)-1)
		if err != nil {
			return fmt.Errorf("segment %s: %w", segmentName(segment), err)
		}
		level.Info(b.cfg.Logger).Log("msg", "replaying the log", "segment", i+1, "of", len(found), "samples", n)
	}
	if len(found) == 0 {
		return nil
	}
	if err := b.Flush(ctx); err != nil {
		return fmt.Errorf("store what is in the log: %w", err)
	}
	if err := writeStamp(b.cfg.Dir, b.stamp); err != nil {
		return err
	}
	return b.segments.removeBefore(b.segments.last() + 1)
}

// replaySegment applies the requests in a segment and returns how many samples
// they had. Where isLast is set it may end with a torn frame.
func (b *Buffer) replaySegment(ctx context.Context, segment uint64, isLast bool) (samples int, err error) {
	file, err := openSegment(b.cfg.Dir, segment)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	b.segments.grow(segment, file.size)
	blank, err := file.start()
	switch {
	case err != nil:
		return 0, err
	case blank && isLast:
		return 0, nil
	case blank:
		return 0, fmt.Errorf("%w: nothing is in it", series.ErrCorrupt)
	}
	p := replayer{requests: make(chan replayed), free: make(chan []bucketstore.Sample, 2), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		samples, p.err = b.reapplyAll(ctx, &p, segment)
	}()
	err = b.readSegment(file, isLast, &p)
	close(p.requests)
	<-p.done
	if p.err != nil { // then reading ended because of it
		err = p.err
	}
	return samples, err
}

// A replayer hands requests from who reads a segment to who applies them: that is
// as much work, and so both processors have some.
type replayer struct {
	requests chan replayed
	// free are samples of requests that are applied.
	free chan []bucketstore.Sample
	// done is closed when no more requests are taken: err says why.
	done chan struct{}
	err  error
}

type replayed struct {
	samples []bucketstore.Sample
	stamp   int64
}

// errStopped says that requests are no longer applied.
var errStopped = errors.New("stopped")

// readSegment sends the requests in a segment to p.
func (b *Buffer) readSegment(file *segmentFile, isLast bool, p *replayer) error {
	reader := segmentReader{ref: func(key string) *ref {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.refOf(key)
	}}
	send := func(found []bucketstore.Sample, stamp int64) error {
		select {
		case p.requests <- replayed{found, stamp}:
		case <-p.done:
			return errStopped
		}
		select {
		case reader.samples = <-p.free:
		default:
			reader.samples = nil
		}
		return nil
	}
	for !file.atEnd() {
		at := file.at
		body, err := file.frame()
		if isLast && errors.Is(err, series.ErrCorrupt) {
			followed, searchErr := file.hasFrame()
			if searchErr == nil && !followed {
				level.Warn(b.cfg.Logger).Log("msg", "the log ends with a write that was not finished, nor acknowledged; it is left out", "bytes", file.size-at)
				return nil
			}
			err = errors.Join(err, searchErr)
		}
		if err == nil {
			err = reader.frame(body, send)
		}
		if err != nil {
			return fmt.Errorf("at byte %d of %d: %w", at, file.size, err)
		}
	}
	return nil
}

// reapplyAll applies the requests that come from p, and returns how many samples
// they had.
func (b *Buffer) reapplyAll(ctx context.Context, p *replayer, segment uint64) (samples int, err error) {
	late := newRowBatch(b.cfg.Schema)
	for req := range p.requests {
		samples += len(req.samples)
		if err := b.reapply(ctx, req.samples, req.stamp, segment, late); err != nil {
			return samples, err
		}
		select {
		case p.free <- req.samples:
		default:
		}
	}
	return samples, b.applyLate(ctx, late)
}

// reapply does what Append did after the log. Late samples are gathered in rows.
func (b *Buffer) reapply(ctx context.Context, samples []bucketstore.Sample, stamp int64, segment uint64, rows *rowBatch) error {
	if err := b.sealing.admit(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	b.stamp = max(b.stamp, stamp)
	late := b.apply(samples, stamp, segment)
	b.mu.Unlock()
	b.metrics.replay.Add(float64(len(samples)))
	if err := rows.addLate(samples, late, stamp); err != nil {
		return err
	}
	if rows.bytes < maxSealBytes {
		return nil
	}
	return b.applyLate(ctx, rows)
}

// applyLate writes late samples to the store, and empties rows.
func (b *Buffer) applyLate(ctx context.Context, rows *rowBatch) error {
	if len(rows.muts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	if err := b.Store.Apply(ctx, bucketstore.Metric, rows.mutations()); err != nil {
		return fmt.Errorf("store samples of old or future windows: %w", err)
	}
	*rows = *newRowBatch(b.cfg.Schema)
	return nil
}

package buffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// replay writes the samples of the log to the store. The segments stay.
func (b *Buffer) replay(ctx context.Context) (err error) {
	heads, unused := b.dir.state.splitUnused()
	if b.stamp, err = readStamp(b.dir.state); err != nil {
		return err
	}
	barriers := slices.Clone(b.cfg.Barriers)
	slices.SortFunc(barriers, func(x, y Barrier) int { return cmp.Compare(x.Stamp, y.Stamp) })
	b.barriers = barriers
	defer func() {
		b.lastStamp = b.stamp
		if n := len(barriers); n > 0 {
			b.stamp = max(b.stamp, barriers[n-1].Stamp)
		}
	}()
	progress := b.newReplayProgress(heads)
	if len(heads) > 0 {
		b.segments.setCurrent(heads[0].segment)
	}
	for i, head := range heads {
		isLast := i == len(heads)-1 && len(unused) == 0 // a segment is synced before the next one is made
		dropped := b.dropped
		err := b.replaySegment(ctx, head, isLast, progress)
		if err == nil && b.dropped > dropped && b.cfg.Store.Traits().Shared {
			err = b.keepOld(head)
		}
		if err != nil {
			return fmt.Errorf("segment %s: %w", segmentName(head.segment), err)
		}
		progress.log("replaying the log")
	}
	for _, head := range unused {
		if err := errors.Join(durable.Remove(b.dir.state, syncedName), durable.Remove(b.dir.state, segmentName(head.segment))); err != nil {
			return fmt.Errorf("remove segment %s, in which nothing is: %w", segmentName(head.segment), err)
		}
	}
	b.dir.state.heads = heads
	if len(heads) == 0 {
		return nil
	}
	if err := b.storeReplayed(ctx, progress); err != nil {
		return fmt.Errorf("store what is in the log: %w", err)
	}
	return nil
}

// storeReplayed flushes all replayed samples to the store.
func (b *Buffer) storeReplayed(ctx context.Context, progress *replayProgress) error {
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		every(watched, progressInterval, nil, func() {
			left, _ := b.sealing.progress()
			progress.log("storing what was replayed", "bytes_left", left)
		})
	})
	err := b.Flush(ctx)
	stop()
	watch.Wait()
	return err
}

// progressInterval is the time between two log lines about the progress.
const progressInterval = 10 * time.Second

// dropOld drops the samples before Config.Cut, or LaterCut, in place, and returns the others.
func (b *Buffer) dropOld(samples []bucketstore.Sample) []bucketstore.Sample {
	cfg := &b.cfg
	kept := slices.DeleteFunc(samples, func(s bucketstore.Sample) bool {
		return s.T < cfg.Cut || s.T < cfg.LatestCut && s.T < cfg.LaterCut(s.Ref.SeriesKey())
	})
	n := len(samples) - len(kept)
	b.dropped += n
	b.metrics.replayDropped.Add(float64(n))
	return kept
}

// keepOld keeps a copy of a segment with samples that were dropped. Other adapters may have counted their day as whole, without them.
func (b *Buffer) keepOld(head segmentHead) (err error) {
	s := &b.dir.state
	from, err := s.Open(segmentName(head.segment), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	name := s.asideName(segmentName(head.segment), oldSuffix)
	if err := durable.Create(s, name, os.O_TRUNC, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(from, 0, head.size))
		return err
	}); err != nil {
		return fmt.Errorf("keep a copy in %s: %w", name, err)
	}
	level.Warn(b.cfg.Logger).Log("msg", "samples in the log are older than samples are kept; they are not replayed, and a copy of the segment is kept", "file", filepath.Join(s.Path(), name))
	return s.Sync()
}

// replayProgress is the progress of a replay. It belongs to the goroutine that reads
// segments.
type replayProgress struct {
	logger  log.Logger
	metrics *metrics
	// segment counts the segments read, samples and bytes their content.
	segment, segments, samples int
	bytes, total               int64
	logged                     time.Time
}

// newReplayProgress starts the progress of a replay of these segments.
func (b *Buffer) newReplayProgress(heads []segmentHead) *replayProgress {
	p := &replayProgress{logger: b.cfg.Logger, metrics: b.metrics, segments: len(heads), logged: time.Now()}
	for _, head := range heads {
		p.total += head.size
	}
	p.advance(0, 0)
	return p
}

// advance adds replayed samples and bytes.
func (p *replayProgress) advance(samples int, bytes int64) {
	p.samples += samples
	p.bytes += bytes
	ratio := 1.0
	if p.total > 0 {
		ratio = float64(p.bytes) / float64(p.total)
	}
	p.metrics.replayRatio.Set(ratio)
	if time.Since(p.logged) >= progressInterval {
		p.log("replaying the log")
	}
}

func (p *replayProgress) log(msg string, more ...any) {
	p.logged = time.Now()
	pairs := []any{"msg", msg, "segment", p.segment, "of", p.segments, "samples", p.samples, "bytes", p.bytes, "of_bytes", p.total}
	level.Info(p.logger).Log(append(pairs, more...)...)
}

// replaySegment applies the requests in a segment. Only the last segment may end with a
// torn frame. One goroutine reads and another one applies: both have equal work, so a replay
// uses two cores.
func (b *Buffer) replaySegment(ctx context.Context, head segmentHead, isLast bool, progress *replayProgress) (err error) {
	progress.segment++
	file, err := openSegment(b.dir.state, head.segment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	b.segments.grow(head.segment, file.size)
	if _, err := file.start(); err != nil {
		return err
	}
	requests, free := make(chan replayed), make(chan []bucketstore.Sample, 2) // free recycles samples
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for req := range requests {
			if err := b.reapply(ctx, req.samples, req.stamp, head.segment); err != nil {
				return err
			}
			select {
			case free <- req.samples:
			default:
			}
		}
		return nil
	})
	counted := int64(0)
	reader := segmentReader{ref: func(key string) *ref {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.refOf(key)
	}}
	group.Go(func() error {
		defer close(requests)
		err := b.readSegment(file, isLast, &reader, func(found []bucketstore.Sample, stamp int64) error {
			progress.advance(len(found), file.at-counted)
			counted = file.at
			select {
			case requests <- replayed{found, stamp}:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case reader.samples = <-free:
			default:
				reader.samples = nil
			}
			return nil
		})
		if err == nil {
			progress.advance(0, file.size-counted)
		}
		return err
	})
	return group.Wait()
}

type replayed struct {
	samples []bucketstore.Sample
	stamp   int64
}

// readSegment calls send with the requests in a segment.
func (b *Buffer) readSegment(file *segmentFile, isLast bool, reader *segmentReader, send func([]bucketstore.Sample, int64) error) error {
	for !file.atEnd() {
		at := file.at
		body, err := file.frame()
		if isLast && errors.Is(err, series.ErrCorrupt) {
			why, searchErr := whyUnfinished(file, b.dir.state.synced)
			if searchErr == nil && why != "" {
				level.Warn(b.cfg.Logger).Log("msg", why+"; it is cut off", "segment", segmentName(file.segment), "from_byte", at, "bytes", file.size-at)
				if err := file.cutOff(b.dir.state); err != nil { // between other segments it would be damage
					return fmt.Errorf("cut it off at byte %d: %w", at, err)
				}
				break
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
	return reader.finishRequest(send)
}

// whyUnfinished says why the last segment may end at the damage here with no harm to what
// was promised, if the log is synced so far. It is empty if it may not.
func whyUnfinished(file *segmentFile, synced position) (why string, err error) {
	switch {
	case synced.segment == file.segment && file.at < synced.size:
		return "", nil
	case synced.segment == file.segment && !synced.always:
		return "the log is damaged after the last sync, by a loss of power or a write that was not finished", nil
	}
	followed, err := file.hasFrame()
	if err != nil || followed {
		return "", err
	}
	return "the log ends with a write that was not finished, nor acknowledged", nil
}

// reapply does what Append does after the log.
func (b *Buffer) reapply(ctx context.Context, samples []bucketstore.Sample, stamp int64, segment uint64) error {
	if err := errors.Join(ctx.Err(), b.sealing.admit(ctx)); err != nil {
		return err
	}
	now := b.cfg.Now().UnixMilli()
	for len(b.barriers) > 0 && b.barriers[0].Stamp < stamp {
		b.sealCovered(b.barriers[0])
		b.barriers = b.barriers[1:]
	}
	kept := b.dropOld(samples)
	b.mu.Lock()
	b.stamp = max(b.stamp, stamp)
	b.apply(kept, stamp, now, segment)
	b.mu.Unlock()
	b.relieve()
	b.segments.setCurrent(segment)
	b.metrics.replay.Add(float64(len(samples)))
	return nil
}

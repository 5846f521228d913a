package buffer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	// maxSealBytes is how many bytes of open chunks go to the store at once.
	maxSealBytes = 4 << 20
	// fewBytes of sealed chunks are not worth a write and its fsync. They wait sealDelay
	// for more, unless a flush waits for them.
	fewBytes  = 1 << 20
	sealDelay = time.Second
	// maxSealing bounds the bytes of sealed chunks that are not in the store; beyond it,
	// requests wait.
	maxSealing = 128 << 20
	// sealTimeout bounds one write to the store.
	sealTimeout = time.Minute
	// maxRetry is the longest time between two retries.
	maxRetry = 10 * time.Second
)

// A sealedChunk is an open chunk that gets no more samples. It is read-only.
type sealedChunk struct {
	openChunk
	ref *ref
	// next is the chunk of ref that was sealed after this one; for the last one, it is the
	// first.
	next *sealedChunk
	// bytes is its memory.
	bytes int
}

// seal queues c, an open chunk of r or nil, for the store, and empties it. Its window stays
// open. mu is held.
func (b *Buffer) seal(r *ref, c *openChunk) {
	if c == nil {
		return
	}
	b.sealContent(r, c)
	switch {
	case c == r.older:
		r.older = nil
	case c.late:
		b.removeLate(r, c)
	}
}

// sealContent is seal for a chunk that r keeps.
func (b *Buffer) sealContent(r *ref, c *openChunk) {
	if c.n == 0 {
		return
	}
	s := &sealedChunk{openChunk: *c, ref: r, bytes: c.size()}
	*c = openChunk{window: c.window, late: c.late}
	b.openBytes += c.size() - s.bytes
	if s.next = s; r.sealed != nil {
		s.next, r.sealed.next = r.sealed.next, s
	}
	r.sealed = s
	b.sealing.add(s)
	b.metrics.sealed.Inc()
}

// allSealed yields the sealed chunks of r that are not in the store, the oldest first.
func (r *ref) allSealed(yield func(*sealedChunk) bool) {
	for s := r.sealed; s != nil; {
		if s = s.next; !yield(s) || s == r.sealed {
			return
		}
	}
}

// sealAll seals the open chunks of r, with mu held.
func (b *Buffer) sealAll(r *ref) {
	for c := range r.open {
		b.seal(r, c)
	}
}

// sealing is the queue of sealed chunks to the store.
type sealing struct {
	mu sync.Mutex
	// queue holds the waiting chunks. bytes also counts those that are being stored.
	queue []*sealedChunk
	bytes int
	// added and stored count chunks since the start.
	added, stored uint64
	// urgent counts the waiting flushes.
	urgent int
	// changed is closed and replaced when any field changes.
	changed chan struct{}
}

func (s *sealing) init() { s.changed = make(chan struct{}) }

// notify wakes all waiters, with mu held.
func (s *sealing) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sealing) add(c *sealedChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.bytes
	s.queue = append(s.queue, c)
	s.bytes += c.bytes
	s.added++
	if len(s.queue) == 1 || before < fewBytes && s.bytes >= fewBytes {
		s.notify()
	}
}

// awaitWork waits until many chunks wait, or a few have waited long enough.
func (s *sealing) awaitWork(ctx context.Context) error {
	if err := s.waitFor(ctx, func() bool { return len(s.queue) > 0 }); err != nil {
		return err
	}
	delay, cancel := context.WithTimeout(ctx, sealDelay)
	defer cancel()
	_ = s.waitFor(delay, func() bool { return s.urgent > 0 || s.bytes >= fewBytes }) // either is enough
	return ctx.Err()
}

// take returns waiting chunks of up to maxSealBytes.
func (s *sealing) take() (taken []*sealedChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && bytes < maxSealBytes {
		bytes += s.queue[n].bytes
		n++
	}
	taken, s.queue = s.queue[:n:n], s.queue[n:]
	return taken
}

// finish counts chunks as stored.
func (s *sealing) finish(chunks []*sealedChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		s.bytes -= c.bytes
	}
	s.stored += uint64(len(chunks))
	s.notify()
}

// waitFor waits until ok, which is called with mu held.
func (s *sealing) waitFor(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// admit waits until fewer than maxSealing bytes are queued.
func (s *sealing) admit(ctx context.Context) error {
	return s.waitFor(ctx, func() bool { return s.bytes <= maxSealing })
}

// isBusy says whether the queue is half full.
func (s *sealing) isBusy() bool {
	bytes, _ := s.progress()
	return bytes > maxSealing/2
}

// progress returns the bytes of chunks that are not stored, and counts those that are.
func (s *sealing) progress() (bytes int, stored uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.stored
}

// wait waits until all chunks queued before are stored.
func (s *sealing) wait(ctx context.Context) error {
	s.mu.Lock()
	added := s.added
	s.urgent++
	s.notify()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.urgent--
		s.mu.Unlock()
	}()
	return s.waitFor(ctx, func() bool { return s.stored >= added })
}

// runSealing stores sealed chunks, in their order, until ctx ends.
func (b *Buffer) runSealing(ctx context.Context) {
	for b.sealing.awaitWork(ctx) == nil {
		b.storeSealed(ctx, b.sealing.take())
	}
}

// storeSealed stores chunks, and retries until it succeeds or ctx ends. Meanwhile they are
// in the log, and readers see them.
func (b *Buffer) storeSealed(ctx context.Context, chunks []*sealedChunk) {
	for retry := 100 * time.Millisecond; ; retry = min(2*retry, maxRetry) {
		err := b.applySealed(ctx, chunks)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		b.metrics.sealFailures.Inc()
		level.Warn(b.cfg.Logger).Log("msg", "sealed chunks not stored, retrying", "chunks", len(chunks), "err", err)
		select {
		case <-time.After(max(retry, bucketstore.RetryAfter(err))):
		case <-ctx.Done():
			return
		}
	}
	b.mu.Lock()
	for _, c := range chunks {
		c.ref.dropSealed(c)
		b.buffers.put(c.raw)
		c.raw = nil
	}
	b.mu.Unlock()
	if err := b.segments.unpin(chunks); err != nil {
		level.Warn(b.cfg.Logger).Log("msg", "cannot remove old segments of the log, trying again", "err", err)
	}
	b.sealing.finish(chunks)
}

// dropSealed removes c, the oldest sealed chunk, with mu held.
func (r *ref) dropSealed(c *sealedChunk) {
	if r.sealed.next != c {
		panic("buffer: sealed chunks are stored out of their order")
	}
	if r.sealed.next = c.next; r.sealed == c {
		r.sealed = nil
	}
}

func (b *Buffer) applySealed(ctx context.Context, chunks []*sealedChunk) error {
	rows, encoder, key := newRowBatch(), chunkEncoder{}, []byte(nil)
	for _, c := range chunks {
		cells, err := encoder.encode(&c.openChunk)
		if err != nil {
			b.cfg.Die(fmt.Errorf("seal a chunk of %q: %w", c.ref.key, err)) // Append accepts only samples that can be encoded
			return err
		}
		base, _ := series.Split(c.window)
		key = b.cfg.Schema.AppendRowKey(key[:0], c.ref.SeriesKey(), base)
		for _, cell := range cells {
			rows.add(key, cell.SetOp())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	if err := b.storeRows(ctx, bucketstore.Metric, rows.mutations()); err != nil {
		return err
	}
	if current := b.lastSamples(chunks); len(current) > 0 && !b.closing.Load() {
		return b.storeRows(ctx, bucketstore.Current, current)
	}
	return nil
}

// lastSamples returns the writes to CURRENT for the chunks that hold the current sample of
// their series. For a series without further samples the log may not hold it after these
// chunks are stored.
func (b *Buffer) lastSamples(chunks []*sealedChunk) []bucketstore.Mutation {
	var last []*sealedChunk
	b.mu.RLock()
	for _, c := range chunks {
		if c.ref.isLast(c) {
			last = append(last, c)
		}
	}
	b.mu.RUnlock()
	rows := newRowBatch()
	for _, c := range last {
		p := c.latest()
		value := p.value
		if value == nil {
			value = cell.AppendFloat(nil, p.float())
		}
		rows.add(c.ref.SeriesKey(), bucketstore.Op{
			Kind: bucketstore.SetCell, Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent), Time: p.t, Value: value,
		})
	}
	return rows.muts
}

// isLast says whether all samples that came after the sealed chunk c are older than its
// end, with mu held.
func (r *ref) isLast(c *sealedChunk) bool {
	if c.window < r.newer.window {
		return false
	}
	for open := range r.open {
		if open.n > 0 && open.end() >= c.end() {
			return false
		}
	}
	for s := c; s != r.sealed; {
		if s = s.next; s.end() >= c.end() {
			return false
		}
	}
	return true
}

const (
	// sweepAtOnce is how many series are swept while writers wait.
	sweepAtOnce = 10_000
	// idleTime is how long a chunk of a past window must be without new samples before the
	// clock seals it. A sender that catches up ends each window by going on to the next one.
	idleTime = 30 * time.Second
	// lateIdleTime is idleTime of a late chunk: longer than a usual scrape interval, so that
	// late samples that come one by one share a chunk.
	lateIdleTime = 2 * time.Minute
)

// sweep seals what is due of each series. It stops when the queue to the store is half
// full; the next sweep goes on.
func (b *Buffer) sweep() {
	now := b.cfg.Now().UnixMilli()
	needed := b.segments.within(int64(b.cfg.MaxLogBytes)) // chunks that need older segments are sealed
	b.relieve()
	b.mu.RLock()
	b.metrics.openBytes.Set(float64(b.openBytes))
	latest := max(now, b.applied)
	b.mu.RUnlock()
	idle := 0
	b.eachPart(&b.mu, func(first, last int) (more bool) {
		if b.sealing.isBusy() {
			return false
		}
		for _, r := range b.order[first:last] {
			if r.late != nil && b.sealing.isBusy() {
				break // a series may have thousands of late chunks
			}
			b.sweepSeries(r, now, latest, needed)
		}
		idle += b.forgetIdle(first, last, now, b.cfg.MaxIdle-idle)
		b.metrics.series.Set(float64(len(b.order)))
		return true
	})
}

// sweepSeries seals what is due of r at now, if the log needs the segments from needed on, with mu
// held. latest is the time of the last request or of the clock, whichever is later.
func (b *Buffer) sweepSeries(r *ref, now, latest int64, needed uint64) {
	r.seen = min(r.seen, now)                    // the clock may have been set back
	isAbandoned := r.seen <= now-2*series.Window // whatever the times of its samples
	for c := range r.open {
		wait := idleTime.Milliseconds()
		if c.late {
			wait = lateIdleTime.Milliseconds()
		}
		isIdle := c.stamp <= latest-wait || r.seen <= now-wait
		isOver := c.late || c.window+series.Window+b.grace(r) <= now
		if c.segment < needed || isAbandoned || isOver && isIdle {
			b.seal(r, c)
		}
	}
}

// relieve seals an eighth of the open bytes if there are too many. It seals whole series,
// one after another, so that chunks become as long as memory allows.
func (b *Buffer) relieve() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openBytes <= b.cfg.MaxOpenBytes {
		return
	}
	for seen := 0; seen < len(b.order) && b.openBytes > b.cfg.MaxOpenBytes-b.cfg.MaxOpenBytes/8; seen++ {
		if b.relievedTo++; b.relievedTo >= len(b.order) {
			b.relievedTo = 0
		}
		b.sealAll(b.order[b.relievedTo])
		if seen%sweepAtOnce == sweepAtOnce-1 {
			b.mu.Unlock() // writers wait
			b.mu.Lock()
		}
	}
}

// grace is the time after the end of a window at which r seals it, in milliseconds. It
// applies to the times of samples and to the clock.
func (b *Buffer) grace(r *ref) int64 {
	return (1 + int64(r.jitter)) * b.cfg.SealSpread.Milliseconds() / 256
}

// forgetIdle forgets the series in b.order[first:last] that hold no samples and had none
// for two windows, or exceed most, with mu held. It returns how many idle ones stay. It
// runs backwards, because the last series replaces a forgotten one.
func (b *Buffer) forgetIdle(first, last int, now int64, most int) (idle int) {
	for i := last - 1; i >= first; i-- {
		r := b.order[i]
		if !r.isIdle() {
			continue
		}
		if r.seen > now-2*series.Window && idle < most {
			idle++
			continue
		}
		r.forgotten = true
		delete(b.refs, r.key)
		delete(b.interleaved, r)
		end := len(b.order) - 1
		b.order[i], b.order[end] = b.order[end], nil
		b.order = b.order[:end]
	}
	return idle
}

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
	// fewBytes of open chunks are not worth a write, and its fsync, of their own:
	// they wait sealDelay for more, unless a flush waits for them.
	fewBytes  = 1 << 20
	sealDelay = time.Second
	// maxSealing is how many may wait for it; beyond, requests wait.
	maxSealing = 128 << 20
	// sealTimeout bounds one write to the store.
	sealTimeout = time.Minute
	// maxRetry is how long the store is left alone after failures, at most.
	maxRetry = 10 * time.Second
)

// A sealedChunk is an open chunk that gets no more samples. It is read-only.
type sealedChunk struct {
	openChunk
	ref *ref
	// next is the one of ref that was sealed after it, of the newest the oldest.
	next *sealedChunk
	// bytes are what it holds.
	bytes int
}

// seal sends c, an open chunk of r or nil, on its way to the store, and empties
// it. Its window stays open. mu is held.
func (b *Buffer) seal(r *ref, c *openChunk) {
	if c == r.older {
		r.older = nil
	}
	if c == nil || c.n == 0 {
		return
	}
	s := &sealedChunk{openChunk: *c, ref: r, bytes: c.size()}
	*c = openChunk{window: c.window}
	b.openBytes -= s.bytes
	if s.next = s; r.sealed != nil {
		s.next, r.sealed.next = r.sealed.next, s
	}
	r.sealed = s
	b.sealing.add(s)
	b.metrics.sealed.Inc()
}

// allSealed yields the chunks of r on their way to the store, the oldest first.
func (r *ref) allSealed(yield func(*sealedChunk) bool) {
	for s := r.sealed; s != nil; {
		if s = s.next; !yield(s) || s == r.sealed {
			return
		}
	}
}

// sealAll seals what is open of r, with mu held.
func (b *Buffer) sealAll(r *ref) {
	for c := range r.open {
		b.seal(r, c)
	}
}

// sealing is the way of sealed chunks to the store.
type sealing struct {
	mu sync.Mutex
	// queue are those that wait, bytes what they and those being stored hold.
	queue []*sealedChunk
	bytes int
	// added and stored count chunks since the start.
	added, stored uint64
	// urgent counts the flushes that wait until chunks are stored.
	urgent int
	// changed is closed, and made anew, when any of this changes.
	changed chan struct{}
}

func (s *sealing) init() { s.changed = make(chan struct{}) }

// notify wakes all waiters for a change, with mu held.
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

// awaitWork waits until there are chunks to be stored: many, or some that have
// waited for more.
func (s *sealing) awaitWork(ctx context.Context) error {
	if err := s.waitFor(ctx, func() bool { return len(s.queue) > 0 }); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, sealDelay)
	defer cancel()
	_ = s.waitFor(patient, func() bool { return s.urgent > 0 || s.bytes >= fewBytes }) // no matter which
	return ctx.Err()
}

// take returns chunks that wait, of up to maxSealBytes.
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

// finish says that chunks are in the store.
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

// admit waits until not too much is on its way to the store.
func (s *sealing) admit(ctx context.Context) error {
	return s.waitFor(ctx, func() bool { return s.bytes <= maxSealing })
}

// isBusy says whether half of what may wait does.
func (s *sealing) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes > maxSealing/2
}

// size is how many bytes of chunks are not stored.
func (s *sealing) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// progress is how many chunks were stored.
func (s *sealing) progress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// wait waits until all that was added before is in the store.
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

// storeSealed stores chunks, and tries until it is done or ctx ends: they are in
// the log, and readers see them.
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
		level.Warn(b.cfg.Logger).Log("msg", "sealed chunks not stored, trying again", "chunks", len(chunks), "err", err)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
	}
	b.mu.Lock()
	for _, c := range chunks {
		c.ref.drop(c)
		c.raw = nil
	}
	b.mu.Unlock()
	if err := b.segments.unpin(chunks); err != nil {
		level.Warn(b.cfg.Logger).Log("msg", "the log keeps what it need not", "err", err)
	}
	b.sealing.finish(chunks)
}

// drop forgets the oldest sealed chunk, c, with mu held.
func (r *ref) drop(c *sealedChunk) {
	if r.sealed.next != c {
		panic("buffer: sealed chunks are stored out of their order")
	}
	if r.sealed.next = c.next; r.sealed == c {
		r.sealed = nil
	}
}

func (b *Buffer) applySealed(ctx context.Context, chunks []*sealedChunk) error {
	rows := newRowBatch(b.cfg.Schema)
	for _, c := range chunks {
		if err := rows.add(c.ref.key, &c.openChunk); err != nil {
			b.cfg.Die(fmt.Errorf("seal a chunk of %q: %w", c.ref.key, err)) // what was taken must be storable
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	if err := b.Store.Apply(ctx, bucketstore.Metric, rows.mutations()); err != nil {
		return err
	}
	if current := b.lastSamples(chunks); len(current) > 0 && !b.closing.Load() {
		return b.Store.Apply(ctx, bucketstore.Current, current)
	}
	return nil
}

// lastSamples returns the writes to CURRENT of those chunks after which no sample
// as new is in memory. For most there is one; for the others the log, which
// knows the newest samples after the death of the process, may end with them.
func (b *Buffer) lastSamples(chunks []*sealedChunk) (muts []bucketstore.Mutation) {
	var last []*sealedChunk
	b.mu.RLock()
	for _, c := range chunks {
		if c.ref.isLast(c) {
			last = append(last, c)
		}
	}
	b.mu.RUnlock()
	at := make(map[string]int, len(last))
	for _, c := range last {
		i, ok := at[c.ref.key]
		if !ok {
			i = len(muts)
			at[c.ref.key] = i
			muts = append(muts, bucketstore.Mutation{Key: []byte(c.ref.key)})
		}
		p := c.newest()
		value := p.value
		if value == nil {
			value = cell.AppendFloat(nil, p.float())
		}
		muts[i].Ops = append(muts[i].Ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent), Time: p.t, Value: value,
		})
	}
	return muts
}

// isLast says whether no sample that came after the sealed chunk c is as new as
// all in c, with mu held.
func (r *ref) isLast(c *sealedChunk) bool {
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

// runSweeps seals what the clock, memory or the log wants sealed, until ctx ends.
func (b *Buffer) runSweeps(ctx context.Context) {
	ticker := time.NewTicker(b.cfg.SweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.pressure:
		case <-ticker.C:
		}
		b.sweep()
	}
}

const (
	// sweepAtOnce is how many series are looked at while writers wait.
	sweepAtOnce = 10_000
	// settled is how long a chunk whose window is over has no sample before the clock
	// seals it. A sender that catches up, or fills in old data, sends windows that are
	// long over, and closes each by going on to the next one.
	settled = 30 * time.Second
)

// sweep looks at each series once, unless so much is on its way to the store
// that writers would soon have to wait: what is left has time until the next.
func (b *Buffer) sweep() {
	now := b.cfg.Now().UnixMilli()
	needed := b.segments.within(int64(b.cfg.MaxLogBytes)) // the first segment that may stay
	b.relieve()
	b.mu.Lock()
	b.metrics.openBytes.Set(float64(b.openBytes))
	last := len(b.order)
	quiet := max(now, b.applied) - settled.Milliseconds()
	b.mu.Unlock()
	idle := 0
	for last > 0 && !b.sealing.isBusy() {
		b.mu.Lock()
		last = min(last, len(b.order))
		first := max(0, last-sweepAtOnce)
		for _, r := range b.order[first:last] {
			r.seen = min(r.seen, now)                    // the clock may have been set back
			isAbandoned := r.seen <= now-2*series.Window // whatever times its samples have
			for c := range r.open {
				isQuiet := c.stamp <= quiet || r.seen <= now-settled.Milliseconds()
				if c.segment < needed || isAbandoned || c.window+series.Window+b.grace(r) <= now && isQuiet {
					b.seal(r, c)
				}
			}
		}
		idle += b.forgetIdle(first, last, now, b.cfg.MaxIdle-idle)
		b.metrics.series.Set(float64(len(b.order)))
		b.mu.Unlock()
		last = first
	}
}

// relieve seals an eighth of what is open if that is too much: of some series
// after the other, so that chunks become as long as memory lets them, and not of
// all at once, for which writers would have to wait.
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

// grace is how long after the end of a window r seals it, in milliseconds of its
// data or of the clock.
func (b *Buffer) grace(r *ref) int64 {
	return (1 + int64(r.jitter)) * b.cfg.SealSpread.Milliseconds() / 256
}

// forgetIdle forgets those of b.order[first:last] that hold nothing and had no
// sample for as long as two windows, or are more than most, with mu held. It
// returns how many idle ones it leaves. It runs from the end to the front, since
// the last ones take the places of those that go.
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
		r.gone = true
		delete(b.refs, r.key)
		delete(b.interleaved, r)
		end := len(b.order) - 1
		b.order[i], b.order[end] = b.order[end], nil
		b.order = b.order[:end]
	}
	return idle
}

// A signal wakes one waiter.
type signal chan struct{}

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default: // the waiter is woken already
	}
}

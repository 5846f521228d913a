package buffer

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"time"
	"unsafe"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Ref implements bucketstore.Appender.
func (b *Buffer) Ref(seriesKey []byte) bucketstore.Ref {
	b.mu.RLock()
	r, ok := b.refs[string(seriesKey)]
	b.mu.RUnlock()
	if ok {
		return r
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refOf(string(seriesKey))
}

// refOf returns the ref of a series, with mu held.
func (b *Buffer) refOf(key string) *ref {
	if r, ok := b.refs[key]; ok {
		return r
	}
	r := &ref{key: key, jitter: uint8(maphash.String(b.seed, key))}
	r.newer.window, r.olderWindow = noWindow, noWindow
	b.addRef(r)
	return r
}

// addRef adds r to the series, with mu held.
func (b *Buffer) addRef(r *ref) {
	r.forgotten = false
	b.refs[r.key] = r
	b.order = append(b.order, r)
	if mayInterleave(r.key) {
		b.interleaved[r] = struct{}{}
	}
}

// mayInterleave says whether rows of the series with this key may lie between two rows of
// another one: if a field but the first begins with a digit, where the other key has a
// base. Only the name of a label can, and that is rare.
func mayInterleave(key string) bool {
	for i := 0; i+1 < len(key); i++ {
		switch key[i] {
		case '\\':
			i++ // an escaped byte ends no field
		case ',':
			if key[i+1] >= '0' && key[i+1] <= '9' {
				return true
			}
		}
	}
	return false
}

// A request is one Append.
type request struct {
	samples []bucketstore.Sample
	stamp   int64
	err     error
	done    chan struct{}
}

// Append implements bucketstore.Appender. After an error no sample is confirmed.
func (b *Buffer) Append(ctx context.Context, samples []bucketstore.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if err := b.sealing.admit(ctx); err != nil {
		return fmt.Errorf("wait for the store to take sealed chunks: %w", err)
	}
	req := &request{samples: samples, done: make(chan struct{})}
	select {
	case b.requests <- req:
	case <-ctx.Done():
		return fmt.Errorf("wait for the log: %w", ctx.Err())
	}
	<-req.done // even if ctx ends: the committer reads samples until then
	if req.err != nil {
		return fmt.Errorf("write the log: %w", req.err)
	}
	return nil
}

// maxGroup is how many requests one commit may have.
const maxGroup = 256

// runCommits commits all waiting requests at once, until the channel is closed.
func (b *Buffer) runCommits() {
	var group []*request
	pause := time.NewTimer(b.cfg.GroupInterval)
	defer pause.Stop()
	for {
		var first *request
		var open bool
		select {
		case first, open = <-b.requests:
		case fn := <-b.between:
			fn()
			continue
		}
		if !open {
			return
		}
		group = b.gather(append(group[:0], first), pause.C)
		pause.Reset(b.cfg.GroupInterval)
		b.commit(group)
	}
}

// gather adds the requests that come before the end of a pause, and those that wait then, to a group.
func (b *Buffer) gather(group []*request, pause <-chan time.Time) []*request {
	for paused := b.cfg.GroupInterval > 0; paused && len(group) < maxGroup; {
		select {
		case req, ok := <-b.requests:
			if !ok {
				return group
			}
			group = append(group, req)
		case <-pause:
			paused = false
		}
	}
	for len(group) < maxGroup {
		select {
		case req, ok := <-b.requests:
			if !ok {
				return group
			}
			group = append(group, req)
		default:
			return group
		}
	}
	return group
}

// commit makes requests durable and then visible, in order.
func (b *Buffer) commit(group []*request) {
	now := b.cfg.Now().UnixMilli()
	for _, req := range group {
		b.stamp = max(b.stamp+1, now)
		req.stamp = b.stamp
	}
	segment, err := b.writeLog(group)
	defer b.committed()
	if isRefusal(err) {
		b.metrics.refused.Inc()
	} else if err != nil {
		b.cfg.Die(fmt.Errorf("write the log: %w", err))
	}
	openBytes := 0
	for _, req := range group {
		if req.err = err; err == nil {
			b.mu.Lock()
			late := b.apply(req.samples, req.stamp, now, segment)
			openBytes = b.openBytes
			b.mu.Unlock()
			b.metrics.late.Add(float64(late))
			b.metrics.samples.Add(float64(len(req.samples)))
		}
		close(req.done)
	}
	b.metrics.groups.Inc()
	b.metrics.openBytes.Set(float64(openBytes))
	if openBytes > b.cfg.MaxOpenBytes {
		b.pressure.wake()
	}
}

// writeLog writes requests to the log. META lists the log before its first request.
func (b *Buffer) writeLog(group []*request) (segment uint64, err error) {
	if b.unlisted {
		if b.log.file == nil {
			err = b.log.start()
		}
		if err == nil {
			err = b.list(context.Background())
		}
		if err != nil {
			return 0, err
		}
	}
	if err := b.promise(group); err != nil {
		return 0, err
	}
	if segment, err = b.log.write(group); err == nil {
		err = b.heard()
	}
	return segment, err
}

// apply puts samples into open chunks, with mu held, and returns how many of them are late.
// All samples of a request that lie in one window of a series go to one chunk: two chunks
// with its stamp could not be told apart. now is the time of the clock; stamps may be ahead
// of it.
func (b *Buffer) apply(samples []bucketstore.Sample, stamp, now int64, segment uint64) (late int) {
	b.applied = stamp
	last := series.WindowOf(stamp) + series.Window
	for i := range samples {
		s := &samples[i]
		r := s.Ref.(*ref)
		if r.forgotten {
			r = b.adopt(r)
		}
		c := b.chunkFor(r, s.T, last)
		if c.late {
			late++
		}
		if c.n >= c.due && r.request != stamp { // not inside a request, which may not be split
			b.review(r, c)
		}
		if c.n == 0 {
			c.segment = segment
			b.segments.pin(segment)
		}
		before := cap(c.raw)
		c.append(&b.buffers, s.T, floatBits(s), s.Value)
		c.stamp = stamp
		b.openBytes += cap(c.raw) - before
		r.request, r.seen = stamp, now
	}
	return late
}

// adopt returns the ref of the series of r, which was forgotten.
func (b *Buffer) adopt(r *ref) *ref {
	if other, ok := b.refs[r.key]; ok {
		return other
	}
	b.addRef(r)
	return r
}

// chunkFor returns the open chunk for a sample at t. It is a late one if the window of t is
// before the two latest windows of the series, or after last.
func (b *Buffer) chunkFor(r *ref, t, last int64) *openChunk {
	window := series.WindowOf(t)
	switch {
	case window == r.newer.window:
		return &r.newer
	case window > last || window < r.olderWindow:
		return b.lateChunk(r, window)
	case window > r.newer.window:
		b.moveOn(r, window)
		return &r.newer
	case window > r.olderWindow:
		b.leaveOlder(r, window)
		r.olderWindow = window
	}
	if r.older == nil {
		r.older = &openChunk{window: window}
	}
	return r.older
}

// moveOn opens a window later than those of r, with mu held.
func (b *Buffer) moveOn(r *ref, window int64) {
	b.leaveOlder(r, window)
	if r.newer.n > 0 {
		older := r.newer
		r.older = &older
	}
	r.olderWindow = r.newer.window
	r.newer = openChunk{window: window}
}

// review seals or encodes what is due of c, an open chunk of r that is about to get a
// sample, with mu held.
func (b *Buffer) review(r *ref, c *openChunk) {
	part := r.about(b.cfg.PartSamples)
	switch {
	case c.n == math.MaxUint32 || c.mixed && len(c.raw) >= int(r.about(mixedBytes)):
		b.sealContent(r, c) // c is about to get a sample
	case c.rawCount >= part && !c.mixed:
		b.openBytes -= c.size()
		b.encoder.encodePart(c, &b.buffers)
		b.openBytes += c.size()
	}
	if c == &r.newer && int64(c.last) >= b.grace(r) {
		b.seal(r, r.older)
	}
	next := max(1, int64(part)-int64(c.rawCount))
	if c.mixed || c == &r.newer && r.older != nil {
		next = max(1, int64(part/8))
	}
	c.due = c.n + uint32(min(next, math.MaxUint32-int64(c.n)))
}

// mixedBytes is the approximate size at which an open chunk with histograms is sealed
// although its window is open: it has no parts.
const mixedBytes = 16 << 10

// about varies n by series, so that series that began together are not sealed or encoded
// together.
func (r *ref) about(n int) uint32 { return uint32(n - n/4 + int(r.jitter)*(n/2)/256) }

// viewString returns the bytes of s, which must not be changed. A ref has its key as a
// string, for maps. A second form as bytes would take 95 bytes beside the 1,240 of a
// series in e2e/scale, and more with more labels.
func viewString(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

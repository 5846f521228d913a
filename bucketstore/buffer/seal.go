package buffer

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

const (
	// maxSealBytes is how many bytes of open chunks go to the store at once.
	maxSealBytes = 4 << 20
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
}

// seal sends c, a chunk of r, on its way to the store, and empties it. Its
// window stays open. mu is held.
func (b *Buffer) seal(r *ref, c *openChunk) {
	if c.n == 0 {
		return
	}
	s := &sealedChunk{openChunk: *c, ref: r}
	*c = openChunk{window: c.window}
	b.openBytes -= cap(s.buf)
	r.sealed = append(r.sealed, s)
	b.sealing.add(s)
	b.metrics.sealed.Inc()
}

// sealAll seals what is open of r, with mu held.
func (b *Buffer) sealAll(r *ref) {
	for i := range r.open {
		b.seal(r, &r.open[i])
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
	// changed is closed, and made anew, when any of this changes.
	changed chan struct{}
}

func (s *sealing) init() { s.changed = make(chan struct{}) }

// notify wakes all who wait for a change, with mu held.
func (s *sealing) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sealing) add(c *sealedChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.bytes += cap(c.buf)
	s.added++
	if len(s.queue) == 1 {
		s.notify()
	}
}

// take returns chunks that wait, of up to maxSealBytes, and a channel that is
// closed when there may be some if there are none.
func (s *sealing) take() (taken []*sealedChunk, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && bytes < maxSealBytes {
		bytes += cap(s.queue[n].buf)
		n++
	}
	taken, s.queue = s.queue[:n:n], s.queue[n:]
	return taken, s.changed
}

// finish says that chunks are in the store.
func (s *sealing) finish(chunks []*sealedChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		s.bytes -= cap(c.buf)
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

// wait waits until all that was added before is in the store.
func (s *sealing) wait(ctx context.Context) error {
	s.mu.Lock()
	added := s.added
	s.mu.Unlock()
	return s.waitFor(ctx, func() bool { return s.stored >= added })
}

// runSealing stores sealed chunks, in their order, until ctx ends.
func (b *Buffer) runSealing(ctx context.Context) {
	for ctx.Err() == nil {
		chunks, changed := b.sealing.take()
		if len(chunks) > 0 {
			b.storeSealed(ctx, chunks)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
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
	}
	b.mu.Unlock()
	if err := b.segments.unpin(chunks); err != nil {
		level.Warn(b.cfg.Logger).Log("msg", "the log keeps what it need not", "err", err)
	}
	b.sealing.finish(chunks)
}

// drop forgets a sealed chunk, with mu held.
func (r *ref) drop(c *sealedChunk) {
	for i, s := range r.sealed {
		if s == c {
			// A new slice: readers may hold the old one.
			r.sealed = append(r.sealed[:i:i], r.sealed[i+1:]...)
			break
		}
	}
	if len(r.sealed) == 0 {
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
	return b.Store.Apply(ctx, bucketstore.Metric, rows.mutations())
}

// A rowBatch gathers chunk cells by row.
type rowBatch struct {
	schema series.Schema
	at     map[string]int
	muts   []bucketstore.Mutation
	key    []byte
	chunks chunkEncoder
}

func newRowBatch(schema series.Schema) *rowBatch {
	return &rowBatch{schema: schema, at: make(map[string]int)}
}

// add adds the cells of a chunk of the series with this key.
func (b *rowBatch) add(seriesKey string, c *openChunk) error {
	base, _ := series.Split(c.window)
	b.key = b.schema.AppendRowKey(b.key[:0], view(seriesKey), base)
	at, ok := b.at[string(b.key)]
	if !ok {
		at = len(b.muts)
		key := append([]byte(nil), b.key...)
		b.at[string(key)] = at
		b.muts = append(b.muts, bucketstore.Mutation{Key: key})
	}
	cells, err := b.chunks.encode(c)
	for _, cell := range cells {
		b.muts[at].Ops = append(b.muts[at].Ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: cell.Family, Qualifier: cell.Qualifier, Time: cell.Time, Value: cell.Value,
		})
	}
	return err
}

// mutations returns one mutation for each row, in order of keys: so stores take
// them faster.
func (b *rowBatch) mutations() []bucketstore.Mutation {
	slices.SortFunc(b.muts, func(x, y bucketstore.Mutation) int { return bytes.Compare(x.Key, y.Key) })
	return b.muts
}

// A chunkEncoder makes cells of open chunks.
type chunkEncoder struct {
	// plain asks for cells that are read at once, and not stored.
	plain  bool
	points []point
	times  []int64
	floats []float64
	data   []byte
}

// encode returns the cells of c, in order of time: one if all of its values are
// floats.
func (e *chunkEncoder) encode(c *openChunk) (cells []bucketstore.Cell, err error) {
	e.times, e.floats = e.times[:0], e.floats[:0]
	if !c.mixed && !c.unsorted {
		c.each(e.add)
		return append(cells, e.encodeFloats(c.stamp)), nil
	}
	e.points = c.points(e.points[:0])
	for points := e.points; len(points) > 0; {
		n := 0
		for n < len(points) && (points[n].value == nil) == (points[0].value == nil) {
			n++
		}
		if points[0].value == nil {
			e.times, e.floats = e.times[:0], e.floats[:0]
			for _, p := range points[:n] {
				e.add(p.t, p.bits, nil)
			}
			cells = append(cells, e.encodeFloats(c.stamp))
		} else if cells, err = appendOthers(cells, points[:n], c.stamp); err != nil {
			return nil, err
		}
		points = points[n:]
	}
	return cells, nil
}

func (e *chunkEncoder) add(t int64, floatBits uint64, _ []byte) {
	e.times, e.floats = append(e.times, t), append(e.floats, math.Float64frombits(floatBits))
}

func (e *chunkEncoder) encodeFloats(stamp int64) bucketstore.Cell {
	encoding := byte(series.EncodingDense)
	if e.plain {
		encoding = series.EncodingPlain
		e.data = series.AppendPlain(e.data[:0], e.times, e.floats)
	} else {
		e.data = series.AppendDense(e.data[:0], e.times, e.floats)
	}
	return chunkCell(encoding, stamp, e.times[0], e.times[len(e.times)-1], e.data)
}

// appendOthers appends the cells of values that are no plain floats, in upstream's
// encodings.
func appendOthers(cells []bucketstore.Cell, points []point, stamp int64) ([]bucketstore.Cell, error) {
	var builder series.ChunkBuilder
	for _, p := range points {
		v, err := series.ParseValue(p.value)
		if err == nil {
			err = builder.Append(p.t, v)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, c := range builder.Chunks {
		cells = append(cells, chunkCell(byte(c.Chunk.Encoding()), stamp, c.MinTime, c.MaxTime, c.Chunk.Bytes()))
	}
	return cells, nil
}

func chunkCell(encoding byte, stamp, mint, maxt int64, data []byte) bucketstore.Cell {
	_, first := series.Split(mint)
	_, last := series.Split(maxt)
	value := series.AppendChunk(make([]byte, 0, len(data)+8), series.Chunk{Encoding: encoding, Stamp: stamp, First: first, Last: last, Data: data})
	return bucketstore.Cell{
		Family:    series.FamilyChunk,
		Qualifier: series.AppendChunkQualifier(nil, first, last, value),
		Time:      maxt,
		Value:     value,
	}
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

// sweepAtOnce is how many series are looked at while writers wait.
const sweepAtOnce = 10_000

// sweep looks at each series once.
func (b *Buffer) sweep() {
	now := b.cfg.Now().UnixMilli()
	oldest, n := b.segments.span()
	tooMany := n > b.cfg.MaxSegments
	b.mu.Lock()
	all := b.openBytes > b.cfg.MaxOpenBytes
	b.metrics.openBytes.Set(float64(b.openBytes))
	last := len(b.order)
	b.mu.Unlock()
	for last > 0 {
		b.mu.Lock()
		last = min(last, len(b.order))
		first := max(0, last-sweepAtOnce)
		for _, r := range b.order[first:last] {
			for i := range r.open {
				if c := &r.open[i]; all || (tooMany && c.segment == oldest) || c.window+series.Window+r.grace() <= now {
					b.seal(r, c)
				}
			}
		}
		b.forgetIdle(first, last, now)
		b.metrics.series.Set(float64(len(b.order)))
		b.mu.Unlock()
		last = first
	}
}

// grace is how long after the end of a window the clock seals it: the windows of
// all series are spread over the next one.
func (r *ref) grace() int64 { return (1 + int64(r.jitter)) * series.Window / 256 }

// forgetIdle forgets those of b.order[first:last] that hold nothing and had no
// sample in two windows, with mu held. It runs from the end to the front, since
// the last ones take the places of those that go.
func (b *Buffer) forgetIdle(first, last int, now int64) {
	for i := last - 1; i >= first; i-- {
		r := b.order[i]
		if !r.isIdle() || r.request > now-2*series.Window {
			continue
		}
		r.gone = true
		delete(b.refs, r.key)
		end := len(b.order) - 1
		b.order[i], b.order[end] = b.order[end], nil
		b.order = b.order[:end]
	}
}

// A signal wakes one who waits.
type signal chan struct{}

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default: // he will come
	}
}

package engine

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	// flushTimeout bounds one flush to CURRENT.
	flushTimeout = 30 * time.Second
	// flushRows is how many rows of a flush are written at once. What is written
	// is forgotten at once, so that a flush that ends early has not been in vain.
	flushRows = 10_000
)

// newest keeps the newest sample of each series until it is in CURRENT, so
// that a row is written once an interval and not once a sample. Staleness
// markers go there at once. What it holds is lost with the process; the samples
// themselves are stored already.
type newest struct {
	store   bucketstore.Store
	logger  log.Logger
	metrics metrics

	mu sync.Mutex
	// slots holds the series with a pending sample, and for a while those whose
	// sample is in CURRENT: their next one takes the same slot.
	slots map[string]*slot
	// pending is how many slots are.
	pending int
	// limit is how many may be pending, and how many not.
	limit int
	// stale are the series with a staleness marker to flush at once; wake tells
	// the background that there are some.
	stale []*slot
	wake  chan struct{}

	// flushing holds a token during a flush, so that two of them do not write a
	// series in the wrong order.
	flushing chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

// newestSample is a sample without its series: V and since when it has been
// counted, unless Value is set, the value as it is stored.
type newestSample struct {
	T     int64
	V     float64
	ST    int64
	Value []byte
}

// newNewestSample copies a sample. Floats are copied without an allocation.
func newNewestSample(s *bucketstore.Sample) newestSample {
	if s.Value == nil {
		return newestSample{T: s.T, V: s.V}
	}
	if !cell.IsHistogram(s.Value) {
		if v, err := cell.Parse(s.Value); err == nil {
			return newestSample{T: s.T, V: v.Float, ST: v.Start}
		}
	}
	return newestSample{T: s.T, Value: bytes.Clone(s.Value)}
}

// isStale says whether s is a staleness marker.
func (s newestSample) isStale() bool {
	if s.Value == nil {
		return value.IsStaleNaN(s.V)
	}
	v, err := cell.Parse(s.Value)
	return err == nil && isStale(v)
}

// same says whether s and t are the same, bit for bit.
func (s newestSample) same(t newestSample) bool {
	return s.T == t.T && math.Float64bits(s.V) == math.Float64bits(t.V) && s.ST == t.ST && bytes.Equal(s.Value, t.Value)
}

// A slot holds the newest sample of a series. There are as many slots as series.
type slot struct {
	// pending says that the sample is not in CURRENT yet.
	pending bool
	// idle says that it was not pending in the last flush of all.
	idle bool
	// gone says that the slot is in use no more.
	gone bool
	// stale says that the slot is in the list of those to flush at once.
	stale bool
	// isOther says that the sample is more than the time t and the value v, and is
	// in other.
	isOther bool
	t       int64
	v       float64
	other   *newestSample
	// key lies in the memory of a reference to the series.
	key string
}

// replace makes s the sample of a slot, if that is pending and both are floats
// that call for nothing else: nearly all are.
func (at *slot) replace(s *bucketstore.Sample) bool {
	if !at.pending || at.isOther || s.Value != nil || value.IsStaleNaN(s.V) {
		return false
	}
	at.t, at.v = s.T, s.V
	return true
}

// set makes s the sample of a slot.
func (at *slot) set(s newestSample) {
	at.t, at.v, at.isOther = s.T, s.V, s.Value != nil || s.ST != 0
	switch {
	case at.isOther && at.other == nil:
		at.other = new(newestSample)
		fallthrough
	case at.isOther:
		*at.other = s
	case at.other != nil:
		*at.other = newestSample{} // memory for the next one
	}
}

// sample returns the sample of a slot.
func (at *slot) sample() newestSample {
	if at.isOther {
		return *at.other
	}
	return newestSample{T: at.t, V: at.v}
}

// isStale says whether v is a staleness marker: of a histogram, its sum is.
func isStale(v cell.Value) bool {
	switch {
	case v.Histogram != nil:
		return value.IsStaleNaN(v.Histogram.Sum)
	case v.FloatHistogram != nil:
		return value.IsStaleNaN(v.FloatHistogram.Sum)
	}
	return value.IsStaleNaN(v.Float)
}

// newNewest starts the flushes.
func newNewest(cfg Config, m metrics) *newest {
	ctx, stop := context.WithCancel(context.Background())
	n := &newest{
		store:   cfg.Store,
		logger:  cfg.Logger,
		metrics: m,
		slots:   make(map[string]*slot),
		limit:   cfg.MaxPending,
		wake:    make(chan struct{}, 1),

		flushing: make(chan struct{}, 1),

		stop: stop,
		done: make(chan struct{}),
	}
	go n.run(ctx, cfg.CurrentInterval)
	return n
}

// run flushes at the interval, and staleness markers at once, until ctx ends.
func (n *newest) run(ctx context.Context, interval time.Duration) {
	defer close(n.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var some []*slot // nil is all
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.wake:
			some = n.takeStale()
		}
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := n.flush(flushing, some); err != nil && ctx.Err() == nil {
			level.Warn(n.logger).Log("msg", "newest samples not in CURRENT yet, trying again", "err", err)
		}
		cancel()
	}
}

// close stops the flushes, after one more.
func (n *newest) close(ctx context.Context) error {
	n.stop()
	<-n.done
	return n.flush(ctx, nil)
}

// note takes samples that are stored; known has for each its series, or nil. Of
// equal times the later one counts. It does not wait for the store.
func (n *newest) note(samples []bucketstore.Sample, known []*Known) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dropped, stale := 0, len(n.stale)
	for i := range samples {
		s := &samples[i]
		at := n.slot(s.Ref, known[i])
		switch {
		case at == nil:
			dropped++
			continue
		case at.t > s.T || at.replace(s):
			continue
		case !at.pending && n.pending >= n.limit:
			dropped++
			continue
		}
		n.keep(at, newNewestSample(s))
	}
	n.metrics.currentPending.Set(float64(n.pending))
	n.metrics.currentDropped.Add(float64(dropped))
	if len(n.stale) == stale {
		return
	}
	select {
	case n.wake <- struct{}{}:
	default: // it is awake, or will be
	}
}

// keep makes s the pending sample of a slot.
func (n *newest) keep(at *slot, s newestSample) {
	if !at.pending {
		n.pending++
	}
	at.set(s)
	at.pending, at.idle = true, false
	if s.isStale() && !at.stale && len(n.stale) < n.limit {
		at.stale = true
		n.stale = append(n.stale, at)
	}
}

// slot returns the slot of a series, or nil if there is no room for one. A
// series may be known under several spellings, but it has one slot: that in
// slots.
func (n *newest) slot(ref bucketstore.Ref, known *Known) *slot {
	if known != nil && known.slot != nil && !known.slot.gone {
		return known.slot
	}
	key := ref.SeriesKey()
	at, ok := n.slots[string(key)]
	if !ok {
		if n.pending >= n.limit {
			return nil
		}
		// Nobody changes the key of a reference.
		at = &slot{key: unsafe.String(unsafe.SliceData(key), len(key)), t: math.MinInt64}
		n.slots[at.key] = at
	}
	if known != nil {
		known.slot = at
	}
	return at
}

// drop forgets a slot that is not pending.
func (n *newest) drop(at *slot) {
	at.gone = true
	delete(n.slots, at.key)
}

// takeStale returns the series whose staleness markers wait, and forgets them.
func (n *newest) takeStale() []*slot {
	n.mu.Lock()
	defer n.mu.Unlock()
	stale := n.stale
	n.stale = nil
	for _, at := range stale {
		at.stale = false
	}
	return append([]*slot{}, stale...) // not nil, which would be all
}

// flush writes the pending samples of these series, no two the same, or all if
// some is nil. What could not be written stays pending.
func (n *newest) flush(ctx context.Context, some []*slot) error {
	select {
	case n.flushing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a flush under way: %w", ctx.Err())
	}
	defer func() { <-n.flushing }()
	if some == nil {
		some = n.pendingSlots()
	}
	var taken []takenSample
	for part := range slices.Chunk(some, flushRows) {
		taken = n.take(taken[:0], part)
		if err := n.write(ctx, taken); err != nil {
			return err
		}
	}
	return nil
}

// takenSample is a sample on its way to CURRENT.
type takenSample struct {
	at *slot
	newestSample
}

// write writes samples to CURRENT and forgets them.
func (n *newest) write(ctx context.Context, taken []takenSample) error {
	if len(taken) == 0 {
		return nil
	}
	if err := n.store.Apply(ctx, bucketstore.Current, currentRows(taken)); err != nil {
		n.metrics.currentFlushes.WithLabelValues(resultFailed).Inc()
		return fmt.Errorf("write %d rows of CURRENT: %w", len(taken), err)
	}
	n.metrics.currentFlushes.WithLabelValues(resultOK).Inc()
	n.metrics.currentRows.Add(float64(len(taken)))
	n.forget(taken)
	return nil
}

// currentRows returns the rows of samples. A store neither changes nor keeps them,
// so that they refer to the keys of the slots, and share what is the same.
func currentRows(taken []takenSample) []bucketstore.Mutation {
	muts, ops := make([]bucketstore.Mutation, len(taken)), make([]bucketstore.Op, len(taken))
	values := make([]byte, 0, 8*len(taken))
	qualifier := []byte(series.QualifierCurrent)
	for i := range taken {
		s, value := &taken[i], taken[i].Value
		if value == nil {
			first := len(values)
			values = cell.Append(values, cell.Value{Start: s.ST, Float: s.V})
			value = values[first:]
		}
		ops[i] = bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyCurrent,
			Qualifier: qualifier,
			Time:      s.T,
			Value:     value,
		}
		key := s.at.key
		muts[i] = bucketstore.Mutation{Key: unsafe.Slice(unsafe.StringData(key), len(key)), Ops: ops[i : i+1]}
	}
	return muts
}

// pendingSlots returns the series that have a pending sample, for a flush of all.
// It forgets those that had none the last time either.
func (n *newest) pendingSlots() []*slot {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := make([]*slot, 0, n.pending)
	for _, at := range n.slots {
		switch {
		case at.pending:
			pending = append(pending, at)
		case at.idle:
			n.drop(at)
		default:
			at.idle = true
		}
	}
	return pending
}

// take appends copies of the pending samples of these series to taken. They stay
// pending, visible to readers, until they are written.
func (n *newest) take(taken []takenSample, some []*slot) []takenSample {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range some {
		if at.pending {
			taken = append(taken, takenSample{at, at.sample()})
		}
	}
	return taken
}

// forget notes that samples are written, unless something newer came meanwhile.
func (n *newest) forget(written []takenSample) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range written {
		at := written[i].at
		if !at.pending || !at.sample().same(written[i].newestSample) {
			continue
		}
		at.pending = false
		if n.pending--; len(n.slots)-n.pending > n.limit {
			n.drop(at)
		}
	}
	n.metrics.currentPending.Set(float64(n.pending))
}

// get returns the pending sample of a series.
func (n *newest) get(key string) (newestSample, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.slots[key]; ok && at.pending {
		return at.sample(), true
	}
	return newestSample{}, false
}

// all returns the pending samples of all series, in no order.
func (n *newest) all() []pendingSample {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]pendingSample, 0, n.pending)
	for key, at := range n.slots {
		if at.pending {
			found = append(found, pendingSample{key, at.sample()})
		}
	}
	return found
}

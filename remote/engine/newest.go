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
	stale []string
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
	if !series.IsHistogram(s.Value) {
		if v, err := series.ParseValue(s.Value); err == nil {
			return newestSample{T: s.T, V: v.Float, ST: v.Start}
		}
	}
	return newestSample{T: s.T, Value: bytes.Clone(s.Value)}
}

// encoded returns the value as it is stored.
func (s newestSample) encoded() []byte {
	if s.Value != nil {
		return s.Value
	}
	return series.AppendValue(nil, series.Value{Start: s.ST, Float: s.V})
}

// isStale says whether s is a staleness marker.
func (s newestSample) isStale() bool {
	if s.Value == nil {
		return value.IsStaleNaN(s.V)
	}
	v, err := series.ParseValue(s.Value)
	return err == nil && isStale(v)
}

// same says whether s and t are the same, bit for bit.
func (s newestSample) same(t newestSample) bool {
	return s.T == t.T && math.Float64bits(s.V) == math.Float64bits(t.V) && s.ST == t.ST && bytes.Equal(s.Value, t.Value)
}

// A slot holds the newest sample of a series.
type slot struct {
	// key lies in the memory of a reference to the series.
	key string
	newestSample
	// pending says that the sample is not in CURRENT yet.
	pending bool
	// idle says that it was not pending in the last flush of all.
	idle bool
	// gone says that the slot is in use no more.
	gone bool
}

// isStale says whether v is a staleness marker: of a histogram, its sum is.
func isStale(v series.Value) bool {
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
		var keys []string // all
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.wake:
			keys = n.takeStale()
		}
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := n.flush(flushing, keys); err != nil && ctx.Err() == nil {
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
		case at.T > s.T:
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
	at.newestSample, at.pending, at.idle = s, true, false
	if s.isStale() && len(n.stale) < n.limit {
		n.stale = append(n.stale, at.key)
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
		at = &slot{key: unsafe.String(unsafe.SliceData(key), len(key)), newestSample: newestSample{T: math.MinInt64}}
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
func (n *newest) takeStale() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	stale := n.stale
	n.stale = nil
	return append([]string{}, stale...) // not nil, which would be all
}

// flush writes the pending samples of these series, or all if keys is nil.
// What could not be written stays pending.
func (n *newest) flush(ctx context.Context, keys []string) error {
	select {
	case n.flushing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a flush under way: %w", ctx.Err())
	}
	defer func() { <-n.flushing }()
	if keys == nil {
		keys = n.pendingKeys()
	}
	for part := range slices.Chunk(keys, flushRows) {
		if err := n.write(ctx, n.take(part)); err != nil {
			return err
		}
	}
	return nil
}

// write writes samples to CURRENT and forgets them.
func (n *newest) write(ctx context.Context, taken map[string]newestSample) error {
	if len(taken) == 0 {
		return nil
	}
	muts := make([]bucketstore.Mutation, 0, len(taken))
	for key, s := range taken {
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyCurrent,
			Qualifier: []byte(series.QualifierCurrent),
			Time:      s.T,
			Value:     s.encoded(),
		}}})
	}
	if err := n.store.Apply(ctx, bucketstore.Current, muts); err != nil {
		n.metrics.currentFlushes.WithLabelValues(resultFailed).Inc()
		return fmt.Errorf("write %d rows of CURRENT: %w", len(muts), err)
	}
	n.metrics.currentFlushes.WithLabelValues(resultOK).Inc()
	n.metrics.currentRows.Add(float64(len(muts)))
	n.forget(taken)
	return nil
}

// pendingKeys returns the series that have a pending sample, for a flush of all.
// It forgets those that had none the last time either.
func (n *newest) pendingKeys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := make([]string, 0, n.pending)
	for key, at := range n.slots {
		switch {
		case at.pending:
			keys = append(keys, key)
		case at.idle:
			n.drop(at)
		default:
			at.idle = true
		}
	}
	return keys
}

// take copies the pending samples of these series. They stay pending, visible
// to readers, until they are written.
func (n *newest) take(keys []string) map[string]newestSample {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := make(map[string]newestSample, len(keys))
	for _, key := range keys {
		if at, ok := n.slots[key]; ok && at.pending {
			taken[key] = at.newestSample
		}
	}
	return taken
}

// forget notes that samples are written, unless something newer came meanwhile.
func (n *newest) forget(written map[string]newestSample) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range written {
		at, ok := n.slots[key]
		if !ok || !at.pending || !at.same(s) {
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
		return at.newestSample, true
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
			found = append(found, pendingSample{key, at.newestSample})
		}
	}
	return found
}

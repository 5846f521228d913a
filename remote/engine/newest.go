package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

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

	mu      sync.Mutex
	pending map[string]newestSample
	// limit is how many may be pending.
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

// newestSample is a sample without its series: V, unless Value is set, like a
// bucketstore.Sample.
type newestSample struct {
	T     int64
	V     float64
	Value []byte
}

// encoded returns the value as it is stored.
func (s newestSample) encoded() []byte {
	if s.Value != nil {
		return s.Value
	}
	return series.AppendFloat(nil, s.V)
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
	return s.T == t.T && math.Float64bits(s.V) == math.Float64bits(t.V) && bytes.Equal(s.Value, t.Value)
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
		pending: make(map[string]newestSample),
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

// note takes samples that are stored. Of equal times the later one counts. It
// does not wait for the store.
func (n *newest) note(samples []bucketstore.Sample) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dropped, stale := 0, len(n.stale)
	for _, s := range samples {
		key := s.Ref.SeriesKey()
		have, ok := n.pending[string(key)]
		switch {
		case ok && have.T > s.T:
			continue
		case !ok && len(n.pending) >= n.limit:
			dropped++
			continue
		}
		kept := newestSample{s.T, s.V, bytes.Clone(s.Value)}
		n.pending[string(key)] = kept
		if kept.isStale() && len(n.stale) < n.limit {
			n.stale = append(n.stale, string(key))
		}
	}
	n.metrics.currentPending.Set(float64(len(n.pending)))
	n.metrics.currentDropped.Add(float64(dropped))
	if len(n.stale) == stale {
		return
	}
	select {
	case n.wake <- struct{}{}:
	default: // it is awake, or will be
	}
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

// pendingKeys returns the series that have a pending sample.
func (n *newest) pendingKeys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.pending))
}

// take copies the pending samples of these series. They stay pending, visible
// to readers, until they are written.
func (n *newest) take(keys []string) map[string]newestSample {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := make(map[string]newestSample, len(keys))
	for _, key := range keys {
		if s, ok := n.pending[key]; ok {
			taken[key] = s
		}
	}
	return taken
}

// forget drops what was written, unless something newer came meanwhile.
func (n *newest) forget(written map[string]newestSample) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range written {
		if have := n.pending[key]; have.same(s) {
			delete(n.pending, key)
		}
	}
	n.metrics.currentPending.Set(float64(len(n.pending)))
}

// get returns the pending sample of a series.
func (n *newest) get(key string) (newestSample, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.pending[key]
	return s, ok
}

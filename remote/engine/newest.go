package engine

import (
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
	pending map[string]Sample

	// flushing holds a token during a flush, so that two of them do not write a
	// series in the wrong order.
	flushing chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

// newNewest starts the flushes.
func newNewest(cfg Config, m metrics) *newest {
	ctx, stop := context.WithCancel(context.Background())
	n := &newest{
		store:   cfg.Store,
		logger:  cfg.Logger,
		metrics: m,
		pending: make(map[string]Sample),

		flushing: make(chan struct{}, 1),

		stop: stop,
		done: make(chan struct{}),
	}
	go n.run(ctx, cfg.CurrentInterval)
	return n
}

// run flushes at the interval until ctx ends.
func (n *newest) run(ctx context.Context, interval time.Duration) {
	defer close(n.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := n.flush(flushing, nil); err != nil && ctx.Err() == nil {
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

// note takes samples that are stored. Of equal times the later one counts.
func (n *newest) note(ctx context.Context, samples []bucketstore.Sample) {
	var stale []string
	n.mu.Lock()
	for _, s := range samples {
		key := s.Ref.SeriesKey()
		if have, ok := n.pending[string(key)]; ok && have.T > s.T {
			continue
		}
		n.pending[string(key)] = Sample{T: s.T, V: s.V}
		if value.IsStaleNaN(s.V) {
			stale = append(stale, string(key))
		}
	}
	n.metrics.currentPending.Set(float64(len(n.pending)))
	n.mu.Unlock()
	if len(stale) == 0 {
		return
	}
	if err := n.flush(ctx, stale); err != nil {
		level.Warn(n.logger).Log("msg", "staleness markers not in CURRENT yet, trying again", "err", err)
	}
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
func (n *newest) write(ctx context.Context, taken map[string]Sample) error {
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
			Value:     series.AppendFloat(nil, s.V),
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
func (n *newest) take(keys []string) map[string]Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := make(map[string]Sample, len(keys))
	for _, key := range keys {
		if s, ok := n.pending[key]; ok {
			taken[key] = s
		}
	}
	return taken
}

// forget drops what was written, unless something newer came meanwhile.
func (n *newest) forget(written map[string]Sample) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range written {
		if have := n.pending[key]; have.T == s.T && math.Float64bits(have.V) == math.Float64bits(s.V) {
			delete(n.pending, key)
		}
	}
	n.metrics.currentPending.Set(float64(len(n.pending)))
}

// get returns the pending sample of a series.
func (n *newest) get(key string) (Sample, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.pending[key]
	return s, ok
}

// Package retention says from when on samples are kept, and lets the store delete those
// before.
//
// The cut is the least time of a sample that is shown and that can be written: as long ago as
// samples are kept, or the horizon if that is later. The horizon stands in META. It is the
// latest time before which samples may have been deleted. It is durable before the store
// deletes any, and never goes back. So if samples are to be kept for longer than before, what
// is left of half-deleted days stays hidden.
//
// The cut moves with the clock, the horizon follows it at an interval, but never into the newest
// 3 days with samples. The store deletes what
// was before the horizon an interval ago: a request has one cut, and finds all samples from
// there on until it ends.
package retention

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
)

// MinRaw is how long raw samples are kept at least.
const MinRaw = 3 * 24 * time.Hour

// StoreGrace is how much longer a store that deletes by age itself keeps samples than they are
// shown: its clock and ours may differ, and a retention that is lengthened within that time
// has lost nothing.
const StoreGrace = 7 * 24 * time.Hour

// interval is the time between two calls of Advance. It is longer than a request may take by
// default.
const interval = 10 * time.Minute

// Config says how long samples are kept. Meta and Now are required.
type Config struct {
	// Meta is that of the store.
	Meta *meta.Store
	// Now is the clock.
	Now func() time.Time
	// Raw is how long raw samples are kept. 0 is for ever.
	Raw time.Duration
	// StoreAge is the age at which the store itself deletes samples. 0 is never.
	StoreAge time.Duration
	// Expire lets the store delete what is before a time, in milliseconds. It is nil if the
	// store deletes by StoreAge only. Then the horizon follows that, and not Raw.
	Expire func(cut int64)
	// Usage says what there is to delete. It is required with Expire.
	Usage func() (bucketstore.Usage, error)
	// Size is how many bytes the store may take, by Usage: beyond it its oldest days go. 0 is
	// no limit.
	Size uint64
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_retention_*. It may be nil.
	Registerer prometheus.Registerer
}

// A Retention knows the cut. It is safe for concurrent use, but for Advance and Run, of which
// one may run at a time.
type Retention struct {
	cfg      Config
	horizon  atomic.Int64
	failures prometheus.Counter
	sizeDays prometheus.Counter
}

// Open reads the horizon, raises it, and lets the store delete what is before it: no request
// may run yet.
func Open(ctx context.Context, cfg Config) (*Retention, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	f := promauto.With(cfg.Registerer)
	r := &Retention{cfg: cfg, failures: f.NewCounter(prometheus.CounterOpts{
		Name: "adapter_retention_failures_total",
		Help: "Attempts to let the store delete old samples that failed and are repeated.",
	}), sizeDays: f.NewCounter(prometheus.CounterOpts{
		Name: "adapter_retention_size_drops_total",
		Help: "Days of samples that went because the store exceeded --retention.size.",
	})}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_retention_cut_timestamp_seconds",
		Help: "The time before which samples are neither shown nor taken. 0 if all are kept.",
	}, func() float64 { return float64(r.Cut(cfg.Now())) / 1000 })
	horizon, err := cfg.Meta.Horizon(ctx)
	if err != nil {
		return nil, err
	}
	r.horizon.Store(horizon)
	if err := r.raise(ctx); err != nil {
		return nil, err
	}
	r.expire()
	return r, nil
}

// Cut returns the time before which samples are neither shown nor taken when the clock says
// now, in milliseconds. It is 0 if all are kept.
func (r *Retention) Cut(now time.Time) int64 {
	return max(r.horizon.Load(), cutAt(now, r.cfg.Raw), cutAt(now, r.cfg.StoreAge))
}

// Horizon returns the time before which samples may have been deleted, in milliseconds. It is 0 if
// all are kept.
func (r *Retention) Horizon() int64 { return r.horizon.Load() }

func cutAt(now time.Time, age time.Duration) int64 {
	if age <= 0 {
		return 0
	}
	return max(0, now.Add(-age).UnixMilli())
}

// Advance lets the store delete what is before the horizon, and then raises the horizon to
// the cut.
func (r *Retention) Advance(ctx context.Context) error {
	r.expire()
	return r.raise(ctx)
}

func (r *Retention) expire() {
	if horizon := r.horizon.Load(); r.cfg.Expire != nil && horizon > 0 {
		r.cfg.Expire(horizon)
	}
}

// raise raises the horizon to the time before which samples may be deleted now.
func (r *Retention) raise(ctx context.Context) error {
	to := cutAt(r.cfg.Now(), r.cfg.StoreAge)
	if r.cfg.Expire != nil && (r.cfg.Raw > 0 || r.cfg.Size > 0) {
		usage, err := r.cfg.Usage()
		if err != nil {
			return fmt.Errorf("size of the store: %w", err)
		}
		to = min(max(r.Cut(r.cfg.Now()), r.sizeCut(usage)), newest(usage.Days))
	}
	if to <= r.horizon.Load() {
		return nil
	}
	horizon, err := r.cfg.Meta.RaiseHorizon(ctx, to)
	if err == nil {
		r.horizon.Store(horizon)
	}
	return err
}

// newest returns the time from which on samples are never deleted, in milliseconds: the newest
// 3 days of those stay. So a clock that is far ahead hides them and cannot delete all.
func newest(days []bucketstore.DayUsage) int64 {
	if len(days) == 0 {
		return math.MaxInt64
	}
	return days[len(days)-1].End - MinRaw.Milliseconds()
}

// Run calls Advance at an interval until ctx ends.
func (r *Retention) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := r.Advance(ctx); err != nil && ctx.Err() == nil {
			r.failures.Inc()
			level.Error(r.cfg.Logger).Log("msg", "old samples are not deleted, trying again", "interval", interval, "err", err)
		}
	}
}

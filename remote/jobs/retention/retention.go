// Package retention says from when on samples and rollups are kept, and lets the store delete
// those before.
//
// The cut of a resolution is the least time that is shown: as long ago as it is kept, or the
// horizon if that is later. Samples before the cut of raw ones are not taken. The horizons stand
// in META. A horizon is the latest time before which cells may have been deleted. It is durable
// before the store deletes any, and never goes back by itself. So if samples are to be kept for longer than
// before, what is left of half-deleted days stays hidden.
//
// Where several adapters share a store, META has how long they keep samples. One that keeps less
// shows less, but lets go only what META lets go, too. Each reads that and the horizons again
// every few minutes: a horizon may be taken back, see package meta.
//
// The cut moves with the clock, the horizon follows it at an interval, but never into the newest
// 3 days with samples. The store deletes what was before the horizon an interval ago: a request
// has one cut, and finds all samples from there on until it ends.
//
// Where rollups must be there before samples go, Config.Release bounds the horizon of raw
// samples, and their cut is that horizon alone: the clock and the size of the store only ask
// for it. A store that deletes by age itself cannot wait. What it may have deleted is taken by no
// writer and no maker, see Deleted. But it is shown, as far as it is there, until its rollups are made.
//
//	Retention   of all series                              retention.go, size.go
//	Rule        of the series of a selector, in a file     file.go
//	Rules       what they have cut, in META                rules.go
//	Walker      removes that, series by series             walk.go, walkrows.go
//	Covers      what a rule matches of a selector          covers.go
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

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// MinRaw is how long raw samples are kept at least.
const MinRaw = 3 * 24 * time.Hour

// StoreGrace is how much longer a store that deletes by age itself keeps samples than they are
// shown: its clock and ours may differ, and a retention that is lengthened within that time
// has lost nothing.
const StoreGrace = 7 * 24 * time.Hour

// readInterval is how often META is read again where other adapters change it.
const readInterval = 2 * time.Minute

// interval is the time between two calls of Advance. It is longer than a request may take by
// default.
const interval = 10 * time.Minute

// Config says how long samples are kept. Meta and Now are required.
type Config struct {
	// Meta is that of the store.
	Meta *meta.Store
	// Now is the clock.
	Now func() time.Time
	// Config says how long samples are kept.
	timeline.Config
	// Release returns the time up to which raw samples may go, in milliseconds, if they are
	// to go up to a cut. It is called before they do. It is nil if they need not wait for anything.
	Release func(ctx context.Context, cut int64) (int64, error)
	// Expire lets the store delete what is before a time, in milliseconds. It is nil if the
	// store deletes by StoreAge only. Then the horizons follow that, and not Keep.
	Expire func(r rollup.Resolution, cut int64)
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

// A Retention knows the cuts. It is safe for concurrent use, but for Advance and Run, of which
// one may run at a time.
type Retention struct {
	*timeline.Timeline
	cfg Config
	// shared are the ages that META has, or nil if it has none.
	shared   atomic.Pointer[bucketstore.Retention]
	failures prometheus.Counter
	sizeDays prometheus.Counter
}

// Open reads the horizons, raises them, and lets the store delete what is before them: no
// request may run yet.
func Open(ctx context.Context, cfg Config) (*Retention, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	cfg.Waits = cfg.Release != nil
	f := metricset.New(cfg.Registerer)
	r := &Retention{
		Timeline: timeline.New(cfg.Config), cfg: cfg,
		failures: f.Counter("adapter_retention_failures_total", "Attempts to let the store delete old samples that failed and are repeated."),
		sizeDays: f.Counter("adapter_retention_size_drops_total", "Days of samples that went because the store exceeded --retention.size."),
	}
	f.GaugeFunc("adapter_retention_cut_timestamp_seconds",
		"The time before which samples are neither shown nor taken. 0 if all are kept.", func() float64 { return float64(r.Shown(rollup.Raw, cfg.Now())) / 1000 })
	r.registerLimits(f)
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	if err := r.raise(ctx); err != nil {
		return nil, err
	}
	r.expire()
	return r, nil
}

// read reads META.
func (r *Retention) read(ctx context.Context) error {
	if r.cfg.Meta.Traits().Shared {
		keep, ok, err := r.cfg.Meta.Retention(ctx)
		if err != nil {
			return err
		}
		if keep = timeline.Ages(keep); ok {
			r.shared.Store(&keep)
		}
	}
	horizons, err := r.cfg.Meta.Horizons(ctx)
	if err == nil {
		r.SetHorizons(horizons)
	}
	return err
}

// Longer says whether to keep something for a is longer than for b. 0 is for ever, and Off is the shortest.
func Longer(a, b time.Duration) bool { return a != b && (a == 0 || b != 0 && a > b) }

// registerLimits registers what was asked for.
func (r *Retention) registerLimits(f metricset.Set) {
	f.Gauge("adapter_retention_limit_bytes", "How large the store may be, by --retention.size. 0 is no limit.").Set(float64(r.cfg.Size))
	for of := range rollup.NumResolutions {
		if r.cfg.Keep[of] == timeline.Off {
			continue
		}
		labels := prometheus.Labels{"resolution": of.String()}
		f.With(labels).Gauge("adapter_retention_limit_seconds", "How long samples (raw) and rollups of a resolution are kept. 0 is for ever.").Set(r.Age(of).Seconds())
		f.With(labels).GaugeFunc("adapter_retention_next_cut_timestamp_seconds",
			"When the next whole day (UTC) of a resolution is as old as it is kept. The day ended adapter_retention_limit_seconds before. 0 if all is kept.", func() float64 { return float64(r.nextCut(of, r.cfg.Now())) / 1000 })
	}
}

// nextCut returns when the next day of a resolution is as old as it is kept, in milliseconds. It is 0 if all is kept.
func (r *Retention) nextCut(of rollup.Resolution, now time.Time) int64 {
	age := r.Age(of)
	if age <= 0 {
		return 0
	}
	const day = 24 * time.Hour
	return now.Add(-age).UTC().Truncate(day).Add(day).Add(age).UnixMilli()
}

// asked returns the cut of raw samples that all adapters ask for.
func (r *Retention) asked(now time.Time) int64 {
	cut := r.Wanted(rollup.Raw, now)
	if shared := r.shared.Load(); shared != nil {
		cut = min(cut, max(timeline.CutAt(now, shared[rollup.Raw]), timeline.CutAt(now, r.cfg.StoreAge[rollup.Raw])))
	}
	return cut
}

// Advance lets the store delete what is before the horizons, and then raises them to the cuts.
func (r *Retention) Advance(ctx context.Context) error {
	r.expire()
	return r.raise(ctx)
}

func (r *Retention) expire() {
	for of := range rollup.NumResolutions {
		if horizon := r.Horizon(of); r.cfg.Expire != nil && horizon > 0 {
			r.cfg.Expire(of, horizon)
		}
	}
}

// raise raises the horizons to the times before which cells may be deleted now.
func (r *Retention) raise(ctx context.Context) error {
	to, raised := meta.Horizons{}, false
	if r.cfg.Meta.Traits().Shared {
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	now := r.cfg.Now()
	for of := range rollup.NumResolutions {
		to[of] = r.StoreCut(of, now)
	}
	if r.cfg.Expire == nil && r.cfg.Release != nil {
		bound, err := r.bound(ctx, r.asked(now))
		if err != nil {
			return err
		}
		if r.cfg.Meta.Traits().Shared { // the last rollups may have taken long
			if err := r.read(ctx); err != nil {
				return err
			}
		}
		to[rollup.Raw] = max(to[rollup.Raw], min(bound, r.asked(now)))
	}
	var usage bucketstore.Usage
	if r.cfg.Expire != nil && (timeline.Ages(r.cfg.Keep) != bucketstore.Retention{} || r.cfg.Size > 0) {
		var err error
		if usage, err = r.raiseByUsage(ctx, now, &to); err != nil {
			return err
		}
	}
	for of := range rollup.NumResolutions {
		raised = raised || to[of] > r.Horizon(of)
	}
	if !raised {
		return nil
	}
	horizons, err := r.cfg.Meta.RaiseHorizons(ctx, to)
	if err != nil {
		return err
	}
	if r.cfg.Size > 0 {
		r.reportSize(usage, r.Horizon(rollup.Raw), horizons[rollup.Raw], now)
	}
	r.SetHorizons(horizons)
	return nil
}

// raiseByUsage sets to to the times before which a store that deletes what it is told to may
// delete cells, and returns the usage that they follow from.
func (r *Retention) raiseByUsage(ctx context.Context, now time.Time, to *meta.Horizons) (bucketstore.Usage, error) {
	usage, err := r.cfg.Usage()
	if err != nil {
		return usage, fmt.Errorf("size of the store: %w", err)
	}
	for of := range rollup.NumResolutions {
		to[of] = min(r.Wanted(of, now), Newest(usage.Days))
	}
	to[rollup.Raw] = min(max(r.Wanted(rollup.Raw, now), r.sizeCut(usage)), Newest(usage.Days))
	if to[rollup.Raw], err = r.bound(ctx, to[rollup.Raw]); err != nil {
		return usage, err
	}
	for _, of := range rollup.Downsampled {
		if r.cfg.Keep[of] == timeline.Off {
			to[of] = max(to[of.Finer()], r.Horizon(of.Finer()))
		}
	}
	return usage, nil
}

// bound returns the part of a cut of raw samples up to which they may go now.
func (r *Retention) bound(ctx context.Context, cut int64) (int64, error) {
	if r.cfg.Release == nil || cut <= r.Horizon(rollup.Raw) {
		return cut, nil
	}
	bound, err := r.cfg.Release(ctx, cut)
	if err != nil {
		return 0, fmt.Errorf("samples that may go: %w", err)
	}
	return min(cut, bound), nil
}

// Newest returns the time from which on samples are never deleted, in milliseconds: the newest
// 3 days of those stay. So a clock that is far ahead hides them and cannot delete all.
func Newest(days []bucketstore.DayUsage) int64 {
	if len(days) == 0 {
		return math.MaxInt64
	}
	return days[len(days)-1].End - MinRaw.Milliseconds()
}

// Run calls Advance at once and then at an interval until ctx ends, and reads META more often if others change it.
func (r *Retention) Run(ctx context.Context) {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		if n%int(interval/readInterval) == 0 {
			r.report(ctx, "old samples are not deleted, trying again", interval, r.Advance(ctx))
		} else if r.cfg.Meta.Traits().Shared {
			r.report(ctx, "how long samples are kept is not read, trying again", readInterval, r.read(ctx))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// report counts and logs an error.
func (r *Retention) report(ctx context.Context, msg string, again time.Duration, err error) {
	if err != nil && ctx.Err() == nil {
		r.failures.Inc()
		level.Error(r.cfg.Logger).Log("msg", msg, "interval", again, "err", err)
	}
}

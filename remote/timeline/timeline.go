package timeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series/rollup"
)

// Off, in the place of how long rollups are kept, says that none are made. Those that were made
// are kept as long as the finer resolution.
const Off time.Duration = -1

// Ages returns keep with the ages that stand for Off.
func Ages(keep bucketstore.Retention) bucketstore.Retention {
	for _, r := range rollup.Downsampled {
		if keep[r] == Off {
			keep[r] = keep[r.Finer()]
		}
	}
	return keep
}

// Config says how long samples are kept.
type Config struct {
	// Keep is how long each resolution is kept: Off, or as long as the finer ones or longer. 0 is for ever.
	Keep bucketstore.Retention
	// StoreAge is the age at which the store itself deletes the cells of each resolution. 0 is never.
	StoreAge bucketstore.Retention
	// Days, if set, are the days of rollups.
	Days Days
	// Waits says that samples wait for their rollups before they go. It needs Days.
	Waits bool
}

// Days are what META/rollup says. Times are ends of days, in milliseconds.
type Days interface {
	// Made is the last day up to which all rollups were made once.
	Made() int64
	// TakenFrom is the first time of which samples are taken, or 0.
	TakenFrom() int64
	// Closed is the last day of which no samples are taken, as META has it now.
	Closed(ctx context.Context) (int64, error)
}

// A Timeline says which times of samples are shown, written and rolled up. Of one resolution of all series, from
// the past to the present:
//
//	deleted     | shown, not written | shown and written
//	------------+--------------------+------------------->
//	         horizon            closed                  now
//
//	horizon   before it cells may have been deleted: the job of retention raises it in META/horizon
//	          before the store deletes, and never lowers it
//	closed    up to it no samples are taken: the job of rollups raises it in META/rollup before it makes
//	          rollups a last time, so that they are those of all samples
//	made      up to it all rollups were made once. Samples of later days are not deleted
//
// What is shown begins at the horizon, or at the age of the resolution where that is later. Samples that wait for
// their rollups are shown, however old they are. Rules move the same bounds of some series, in META/rules,<id>.
//
// It is safe for concurrent use.
type Timeline struct {
	cfg Config
	// ages are those of Config.Keep.
	ages     bucketstore.Retention
	horizons [rollup.NumResolutions]atomic.Int64
	ruled    RuleSource
}

// New returns the timeline of a store of which no cells were deleted.
func New(cfg Config) *Timeline { return &Timeline{cfg: cfg, ages: Ages(cfg.Keep)} }

// SetRules sets what rules cut of some series. No other call may be running.
func (t *Timeline) SetRules(ruled RuleSource) { t.ruled = ruled }

// SetHorizons takes over the horizons that META has.
func (t *Timeline) SetHorizons(h meta.Horizons) {
	for of := range h {
		t.horizons[of].Store(h[of])
	}
}

// Horizon returns the time before which cells of a resolution may have been deleted, in
// milliseconds. It is 0 if all are kept.
func (t *Timeline) Horizon(of rollup.Resolution) int64 { return t.horizons[of].Load() }

// View returns the timeline of a request that comes at now.
func (t *Timeline) View(now time.Time) *View {
	v := &View{Now: now, Writable: t.Deleted(now), Ruled: t.ruled}
	for of := range rollup.NumResolutions {
		if v.Shown[of] = t.Shown(of, now); t.cfg.Keep[of] == Off {
			v.Shown[of] = Never
		}
	}
	if t.cfg.Days != nil {
		v.HasRollups, v.Made, v.Writable = true, t.cfg.Days.Made(), max(v.Writable, t.cfg.Days.TakenFrom())
	}
	return v
}

// Made returns the end of the last day up to which all rollups were made once, in milliseconds.
func (t *Timeline) Made() int64 {
	if t.cfg.Days == nil {
		return 0
	}
	return t.cfg.Days.Made()
}

// Closed returns the end of the last day of which no samples are taken, in milliseconds, as META has it now.
func (t *Timeline) Closed(ctx context.Context) (int64, error) {
	if t.cfg.Days == nil {
		return 0, nil
	}
	return t.cfg.Days.Closed(ctx)
}

// Shown returns the time before which a resolution is not shown when the clock says now, in
// milliseconds. It is 0 if all is kept.
func (t *Timeline) Shown(of rollup.Resolution, now time.Time) int64 {
	if of == rollup.Raw && t.cfg.Waits {
		return max(t.Horizon(of), t.StoreCut(of, now))
	}
	return max(t.Horizon(of), t.Wanted(of, now))
}

// StoreCut returns the time before which a resolution is not shown because the store may have deleted it by age. Samples are shown
// until their rollups are made, if any are.
func (t *Timeline) StoreCut(of rollup.Resolution, now time.Time) int64 {
	cut := CutAt(now, t.cfg.StoreAge[of])
	if of == rollup.Raw && t.cfg.Waits && cut > 0 {
		cut = min(cut, t.Made())
	}
	return cut
}

// Deleted returns the time before which samples may have been deleted when the clock says now, in milliseconds: none are to be
// stored, and no rollup made. It is Shown of raw samples or later.
func (t *Timeline) Deleted(now time.Time) int64 {
	return max(t.Shown(rollup.Raw, now), CutAt(now, t.cfg.StoreAge[rollup.Raw]))
}

// Wanted returns the cut that the age of a resolution asks for.
func (t *Timeline) Wanted(of rollup.Resolution, now time.Time) int64 {
	return max(CutAt(now, t.ages[of]), CutAt(now, t.cfg.StoreAge[of]))
}

// Age returns how long a resolution is kept. 0 is for ever.
func (t *Timeline) Age(of rollup.Resolution) time.Duration {
	age, store := t.ages[of], t.cfg.StoreAge[of]
	if age <= 0 || store > 0 && store < age {
		return store
	}
	return age
}

// Latest returns the latest time before which samples of some series may not be shown, as far as it is known, in milliseconds.
func (t *Timeline) Latest(now time.Time) int64 {
	latest := t.Shown(rollup.Raw, now)
	if t.ruled != nil {
		latest = max(latest, t.ruled.Known().Latest())
	}
	return latest
}

// KeyRules returns what rules cut of series by their keys, at most 10 minutes old.
func (t *Timeline) KeyRules(ctx context.Context) (KeyRules, error) {
	if t.ruled == nil {
		return none{}, nil
	}
	return t.ruled.Resolve(ctx)
}

// CutAt returns the time that was an age before now, in milliseconds. It is 0 without an age.
func CutAt(now time.Time, age time.Duration) int64 {
	if age <= 0 {
		return 0
	}
	return max(0, now.Add(-age).UnixMilli())
}

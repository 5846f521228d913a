// Package timeline says what holds at which times of samples: which may be written, which are
// shown, and which rollups there are. See Timeline for what moves these bounds.
package timeline

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series/rollup"
)

// Never is a bound after all times: nothing of a resolution is there.
const Never int64 = math.MaxInt64

// A View is the timeline as one request has it, however long it takes. Its fields do not
// change. Times are in milliseconds. It is safe for concurrent use.
type View struct {
	// Now is when the request came, by the clock.
	Now time.Time
	// Shown is the time before which nothing of a resolution is shown, of any series. It is Never if a resolution is not kept.
	Shown [rollup.NumResolutions]int64
	// Writable is the time before which no samples are taken, of any series.
	Writable int64
	// Made is the end of the last day up to which all rollups were made once.
	Made int64
	// HasRollups says that rollups are or were made, so that windows may be answered from them.
	HasRollups bool
	// Ruled, if set, says what rules cut of some series beside that.
	Ruled RuleSource

	mu sync.Mutex
	// shown are the rules of ShownRules, or nil as long as they cut nothing that was asked for.
	shown Rules
}

// A RuleSource says what rules cut when the clock says now, for a request that deals with times from one on. It may
// have to read META for old ones.
type RuleSource interface {
	// Rules fails if what is known is too old.
	Rules(ctx context.Context, now time.Time, from func() int64) (Rules, error)
	// ShownRules is Rules for reads.
	ShownRules(ctx context.Context, now time.Time, from func() int64) (Rules, error)
	// Resolve waits until what is in force is known, for all times.
	Resolve(ctx context.Context) (KeyRules, error)
	// Known is what is known already.
	Known() Rules
}

// KeyRules are Rules of series by their keys.
type KeyRules interface {
	// Latest is the latest time before which anything of any series is not shown, or 0.
	Latest() int64
	// KeyCut returns the time before which samples of the series with a key may be deleted.
	KeyCut(key []byte) int64
	// KeyClosed returns the end of the last day of which no rollup of the series with a key is made any more, or only
	// from samples that are final.
	KeyClosed(key []byte) int64
}

// Rules are what rules cut of series, at one time. They do not change.
type Rules interface {
	// Latest is the latest time before which anything of any series is not shown, or 0.
	Latest() int64
	// Of returns the times before which nothing of a series is shown, by resolution.
	Of(ls labels.Labels) [rollup.NumResolutions]int64
	// LatestRefused is the latest time before which any series takes no samples, or 0.
	LatestRefused() int64
	// Refused returns the time before which a series takes no samples, and the rule that says so.
	Refused(ls labels.Labels) (before int64, rule string)
	// For returns the rules of the series of a tenant.
	For(tenant string) Rules
}

// Unbounded is the View of a store that keeps all samples and has no rollups.
func Unbounded(now time.Time) *View { return RawFrom(now, 0) }

// RawFrom is the View of a store without rollups that keeps samples from a time on.
func RawFrom(now time.Time, from int64) *View {
	v := &View{Now: now, Writable: from}
	for of := range v.Shown {
		v.Shown[of] = Never
	}
	v.Shown[rollup.Raw] = from
	return v
}

// Raw is the time before which no samples are shown.
func (v *View) Raw() int64 { return v.Shown[rollup.Raw] }

// Found is the time before which no series is found: nothing is shown of any resolution.
func (v *View) Found() int64 { return slices.Min(v.Shown[:]) }

// Sources says of which times there are samples and rollups.
func (v *View) Sources() rollup.Sources { return rollup.Sources{From: v.Shown, Until: v.Made} }

// Rules returns what rules refuse of samples of a tenant, which is empty in a store without tenants, from a time on.
func (v *View) Rules(ctx context.Context, tenant string, from func() int64) (Rules, error) {
	if v.Ruled == nil {
		return none{}, nil
	}
	rules, err := v.Ruled.Rules(ctx, v.Now, from)
	if err != nil {
		return nil, err
	}
	return rules.For(tenant), nil
}

// ShownRules returns what rules hide from a read of a tenant, of times from one on. All reads of a request that rules cut
// get the same.
func (v *View) ShownRules(ctx context.Context, tenant string, from int64) (Rules, error) {
	rules, err := v.shownRules(ctx, from)
	if err != nil {
		return nil, err
	}
	return rules.For(tenant), nil
}

// shownRules returns the rules of all tenants.
func (v *View) shownRules(ctx context.Context, from int64) (Rules, error) {
	if v.Ruled == nil {
		return none{}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shown != nil {
		return v.shown, nil
	}
	rules, err := v.Ruled.ShownRules(ctx, v.Now, func() int64 { return from })
	if err == nil && from < rules.Latest() {
		v.shown = rules
	}
	return rules, err
}

// NoRules are rules that cut nothing.
func NoRules() KeyRules { return none{} }

type none struct{}

func (none) Latest() int64                                      { return 0 }
func (none) Of(labels.Labels) (of [rollup.NumResolutions]int64) { return of }
func (none) LatestRefused() int64                               { return 0 }
func (none) Refused(labels.Labels) (before int64, rule string)  { return 0, "" }

func (n none) For(string) Rules { return n }

func (none) KeyCut([]byte) int64    { return 0 }
func (none) KeyClosed([]byte) int64 { return 0 }

// A Func returns the View of a request that came at a time.
type Func func(now time.Time) *View

type requestKey struct{}

// A request has one View, which is made when it is first asked for.
type request struct {
	now  time.Time
	once sync.Once
	view *View
}

// WithRequest returns the context of a request that came at now: all that it does has one View.
func WithRequest(ctx context.Context, now time.Time) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{now: now})
}

// Of returns the View of the request of ctx. If there is none it is that of now.
func (f Func) Of(ctx context.Context, now func() time.Time) *View {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return f(now())
	}
	r.once.Do(func() { r.view = f(r.now) })
	return r.view
}

package timeline_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// day is a day in milliseconds.
const day = int64(24 * time.Hour / time.Millisecond)

// days are Days whose bounds a test moves.
type days struct{ made, closed int64 }

func (d *days) Made() int64                           { return d.made }
func (d *days) TakenFrom() int64                      { return d.closed }
func (d *days) Closed(context.Context) (int64, error) { return d.closed, nil }

// TestBounds moves the clock and all bounds at random, as jobs do, and checks after each step
// what the drawing of Timeline says.
func TestBounds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		age := func() time.Duration { return time.Duration(rng.IntN(40)) * 24 * time.Hour }
		var cfg timeline.Config
		for of := range cfg.Keep { // finer resolutions are kept for as long or shorter
			cfg.Keep[of] = age()
			if of > 0 && cfg.Keep[of] > 0 && (cfg.Keep[of-1] == 0 || cfg.Keep[of] < cfg.Keep[of-1]) {
				cfg.Keep[of] = cfg.Keep[of-1]
			}
			if rng.IntN(3) == 0 {
				cfg.StoreAge[of] = age()
			}
		}
		coarsest := rollup.NumResolutions - 1
		if rng.IntN(4) == 0 {
			cfg.Keep[coarsest] = timeline.Off
		}
		d := &days{}
		if rng.IntN(3) > 0 {
			cfg.Days, cfg.Waits = d, rng.IntN(2) == 0
		}
		tl := timeline.New(cfg)
		now := time.UnixMilli(1_700_000_000_000)
		var horizons meta.Horizons
		before := tl.View(now)
		for range 40 {
			switch rng.IntN(4) {
			case 0:
				now = now.Add(time.Duration(rng.Int64N(int64(5 * 24 * time.Hour))))
			case 1:
				d.closed = min(now.UnixMilli(), d.closed+rng.Int64N(700)*day)
			case 2:
				d.made = max(d.made, d.closed-rng.Int64N(3)*day)
			case 3: // a horizon follows what is asked for, and waits for rollups
				of := rollup.Resolution(rng.IntN(int(rollup.NumResolutions)))
				to := tl.Wanted(of, now)
				if of == rollup.Raw && cfg.Waits {
					to = min(to, d.made)
				}
				horizons[of] = max(horizons[of], to)
				tl.SetHorizons(horizons)
			}
			v := tl.View(now)
			for of := range rollup.NumResolutions {
				if v.Shown[of] < tl.Horizon(of) {
					t.Fatalf("seed %d: %v is shown from %d, and may be deleted up to %d", seed, of, v.Shown[of], tl.Horizon(of))
				}
				if v.Shown[of] < before.Shown[of] {
					t.Fatalf("seed %d: %v was shown from %d, and now from %d", seed, of, before.Shown[of], v.Shown[of])
				}
				if v.Found() > v.Shown[of] {
					t.Fatalf("seed %d: %v is shown from %d, and series are found from %d", seed, of, v.Shown[of], v.Found())
				}
			}
			if (v.Shown[coarsest] == timeline.Never) != (cfg.Keep[coarsest] == timeline.Off) {
				t.Fatalf("seed %d: what is kept for %v is shown from %d", seed, cfg.Keep[coarsest], v.Shown[coarsest])
			}
			if v.Writable < v.Raw() || v.Writable < tl.Deleted(now) || cfg.Days != nil && v.Writable < d.closed {
				t.Fatalf("seed %d: samples from %d are taken, shown from %d, deleted up to %d, closed up to %d", seed, v.Writable, v.Raw(), tl.Deleted(now), d.closed)
			}
			if cfg.Waits && v.Raw() > max(d.made, horizons[rollup.Raw]) {
				t.Fatalf("seed %d: samples are shown from %d, with rollups made up to %d", seed, v.Raw(), d.made)
			}
			if got := v.Sources(); got.From != v.Shown || got.Until != tl.Made() {
				t.Fatalf("seed %d: sources %+v of %+v", seed, got, v)
			}
			before = v
		}
	}
}

func TestAges(t *testing.T) {
	month := 30 * 24 * time.Hour
	got := timeline.Ages(bucketstore.Retention{month, timeline.Off, timeline.Off})
	if want := (bucketstore.Retention{month, month, month}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestOneView wants one View for all that a request does, and one of its own for what has no request.
func TestOneView(t *testing.T) {
	calls := 0
	views := timeline.Func(func(now time.Time) *timeline.View {
		calls++
		return timeline.RawFrom(now, now.UnixMilli())
	})
	clock := func() time.Time { return time.UnixMilli(7) }
	ctx := timeline.WithRequest(t.Context(), time.UnixMilli(5))
	first, second := views.Of(ctx, clock), views.Of(context.WithoutCancel(ctx), clock)
	if first != second || calls != 1 || first.Raw() != 5 {
		t.Errorf("views %p and %p from %d, made %d times", first, second, first.Raw(), calls)
	}
	if v := views.Of(t.Context(), clock); v.Raw() != 7 || v.HasRollups {
		t.Errorf("without a request: %+v", v)
	}
}

// ruled is a RuleSource and its Rules: the whole is cut before a time that a test moves.
type ruled struct {
	timeline.RuleSource
	cut   int64
	asked int
}

// cutAt are rules that cut every series at one time.
type cutAt int64

func (c cutAt) Latest() int64 { return int64(c) }
func (c cutAt) Of(labels.Labels) (of [rollup.NumResolutions]int64) {
	for i := range of {
		of[i] = int64(c)
	}
	return of
}
func (c cutAt) LatestRefused() int64                  { return int64(c) }
func (c cutAt) Refused(labels.Labels) (int64, string) { return int64(c), "all" }
func (c cutAt) For(string) timeline.Rules             { return c }

func (r *ruled) ShownRules(context.Context, time.Time, func() int64) (timeline.Rules, error) {
	r.asked++
	return cutAt(r.cut), nil
}

func (r *ruled) Known() timeline.Rules { return cutAt(r.cut) }

// TestShownRules wants the same rules for all reads of a request from the first that they cut.
func TestShownRules(t *testing.T) {
	source := &ruled{cut: 100}
	tl := timeline.New(timeline.Config{})
	tl.SetRules(source)
	if got := tl.Latest(time.UnixMilli(1000)); got != 100 {
		t.Errorf("the latest cut is %d", got)
	}
	v := tl.View(time.UnixMilli(1000))
	for _, tc := range []struct{ cut, from, want int64 }{
		{100, 200, 100}, // a read that they do not cut
		{150, 200, 150},
		{300, 200, 300}, // the first that they cut
		{400, 200, 300},
		{400, 500, 300},
	} {
		source.cut = tc.cut
		rules, err := v.ShownRules(t.Context(), "", tc.from)
		if err != nil || rules.Latest() != tc.want {
			t.Errorf("rules that cut at %d, read from %d: %v, %v, want %d", tc.cut, tc.from, rules.Latest(), err, tc.want)
		}
	}
	if source.asked != 3 {
		t.Errorf("asked %d times", source.asked)
	}
	v = timeline.Unbounded(time.UnixMilli(1000))
	rules, err := v.ShownRules(t.Context(), "", 0)
	if err != nil || rules.Latest() != 0 {
		t.Errorf("without rules: %v, %v", rules, err)
	}
}

package rollup_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestPlan: what a random plan reads is exact for every window, or widened to buckets where there
// are no samples. A window that begins shortly before the end of a bucket may be read from it.
func TestPlan(t *testing.T) {
	r := seriestest.NewRand(t)
	plans := map[rollup.Resolution]int{}
	for range 20_000 {
		w, s := randomWindows(r), randomSources(r)
		p := rollup.NewPlan(w, s)
		if p == nil {
			plans[rollup.Raw]++
			continue
		}
		for _, span := range p.Spans {
			plans[span.Resolution]++
		}
		checkSpans(t, s, p)
		for i := range w.Count {
			to := w.Start + int64(i)*w.Step
			checkWindow(t, w, s, p, to-w.Range, to)
		}
		if t.Failed() {
			t.Fatalf("windows %+v, sources %+v, plan %+v", w, s, p)
		}
	}
	t.Logf("spans by resolution: %v", plans)
	if plans[rollup.Raw] == 0 || plans[rollup.FiveMinutes] == 0 || plans[rollup.OneHour] == 0 {
		t.Errorf("not all resolutions were chosen: %v", plans)
	}
}

// TestPlanOfZones: Grafana's windows begin and end at hours of a zone. Those that 5 minutes tell are read from these, or from hours where they tell them,
// and samples are read only where windows are so long that a few edges of hours cost less than 5 minutes of all the time.
func TestPlanOfZones(t *testing.T) {
	const hour, minute = int64(3600_000), int64(60_000)
	hours, minutes, mixed := rollup.OneHour.Origin(), rollup.FiveMinutes.Origin(), rollup.OneHour.Origin()|rollup.Raw.Origin()
	for _, tt := range []struct {
		step, more int64
		// utc is what windows are read from where hours begin with those of UTC, and half where they do not.
		utc, half rollup.Origin
	}{
		{5 * minute, 15_000, minutes, minutes},
		{hour, 15_000, hours, minutes},
		{6 * hour, 15_000, hours, minutes},
		{6 * hour, minute, hours, minutes},
		{12 * hour, 15_000, hours, minutes},
		{24 * hour, 15_000, hours, minutes},
		{7 * 24 * hour, 15_000, hours, mixed},
		{6 * hour, 300_000 + 15_000, minutes, minutes},
	} {
		for _, zone := range []int64{0, 60, -480, 330, 345, -210} { // minutes
			w := rollup.Windows{Start: day + 2*rollup.Day - zone*minute, Step: tt.step, Range: tt.step + tt.more, Count: int(365 * rollup.Day / tt.step)} // a Monday
			p := rollup.NewPlan(w, rollup.Sources{Until: day + 400*rollup.Day, Coarsest: rollup.OneHour})
			var got rollup.Origin
			for _, span := range p.Spans {
				got |= span.Resolution.Origin()
			}
			want := tt.utc
			if zone%60 != 0 {
				want = tt.half
			}
			if got != want {
				t.Errorf("windows of %d + %d in the zone of %d minutes are read from %v, want %v", tt.step, tt.more, zone, got.Names(), want.Names())
			}
		}
	}
}

func randomWindows(r *rand.Rand) rollup.Windows {
	spans := []int64{1, 60_000, 300_000, 3_600_000, 6 * 3_600_000, rollup.Day, 7 * rollup.Day}
	w := rollup.Windows{
		Start: day + r.Int64N(20)*rollup.Day + []int64{0, 300_000, 3_600_000, r.Int64N(rollup.Day), 66_600_000, 65_700_000, 12_600_000}[r.IntN(7)],
		Step:  spans[r.IntN(len(spans))] * (1 + r.Int64N(3)),
		Range: spans[1+r.IntN(len(spans)-1)] * (1 + r.Int64N(3)),
		Count: 1 + r.IntN(100),
		Last:  r.IntN(4) == 0,
	}
	if r.IntN(2) == 0 { // as Grafana asks
		w.Range += []int64{15_000, 60_000, 30_000, 240_000, 300_000}[r.IntN(5)]
	}
	if r.IntN(10) == 0 {
		w.Start = r.Int64N(3 * rollup.Day)
	}
	return w
}

func randomSources(r *rand.Rand) (s rollup.Sources) {
	s.Until = day + r.Int64N(100)*rollup.Day
	s.Coarsest = rollup.Resolution(r.IntN(int(rollup.NumResolutions)))
	if r.IntN(2) == 0 {
		s.From[rollup.Raw] = day + r.Int64N(30*rollup.Day)
		s.Until = max(s.Until, rollup.DayOf(s.From[rollup.Raw])+rollup.Day)
		if r.IntN(2) == 0 {
			s.From[rollup.Finest] = s.From[rollup.Raw] - r.Int64N(20*rollup.Day)
		}
	}
	for _, resolution := range rollup.Downsampled {
		if r.IntN(5) == 0 {
			s.From[resolution] = math.MaxInt64
		}
	}
	return s
}

// checkSpans checks that spans are in order, and of times of which there are buckets.
func checkSpans(t *testing.T, s rollup.Sources, p *rollup.Plan) {
	t.Helper()
	last := int64(math.MinInt64)
	for _, span := range p.Spans {
		if span.After < last || span.To <= span.After {
			t.Errorf("span %+v after %d", span, last)
		}
		last = span.To
		if span.Resolution == rollup.Raw {
			continue
		}
		if span.After%span.Resolution.Span() != 0 || span.To%span.Resolution.Span() != 0 || span.To > s.Until || s.From[span.Resolution] > max(0, span.After) {
			t.Errorf("span %+v has no buckets", span)
		}
	}
}

// checkWindow checks that a window, widened if it must be, is made of whole spans or buckets.
func checkWindow(t *testing.T, w rollup.Windows, s rollup.Sources, p *rollup.Plan, after, to int64) {
	t.Helper()
	wideAfter, wideTo, widened := p.Widen(after, to)
	hasRaw := func(t int64) bool { return s.From[rollup.Raw] == 0 || t >= rollup.DayOf(s.From[rollup.Raw])+rollup.Day }
	if widened && hasRaw(after) {
		t.Errorf("window (%d, %d] is widened to (%d, %d]", after, to, wideAfter, wideTo)
	}
	if wideAfter > after || wideTo < to {
		t.Errorf("window (%d, %d] is narrowed to (%d, %d]", after, to, wideAfter, wideTo)
	}
	at := wideAfter
	for _, span := range p.Spans {
		if span.To <= at || at >= wideTo {
			continue
		}
		if span.After > at {
			break
		}
		mayBeginIn := at == wideAfter && (!hasRaw(at) || w.HasShortEdges(span.Resolution)) // buckets tell whether it may
		if r := span.Resolution.Span(); r > 0 && !w.Last && (at%r != 0 && !mayBeginIn || span.To > wideTo && wideTo%r != 0) {
			t.Errorf("window (%d, %d] has a part of a bucket of %+v", wideAfter, wideTo, span)
		} else if r > 0 && span.To > wideTo && wideTo%r != 0 {
			t.Errorf("window (%d, %d] ends in a bucket of %+v", wideAfter, wideTo, span)
		}
		at = span.To
	}
	if at < wideTo {
		t.Errorf("window (%d, %d] is read up to %d", wideAfter, wideTo, at)
	}
}

// TestPlanOfGaps: a cell holds a day, so short windows with time between them are read from it, too, where a step of 30 minutes has 48 of them.
func TestPlanOfGaps(t *testing.T) {
	w := rollup.Windows{Start: day, Step: 30 * 60_000, Range: 300_000, Count: 48 * 30}
	p := rollup.NewPlan(w, rollup.Sources{Until: day + 40*rollup.Day, Coarsest: rollup.Coarsest})
	if p == nil {
		t.Fatal("all is read as samples")
	}
	for _, s := range p.Spans {
		if s.Resolution != rollup.FiveMinutes {
			t.Fatalf("span %+v is not of 5m", s)
		}
	}
}

// TestPlanCut: a plan that is cut reads the same times up to there, and no part of a bucket.
func TestPlanCut(t *testing.T) {
	r := seriestest.NewRand(t)
	cuts, gone := 0, 0
	for range 20_000 {
		w, s := randomWindows(r), randomSources(r)
		p := rollup.NewPlan(w, s)
		if p == nil {
			continue
		}
		whole := slices.Clone(p.Spans)
		to := w.Start - w.Range + r.Int64N(int64(w.Count)*w.Step+w.Range)
		to -= to % []int64{1, 300_000, 3_600_000}[r.IntN(3)]
		if !p.Cut(to) {
			if s.From[rollup.Raw] == 0 || to > rollup.DayOf(s.From[rollup.Raw])+rollup.Day {
				t.Fatalf("no samples at %d: %+v", to, s)
			}
			gone++
			continue
		}
		checkSpans(t, s, p)
		isRead := func(spans []rollup.Span, t int64) bool {
			return slices.ContainsFunc(spans, func(s rollup.Span) bool { return s.After < t && t <= s.To })
		}
		for _, span := range whole {
			for _, at := range []int64{span.After, span.After + 1, span.To, to - 1, to, to + 1} {
				if want := isRead(whole, at) && at <= to; isRead(p.Spans, at) != want {
					t.Fatalf("%d is read: %t, cut at %d: %+v of %+v", at, !want, to, p.Spans, whole)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("cut at %d: %+v of %+v", to, p.Spans, whole)
		}
		cuts++
	}
	if cuts == 0 || gone == 0 {
		t.Errorf("%d cuts, %d where samples are gone", cuts, gone)
	}
}

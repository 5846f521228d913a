//go:build !race

package engine_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestWidened: over windows that are widened to whole buckets, a function of a series that is the same all the time is about what it is over the
// samples of the window that was asked for, whatever the resolution, and the answer says so.
func TestWidened(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	for name, value := range map[string]func(n int64) float64{
		"even": func(n int64) float64 { return float64(1 + n%4) }, // 4 changes and a reset in each minute
		"grow": func(n int64) float64 { return float64(n) },
	} {
		samples := make(map[int64]float64)
		for n := int64(0); n*15_000 < rollupDays*rollup.Day; n++ {
			samples[rollupStart+7_000+n*15_000] = value(n)
		}
		s.append(t, labels.FromStrings("__name__", name), samples)
	}
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, to := time.UnixMilli(rollupStart+rollup.Day+37*60_000+3_000), time.UnixMilli(rollupStart+3*rollup.Day)
	for _, fn := range rollupFunctions {
		if fn == "" || fn == "irate" || fn == "quantile" || fn == "ts_of_first_over_time" || fn == "ts_of_last_over_time" {
			continue // irate and quantile have no value, the others have those of other samples
		}
		for _, window := range []string{"5m", "31m", "1h15s", "6h15s"} {
			name := "even"
			if fn == "rate" || fn == "increase" || fn == "delta" {
				name = "grow"
			}
			expr := fmt.Sprintf("%s(%s[%s])", fn, name, window)
			s.sources.From[rollup.Raw], s.sources.From[rollup.FiveMinutes] = 0, 0
			exact := pointsOf(s.ask(t, s.engine, expr, from, to, 47*time.Minute)[0])
			for _, from5m := range []int64{0, math.MaxInt64} {
				s.sources.From[rollup.Raw], s.sources.From[rollup.FiveMinutes] = math.MaxInt64/2, from5m
				answer, warnings := s.askWith(t, s.engine, expr, from, to, 47*time.Minute)
				if len(answer) != 1 || len(warnings) == 0 {
					t.Fatalf("%s: %d series, %v", expr, len(answer), warnings)
				}
				got := pointsOf(answer[0])
				for at, want := range exact {
					p, ok := got[at]
					isClose := math.Abs(p.F-want.F) <= 0.1*math.Abs(want.F)
					switch fn {
					case "changes", "resets", "count_over_time": // a whole number over samples
						isClose = math.Abs(p.F-want.F) <= 1+0.02*want.F
					case "first_over_time", "last_over_time": // one of the four, as are those of the wider window
						isClose = p.F >= 1 && p.F <= 4
					}
					if !ok || !isClose {
						t.Fatalf("%s at %d, 5m from %d: %v (%t), and %v over samples", expr, at, from5m, p.F, ok, want.F)
					}
				}
			}
		}
	}
}

// TestWidenedAcrossBases: a window that ends just before a base is widened into it, whatever windows come after it. The first sample of the
// last bucket is in the row of the later base alone, which lies outside of the times that the query asks for.
func TestWidenedAcrossBases(t *testing.T) {
	const base = 382 * series.Period // 2021-12-28 07:45:07
	s := newRolled(t, seriestest.NewRand(t))
	s.append(t, labels.FromStrings("__name__", "gauge"), map[int64]float64{
		base - 20*3600_000: 1, // so that the index period before has the series
		base + 60_000:      2,
		base + 3600_000:    3,
	})
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.sources.From[rollup.Raw], s.sources.From[rollup.FiveMinutes] = math.MaxInt64/2, math.MaxInt64
	for _, steps := range []int64{0, 1, 3} {
		at := time.UnixMilli(base - 30_000)
		got := s.ask(t, s.engine, `min_over_time(gauge[5m])`, at, at.Add(time.Duration(steps)*time.Hour), time.Hour)
		if len(got) != 1 || len(got[0].Floats) == 0 || got[0].Floats[0].F != 2 || got[0].Floats[0].T != at.UnixMilli() {
			t.Errorf("%d steps after the first: %v, want first 2", steps, got)
		}
	}
}

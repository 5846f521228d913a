package series_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/series"
)

func TestSplit(t *testing.T) {
	const base = 1297080123392
	cases := []struct {
		name  string
		t     int64
		base  int64
		delta uint32
	}{
		{"first", 0, 0, 0},
		{"last of the first base", 1<<32 - 1, 0, 1<<32 - 1},
		{"second base", 1 << 32, 1 << 32, 0},
		{"base", base, base, 0},
		{"before base", base - 1, base - 1<<32, 1<<32 - 1},
		{"after base", base + 1, base, 1},
		{"last of base", base + 1<<32 - 1, base, 1<<32 - 1},
		{"next base", base + 1<<32, base + 1<<32, 0},
		{"last", series.MaxTime, 9998683865088, 1316134911},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if base, delta := series.Split(tc.t); base != tc.base || delta != tc.delta || base+int64(delta) != tc.t {
				t.Errorf("Split(%d) = %d, %d, want %d, %d", tc.t, base, delta, tc.base, tc.delta)
			}
		})
	}
}

func TestPeriodOf(t *testing.T) {
	const period = 2421 * series.IndexPeriod
	for _, tc := range []struct{ t, want int64 }{
		{0, 0}, {1<<29 - 1, 0}, {1 << 29, 1 << 29},
		{period - 1, period - 1<<29}, {period, period}, {period + 1<<29 - 1, period}, {period + 1<<29, period + 1<<29},
		{series.MaxTime, 9999757606912},
	} {
		if got := series.PeriodOf(tc.t); got != tc.want {
			t.Errorf("PeriodOf(%d) = %d, want %d", tc.t, got, tc.want)
		}
	}
}

func TestWindowOf(t *testing.T) {
	for _, start := range []int64{0, series.Window, series.Period, series.Period - series.Window} {
		for _, at := range []int64{start, start + 1, start + series.Window - 1} {
			if got := series.WindowOf(at); got != start {
				t.Errorf("WindowOf(%d) = %d, want %d", at, got, start)
			}
		}
	}
}

func TestArrival(t *testing.T) {
	const now = 100 * series.Window
	for _, tt := range []struct {
		name       string
		rawFrom, t int64
		family     string
		cellTime   int64
		lateFrom   int64
	}{
		{"no doubt", 0, now, series.FamilyR0, now, 0},
		{"no doubt, two windows ago", 0, now - series.Window - 1, series.FamilyLate, now, 0},
		{"the first time", 0, 0, series.FamilyLate, now, 0},
		{"in doubt", series.MaxTime + 1, now, series.FamilyLate, now, 0},
		{"in doubt, the last time", series.MaxTime + 1, series.MaxTime, series.FamilyLate, now, 0},
		{"before the first raw one", now + 10, now + 9, series.FamilyLate, now, 0},
		{"the first raw one", now + 10, now + 10, series.FamilyR0, now + 10, 0},
		{"after it, too early", now + 10, now + 2*series.Window, series.FamilyLate, now, 0},
		{"a later time of late cells", now + 10, now + 9, series.FamilyLate, now + 7, now + 7},
		{"an earlier one", now + 10, now + 9, series.FamilyLate, now, now - 1},
		{"a raw one beside it", 0, now, series.FamilyR0, now, now + 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			family, cellTime := series.Arrival{Now: now, RawFrom: tt.rawFrom, LateFrom: tt.lateFrom}.Cell(tt.t)
			if family != tt.family || cellTime != tt.cellTime {
				t.Errorf("%s at %d, want %s at %d", family, cellTime, tt.family, tt.cellTime)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for _, at := range []int64{0, 1, 1297080123392, series.MaxTime} {
		key := series.AppendTime([]byte("x"), at)[1:]
		if got, ok := series.ParseTime(append(key, "9,"...)); len(key) != series.TimeDigits || got != at || !ok {
			t.Errorf("%d as %s comes back as %d, %t", at, key, got, ok)
		}
	}
	for _, bad := range []string{"", "129708012339", "129708012339x", "-297080123392", "12970801233 2"} {
		if got, ok := series.ParseTime([]byte(bad)); ok {
			t.Errorf("%q is the time %d", bad, got)
		}
	}
}

func TestRawFamily(t *testing.T) {
	const w = 1300000000000 / series.Window
	start := func(window int64) int64 { return window * series.Window }
	cases := []struct {
		name   string
		now, t int64
		want   string
	}{
		{"now", start(w), start(w), []string{"r0", "r1", "r2", "r3"}[w%4]},
		{"end of now", start(w), start(w+1) - 1, []string{"r0", "r1", "r2", "r3"}[w%4]},
		{"one before", start(w), start(w) - 1, []string{"r0", "r1", "r2", "r3"}[(w-1)%4]},
		{"start of one before", start(w+1) - 1, start(w - 1), []string{"r0", "r1", "r2", "r3"}[(w-1)%4]},
		{"two before", start(w), start(w-1) - 1, "l"},
		{"two before, late in now", start(w+1) - 1, start(w-1) - 1, "l"},
		{"one after", start(w), start(w + 1), []string{"r0", "r1", "r2", "r3"}[(w+1)%4]},
		{"end of one after", start(w), start(w+2) - 1, []string{"r0", "r1", "r2", "r3"}[(w+1)%4]},
		{"two after", start(w), start(w + 2), "l"},
		{"two after, late in now", start(w+1) - 1, start(w + 2), "l"},
		{"same family, four before", start(w), start(w - 4), "l"},
		{"same family, four after", start(w), start(w + 4), "l"},
		{"first sample", start(w), 0, "l"},
		{"last sample", start(w), series.MaxTime, "l"},
		{"clock at 1970", 0, 0, "r0"},
		{"clock at 1970, one after", 0, series.Window, "r1"},
		{"clock at 1970, two after", 0, 2 * series.Window, "l"},
		{"clock before 1970", -1, 0, "r0"},
		{"clock far before 1970", -series.Window - 1, 0, "l"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := series.RawFamily(tc.now, tc.t); got != tc.want {
				t.Errorf("RawFamily(%d, %d) = %q, want %q", tc.now, tc.t, got, tc.want)
			}
		})
	}
}

// While the sealer's clock is 15 minutes from both ends of window w, no writer
// whose clock is 15 minutes off writes to the family of w-2, which it seals; and
// what a writer does put into a family is of one window only.
func TestRawFamilyClockSkew(t *testing.T) {
	families := []string{series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3}
	const first = 1300000000000 / series.Window
	skew := (15 * time.Minute).Milliseconds()
	for w := int64(first); w < first+8; w++ {
		start, limit := w*series.Window, (w+1)*series.Window
		sealed := families[(w-2)&3]
		for _, now := range []int64{start + skew, start + skew + 1, start + series.Window/2, limit - skew - 2, limit - skew - 1} {
			for _, off := range []int64{-skew, -1, 0, 1, skew} {
				written := map[string][]int64{}
				for window := w - 6; window <= w+6; window++ {
					for _, ts := range []int64{window * series.Window, window*series.Window + 1, (window+1)*series.Window - 1} {
						family := series.RawFamily(now+off, ts)
						if family == sealed {
							t.Errorf("now=%d%+d writes t=%d to %s, which is sealed", now, off, ts, family)
						}
						if family != series.FamilyLate {
							written[family] = append(written[family], window)
						}
					}
				}
				if len(written) != 3 {
					t.Errorf("now=%d%+d writes to %d raw families, want 3", now, off, len(written))
				}
				for family, windows := range written {
					if slices.Max(windows) != slices.Min(windows) {
						t.Errorf("now=%d%+d: %s holds windows %v", now, off, family, windows)
					}
				}
			}
		}
		// Nearer to an end a clock 15 minutes off is in the next window or the
		// one before: the distance is needed.
		for _, now := range []int64{start + skew - 1, limit - skew} {
			open := false
			for _, off := range []int64{-skew, skew} {
				for window := w - 6; window <= w+6; window++ {
					open = open || series.RawFamily(now+off, window*series.Window) == sealed
				}
			}
			if !open {
				t.Errorf("now=%d: %s takes no samples", now, sealed)
			}
		}
	}
}

// The constants are part of the stored format.
func TestTimeConstants(t *testing.T) {
	got := fmt.Sprint(series.Period, series.Window, series.IndexPeriod, series.MaxTime, series.Period/series.Window, series.Period/series.IndexPeriod)
	if want := "4294967296 8388608 536870912 9999999999999 512 8"; got != want {
		t.Errorf("constants are %s, want %s", got, want)
	}
}

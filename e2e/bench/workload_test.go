package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// smallWorkload is of somewhat more than two hosts.
func smallWorkload() workload {
	return workload{Seed: 7, Series: 2*len(hostShapes()) + 33, Samples: 130, Interval: 15 * time.Second, End: 1_790_000_000_123}
}

// A scraped is one scrape of all series.
type scraped struct {
	t []int64
	v []float64
}

func scrapeAll(w workload) (all []scraped) {
	g := newGenerator(w)
	for g.scrape() {
		all = append(all, scraped{slices.Clone(g.T), slices.Clone(g.V)})
	}
	return all
}

func equalBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

func TestGeneratorIsDeterministic(t *testing.T) {
	w := smallWorkload()
	a, b := scrapeAll(w), scrapeAll(w)
	if len(a) != w.Samples || len(b) != w.Samples {
		t.Fatalf("%d and %d scrapes, want %d", len(a), len(b), w.Samples)
	}
	for i := range a {
		if !slices.Equal(a[i].t, b[i].t) || !equalBits(a[i].v, b[i].v) {
			t.Fatalf("scrape %d differs between two runs", i)
		}
	}
	w.Seed++
	if c := scrapeAll(w); equalBits(a[0].v, c[0].v) {
		t.Error("another seed gives the same values")
	}
}

func TestEndBefore(t *testing.T) {
	const period = 3343 * indexPeriod
	const last = period + 7*indexPeriod/8 - window/2
	for _, tc := range []struct {
		name      string
		now, want int64
	}{
		{"middle of a window", period + 3*window + window/2, period + 3*window + window/2},
		{"before it", period + 3*window + window/2 - 1, period + 2*window + window/2},
		{"end of a window", period + 4*window - 1, period + 3*window + window/2},
		{"begin of a period", period, period - 9*window + window/2},
		{"begin of the last eighth", period + 7*indexPeriod/8, last},
		{"in the last eighth", period + 7*indexPeriod/8 + 3*window + 5, last},
		{"first middle in the last eighth", period + 7*indexPeriod/8 + window/2, last},
		{"end of a period", period + indexPeriod - 1, last},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := endBefore(tc.now); got != tc.want {
				t.Errorf("end %d, want %d", got, tc.want)
			}
		})
	}
}

func TestLabelsAreUnique(t *testing.T) {
	g := newGenerator(smallWorkload())
	seen := map[string]int{}
	sum := 0
	for i := range g.Series {
		ls := g.labels(i)
		if j, ok := seen[ls.String()]; ok {
			t.Errorf("series %d and %d are both %s", j, i, ls)
		}
		seen[ls.String()] = i
		if dup, ok := ls.HasDuplicateLabelNames(); ok || ls.Get("__name__") == "" {
			t.Errorf("series %d is %s, duplicate %q", i, ls, dup)
		}
		sum += ls.Len()
	}
	if mean := float64(sum) / float64(g.Series); mean < 8 || mean > 12 {
		t.Errorf("%.1f labels on average, want about 10", mean)
	}
}

// TestTimes wants each series at its interval, and all of them within an
// interval of the end.
func TestTimes(t *testing.T) {
	w := smallWorkload()
	all, step := scrapeAll(w), w.Interval.Milliseconds()
	for i := range w.Series {
		if last := all[len(all)-1].t[i]; last > w.End || last <= w.End-step {
			t.Fatalf("series %d ends at %d, want it in (%d, %d]", i, last, w.End-step, w.End)
		}
		for k := 1; k < len(all); k++ {
			if d := all[k].t[i] - all[k-1].t[i]; d != step {
				t.Fatalf("series %d moves by %d ms, want %d", i, d, step)
			}
		}
	}
}

// TestValues wants of each kind what its name says.
func TestValues(t *testing.T) {
	w := smallWorkload()
	g, all := newGenerator(w), scrapeAll(w)
	moved := map[kind]bool{}
	for i := range w.Series {
		_, sh := g.locate(i)
		for k := range all {
			v := all[k].v[i]
			switch {
			case math.IsNaN(v) || math.IsInf(v, 0) || math.Signbit(v):
				t.Fatalf("%s: %v", g.labels(i), v)
			case (sh.kind == integerCounter || sh.kind == share || sh.kind == integerGauge) && v != math.Trunc(v):
				t.Fatalf("%s: %v is not whole", g.labels(i), v)
			case sh.kind == pageGauge && math.Mod(v, 4096) != 0:
				t.Fatalf("%s: %v is not of pages", g.labels(i), v)
			}
			if k == 0 {
				continue
			}
			before := all[k-1].v[i]
			moved[sh.kind] = moved[sh.kind] || v != before
			if sh.counts() && v < before && (v != 0 || !sh.app) {
				t.Fatalf("%s falls from %v to %v", g.labels(i), before, v)
			}
		}
	}
	for k := constant; k <= floatGauge; k++ {
		if moved[k] != (k != constant) {
			t.Errorf("series of kind %d move: %t", k, moved[k])
		}
	}
}

// TestRestarts wants counters of applications, and only these, to start again
// now and then.
func TestRestarts(t *testing.T) {
	w := smallWorkload()
	w.Samples = 4 * restartOdds
	g := newGenerator(w)
	restarts := 0
	var before []float64
	for g.scrape() {
		for i, v := range before {
			_, sh := g.locate(i)
			if !sh.counts() || g.V[i] >= v {
				continue
			}
			if restarts++; !sh.app {
				t.Fatalf("%s falls", g.labels(i))
			}
		}
		before = append(before[:0], g.V...)
	}
	if restarts == 0 {
		t.Errorf("no counter fell in %d scrapes", w.Samples)
	}
}

// TestHistograms wants buckets to be cumulative, up to the count.
func TestHistograms(t *testing.T) {
	g := newGenerator(smallWorkload())
	checked := 0
	for g.scrape() {
		for i := 1; i < g.Series; i++ {
			_, sh := g.locate(i)
			_, left := g.locate(i - 1)
			if sh.group == 0 || sh.group != left.group {
				continue
			}
			if checked++; g.V[i] < g.V[i-1] {
				t.Fatalf("%s has %v, the one before %v", g.labels(i), g.V[i], g.V[i-1])
			}
		}
	}
	if checked == 0 {
		t.Error("no buckets")
	}
}

func TestSelections(t *testing.T) {
	w := smallWorkload()
	for i, d := range expected(w, selections(w)) {
		if s := selections(w)[i]; d.Samples == 0 || d.Samples == w.total() {
			t.Errorf("%s selects %d of %d samples", s.name, d.Samples, w.total())
		}
	}
	g := newGenerator(w)
	whole := selections(w)[1]
	series := 0
	for i := range w.Series {
		if whole.matches(g.labels(i)) {
			series++
		}
	}
	if d := expected(w, selections(w))[1]; d.Samples != series*w.Samples {
		t.Errorf("all of %d series is %d samples, want %d", series, d.Samples, series*w.Samples)
	}
	if whole.matches(labels.FromStrings("__name__", "other")) {
		t.Error("another metric matches")
	}
}

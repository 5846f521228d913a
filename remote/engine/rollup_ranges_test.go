//go:build !race

package engine_test

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// inOrder yields a map by its keys, so that a seed draws the same again.
func inOrder[V any](of map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !yield(key, of[key]) {
				return
			}
		}
	}
}

// fillLarge appends a counter of which a query reads more than a megabyte of samples, and one with start timestamps in some days.
func (s *rolled) fillLarge(t *testing.T) {
	t.Helper()
	for instance, interval := range inOrder(map[string]int64{"dense": 5_000, "started": 60_000}) {
		of := rolledSeries{counter: true, samples: make(map[int64]float64)}
		of.ls = labels.FromStrings("__name__", "x_total", "job", "0", "instance", instance)
		one, v := ingest.Series{Labels: of.ls}, 0.0
		for at := int64(rollupStart + 1); at < rollupStart+rollupDays*rollup.Day; at += interval {
			if v += s.r.Float64(); s.r.IntN(5000) == 0 {
				v = 0
			}
			sample := ingest.Sample{T: at, V: v}
			if instance == "started" && at/rollup.Day%3 == 0 {
				sample.ST = rollupStart
			}
			one.Samples, of.samples[at] = append(one.Samples, sample), v
		}
		var rejected ingest.Rejected
		if _, err := s.engine.Append(t.Context(), []ingest.Series{one}, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
		s.series = append(s.series, of)
	}
}

// newRolledLarge returns a store with series of all kinds, whose days have rollups.
func newRolledLarge(t *testing.T) *rolled {
	t.Helper()
	s := newRolled(t, seriestest.NewRand(t))
	s.fill(t, 6)
	s.fillHistograms(t)
	s.fillLarge(t)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// loseSamples lets some samples be gone, and maybe some rollups of 5 minutes.
func (s *rolled) loseSamples() {
	s.sources.From[rollup.Raw] = rollupStart + s.r.Int64N(rollupDays*rollup.Day)
	s.sources.From[rollup.FiveMinutes] = []int64{0, s.sources.From[rollup.Raw] - s.r.Int64N(2*rollup.Day), math.MaxInt64}[s.r.IntN(3)]
}

// A rangeQuery is a query of PromQL at steps, of which %s in expr is the selector.
type rangeQuery struct {
	expr        string
	start, step int64
	steps       int
	isSum       bool
}

// randomRange draws a query as Grafana sends them, and others.
func (s *rolled) randomRange() rangeQuery {
	const minute, hour = int64(60_000), int64(3600_000)
	fn := rollupFunctions[s.r.IntN(len(rollupFunctions))]
	step := []int64{15_000, minute, 5 * minute, 13 * minute, 30 * minute, hour, 6 * hour, 12 * hour, 24 * hour}[s.r.IntN(9)]
	window := []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour, time.Hour + 15*time.Second, 6*time.Hour + 15*time.Second,
		12*time.Hour + 15*time.Second, 7 * time.Minute, time.Duration(1+s.r.Int64N(8*3600)) * time.Second}[s.r.IntN(8)]
	q := rangeQuery{step: step, steps: 4 + s.r.IntN(300), isSum: strings.HasPrefix(fn, "sum_") || strings.HasPrefix(fn, "avg_")}
	q.start = rollupStart + s.r.Int64N(rollupDays)*rollup.Day + []int64{0, hour, 5 * minute, 43_215_000, 1000 * s.r.Int64N(86_400), s.midnight()}[s.r.IntN(6)]
	switch fn {
	case "":
		q.expr = "%s"
	case "quantile":
		q.expr = fmt.Sprintf("quantile_over_time(0.3, %%s[%s])", window)
	default:
		q.expr = fmt.Sprintf("%s(%%s[%s])", fn, window)
	}
	return q
}

// askRange returns the answer to steps from first up to limit of a query.
func (s *rolled) askRange(t *testing.T, q rangeQuery, selector string, first, limit int) promql.Matrix {
	t.Helper()
	from, to := time.UnixMilli(q.start+int64(first)*q.step), time.UnixMilli(q.start+int64(limit-1)*q.step)
	return s.ask(t, s.engine, fmt.Sprintf(q.expr, selector), from, to, time.Duration(q.step)*time.Millisecond)
}

// TestLargeRollups asks one large store for rollups in each of these ways.
func TestLargeRollups(t *testing.T) {
	s := newRolledLarge(t)
	for name, check := range inOrder(map[string]func(t *testing.T, s *rolled){
		"ranges join": checkRangesJoin, "large ranges": checkLargeRanges, "many windows": checkManyWindows, "histogram operations": checkHistogramOperations,
		"kept": checkKept,
	}) {
		t.Run(name, func(t *testing.T) {
			s.sources = rollup.Sources{}
			check(t, s)
		})
	}
}

// checkRangesJoin: a query over [a, c] has the points of those over [a, b] and [b, c], and a query of several series has those of each alone:
// what a point comes from does not depend on how much else is asked for.
func checkRangesJoin(t *testing.T, s *rolled) {
	points := 0
	for round := 0; round < storetest.Rounds(t, 40) && !t.Failed(); round++ {
		s.loseSamples()
		q := s.randomRange()
		const all = `{__name__=~"x_total|gauge|native|mixed_native"}`
		about := fmt.Sprintf("%s from %d, %d steps of %d, samples from %d and 5m from %d", q.expr, q.start, q.steps, q.step, s.sources.From[rollup.Raw], s.sources.From[rollup.FiveMinutes])
		whole := s.askRange(t, q, all, 0, q.steps)
		middle := 2 + s.r.IntN(q.steps-3) // of one step alone the windows may be whole buckets of an hour
		halves := []promql.Matrix{s.askRange(t, q, all, 0, middle), s.askRange(t, q, all, middle, q.steps)}
		points += comparePoints(t, about+fmt.Sprintf(", and in parts of %d and %d", middle, q.steps-middle), q.isSum, halves, []promql.Matrix{whole})
		var alone []promql.Matrix
		for _, of := range s.series {
			if strings.Contains(all, of.ls.Get("__name__")) && of.ls.Get("__name__") != "other_native" {
				alone = append(alone, s.askRange(t, q, of.ls.String(), 0, q.steps))
			}
		}
		comparePoints(t, about+", and each series alone", q.isSum, alone, []promql.Matrix{whole})
	}
	if t.Logf("%d points", points); points == 0 {
		t.Error("no query has points")
	}
}

// checkLargeRanges: panels of Grafana have a point at each step beyond the samples, though one series reads more than a megabyte of them.
func checkLargeRanges(t *testing.T, s *rolled) {
	s.sources.From[rollup.Raw] = rollupStart + 3*rollup.Day
	end := int64(rollupStart + rollupDays*rollup.Day)
	for _, instances := range [][]string{{"dense"}, {"dense", "started", "1", "native7"}} {
		selector := fmt.Sprintf(`{__name__=~"x_total|mixed_native", instance=~"%s"}`, strings.Join(instances, "|"))
		for _, shift := range []int64{0, 1000, 43_215_000} {
			for window, step := range map[string]int64{"1h": 3600_000, "1h15s": 3600_000, "6h15s": 6 * 3600_000, "12h15s": 12 * 3600_000} {
				q := rangeQuery{expr: "rate(%s[" + window + "])", start: rollupStart + rollup.Day + shift, step: step}
				q.steps = int((end-q.start)/step) + 1
				found := s.askRange(t, q, selector, 0, q.steps)
				dense := slices.IndexFunc(found, func(of promql.Series) bool { return of.Metric.Get("instance") == "dense" })
				if dense < 0 || len(found[dense].Floats) != q.steps {
					t.Errorf("%s of %v, from %d: no series with %d points in %d series", q.expr, instances, shift, q.steps, len(found))
				}
			}
		}
	}
}

// checkManyWindows: a subquery of more steps than any panel has is read from rollups, too.
func checkManyWindows(t *testing.T, s *rolled) {
	s.sources.From[rollup.Raw] = rollupStart + (rollupDays+1)*rollup.Day
	at := time.UnixMilli(rollupStart + rollupDays*rollup.Day)
	found := s.ask(t, s.engine, `count_over_time(increase(x_total{instance="dense"}[5m])[6d:4s])`, at, at, time.Hour)
	if want := float64(6 * 86_400 / 4); len(found) != 1 || found[0].Floats[0].F != want {
		t.Errorf("%v, want %v steps", found, want)
	}
}

// checkHistogramOperations: what is done with histograms that are only kept as rollups has a value where the histograms have one.
func checkHistogramOperations(t *testing.T, s *rolled) {
	s.sources.From[rollup.Raw] = rollupStart + 5*rollup.Day
	start := time.UnixMilli(rollupStart + rollup.Day)
	for _, expr := range []string{"%s * 2", "%s / 3", "-%s", "sum(%s * 2)", "avg by (job) (%s / 3)", "%s", "limitk(3, %s)", "count_values(\"v\", %s)"} {
		for _, of := range []string{`last_over_time(native{instance="native2"}[1h])`, `rate(native{instance=~"native[02]"}[1h])`} {
			inner := s.ask(t, s.engine, of, start, start.Add(72*time.Hour), time.Hour)
			found := s.ask(t, s.engine, fmt.Sprintf(expr, of), start, start.Add(72*time.Hour), time.Hour)
			want, got := make(map[int64]bool), make(map[int64]bool)
			for _, one := range inner {
				for at := range pointsOf(one) {
					want[at] = true
				}
			}
			for _, one := range found {
				for at := range pointsOf(one) {
					got[at] = true
				}
			}
			if len(want) == 0 || len(got) != len(want) {
				t.Errorf(expr+" has values at %d steps, want %d", of, len(got), len(want))
			}
		}
	}
}

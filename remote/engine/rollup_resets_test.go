//go:build !race

package engine_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// fillResets appends counters that begin again ever more often, and some in bursts.
func (s *rolled) fillResets(t *testing.T) {
	t.Helper()
	for i, between := range []int{5000, 100, 22, 20, 18, 8} { // samples, of which an hour has 240
		of := rolledSeries{counter: true, samples: make(map[int64]float64)}
		of.ls = labels.FromStrings("__name__", "restarts_total", "job", strconv.Itoa(i%2), "instance", strconv.Itoa(i))
		v, burst := 0.0, 0
		for at := rollupStart + s.r.Int64N(15_000); at < rollupStart+rollupDays*rollup.Day; at += 15_000 {
			v += 1 + s.r.Float64()
			if burst--; s.r.IntN(3*between) == 0 {
				burst = 1 + s.r.IntN(6)
			}
			if burst > 0 || between < 5000 && len(of.samples)%between == 0 {
				v = s.r.Float64()
			}
			of.samples[at] = v
		}
		s.append(t, of.ls, of.samples)
		s.series = append(s.series, of)
	}
}

// keepsResets says whether buckets of a resolution keep the resets of the times (after, to], of which times are those of one row.
func (of *rolledSeries) keepsResets(times []int64, after, to int64, r rollup.Resolution) bool {
	most := map[rollup.Resolution]int{rollup.FiveMinutes: 3, rollup.OneHour: 8}[r]
	for start := after; start < to; start += r.Span() {
		resets := 0
		first, _ := slices.BinarySearch(times, start+1)
		limit, _ := slices.BinarySearch(times, start+r.Span()+1)
		for i := first + 1; i < limit; i++ {
			if of.samples[times[i]] < of.samples[times[i-1]] {
				resets++
			}
		}
		if resets > most {
			return false
		}
	}
	return true
}

// rows returns the times of a series by row.
func (of *rolledSeries) rows() (rows [][]int64) {
	for _, at := range slices.Sorted(maps.Keys(of.samples)) {
		base, _ := series.Split(at)
		if len(rows) == 0 || rows[len(rows)-1][0] < base {
			rows = append(rows, nil)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], at)
	}
	return rows
}

// hasResets says whether buckets keep the resets of an hour, and needsSamples whether they do not of a whole day.
func (of *rolledSeries) hasResets(rows [][]int64, after int64) bool {
	return !slices.ContainsFunc(rows, func(times []int64) bool {
		to := after + rollup.OneHour.Span()
		return !of.keepsResets(times, after, to, rollup.OneHour) && !of.keepsResets(times, after, to, rollup.FiveMinutes)
	})
}

func (of *rolledSeries) needsSamples(rows [][]int64) bool {
	for day := int64(rollupStart); day < rollupStart+rollupDays*rollup.Day; day += rollup.Day {
		lacks := func(r rollup.Resolution) bool {
			return slices.ContainsFunc(rows, func(times []int64) bool { return !of.keepsResets(times, day, day+rollup.Day, r) })
		}
		if lacks(rollup.OneHour) && lacks(rollup.FiveMinutes) {
			return true
		}
	}
	return false
}

// TestResets: resets that an hour does not keep are those of 5 minutes, and else those of samples: there is a value wherever anything that is
// kept tells it.
func TestResets(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	s.fillResets(t)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	hour := rollup.OneHour.Span()
	step := hour * (1 + s.r.Int64N(3))
	window := hour * (1 + s.r.Int64N(3))
	from := time.UnixMilli(rollupStart + 4*hour)
	steps := int((rollupDays*rollup.Day - 4*hour) / step)
	to := from.Add(time.Duration(int64(steps-1)*step) * time.Millisecond)
	streaming := eval.New(queryOptions(), eval.NewMemory(0, 0))
	missing, asked := 0, 0
	for i := range s.series {
		of := &s.series[i]
		rows := of.rows()
		expr := fmt.Sprintf("increase(%s[%dh])", of.ls, window/hour)
		exact := pointsOf(s.ask(t, s.raw, expr, from, to, time.Duration(step)*time.Millisecond)[0])
		for _, rawFrom := range []int64{0, rollupStart + 3*rollup.Day, math.MaxInt64 / 2} {
			s.sources.From[rollup.Raw] = rawFrom
			var usage reader.Usage
			var found promql.Matrix
			found, _ = runQuery(t, reader.WithUsage(t.Context(), &usage), streaming, s.engine, expr, from, to, time.Duration(step)*time.Millisecond)
			points := map[int64]promql.Sample{}
			if len(found) > 0 {
				points = pointsOf(found[0])
			}
			for n := range steps {
				at := from.UnixMilli() + int64(n)*step
				want := true
				for after := at - window; after < at; after += hour {
					want = want && (of.hasResets(rows, after) || rawFrom == 0 || rollup.DayOf(after+1) >= rawFrom)
				}
				if asked++; !want {
					missing++
				}
				if p, ok := points[at]; ok != want || ok && p.F != exact[at].F {
					t.Fatalf("%s at %d, samples from %d: %v (%t), want %v (%t)", expr, at, rawFrom, p.F, ok, exact[at].F, want)
				}
			}
			if rawFrom == 0 && !of.needsSamples(rows) && usage.Counts().Days5m+usage.Counts().Days1h < rollupDays {
				t.Errorf("%s is from %+v", expr, usage.Counts())
			}
		}
	}
	if t.Logf("%d of %d windows have no value", missing, asked); missing == 0 || missing > asked/2 {
		t.Errorf("%d of %d windows have no value", missing, asked)
	}
}

//go:build !race

package engine_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// fillOutages appends gauges that end for hours, with a staleness marker or without, each at other times.
func (s *rolled) fillOutages(t *testing.T) {
	t.Helper()
	for i := range 3 {
		ls := labels.FromStrings("__name__", "outages", "instance", fmt.Sprint(i))
		samples, isUp := make(map[int64]float64), true
		for at := rollupStart + s.r.Int64N(15_000); at < rollupStart+rollupDays*rollup.Day; at += 15_000 {
			if s.r.IntN(1000) == 0 {
				if isUp = !isUp; !isUp && s.r.IntN(2) == 0 {
					samples[at] = math.Float64frombits(value.StaleNaN)
				}
			}
			if isUp {
				samples[at] = s.r.Float64()
			}
		}
		s.append(t, ls, samples)
		s.series = append(s.series, rolledSeries{ls: ls, samples: samples})
	}
}

// TestAbsence: a series that is there is not absent where its samples are gone and rollups tell that it was, and its times are those of its
// samples. What rollups do not tell has no value.
func TestAbsence(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	s.fillOutages(t)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	const hour = time.Hour
	from, to := time.UnixMilli(rollupStart+6*hour.Milliseconds()), time.UnixMilli(rollupStart+(rollupDays-1)*rollup.Day)
	// points returns the points of the only series of an answer, or of none.
	points := func(of *rolled, expr string, step time.Duration) map[int64]float64 {
		t.Helper()
		found := make(map[int64]float64)
		for _, one := range of.ask(t, of.engine, expr, from, to, step) {
			for at, p := range pointsOf(one) {
				found[at] = p.F
			}
		}
		return found
	}
	for _, rawFrom := range []int64{math.MaxInt64 / 2, rollupStart + 3*rollup.Day + 7_000_000} {
		for _, name := range []string{`outages{instance="0"}`, `outages{instance="1"}`, "outages"} {
			for _, c := range []struct {
				expr  string
				exact bool // to the bit; else nothing is absent that is there
			}{
				{"absent_over_time(%s[1h])", true},
				{"absent_over_time(%s[6h] offset 1h)", true},
				{"absent_over_time((%s[3h]))", true},
				{"absent(count_over_time(%s[2h]))", true},
				{"absent(max(max_over_time(%s[1h])))", true},
				{"absent(%s)", false},
				{"absent(sum(%s))", false},
				{"absent(%s offset 2h)", false},
				{"absent(timestamp(%s))", false},
				{"absent_over_time(%s[13m])", false},
				{"max_over_time(absent(%s)[4h:1h])", false},
				{"vector(1) unless on () count(%s)", false},
			} {
				expr := fmt.Sprintf(c.expr, name)
				s.sources.From[rollup.Raw] = 0
				exact := points(s, expr, hour)
				s.sources.From[rollup.Raw] = rawFrom
				got := points(s, expr, hour)
				for at := range got {
					if _, ok := exact[at]; !ok {
						t.Fatalf("%s, samples from %d: absent at %d, where samples are", expr, rawFrom, at)
					}
				}
				if c.exact && len(got) != len(exact) || len(exact) > 20 && len(got) == 0 && !strings.Contains(expr, "4h") {
					t.Errorf("%s, samples from %d: absent at %d steps, want %d", expr, rawFrom, len(got), len(exact))
				}
			}
		}

		// What is not there at all is absent, and of what rollups do not tell nothing is said.
		s.sources.From[rollup.Raw] = rawFrom
		steps := int(to.Sub(from)/hour) + 1
		if got := points(s, `absent(outages{instance="9",job="j"})`, hour); len(got) != steps {
			t.Errorf("of a series that never was %d steps are absent, want %d", len(got), steps)
		}
		for _, expr := range []string{"absent(irate(outages[5m]))", "absent(quantile_over_time(0.5, outages[5m] offset 1h))"} {
			answer, warnings := s.askWith(t, s.engine, expr, from, to, hour)
			for _, one := range answer {
				for at := range pointsOf(one) {
					if at < rawFrom {
						t.Errorf("%s says that it is absent at %d, and samples are from %d", expr, at, rawFrom)
					}
				}
			}
			if len(warnings) == 0 {
				t.Errorf("%s: no warning", expr)
			}
		}

		// The time of a sample is kept: at the end of a bucket it is that of the last one.
		for _, expr := range []string{"timestamp(%s)", "timestamp((%s offset 1h))", "max by (instance) (timestamp(%s))"} {
			for i := range 3 {
				expr := fmt.Sprintf(expr, fmt.Sprintf(`outages{instance="%d"}`, i))
				s.sources.From[rollup.Raw] = 0
				exact := points(s, expr, hour)
				s.sources.From[rollup.Raw] = rawFrom
				got := points(s, expr, hour)
				for at, want := range exact {
					if v, ok := got[at]; !ok || v != want {
						t.Fatalf("%s at %d, samples from %d: %v (%t), want %v", expr, at, rawFrom, v, ok, want)
					}
				}
				if len(exact) == 0 {
					t.Errorf("%s has no points", expr)
				}
			}
		}
	}
}

package harness

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// Steps returns the labels of the series that SendSteps writes to.
func Steps() labels.Labels { return labels.FromStrings("__name__", "steps", "job", "buffer") }

// SendSteps sends n samples, one in each request, by both protocols in turn, and
// returns them.
func SendSteps(t testing.TB, a *Adapter, n int) (all []Point) {
	t.Helper()
	now := NowMillis()
	for i := range int64(n) {
		p := Point{T: now - 1000*int64(n) + 1000*i, Bits: uint64(0x3ff1_2345_6789_abcd) * uint64(i+1)}
		RemoteWrites()[i%2].MustSend(t, a.URL("/write"), SeriesOf(Steps(), p))
		all = append(all, p)
	}
	return all
}

// CheckSteps wants the series of SendSteps to hold exactly these points.
func CheckSteps(t testing.TB, a *Adapter, want []Point) {
	t.Helper()
	for _, as := range AnswerTypes() {
		got := MustRead(t, a.URL("/read"), as, Query{0, math.MaxInt64, MustMatchers(t, "__name__", "=", "steps")})
		if d := DiffSeries(got, []TimeSeries{{Steps(), want}}); d != "" {
			t.Fatalf("%v: %s", as, d)
		}
	}
}

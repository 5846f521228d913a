package eval_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/promtable/promtable/remote/engine/eval"
)

// TestReport: after a query it is known what was streamed. A try that gave up counts in the
// timers of the query, and what a part held in its peak of samples.
func TestReport(t *testing.T) {
	source := promqltest.LoadedStorage(t, `
load 1m
	a{n="1"} 1+1x10
	a{n="2"} 1
	h {{schema:0 sum:5 count:4 buckets:[1 2 1]}}x10
`)
	for _, tt := range []struct {
		expr     string
		streamed []string
		gaveUp   int
		peak     int
	}{
		{`sum by (n) (rate(a[5m]))`, []string{"sum by (n) of rate"}, 0, 601}, // of one of two groups
		{`max by (n) (a)`, []string{"max by (n) of selector"}, 0, 2 * 601},
		{`absent(a)`, []string{"absence of selector"}, 0, 0},
		{`sum(timestamp(a))`, []string{"sum of timestamp"}, 0, 0},
		{`sum(h * 2) or topk(2, ceil(a)) + sum(a)`, []string{"selector", "topk of an operation on selector", "sum of selector"}, 2, 601},
	} {
		t.Run(tt.expr, func(t *testing.T) {
			q, err := eval.New(options(), eval.NewMemory(0, 0)).NewRangeQuery(t.Context(), source, nil, tt.expr, time.Unix(0, 0), time.Unix(600, 0), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			var report eval.Report
			timers := q.Stats().Timers.TimerGroup
			if res := q.Exec(eval.WithReport(t.Context(), &report)); res.Err != nil {
				t.Fatal(res.Err)
			}
			if got := report.Streamed(); !slices.Equal(got, tt.streamed) || report.GaveUp() != tt.gaveUp {
				t.Errorf("streamed %q, %d gave up", got, report.GaveUp())
			}
			if q.Stats().Timers.TimerGroup != timers {
				t.Error("the timers are not those of the whole query")
			}
			if peak := q.Stats().Samples.PeakSamples; peak < tt.peak {
				t.Errorf("peak of %d samples, want %d at least", peak, tt.peak)
			}
		})
	}
}

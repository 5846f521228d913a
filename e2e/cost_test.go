package e2e

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// TestCost holds the README to its word about what is paid for on Bigtable: row
// mutations.
func TestCost(t *testing.T) {
	const (
		series   = 500
		requests = 8
		interval = 15_000
		// Of each series: metric, instance, job, le.
		postings = 4 * series
		// One metric, one job, five instances, one hundred bounds; four names.
		texts = 1 + 1 + 5 + 100 + 4
	)
	a := startAdapter(t, inProcess(t), "--current.flush-interval=1h")
	mutations := func(table string) int {
		return int(a.metric(t, `adapter_bigtable_mutations_total\{result="success",table="`+table+`"\}`))
	}
	metric, index, current := mutations("METRIC"), mutations("INDEX"), mutations("CURRENT")
	// In one index period, before its last eighth, in which the next is written.
	start := int64(3000) << 29
	for n := range int64(requests) {
		batch := make([]sentSeries, series)
		for i := range batch {
			ls := labels.FromStrings("__name__", "request_duration_seconds_bucket", "job", "shop",
				"instance", fmt.Sprintf("10.0.0.%d:8080", i%5), "le", fmt.Sprint(i/5))
			batch[i] = sent(ls, at(start+n*interval, float64(n)))
		}
		remoteWrite2().mustSend(t, a.url("/api/v1/write"), batch...)
		if got := mutations("METRIC") - metric; got != series*int(n+1) {
			t.Errorf("%d samples cost %d row mutations", series*(n+1), got)
		}
		if got := mutations("INDEX") - index; got != postings+texts {
			t.Errorf("after request %d the index cost %d row mutations, want %d", n, got, postings+texts)
		}
	}
	if got := mutations("CURRENT") - current; got != 0 {
		t.Errorf("CURRENT was written %d times before its interval had passed", got)
	}
}

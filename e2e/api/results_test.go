package api

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestLateSample: a repeated range query is answered from the cache, and a late sample changes the
// answer at once, by whatever protocol it comes.
func TestLateSample(t *testing.T) {
	const minute, hour = 60_000, 3_600_000
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=0s")
	start := harness.NowMillis() - 3*hour
	start -= start % minute
	write := func(p harness.Protocol, path, instance string, at int64) {
		p.MustSend(t, a.URL(path), harness.SeriesOf(labels.FromStrings("__name__", "up", "instance", instance), harness.PointAt(at, 1)))
	}
	ask := func() (instances []string) {
		data, err := harness.GetAPI(a.URL("/api/v1/query_range"), url.Values{
			"query": {"up"}, "start": {harness.FormatSeconds(start)}, "end": {harness.FormatSeconds(start + hour)}, "step": {"60"},
		})
		var answer struct {
			Result []struct{ Metric map[string]string }
		}
		if err == nil {
			err = json.Unmarshal(data, &answer)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range answer.Result {
			instances = append(instances, s.Metric["instance"])
		}
		return instances
	}
	hits := func() string {
		for line := range strings.Lines(harness.MustGet(t, a.URL("/metrics"), nil).Body) {
			if value, ok := strings.CutPrefix(line, `adapter_results_cache_steps_total{result="hit"} `); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	write(harness.RemoteWrite2(), "/api/v1/write", "a", start+minute)
	want := []string{"a"}
	for round := range 2 {
		if got := ask(); !slices.Equal(got, want) {
			t.Errorf("query %d: %q, want %q", round, got, want)
		}
	}
	if got := hits(); got != "61" {
		t.Errorf("%s steps from the cache", got)
	}
	write(harness.RemoteWrite1(), "/write", "b", start+30*minute)
	if got := ask(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after a late sample: %q", got)
	}
	write(harness.RemoteWrite2(), "/api/v1/write", "c", start+hour)
	if got := ask(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("after another: %q", got)
	}
}

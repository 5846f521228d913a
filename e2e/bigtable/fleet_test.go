package bigtable

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/e2e/harness"
	"github.com/promtable/promtable/series"
)

// TestFleetRollups: two adapters with buffers make rollups of one store. Until their clocks are compared that is a state and no failure, the lag
// is true, and META says of each log which samples it holds. How they are made, and released, is in cmd/adapter: that takes half an hour by the clock.
func TestFleetRollups(t *testing.T) {
	b := harness.Emulator(t)
	store := openTables(t, b)
	old := harness.NowMillis() - 3*24*time.Hour.Milliseconds()
	var adapters []*harness.Adapter
	for i := range 2 {
		a := harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()))
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SeriesOf(labels.FromStrings("__name__", "old", "adapter", fmt.Sprint(i)), harness.PointAt(old, 1)))
		adapters = append(adapters, a)
	}
	// The next look of each is at samples.
	for i, a := range adapters {
		a.Kill(t)
		a.Rerun(t)
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SeriesOf(labels.FromStrings("__name__", "old", "adapter", fmt.Sprint(i)), harness.PointAt(old+1, 2)))
		harness.Eventually(t, "the lag is true", func() error {
			if lag := a.Metric(t, "adapter_rollup_lag_seconds"); lag < 24*3600 || lag > 9*24*3600 {
				return fmt.Errorf("%v s", lag)
			}
			return nil
		})
		if failures := a.Metric(t, "adapter_rollup_failures_total"); failures != 0 {
			t.Errorf("%v failures", failures)
		}
	}
	about, err := meta.Open(t.Context(), store, series.Schema{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "META says what the logs hold", func() error {
		logs, err := about.Logs(t.Context())
		if err != nil {
			return err
		}
		for _, l := range logs {
			if l.Oldest == 0 || l.Oldest > old+1 || l.Oldest < old-series.Window {
				return fmt.Errorf("log %s holds samples from %d on, want %d", l.ID, l.Oldest, old+1)
			}
		}
		if len(logs) != 2 {
			return fmt.Errorf("%d logs", len(logs))
		}
		return nil
	})
	for _, a := range adapters {
		a.Terminate(t)
	}
}

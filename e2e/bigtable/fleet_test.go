package bigtable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestFleetRollups: two adapters with buffers make rollups of one store. Until their clocks are compared that is a state and no failure, the lag
// is true, and META says of each log which samples it holds. How they are made, and released, is in cmd/adapter: that takes half an hour by the clock.
func TestFleetRollups(t *testing.T) {
	b := harness.Emulator(t)
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
	harness.Eventually(t, "META says what the logs hold", func() error {
		code, output := harness.RunCommand(t, b, "buffer", "list")
		found := 0
		for line := range strings.Lines(output) {
			fields := strings.Fields(line)
			if len(fields) != 6 || fields[0] == "ID" {
				continue
			}
			const window = (1 << 23) * time.Millisecond
			if from, err := time.Parse(time.RFC3339, fields[5]); err != nil || from.UnixMilli() > old+1 || time.UnixMilli(old).Sub(from) > window+time.Second {
				return fmt.Errorf("a log holds samples from %s on, want %s", fields[5], time.UnixMilli(old).UTC())
			}
			found++
		}
		if code != 0 || found != len(adapters) {
			return fmt.Errorf("%d logs, code %d:\n%s", found, code, output)
		}
		return nil
	})
	for _, a := range adapters {
		a.Terminate(t)
	}
}

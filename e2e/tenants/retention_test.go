package tenants

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestRetention: a rule that names a tenant hides, refuses and removes the samples of its series, and of no other tenant's.
func TestRetention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(`rules: [{match: '{__tenant_id__="short"}', raw: 3d}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	b := harness.Embedded(t)
	b.Args = append(b.Args, "--tenancy", "--tenancy.create", "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	const hour, day = int64(3_600_000), int64(24 * 3_600_000)
	now := harness.NowMillis()
	var points []harness.Point
	kept := 0
	for i := range int64(20 * 24) {
		at := now - (20*24-1-i)*hour
		points = append(points, harness.PointAt(at, float64(i)))
		if at >= (now-3*day)/day*day {
			kept++
		}
	}
	short, long := tenant{"short", "wshort", 1}, tenant{"long", "wlong", 2}
	write := func(a *harness.Adapter, n tenant, points ...harness.Point) harness.Response {
		t.Helper()
		p := harness.RemoteWrite2()
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode([]harness.SentSeries{harness.SeriesOf(labels.FromStrings("__name__", "hourly", "__tenant_id__", "long"), points...)}))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	want := func(a *harness.Adapter, n tenant, least, most int) {
		t.Helper()
		at := strconv.FormatFloat(float64(now)/1000, 'f', 3, 64)
		resp := n.get(t, a, "/api/v1/query", url.Values{"query": {"sum(count_over_time(hourly[1000h]))"}, "time": {at}})
		for count := least; count <= most; count++ {
			if strings.Contains(resp.Body, fmt.Sprintf(`"%d"]`, count)) {
				return
			}
		}
		t.Errorf("%s: %v, want %d to %d", n.name, resp, least, most)
	}
	a := harness.StartAdapter(t, b)
	for _, n := range []tenant{short, long} {
		if resp := write(a, n, points...); resp.Status != http.StatusNoContent {
			t.Fatal(resp)
		}
	}
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--retention.rules="+file)
	want(a, short, 3*24-1, 3*24+1)
	want(a, long, len(points), len(points))
	if resp := write(a, short, points[0]); resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, `--retention.rules, rule 1 {__tenant_id__="short"}`) {
		t.Errorf("an old sample: %v", resp)
	}
	if resp := write(a, long, points[0]); resp.Status != http.StatusNoContent {
		t.Errorf("an old sample of the other tenant: %v", resp)
	}
	a.WaitLine(t, `msg="a retention rule cuts"`, "rule=1")
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--retention.rules="+file)
	harness.Eventually(t, "the samples are removed", func() error {
		if got := a.Metric(t, "adapter_retention_rule_cells_total"); got < 16*10 {
			return fmt.Errorf("%v cells removed", got)
		}
		return nil
	})
	a.Terminate(t)
	a = harness.StartAdapter(t, b)
	want(a, short, kept, kept)
	want(a, long, len(points), len(points))
}

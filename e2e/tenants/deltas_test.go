package tenants

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDeltas: deltas of two tenants, of equal streams, are added up for each of them.
func TestDeltas(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--enable-feature=otlp-deltatocumulative")
	now := time.Now().Truncate(time.Second)
	both := []tenant{{name: "a", value: 3}, {name: "b", value: 5}}
	for second := range 2 {
		for _, n := range both {
			metrics := pmetric.NewMetrics()
			m := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
			m.SetName("orders")
			sum := m.SetEmptySum()
			sum.SetIsMonotonic(true)
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			point := sum.DataPoints().AppendEmpty()
			at := now.Add(time.Duration(second-2) * time.Second)
			point.SetStartTimestamp(pcommon.NewTimestampFromTime(at.Add(-time.Second)))
			point.SetTimestamp(pcommon.NewTimestampFromTime(at))
			point.SetIntValue(int64(n.value))
			body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
			if err != nil {
				t.Fatal(err)
			}
			resp, err := harness.Post(t.Context(), a.URL(harness.OTLPPath), n.as(map[string]string{"Content-Type": "application/x-protobuf"}), body)
			if err != nil || resp.Status != http.StatusOK {
				t.Fatal(resp, err)
			}
		}
	}
	for _, n := range both {
		want := map[string]string{"a": `"6"]`, "b": `"10"]`}[n.name]
		if resp := n.get(t, a, "/api/v1/query", url.Values{"query": {"orders_total"}, "time": {harness.FormatSeconds(now.UnixMilli())}}); !strings.Contains(resp.Body, want) {
			t.Errorf("%s: %s, want %s", n.name, resp.Body, want)
		}
	}
}

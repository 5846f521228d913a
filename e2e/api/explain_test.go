package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// storageCounts are what was read, as statistics and explanations say it.
type storageCounts struct{ Series, Rows, Cells, Bytes int64 }

// TestExplainQuery: an explanation of a query says what is streamed, and what the query
// reads. The log of slow queries and the statistics say the same of the query. Only Bigtable
// has nodes.
func TestExplainQuery(t *testing.T) {
	const query = `sum(rate(x_total[5m])) / count(x_total offset 10m)`
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.InProcess} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			a := harness.StartAdapter(t, b, "--query.log-slower-than=1ns")
			end := harness.NowMillis()
			var written []harness.SentSeries
			for i := range 7 {
				s := harness.SeriesOf(labels.FromStrings("__name__", "x_total", "n", fmt.Sprint(i)))
				for m := int64(20); m >= 0; m-- {
					s.Points = append(s.Points, harness.PointAt(end-m*60_000, float64(20-m)))
				}
				written = append(written, s)
			}
			if resp, err := harness.RemoteWrite2().Send(context.Background(), a.URL("/api/v1/write"), written); err != nil || resp.Status != http.StatusNoContent {
				t.Fatal(resp, err)
			}
			params := url.Values{"query": {query}, "start": {harness.FormatSeconds(end - 300_000)}, "end": {harness.FormatSeconds(end)}, "step": {"60"}, "stats": {"all"}}

			data, err := harness.GetAPI(a.URL("/api/v1/query_range"), params)
			var answer struct {
				Stats struct{ Storage storageCounts }
			}
			if err == nil {
				err = json.Unmarshal(data, &answer)
			}
			read := answer.Stats.Storage
			if err != nil || read.Series != 14 || read.Rows < 14 || read.Cells < read.Rows || read.Bytes <= read.Cells {
				t.Fatalf("statistics %s, %v", data, err)
			}
			a.WaitLine(t, `msg="slow query" kind=range query="`+query+`"`, "status=success", fmt.Sprintf(" rows=%d cells=%d bytes=%d ", read.Rows, read.Cells, read.Bytes),
				`streamed="sum of rate; count of selector"`)

			params.Del("stats")
			data, err = harness.GetAPI(a.URL("/api/v1/explain"), params)
			var explained struct {
				Total struct {
					storageCounts
					NodeSeconds *float64 `json:"node_seconds"`
				}
				Tree struct {
					NotStreamed string `json:"not_streamed"`
					Children    []struct{ Expr, Streamed string }
				}
			}
			if err == nil {
				err = json.Unmarshal(data, &explained)
			}
			tree := explained.Tree
			if err != nil || explained.Total.storageCounts != read || tree.NotStreamed == "" || len(tree.Children) != 2 {
				t.Fatalf("explained %s, %v, want %+v", data, err, read)
			}
			if c := tree.Children; c[0].Streamed != "sum of rate" || c[1].Streamed != "count of selector" || c[1].Expr != "count(x_total offset 10m)" {
				t.Errorf("tree %+v", tree)
			}
			if onNodes := b.Name != "embedded"; (explained.Total.NodeSeconds != nil) != onNodes {
				t.Errorf("node-seconds %v", explained.Total.NodeSeconds)
			}
		})
	}
}

package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDeleteSeries deletes by the requests of Prometheus: every protocol shows it at once, also
// answers that were cached, and what is written again is there.
func TestDeleteSeries(t *testing.T) {
	const minute = 60_000
	admin := func(a *harness.Adapter, method, path string, form url.Values) harness.Response {
		resp, err := harness.RoundTrip(context.Background(), method, a.URL("/api/v1/admin/tsdb/"+path), map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, []byte(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	b := harness.Embedded(t)
	a := harness.StartAdapter(t, b)
	match := url.Values{"match[]": {`up{job="a"}`}}
	if resp := admin(a, http.MethodPost, "delete_series", match); resp.Status == http.StatusNoContent || !strings.Contains(resp.Body, "admin APIs disabled") {
		t.Errorf("without the flag: %v", resp)
	}
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--web.enable-admin-api")
	now := harness.NowMillis()
	write := func(job string, points ...harness.Point) {
		harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(labels.FromStrings("__name__", "up", "job", job), points...))
	}
	var points []harness.Point
	for i := int64(60); i > 0; i-- {
		points = append(points, harness.PointAt(now-i*minute, float64(i)))
	}
	write("a", points...)
	write("b", points...)
	check := func(when string, want int) {
		t.Helper()
		for _, as := range harness.AnswerTypes() {
			found := harness.MustRead(t, a.URL("/read"), as, harness.Query{Maxt: now, Matchers: harness.MustMatchers(t, "job", "=", "a")})
			if got := harness.CountPoints(found); got != want {
				t.Errorf("%s: %v: %d samples, want %d", when, as, got, want)
			}
		}
		for range 2 { // the second answer is cached
			data, err := harness.GetAPI(a.URL("/api/v1/query_range"), url.Values{
				"query": {`count_over_time(up{job="a"}[2h])`}, "start": {harness.FormatSeconds(now - 90*minute)}, "end": {harness.FormatSeconds(now)}, "step": {"60"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(data), `"60"`); got != (want == 60) {
				t.Errorf("%s: PromQL: %s", when, data)
			}
		}
		n, err := harness.CountOverTime(a, "up", now-90*minute)
		if err != nil || n != want+60 {
			t.Errorf("%s: PromQL counts %d, %v, want %d", when, n, err, want+60)
		}
		federated := harness.MustGet(t, a.URL("/federate?match[]=up"), nil).Body
		if got := strings.Contains(federated, `job="a"`); got != (want > 0) || !strings.Contains(federated, `job="b"`) {
			t.Errorf("%s: federated: %s", when, federated)
		}
	}
	check("written", 60)
	if resp := admin(a, http.MethodPost, "delete_series", match); resp.Status != http.StatusNoContent {
		t.Fatal(resp)
	}
	check("deleted", 0)
	write("a", points[59])
	check("written again", 1)
	if resp := admin(a, http.MethodPut, "clean_tombstones", nil); resp.Status != http.StatusNoContent {
		t.Fatal(resp)
	}
	check("removed", 1)
	if n := a.Metric(t, "adapter_deletion_pending"); n != 0 {
		t.Errorf("%v deletions are pending", n)
	}
	if n := a.Metric(t, "adapter_deletion_cells_total"); n == 0 {
		t.Error("no cell was removed")
	}
}

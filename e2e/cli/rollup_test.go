package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestRollupsOutliveSamples: when samples are gone, what windows of whole buckets have is what it was before, others are widened
// with a warning, and remote read has the samples that are kept. A kill changes nothing.
func TestRollupsOutliveSamples(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	p, link, _ := startDemo(t, t.TempDir(), "--years=0.1", "--dir="+dir)
	now := time.Now()
	const rate, widened = "rate(http_requests_total[1d])", "rate(http_requests_total[1h] offset 7m)"
	before := mustAskPanel(t, link, rate, now)
	p.Interrupt(t)
	if len(before.Result) < 5 {
		t.Fatalf("%d series", len(before.Result))
	}

	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + filepath.Join(dir, "data"), "--retention.resolution-raw=10d"}}
	a := harness.StartAdapter(t, b)
	harness.Eventually(t, "samples may go", func() error {
		if cut := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds")); cut < now.Unix()-12*86400 { // not all may go at once
			return errors.New("the rollups of the last days are not final")
		}
		return nil
	})
	check := func() {
		t.Helper()
		cut := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds"))
		if days := float64(now.Unix()-cut) / 86400; days < 9 || days > 12 {
			t.Errorf("samples are kept for %v days", days)
		}
		at, err := url.Parse(a.URL("/"))
		if err != nil {
			t.Fatal(err)
		}
		old := *link
		old.Host = at.Host
		if after := mustAskPanel(t, &old, rate, now); fmt.Sprint(after.Result) != fmt.Sprint(before.Result) {
			t.Errorf("with samples\n%v\nwithout\n%v", before.Result, after.Result)
		}
		resp := harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {widened}, "time": {fmt.Sprint(cut - 86400)}}.Encode(), nil)
		if resp.Status != http.StatusOK || !harness.ContainsAll(resp.Body, []string{"http_requests_total", "are widened there"}) && !harness.ContainsAll(resp.Body, []string{`"instance"`, "are widened there"}) {
			t.Errorf("a window that is no whole buckets: %v", resp)
		}
		if got := resp.Header.Get("X-Promtable-Resolution"); !strings.Contains(got, "widened") || strings.Contains(got, "raw") {
			t.Errorf("the resolutions are %q", got)
		}
		q := harness.Query{Mint: (cut - 2*86400) * 1000, Maxt: (cut - 86400) * 1000, Matchers: harness.MustMatchers(t, "__name__", "=", "http_requests_total")}
		for _, as := range harness.AnswerTypes() {
			found := harness.MustRead(t, a.URL("/read"), as, q)
			if n := harness.CountPoints(found) / max(1, len(found)); len(found) < 5 || n < 2*288/2 || n > 5760/2 {
				t.Errorf("%v: %d series, of %d samples", as, len(found), n)
			}
		}
	}
	check()
	a.Kill(t)
	a = harness.StartAdapter(t, b)
	harness.Eventually(t, "the days are deleted", func() error {
		if got := a.Metric(t, "adapter_pebble_sweep_drops_total"); got < 20 {
			return fmt.Errorf("%v days dropped", got)
		}
		return nil
	})
	check()
	cut := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds") * 1000)
	for _, at := range []int64{cut - 1, cut, cut + 1} { // a day has its end, so the cut is of a day that is gone
		series := harness.SeriesOf(labels.FromStrings("__name__", "edge"), harness.PointAt(at, 1))
		resp, err := harness.RemoteWrite2().Send(t.Context(), a.URL("/write"), []harness.SentSeries{series})
		if err != nil {
			t.Fatal(err)
		}
		if says := fmt.Sprintf("samples are kept from %d on, see --retention.resolution-raw", cut+1); at <= cut && (resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, says)) || at > cut && resp.Status != http.StatusNoContent {
			t.Errorf("a sample %d ms after the cut: %v, want %q", at-cut, resp, says)
		}
	}
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--web.enable-admin-api")
	deleteRolledDay(t, a)
	deleteRolledMinutes(t, a)
	if code, output := harness.RunCommand(t, harness.Backend{Args: b.Args[:1]}, "check"); code == 0 {
		t.Errorf("check of a directory that is in use:\n%s", output)
	}
	a.Terminate(t)
	if code, output := harness.RunCommand(t, harness.Backend{Args: b.Args[:1]}, "check"); code != 0 {
		t.Errorf("check says %d:\n%s", code, output)
	}
}

// TestCompactEmbedded: an adapter that makes no rollups keeps the samples that only they may replace. Compact makes the rollups of its closed store, and deletes the
// samples that are old enough; what windows of whole buckets have is what it was before.
func TestCompactEmbedded(t *testing.T) {
	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + filepath.Join(t.TempDir(), "data"), "--retention.resolution-raw=5d"}}
	now := time.Now()
	const hours = 20 * 24
	start := func() *harness.Adapter { return harness.StartAdapter(t, b, "--no-rollup.enabled") }
	a := start()
	s := harness.SeriesOf(labels.FromStrings("__name__", "compacted_total"))
	for i := range hours * 4 { // every 15 minutes
		s.Points = append(s.Points, harness.PointAt(now.UnixMilli()-int64(hours*4-i)*15*60_000, float64(i)))
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), s)
	day := now.Add(-10 * 24 * time.Hour).Truncate(24 * time.Hour).Unix()
	ask := func(resolution string) (string, string) {
		t.Helper()
		resp := harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {"increase(compacted_total[1d])"}, "time": {fmt.Sprint(day)}, "max_source_resolution": {resolution}}.Encode(), nil)
		if resp.Status != http.StatusOK || !strings.Contains(resp.Body, `"value"`) {
			t.Fatalf("at %s: %v", resolution, resp)
		}
		return resp.Body, resp.Header.Get("X-Promtable-Resolution")
	}
	before, from := ask("auto")
	if from != "raw" {
		t.Errorf("before compact the answer is from %q", from)
	}
	a.Terminate(t)
	if code, output := harness.RunCommand(t, b, "compact"); code != 0 || !strings.Contains(output, "all rollups that were due are made") {
		t.Fatalf("compact says %d:\n%s", code, output)
	}
	a = start()
	if after, from := ask("auto"); after != before || from != "1h" {
		t.Errorf("after compact, from %q:\n%s\nbefore:\n%s", from, after, before)
	}
	if cut := a.Metric(t, "adapter_retention_cut_timestamp_seconds"); math.Abs(float64(now.Unix()-5*86400)-cut) > 86400 {
		t.Errorf("samples are cut at %v, want 5 days before %d", cut, now.Unix())
	}
	a.Terminate(t)
	if code, output := harness.RunCommand(t, harness.Backend{Args: []string{"--storage.path=" + filepath.Join(t.TempDir(), "none")}}, "compact"); code == 0 || !strings.Contains(output, "none") {
		t.Errorf("compact of a directory that is not there says %d:\n%s", code, output)
	}
}

// deleteRolledMinutes deletes five minutes of an hour of which only rollups are kept: the answer says which ten are deleted, and the hour has
// what is left of 5 minutes.
func deleteRolledMinutes(t *testing.T, a *harness.Adapter) {
	t.Helper()
	end := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds"))/86400*86400 - 2*86400 - 12*3600
	// counts returns how many samples each series has in an hour up to a time.
	counts := func(at int64, resolution string) map[string]float64 {
		t.Helper()
		resp := harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {"count_over_time(http_requests_total[1h])"}, "time": {fmt.Sprint(at)}, "max_source_resolution": {resolution}}.Encode(), nil)
		var answer struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || resp.Status != http.StatusOK {
			t.Fatal(resp, err)
		}
		found := make(map[string]float64)
		for _, s := range answer.Data.Result {
			n, err := strconv.ParseFloat(s.Value[1].(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			found[fmt.Sprint(s.Metric)] = n
		}
		return found
	}
	before, beside := counts(end, "auto"), counts(end+3600, "auto")
	from := time.Unix(end-53*60, 0).UTC()
	params := url.Values{"match[]": {"http_requests_total"}, "start": {from.Format(time.RFC3339)}, "end": {from.Add(5 * time.Minute).Format(time.RFC3339)}}
	for range 2 { // again, nothing else goes
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/admin/tsdb/delete_series?"+params.Encode()), nil, nil)
		want := []string{`"status":"success"`, `"warnings"`, time.Unix(end-55*60, 0).UTC().Format(time.RFC3339), time.Unix(end-45*60, 0).UTC().Format(time.RFC3339)}
		if err != nil || resp.Status != http.StatusOK || !harness.ContainsAll(resp.Body, want) {
			t.Fatalf("want %q: %v, %v", want, resp, err)
		}
		if resp, err := harness.Post(t.Context(), a.URL("/api/v1/admin/tsdb/clean_tombstones"), nil, nil); err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
		for _, resolution := range []string{"auto", "5m"} {
			left := counts(end, resolution)
			for of, n := range before {
				if left[of] < n*49/60 || left[of] > n*51/60 {
					t.Errorf("%s: %s has %v of %v samples, want those of 50 minutes", resolution, of, left[of], n)
				}
			}
			if fmt.Sprint(counts(end+3600, resolution)) != fmt.Sprint(beside) || len(before) < 5 {
				t.Errorf("%s: the hour after it has other samples", resolution)
			}
		}
	}
}

// deleteRolledDay deletes a day of which only rollups are kept, and the days beside it stay.
func deleteRolledDay(t *testing.T, a *harness.Adapter) {
	t.Helper()
	end := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds"))/86400*86400 - 4*86400
	count := func(at int64) (n int) {
		t.Helper()
		resp := harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {"count_over_time(http_requests_total[1d])"}, "time": {fmt.Sprint(at)}}.Encode(), nil)
		if resp.Status != http.StatusOK {
			t.Fatal(resp)
		}
		return strings.Count(resp.Body, `"metric"`)
	}
	if n := count(end); n < 5 {
		t.Fatalf("%d series before the deletion", n)
	}
	for _, path := range []string{
		"/api/v1/admin/tsdb/delete_series?" + url.Values{"match[]": {"http_requests_total"}, "start": {fmt.Sprintf("%d.001", end-86400)}, "end": {fmt.Sprint(end)}}.Encode(),
		"/api/v1/admin/tsdb/clean_tombstones",
	} {
		if resp, err := harness.Post(t.Context(), a.URL(path), nil, nil); err != nil || resp.Status != http.StatusNoContent {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		for days, want := range map[int64]bool{-1: true, 0: false, 1: true} {
			if n := count(end + days*86400); n > 0 != want {
				t.Errorf("%s: %d series %d days from the deleted one", path, n, days)
			}
		}
	}
}

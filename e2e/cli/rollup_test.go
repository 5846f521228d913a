package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		if a.Metric(t, "adapter_retention_cut_timestamp_seconds") == 0 {
			return errors.New("the rollups of no day are final")
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
	if code, output := harness.RunCommand(t, harness.Backend{Args: b.Args[:1]}, "check"); code == 0 {
		t.Errorf("check of a directory that is in use:\n%s", output)
	}
	a.Terminate(t)
	if code, output := harness.RunCommand(t, harness.Backend{Args: b.Args[:1]}, "check"); code != 0 {
		t.Errorf("check says %d:\n%s", code, output)
	}
}

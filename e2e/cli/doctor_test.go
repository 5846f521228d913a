package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/crypto/bcrypt"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDoctor: of a new adapter nothing is wrong. What alerts would say is found, in the words of the alert, and only if it has been so for as long as the alert wants; so
// are a disk that will be full, and flags that do not go together.
func TestDoctor(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s")
	doctor := func(a *harness.Adapter, args ...string) (code int, output string) {
		t.Helper()
		return harness.RunCommand(t, harness.Backend{}, append([]string{"doctor", "--url=" + a.URL("")}, args...)...)
	}
	harness.Eventually(t, "it has metrics of its own", func() error {
		_, err := harness.CountOverTime(a, "adapter_build_info", harness.NowMillis()-60_000)
		return err
	})
	if code, output := doctor(a); code != 0 || !harness.ContainsAll(output, []string{a.Addr + " has version ", "GiB free", "Nothing is wrong."}) || strings.Contains(output, "WRONG") {
		t.Errorf("a new adapter: %d\n%s", code, output)
	}

	now := harness.NowMillis()
	send := func(name string, over time.Duration, value func(i int) float64, pairs ...string) {
		t.Helper()
		s := harness.SeriesOf(labels.FromStrings(append([]string{"__name__", name, "job", "adapter", "instance", "other:9201"}, pairs...)...))
		for i, at := 0, now-over.Milliseconds(); at <= now; i, at = i+1, at+15_000 {
			s.Points = append(s.Points, harness.PointAt(at, value(i)))
		}
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), s)
	}
	constant := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	send("adapter_pebble_damaged_files", 3*time.Minute, constant(2))
	send("adapter_clock_in_doubt", 5*time.Minute, constant(1)) // for less than a quarter of an hour
	send("adapter_disk_min_free_bytes", 7*time.Hour, constant(1<<30), "path", "/data")
	send("adapter_disk_free_bytes", 7*time.Hour, func(i int) float64 { return 1e12 - float64(i)*1e8 }, "path", "/data") // 24 GB an hour
	code, output := doctor(a)
	if code == 0 || !harness.ContainsAll(output, []string{
		"WRONG: 2 files of the store of adapter other:9201 are damaged. Queries that need", "docs/runbooks/PromtableDamagedFiles.md",
		"WRONG: at the rate of the last 6 hours the disk of /data on other:9201 is full in 1.4 days", "2 findings",
	}) || strings.Contains(output, "clock") {
		t.Errorf("one that is ill: %d\n%s", code, output)
	}

	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"web.yml":  fmt.Sprintf("basic_auth_users: {me: %q}\n", hash),
		"http.yml": "basic_auth: {username: me, password: secret}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	private := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s", "--web.config.file="+filepath.Join(dir, "web.yml"), "--web.health-without-credentials")
	if code, output := doctor(private); code == 0 || !strings.Contains(output, "ask the adapter") {
		t.Errorf("without a password: %d\n%s", code, output)
	}
	harness.Eventually(t, "it is asked with a password", func() error {
		if code, output := doctor(private, "--http.config.file="+filepath.Join(dir, "http.yml")); code != 0 {
			return errors.New(output)
		}
		return nil
	})

	odd := harness.StartAdapter(t, harness.Embedded(t), "--buffer.fsync=2s")
	if _, output := doctor(odd, "--metrics-url="+a.URL("")); !strings.Contains(output, "Samples of the last 2s may be lost") {
		t.Errorf("its flags: %s", output)
	}
	if code, output := doctor(odd); code == 0 || !strings.Contains(output, "--metrics-url") {
		t.Errorf("without metrics: %d\n%s", code, output)
	}
}

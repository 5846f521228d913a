package realprometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestAlerts makes faults that are alerted on, lets a real Prometheus scrape the adapters and evaluate the rules of deploy/prometheus, without their
// waiting times, and wants each alert to fire for the adapter that has the fault, and for no other.
func TestAlerts(t *testing.T) {
	limits, few := filepath.Join(t.TempDir(), "limits.yml"), filepath.Join(t.TempDir(), "few.yml")
	writeFile(t, limits, "defaults: {}\n")
	writeFile(t, few, "defaults: {max_label_value_length: 2}\n")
	emulator, proxy := harness.Emulator(t).Behind(t, 0)
	adapters := map[string]*harness.Adapter{
		"healthy": harness.StartAdapter(t, harness.Embedded(t)),
		"killed":  harness.StartAdapter(t, harness.Embedded(t)),
		"limited": harness.StartAdapter(t, harness.Embedded(t), "--limits.file="+few),
		"file":    harness.StartAdapter(t, harness.Embedded(t), "--limits.file="+limits),
		"cut":     harness.StartAdapter(t, emulator, "--write.timeout=1s"),
	}
	p := harness.StartPrometheus(t)
	jobs := make([]harness.Job, 0, len(adapters))
	for name, a := range adapters {
		jobs = append(jobs, harness.Job{Name: name, Targets: []string{a.Addr}})
	}
	p.Configure(t, strings.Replace(harness.ScrapeConfig(jobs...), "scrape_timeout: 1s\n", "scrape_timeout: 1s\n  evaluation_interval: 1s\nrule_files: ['"+impatientRules(t)+"']\n", 1))
	p.AwaitScrapes(t, len(adapters), harness.NowMillis())

	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	for name, a := range adapters {
		sending.Go(func() {
			ticker := time.NewTicker(200 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				now := harness.NowMillis()
				batch := []harness.SentSeries{harness.SeriesOf(labels.FromStrings("__name__", "m", "job", "longer"), harness.PointAt(now, 1))}
				if name == "file" { // a time that is never taken
					batch = append(batch, harness.SeriesOf(labels.FromStrings("__name__", "m", "job", "ahead"), harness.PointAt(now+365*24*time.Hour.Milliseconds(), 1)))
				}
				protocol := harness.RemoteWrite1()
				soon, done := context.WithTimeout(ctx, 5*time.Second)
				_, _ = harness.Post(soon, a.URL("/api/v1/write"), protocol.Header(), protocol.Encode(batch)) // most of them fail
				done()
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	adapters["killed"].Kill(t)
	writeFile(t, limits, "defaults: [\n")
	proxy.Cut()
	want := map[string]bool{
		"PromtableDown killed": true, "PromtableLimitExceeded limited": true, "PromtableFileNotReloaded file": true,
		"PromtableSamplesRejected file": true, "PromtableWritesFail cut": true, "PromtableBigtableFails cut": true,
	}
	harness.Eventually(t, "the alerts fire", func() error {
		firing := firingAlerts(t, p)
		for alert := range want {
			if !firing[alert] {
				return fmt.Errorf("%s does not; %v do", alert, firing)
			}
		}
		return nil
	})
	firing := firingAlerts(t, p)
	for alert := range want {
		if name, _, _ := strings.Cut(alert, " "); firing[name+" healthy"] {
			t.Errorf("%s fires for one that is healthy", name)
		}
	}

	adapters["killed"].Rerun(t)
	writeFile(t, limits, "defaults: {}\n")
	harness.Eventually(t, "the alerts end", func() error {
		firing := firingAlerts(t, p)
		if firing["PromtableDown killed"] || firing["PromtableFileNotReloaded file"] {
			return fmt.Errorf("%v", firing)
		}
		return nil
	})
}

// impatientRules returns a pattern of copies of the rules of deploy/prometheus whose alerts do not wait.
func impatientRules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"rules.yml", "alerts.yml"} {
		text, err := os.ReadFile(filepath.Join(harness.ModuleRoot, "deploy", "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), regexp.MustCompile(`(?m)^        for: \w+$`).ReplaceAllString(string(text), "        for: 0s"))
	}
	return filepath.Join(dir, "*.yml")
}

// firingAlerts returns the names of alerts that fire, each with its job.
func firingAlerts(t *testing.T, p *harness.Prometheus) map[string]bool {
	t.Helper()
	data, err := p.API("/api/v1/alerts", url.Values{})
	var answer struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	firing := make(map[string]bool)
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]+" "+a.Labels["job"]] = true
		}
	}
	return firing
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

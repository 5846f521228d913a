package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestRetentionRules: what a rule cuts is neither shown nor taken, nor replayed, and all else is; also when the rule is gone. No rollups are
// made, for which samples would wait.
func TestRetentionRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte("rules:\n- match: '{__name__=\"hourly\"}'\n  raw: 3d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const all, kept = 20 * 24, 3 * 24
	rules := "--retention.rules=" + file
	for _, open := range harness.Backends() {
		b := open(t)
		b.Args = append(b.Args, "--retention.resolution-5m=off", "--retention.resolution-1h=off")
		t.Run(b.Name, func(t *testing.T) {
			now := harness.NowMillis()
			a := harness.StartAdapter(t, b)
			other := harness.SeriesOf(labels.FromStrings("__name__", "other"), hourly(now, all-1, 0).Points...)
			harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, all-1, 0), other)
			a.Kill(t)

			a = harness.StartAdapter(t, b, rules)
			wantHours(t, a, now, kept)
			if n, err := harness.CountOverTime(a, "other", now-1000*hour); err != nil || n != all {
				t.Errorf("another series has %d samples, %v, want %d", n, err, all)
			}
			if strings.HasPrefix(b.Name, "embedded") {
				if got := a.Metric(t, "adapter_buffer_replay_dropped_samples_total"); got != all-kept {
					t.Errorf("the replay dropped %v samples, want %d", got, all-kept)
				}
			}
			old := hourly(now, kept, kept)
			for _, p := range harness.RemoteWrites() {
				resp, err := p.Send(context.Background(), a.URL("/write"), []harness.SentSeries{old, other})
				if err != nil || resp.Status != http.StatusBadRequest || !harness.ContainsAll(resp.Body, []string{"hourly", fmt.Sprint(old.Points[0].T), `see --retention.rules, rule 1 {__name__="hourly"}`}) {
					t.Errorf("an old sample: %v, %v", resp, err)
				}
			}
			a.Terminate(t)
			if code, output := harness.RunCommand(t, b, "check"); code != 0 {
				t.Errorf("check says %d:\n%s", code, output)
			}
		})
	}
	code, output := harness.RunAdapter(t, harness.Backend{}, "retention", "explain", "hourly", rules)
	if code != 0 || !harness.ContainsAll(output, []string{`rule 1 {__name__="hourly"}: holds for all that is left`, "raw  3d", "removed series by series", "the flags, of series that no rule matches: not reached"}) {
		t.Errorf("explain, code %d:\n%s", code, output)
	}
	if err := os.WriteFile(file, []byte("rules:\n- match: hourly\n  raw: 2d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, output := harness.RunAdapter(t, harness.Backend{}, rules); code != 2 || !harness.ContainsAll(output, []string{file, "rule 1 hourly: raw: 2d is too short"}) {
		t.Errorf("code %d:\n%s", code, output)
	}
}

// TestRetentionRulesDelete: what a rule has cut is removed series by series at the next start, and stays hidden when the rule is gone.
func TestRetentionRulesDelete(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte("rules:\n- match: hourly\n  raw: 3d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := harness.Embedded(t)
	b.Args = append(b.Args, "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	now := harness.NowMillis()
	sent := hourly(now, 20*24, 0)
	a := harness.StartAdapter(t, b)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), sent, harness.SeriesOf(labels.FromStrings("__name__", "other"), sent.Points...))
	a.Terminate(t) // All is in the store.
	a = harness.StartAdapter(t, b, "--retention.rules="+file)
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
	const day = 24 * hour
	cut, kept := (now-3*day)/day*day, 0
	for _, p := range sent.Points {
		if p.T >= cut {
			kept++
		}
	}
	wantHours(t, a, now, kept)
	if n, err := harness.CountOverTime(a, "other", now-1000*hour); err != nil || n != len(sent.Points) {
		t.Errorf("another series has %d samples, %v", n, err)
	}
}

package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// An alertmanager notes the alerts that it gets.
type alertmanager struct {
	*httptest.Server
	mu sync.Mutex
	// got has a line for each alert of each request, and ended says of each name whether its last one had ended.
	got   []string
	ended map[string]bool
}

func startAlertmanager(t *testing.T) *alertmanager {
	t.Helper()
	a := &alertmanager{ended: make(map[string]bool)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var alerts []struct {
			Labels           map[string]string
			StartsAt, EndsAt time.Time
		}
		if err != nil || r.URL.Path != "/am/api/v2/alerts" || json.Unmarshal(body, &alerts) != nil {
			http.Error(w, "no alerts", http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, alert := range alerts {
			name := alert.Labels["alertname"]
			a.got = append(a.got, fmt.Sprintf("%s %s", name, alert.Labels["team"]))
			a.ended[name] = alert.EndsAt.Before(time.Now())
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// count returns how many alerts of a name have come, and whether the last one had ended.
func (a *alertmanager) count(line string) (n int, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, got := range a.got {
		if got == line {
			n++
		}
	}
	name, _, _ := strings.Cut(line, " ")
	return n, a.ended[name]
}

// A rig is an adapter with a file of rules and an Alertmanager.
type rig struct {
	*testing.T
	file string
	am   *alertmanager
	args []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, file: filepath.Join(t.TempDir(), "rules.yml"), am: startAlertmanager(t)}
	r.args = []string{"--rules.file=" + r.file, "--alertmanager.url=" + r.am.URL + "/am"}
	return r
}

// write writes the file, which promtool takes.
func (r *rig) write(text string) {
	r.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	if out, err := exec.Command(harness.PromtoolProgram(r), "check", "rules", r.file).CombinedOutput(); err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
}

// points returns the samples of a series between two times, by their times.
func (r *rig) points(a *harness.Adapter, selector string, mint, maxt int64) map[int64]string {
	r.Helper()
	data, err := harness.GetAPI(a.URL("/api/v1/query"), url.Values{"query": {fmt.Sprintf("%s[%dms]", selector, maxt-mint)}, "time": {harness.FormatSeconds(maxt)}})
	if err != nil {
		r.Fatal(err)
	}
	var answer struct {
		Result []struct{ Values [][2]any }
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		r.Fatal(err)
	}
	found := make(map[int64]string)
	for _, s := range answer.Result {
		for _, v := range s.Values {
			found[int64(v[0].(float64)*1000+0.5)] = v[1].(string)
		}
	}
	return found
}

const ruleFile = `
groups:
- name: g  # begin: %s
  interval: 1s
  labels: {team: a}
  rules:
  - {record: "load:sum", expr: "sum(load)"}
  - {record: "load:twice", expr: "load:sum * 2"}
  - alert: High
    expr: load:twice > 100
    for: 3s
    annotations: {summary: "{{ $value }}"}
`

// send sends a value of load from one time to another, each second.
func (r *rig) send(a *harness.Adapter, from, to int64, value float64) {
	r.Helper()
	s := harness.SeriesOf(labels.FromStrings("__name__", "load", "job", "j"))
	for t := from; t <= to; t += 1000 {
		s.Points = append(s.Points, harness.PointAt(t, value))
	}
	harness.RemoteWrite2().MustSend(r, a.URL("/api/v1/write"), s)
}

// wantNoGap waits until load:twice has a sample each second up to now, and none is missing since a time.
func (r *rig) wantNoGap(a *harness.Adapter, since int64, value string) {
	r.Helper()
	now := harness.NowMillis()
	harness.Eventually(r, "all seconds are recorded", func() error {
		found := r.points(a, `load:twice{team="a"}`, since, now)
		times := make([]int64, 0, len(found))
		for t, v := range found {
			if v != value {
				return fmt.Errorf("%s at %d, want %s", v, t, value)
			}
			times = append(times, t)
		}
		slices.Sort(times)
		if len(times) == 0 || times[0] > since+2000 || times[len(times)-1] < now-2000 {
			return fmt.Errorf("%d samples, from %v", len(times), times[:min(1, len(times))])
		}
		for i := range times[1:] {
			if times[i+1]-times[i] != 1000 {
				return fmt.Errorf("nothing between %d and %d", times[i], times[i+1])
			}
		}
		return nil
	})
}

// TestRules: a new rule begins in the past, nothing is missing after kill -9 and a time without an adapter, an alert fires after its time and not before, is not sent
// again as a new one after a restart, and ends. Files that change are loaded, and wrong ones refused.
func TestRules(t *testing.T) {
	t.Parallel()
	for name, b := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			begin := harness.NowMillis() - 600_000
			r.write("groups: []\n")
			args := append(slices.Clone(r.args), "--rules.query-offset=0s")
			a := harness.StartAdapter(t, b, append(args, "--index.refresh=1s")[:len(args)+map[string]int{"bigtable": 1}[name]]...)
			r.send(a, begin-60_000, harness.NowMillis()+120_000, 60)
			r.write(fmt.Sprintf(ruleFile, time.UnixMilli(begin).UTC().Format(time.RFC3339)))
			if resp, err := harness.Post(t.Context(), a.URL("/-/reload"), nil, nil); err != nil || resp.Status != http.StatusOK {
				t.Fatal(resp, err)
			}
			r.wantNoGap(a, begin, "120")
			harness.Eventually(t, "the alert fires", func() error {
				if n, _ := r.am.count("High a"); n == 0 {
					return errors.New("it does not")
				}
				return nil
			})
			active := r.activeSince(a)
			if data, err := harness.GetAPI(a.URL("/api/v1/alertmanagers"), nil); err != nil || !strings.Contains(string(data), r.am.URL+"/am/api/v2/alerts") {
				t.Errorf("Alertmanagers are %s, %v", data, err)
			}

			a.Kill(t)
			killed := harness.NowMillis()
			harness.Eventually(t, "some seconds pass, of which there are to be samples", func() error {
				if passed := harness.NowMillis() - killed; passed < 5000 {
					return fmt.Errorf("%d ms", passed)
				}
				return nil
			})
			a.Rerun(t)
			r.wantNoGap(a, begin, "120")
			harness.Eventually(t, "the alert is active as before", func() error {
				if since := r.activeSince(a); since != active {
					return fmt.Errorf("since %s, want %s", since, active)
				}
				return nil
			})

			r.write(strings.Replace(fmt.Sprintf(ruleFile, "1m"), "> 100", "> 1000", 1))
			if err := syscall.Kill(a.PID(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the alert ends", func() error {
				if _, ended := r.am.count("High a"); !ended {
					return errors.New("it does not")
				}
				return nil
			})
			if err := os.WriteFile(r.file, []byte("groups: [{name: g, rules: [{record: 'a', expr: 'sum('}]}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if resp, err := harness.Post(t.Context(), a.URL("/-/reload"), nil, nil); err != nil || resp.Status != http.StatusInternalServerError || !strings.Contains(resp.Body, "rules.yml") {
				t.Errorf("a wrong file is loaded: %+v, %v", resp, err)
			}
			if data := r.rules(a); !strings.Contains(data, "load:twice") || !strings.Contains(data, `"health":"ok"`) {
				t.Errorf("the rules after that: %s", data)
			}
			a.Terminate(t)
			if code, output := harness.RunAdapter(t, b, r.args...); code == 0 || !strings.Contains(output, "rules.yml") {
				t.Errorf("a start with a wrong file: %d, %s", code, output)
			}
		})
	}
}

// rules returns the answer of /api/v1/rules.
func (r *rig) rules(a *harness.Adapter) string {
	r.Helper()
	return harness.MustGet(r, a.URL("/api/v1/rules"), nil).Body
}

// activeSince returns since when the alert is active.
func (r *rig) activeSince(a *harness.Adapter) string {
	r.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State    string
				ActiveAt time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(harness.MustGet(r, a.URL("/api/v1/alerts"), nil).Body), &answer); err != nil {
		r.Fatal(err)
	}
	if len(answer.Data.Alerts) != 1 || answer.Data.Alerts[0].State != "firing" {
		return fmt.Sprintf("%+v", answer.Data.Alerts)
	}
	return answer.Data.Alerts[0].ActiveAt.Truncate(time.Second).String() // ALERTS_FOR_STATE has seconds
}

// TestOneEvaluates: of two adapters one evaluates. When it ends the other one does at once, and when that is killed, the first does a minute later. Nothing is missing,
// and the alert goes on as it was.
func TestOneEvaluates(t *testing.T) {
	t.Parallel()
	b := harness.Emulator(t)
	r := newRig(t)
	r.write(fmt.Sprintf(ruleFile, "1m"))
	args := append(r.args, "--rules.query-offset=0s", "--index.refresh=1s")
	first := harness.StartAdapter(t, b, args...)
	r.send(first, harness.NowMillis()-120_000, harness.NowMillis()+400_000, 60)
	harness.Eventually(t, "the alert fires", func() error {
		if since := r.activeSince(first); strings.HasPrefix(since, "[") {
			return errors.New(since)
		}
		return nil
	})
	since := harness.NowMillis() // what was due before the samples came is recorded without them
	second := harness.StartAdapter(t, b, args...)
	if n := second.Metric(t, "adapter_rules_evaluating"); n != 0 {
		t.Errorf("both evaluate")
	}
	if data := r.rules(second); !strings.Contains(data, "load:twice") {
		t.Errorf("the other one does not list the rules: %s", data)
	}
	active := r.activeSince(first)
	wantTakenOver := func(by *harness.Adapter) {
		t.Helper()
		n, _ := r.am.count("High a")
		harness.Eventually(t, "the other one evaluates", func() error {
			if got := r.activeSince(by); got != active {
				return fmt.Errorf("the alert is active since %s, want %s", got, active)
			}
			return nil
		})
		r.wantNoGap(by, since, "120")
		if more, ended := r.am.count("High a"); more-n > 3 || ended { // it is sent again each minute, and after a change
			t.Errorf("the alert is sent %d times around the change, and has ended: %t", more-n, ended)
		}
	}
	first.Terminate(t)
	wantTakenOver(second)
	first.Rerun(t)
	if n := first.Metric(t, "adapter_rules_evaluating"); n != 0 {
		t.Errorf("the first one evaluates beside the second")
	}
	second.Kill(t)
	wantTakenOver(first)
}

// TestTenants: rules of a tenant see its samples alone, and what they record is its own.
func TestTenants(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(strings.Replace(fmt.Sprintf(ruleFile, "1m"), "sum(load)", "count(load)", 1))
	if code, output := harness.RunAdapter(t, harness.Embedded(t), "--tenancy", r.args[0]); code == 0 || !strings.Contains(output, "TENANT:PATTERN") {
		t.Errorf("rules of no tenant: %d, %s", code, output)
	}
	b := harness.Embedded(t)
	if code, output := harness.RunAdapter(t, b, "--tenancy", "--rules.file=a:"+r.file); code == 0 || !strings.Contains(output, "no such tenant") {
		t.Errorf("rules of a tenant that is not there: %d, %s", code, output)
	}
	a := harness.StartAdapter(t, b, "--tenancy", "--tenancy.create", "--rules.file=a:"+r.file)
	now := harness.NowMillis()
	for i, tenant := range []string{"a", "b"} {
		var batch []harness.SentSeries
		for n := range i + 2 {
			s := harness.SeriesOf(labels.FromStrings("__name__", "load", "n", fmt.Sprint(n)))
			for at := now - 60_000; at < now+60_000; at += 1000 {
				s.Points = append(s.Points, harness.PointAt(at, 1))
			}
			batch = append(batch, s)
		}
		header := harness.RemoteWrite2().Header()
		header["X-Scope-OrgID"] = tenant
		if resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), header, harness.RemoteWrite2().Encode(batch)); err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	get := func(tenant, path string) string {
		t.Helper()
		return harness.MustGet(t, a.URL(path), map[string]string{"X-Scope-OrgID": tenant}).Body
	}
	harness.Eventually(t, "it is recorded", func() error {
		if got := get("a", "/api/v1/query?query=load:twice"); !strings.Contains(got, `"4"]`) {
			return errors.New(got)
		}
		return nil
	})
	if n := a.Metric(t, `adapter_rules_evaluating{tenant="a"}`); n != 1 {
		t.Errorf("of tenant a %v adapters evaluate", n)
	}
	if got := get("b", "/api/v1/query?query=load:twice"); strings.Contains(got, "load:twice") {
		t.Errorf("another tenant has it: %s", got)
	}
	if got := get("b", "/api/v1/rules"); strings.Contains(got, "load") {
		t.Errorf("another tenant sees the rules: %s", got)
	}
	if got := get("a", "/api/v1/rules?type=record"); !strings.Contains(got, "load:twice") || strings.Contains(got, "High") {
		t.Errorf("the rules of the tenant: %s", got)
	}
}

// stores are those that rules are tried on.
func stores(t *testing.T) map[string]harness.Backend {
	return map[string]harness.Backend{"embedded": harness.Embedded(t), "buffered": harness.WithBuffer(harness.Embedded(t), t.TempDir()), "bigtable": harness.Emulator(t)}
}

// TestLate: samples that come after a rule was recorded change what it has recorded, and what a rule records of that, also those of an import.
func TestLate(t *testing.T) {
	t.Parallel()
	for name, b := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write(fmt.Sprintf(ruleFile, "2m"))
			a := harness.StartAdapter(t, b, append(r.args, "--rules.query-offset=0s", "--rules.reevaluate=1m", "--web.enable-admin-api")...)
			now := harness.NowMillis()
			r.send(a, now-180_000, now+180_000, 60)
			r.wantNoGap(a, now-60_000, "120")
			s := harness.SeriesOf(labels.FromStrings("__name__", "load", "job", "late"), harness.PointAt(harness.NowMillis()-10_000, 5))
			harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), s)
			wantStep := func(when string, at int64, before, after string) {
				t.Helper()
				harness.Eventually(t, when, func() error {
					for t, v := range r.points(a, `load:twice{team="a"}`, at-5000, at+5000) {
						if want := map[bool]string{true: after, false: before}[t >= at]; v != want {
							return fmt.Errorf("%s at %d, want %s", v, t-at, want)
						}
					}
					return nil
				})
			}
			wantStep("it is corrected", s.Points[0].T, "120", "130")
			if n := a.Metric(t, fmt.Sprintf("adapter_rules_corrected_samples_total{rule_group=%q}", r.file+";g")); n < 10 {
				t.Errorf("%v samples are corrected", n)
			}
			earlier := s.Points[0].T - 20_000
			harness.MustImport(t, a.URL(""), fmt.Sprintf(`load{job="imported"} 10 %s`, harness.FormatSeconds(earlier)))
			wantStep("an import is counted", earlier, "120", "140")
		})
	}
}

// TestBackfill: rules are recorded at earlier times by hand, after it was said what that stores, and once.
func TestBackfill(t *testing.T) {
	t.Parallel()
	for name, b := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write(strings.Replace(fmt.Sprintf(ruleFile, "1s"), "  # begin: 1s", "", 1))
			a := harness.StartAdapter(t, b, append(r.args, "--rules.query-offset=0s", "--rules.reevaluate=0s", "--web.enable-admin-api")...)
			now := harness.NowMillis()
			r.send(a, now-900_000, now+180_000, 60)
			harness.Eventually(t, "the rules are recorded", func() error {
				if now := harness.NowMillis(); len(r.points(a, "load:twice", now-5000, now)) < 3 {
					return errors.New("they are not")
				}
				return nil
			})
			command := func(args ...string) (int, string) {
				return harness.RunCommand(t, harness.Backend{}, append([]string{"rules", "backfill", "--url=" + a.URL(""), "--start=" + harness.FormatSeconds(now-600_000)}, args...)...)
			}
			if code, output := command("--group=g", "--dry-run"); code != 0 || !strings.Contains(output, "nothing is stored") || !strings.Contains(output, "600 missing") {
				t.Errorf("what it would do: %d, %s", code, output)
			}
			if found := r.points(a, "load:twice", now-600_000, now-60_000); len(found) > 0 {
				t.Errorf("%d samples are there before", len(found))
			}
			if code, output := command("--group=g", "--yes"); code != 0 || !strings.Contains(output, "done: ") {
				t.Errorf("it is recorded: %d, %s", code, output)
			}
			r.wantNoGap(a, now-600_000, "120")
			if code, output := command("--group=g", "--end="+harness.FormatSeconds(now-1000)); code != 0 || !strings.Contains(output, "0 missing, 0 with another value") || !strings.Contains(output, "nothing is stored") {
				t.Errorf("again: %d, %s", code, output)
			}
			if code, output := command("--group=h"); code == 0 || !strings.Contains(output, "no group h") || !strings.Contains(output, "rules.yml;g") {
				t.Errorf("another group: %d, %s", code, output)
			}
		})
	}
}

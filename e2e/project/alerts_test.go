package project

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// runbookURL is what precedes the name of an alert in the URL of its runbook.
const runbookURL = "https://github.com/promtable/promtable/blob/main/docs/runbooks/"

// ruleFile returns the path of a file of deploy/prometheus.
func ruleFile(name string) string {
	return filepath.Join(harness.ModuleRoot, "deploy", "prometheus", name)
}

// readRules returns the rules of a file of deploy/prometheus, in order.
func readRules(t testing.TB, name string) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(ruleFile(name), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", name)
	}
	return all
}

// promtool runs promtool and wants it to succeed.
func promtool(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(harness.PromtoolProgram(t), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRules lets promtool check the rules, and run their unit tests.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", ruleFile("rules.yml"), ruleFile("alerts.yml"))
	promtool(t, "test", "rules", ruleFile("alerts_test.yml"))
	promtool(t, "test", "rules", filepath.Join(harness.ModuleRoot, "remote", "rules", "testdata", "alerts_test.yml")) // which remote/rules runs, too
}

// ruleTests is the part of promtool's format that the tests read.
type ruleTests struct {
	Tests []struct {
		Alerts []struct {
			Name     string           `yaml:"alertname"`
			Expected []map[string]any `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// TestAlerts: each alert says what it is about, has a runbook, a row in docs/monitoring.md, and unit tests in which it fires and does not fire.
func TestAlerts(t *testing.T) {
	var tests ruleTests
	if err := yaml.Unmarshal([]byte(mustReadFile(t, ruleFile("alerts_test.yml"))), &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := make(map[string]int), make(map[string]int)
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				fires[a.Name]++
			} else {
				silent[a.Name]++
			}
		}
	}
	monitoring := mustReadFile(t, filepath.Join(harness.ModuleRoot, "docs", "monitoring.md"))
	runbooks := filepath.Join(harness.ModuleRoot, "docs", "runbooks")
	known := make(map[string]bool)
	for _, rule := range readRules(t, "alerts.yml") {
		name := rule.Alert
		if name == "" || known[name] {
			t.Errorf("alert %q: no name, or the same twice", name)
			continue
		}
		known[name] = true
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", name, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			if text := rule.Annotations[annotation]; !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is no sentence: %q", name, annotation, text)
			}
		}
		if got, want := rule.Annotations["runbook_url"], runbookURL+name+".md"; got != want {
			t.Errorf("%s: runbook_url %q, want %q", name, got, want)
		}
		checkRunbook(t, filepath.Join(runbooks, name+".md"))
		if row := fmt.Sprintf("| [%s](runbooks/%[1]s.md) | %s | %s |\n", name, rule.Labels["severity"], rule.For); !strings.Contains(monitoring, row) {
			t.Errorf("docs/monitoring.md has no row %s", row)
		}
		if fires[name] == 0 || silent[name] == 0 {
			t.Errorf("%s: fires in %d unit tests, and does not in %d", name, fires[name], silent[name])
		}
	}
	files, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".md"); !known[name] {
			t.Errorf("%s is the runbook of no alert", f.Name())
		}
	}
}

// checkRunbook wants four sections with something in them.
func checkRunbook(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	name := strings.TrimSuffix(filepath.Base(path), ".md")
	sections := bytes.Split(text, []byte("\n## "))
	want := []string{"# " + name, "What it means", "How to see", "What to do", "How to be sure"}
	if len(sections) != len(want) {
		t.Errorf("%s has %d sections, want %q", path, len(sections), want)
		return
	}
	for i, section := range sections {
		title, rest, _ := bytes.Cut(section, []byte("\n"))
		if string(title) != want[i] || i > 0 && len(bytes.TrimSpace(rest)) < 10 {
			t.Errorf("%s: section %q with %d bytes, want %q with some", path, title, len(rest), want[i])
		}
	}
}

// metricNames returns the names of the metrics that an expression selects.
func metricNames(t testing.TB, query string) (names []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

// suffixes are those of the series of a histogram.
var suffixes = regexp.MustCompile(`_(bucket|count|sum)$`)

// exposed returns the names of the metric families that adapters expose: the embedded store with files of all kinds, and Bigtable with and
// without a buffer.
func exposed(t testing.TB) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	for _, a := range exposers(t) {
		if err := putLoad(a); err != nil { // what requests count is there with the first one
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(harness.MustGet(t, a.URL("/metrics"), nil).Body, -1) {
			known[m[1]] = true
		}
		a.Terminate(t)
	}
	return known
}

// ofScrapes are metrics of Prometheus itself, and of its scrapes.
var ofScrapes = []string{"up", "scrape_duration_seconds"}

// checkMetrics wants metrics to exist: an adapter exposes them, rules.yml records them, or those that exist only once something
// has happened are in docs/monitoring.md.
func checkMetrics(t testing.TB, queries map[string]string) {
	t.Helper()
	known := exposed(t)
	for _, rule := range readRules(t, "rules.yml") {
		known[rule.Record] = true
	}
	for _, name := range ofScrapes {
		known[name] = true
	}
	documented := mustReadFile(t, filepath.Join(harness.ModuleRoot, "docs", "monitoring.md"))
	for where, query := range queries {
		for _, name := range metricNames(t, query) {
			switch {
			case name == "":
				t.Errorf("%s: a selector names no metric: %s", where, query)
			case known[name] || known[suffixes.ReplaceAllString(name, "")]:
			case slices.Contains(lateMetrics, name) && strings.Contains(documented, "`"+name):
			case strings.HasPrefix(name, "prometheus_"): // of Prometheus, which a test of the demonstration asks
			default:
				t.Errorf("%s: no adapter exposes %s", where, name)
			}
		}
	}
}

// lateMetrics exist only when what they count has happened, with labels that are not known before, or with users and TLS, with which metrics need credentials.
var lateMetrics = []string{
	"adapter_buffer_other_log_last_seen_timestamp_seconds", "adapter_buffer_other_log_lost",
	"adapter_users_file_last_reload_successful", "adapter_web_certificate_expiry_timestamp_seconds",
}

// exposers starts adapters that together have the metrics of all backends and files.
func exposers(t testing.TB) []*harness.Adapter {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return []*harness.Adapter{
		startLoaded(t, false, "--query.block-file="+write("blocked", "= up\n"), "--otlp.config-file="+write("otlp.yml", "otlp: {}\n")),
		startLoaded(t, true),
		harness.StartAdapter(t, harness.WithBuffer(harness.InProcess(t), t.TempDir())),
	}
}

// TestRuleMetrics: what rules and alerts select exists.
func TestRuleMetrics(t *testing.T) {
	queries := make(map[string]string)
	used := make(map[string]bool)
	for _, rule := range append(readRules(t, "rules.yml"), readRules(t, "alerts.yml")...) {
		queries[rule.Record+rule.Alert] = rule.Expr
		for _, name := range metricNames(t, rule.Expr) {
			used[name] = true
		}
	}
	checkMetrics(t, queries)
	for _, rule := range readRules(t, "rules.yml") {
		if !used[rule.Record] {
			t.Errorf("no rule uses %s", rule.Record)
		}
	}
}

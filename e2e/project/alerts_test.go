package project

import (
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/e2e/harness"
)

// alertsFile has the alerts that are shipped, and alertCases what promtool is to find with them.
const (
	alertsFile = "../../deploy/prometheus/alerts.yml"
	alertCases = "../../deploy/prometheus/alerts_test.yml"
	runbooks   = "../../docs/runbooks"
)

// TestAlerts: promtool finds each alert right and, of made-up metrics, firing and silent as its cases say. Each alert has both cases and a runbook, and each runbook
// an alert.
func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", alertsFile}, {"test", "rules", alertCases}} {
		if output, err := exec.Command(harness.PromtoolProgram(t), args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	cases := mustReadFile(t, alertCases)
	books := make(map[string]bool)
	files, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		books[f.Name()] = true
	}
	for _, rule := range alerts(t) {
		for _, kind := range []string{" fires", " does not"} {
			if !strings.Contains(cases, "name: "+rule.Alert+kind+"\n") {
				t.Errorf("no case says when %s%s", rule.Alert, kind)
			}
		}
		book := rule.Alert + ".md"
		if !strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbooks/"+book) || !books[book] {
			t.Errorf("%s has the runbook %q, which is none of %q", rule.Alert, rule.Annotations["runbook_url"], slices.Sorted(maps.Keys(books)))
		}
		delete(books, book)
		for _, name := range []string{"summary", "description"} {
			if rule.Annotations[name] == "" {
				t.Errorf("%s has no %s", rule.Alert, name)
			}
		}
	}
	for book := range books {
		t.Errorf("%s is the runbook of no alert", book)
	}
}

func alerts(t testing.TB) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlertMetrics: each metric of an alert is one that the source registers.
func TestAlertMetrics(t *testing.T) {
	registered := registeredMetrics(t)
	for _, rule := range alerts(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, selectors := range parser.ExtractSelectors(expr) {
			for _, m := range selectors {
				if m.Name != labels.MetricName || m.Value == "up" {
					continue
				}
				if !slices.ContainsFunc(registered, func(name string) bool {
					return m.Matches(name) || m.Matches(name+"_count") || strings.HasSuffix(name, "_") && strings.HasPrefix(m.Value, name)
				}) {
					t.Errorf("%s: no code registers %s", rule.Alert, m)
				}
			}
		}
	}
}

// registeredMetrics returns what looks like the name of a metric in the source, or like the beginning of one.
func registeredMetrics(t testing.TB) (names []string) {
	t.Helper()
	name := regexp.MustCompile(`"(adapter_[a-z0-9_]+)"`)
	for _, dir := range []string{"cmd", "remote", "bucketstore", "index"} {
		err := filepath.WalkDir(filepath.Join(harness.ModuleRoot, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, found := range name.FindAllStringSubmatch(mustReadFile(t, path), -1) {
				names = append(names, found[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d metrics are registered", len(names))
	}
	return names
}

// TestRunbookFlags: each flag that a runbook names is one of the adapter.
func TestRunbookFlags(t *testing.T) {
	table := mustReadFile(t, "../../docs/configuration.md")
	flag := regexp.MustCompile("`(--[a-z][a-z0-9.-]*[a-z0-9])")
	files, err := filepath.Glob(runbooks + "/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, found := range flag.FindAllStringSubmatch(mustReadFile(t, file), -1) {
			if !strings.Contains(table, "`"+found[1]+"`") {
				t.Errorf("%s: there is no flag %s", file, found[1])
			}
		}
	}
}

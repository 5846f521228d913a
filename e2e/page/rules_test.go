//go:build browser

package page

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

const pageRules = `
groups:
- name: page
  interval: 1s
  query_offset: 0s
  rules:
  - {record: "page:gauge:sum", expr: sum(page_gauge)}
  - {record: "page:gauge:wrong", expr: 'page_gauge * on () page_many'}
  - alert: GaugeHigh
    expr: page_gauge > 40
    annotations: {summary: "It is {{ $value }}."}
  - {alert: GaugeLow, expr: page_gauge < 2, for: 1h}
  - {alert: GaugeGone, expr: absent(page_gauge)}
`

// TestPageRuleList lists alerts and rules, says which rule fails and why, and leads to graphs.
func TestPageRuleList(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(pageRules), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPage(t, startPaged(t, "--rules.file="+file))
	// settled is what the rows of a table say, without times.
	settled := func(n int) (rows [][]string) {
		for _, row := range p.rows(n) {
			rows = append(rows, slices.Concat(row[:2], row[3:4]))
		}
		return rows
	}
	p.open("tab", "rules", "refresh", "1s")
	harness.Eventually(t, "rules are evaluated", func() error {
		if facts := p.texts(".facts"); !slices.Contains(facts, "1 group, 5 rules, 1 failing, 1 firing, 1 pending") {
			return fmt.Errorf("%q", facts)
		}
		return nil
	})
	if want := [][]string{{`GaugeHigh{instance="b"}`, "firing", "42"}, {`GaugeLow{instance="a"}`, "pending", "1.5"}}; fmt.Sprint(settled(0)) != fmt.Sprint(want) {
		t.Errorf("alerts are %q, want %q", settled(0), want)
	}
	if got := p.rows(0)[0][4]; got != "It is 42." {
		t.Errorf("the summary is %q", got)
	}
	harness.Eventually(t, "rules have states", func() error {
		var got []string
		for _, row := range p.rows(1) {
			got = append(got, row[0]+" "+row[2]+" "+row[5])
			if !strings.HasSuffix(row[3], "s ago") {
				return fmt.Errorf("%q", row)
			}
		}
		if want := "page:gauge:sum ok page, page:gauge:wrong failing page, GaugeHigh firing page, GaugeLow pending page, GaugeGone inactive page"; strings.Join(got, ", ") != want {
			return errors.New(strings.Join(got, ", "))
		}
		return nil
	})
	if got := strings.Join(p.texts(".message"), ""); !strings.Contains(got, "page:gauge:wrong fails: ") || !strings.Contains(got, "many-to-many") {
		t.Errorf("of the one that fails the page says %q", got)
	}
	if got := p.texts(".facts"); !slices.Contains(got, "No Alertmanager gets these alerts. --alertmanager.url names one.") {
		t.Errorf("without an Alertmanager the page says %q", got)
	}
	p.eachLook(func(look string) {
		p.checkContrast(look)
		p.checkFits("rules "+look, map[bool]int64{true: narrowPage, false: widePage}[strings.HasSuffix(look, fmt.Sprint(narrowPage))])
		p.checkAxe("rules " + look)
		p.shoot("rules-" + look)
	})

	p.open("tab", "rules", "kind", "failing")
	if rows := p.rows(0); len(rows) != 1 || rows[0][0] != "page:gauge:wrong" {
		t.Errorf("failing rules are %q", rows)
	}
	p.enter("#rules input", "gaugehigh")
	p.wantParameters("tab", "rules", "filter", "gaugehigh", "kind", "failing")
	p.choose("#rules select[name=kind]", "Alerting")
	p.await(`document.querySelectorAll("#rules table").length === 2`)
	p.click(`#rules td a`)
	p.wantParameters("tab", "query", "expr", "page_gauge > 40", "view", "graph")

	p = newPage(t, startPaged(t))
	p.open("tab", "rules")
	if got := strings.Join(p.texts("p"), ""); !strings.Contains(got, "evaluates no rules. --rules.file names") {
		t.Errorf("without rules the page says %q", got)
	}
}

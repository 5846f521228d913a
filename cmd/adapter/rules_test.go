package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// writeRules writes a file of rules.
func writeRules(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const exampleRules = `
rules:
  - match: '{__name__=~"debug_.*"}'
    raw: 7d
    5m: 90d
  - match: '{job="billing"}'
    raw: 2y
    5m: forever
`

// TestRuleFlags: the store keeps each resolution for the longest of flags and rules.
func TestRuleFlags(t *testing.T) {
	file := writeRules(t, exampleRules)
	args := []string{"--retention.rules=" + file, "--retention.resolution-raw=30d", "--retention.resolution-5m=1y"}
	o, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	if got := o.retention.keep(); got != (bucketstore.Retention{730 * day, 0, 0}) || o.retention.text() != "2y" {
		t.Errorf("kept %v, %s", got, o.retention.text())
	}
	o.backend = backendBigtable
	if got := storeAges(o.tables()); got != (bucketstore.Retention{737 * day, 0, 0}) {
		t.Errorf("Bigtable keeps %v", got)
	}
	for _, tt := range []struct{ file, want string }{
		{filepath.Join(t.TempDir(), "none"), "--retention.rules: open "},
		{writeRules(t, "rules: [{match: a, raw: 1d}]"), "rules.yml, rule 1 a: raw: 1d is too short"},
		{writeRules(t, "rules: [{match: a, 1h: 1d}]"), "rules.yml, rule 1 a: 1h: 1d is shorter than 5m: 0s"},
		{writeRules(t, `rules: [{match: '{__tenant_id__="a"}', raw: 5d}]`), `rules.yml, rule 1 {__tenant_id__="a"}: the store has no tenants`},
	} {
		if _, err := parseFlags([]string{"--retention.rules=" + tt.file}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func TestRetentionExplain(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name, selector, want string
		args                 []string
	}{
		{"no rules", `up`, `the flags, of series that no rule matches: holds for all that is left
  raw  kept for ever
  5m   kept for ever
  1h   kept for ever
`, nil},
		{"a rule holds", `debug_x{job="y"}`, `rule 1 {__name__=~"debug_.*"}: holds for all that is left
  raw  1w   before 2026-11-15T00:00:00Z goes now, samples of today from 2026-11-30T00:00:00Z on  removed series by series, which rewrites days
  5m   90d  before 2026-08-24T00:00:00Z goes now, samples of today from 2027-02-21T00:00:00Z on  removed series by series, which rewrites days
  1h   off, none are made
rule 2 {job="billing"}: not reached
the flags, of series that no rule matches: not reached
`, []string{"--retention.rules=FILE", "--retention.resolution-raw=30d", "--retention.resolution-5m=1y", "--retention.resolution-1h=off"}},
		{"a rule may hold", `{job="billing"}`, `rule 1 {__name__=~"debug_.*"}: may match
  raw  1w   before 2026-11-15T00:00:00Z goes now, samples of today from 2026-11-30T00:00:00Z on  removed series by series, which rewrites days
  5m   90d  before 2026-08-24T00:00:00Z goes now, samples of today from 2027-02-21T00:00:00Z on  removed series by series, which rewrites days
  1h   kept for ever
rule 2 {job="billing"}: holds for all that is left
  raw  2y  before 2024-11-22T00:00:00Z goes now, samples of today from 2028-11-22T00:00:00Z on  dropped by whole days
  5m   kept for ever
  1h   kept for ever
the flags, of series that no rule matches: not reached
`, []string{"--retention.rules=FILE", "--retention.resolution-raw=30d", "--retention.resolution-5m=1y"}},
		{"none", `up{job="x"}`, `rule 1 {__name__=~"debug_.*"}: cannot match
rule 2 {job="billing"}: cannot match
the flags, of series that no rule matches: holds for all that is left
  raw  30d  before 2026-10-23T00:00:00Z goes now, samples of today from 2026-12-23T00:00:00Z on  removed series by series, which rewrites days
  5m   1y   before 2025-11-22T00:00:00Z goes now, samples of today from 2027-11-23T00:00:00Z on  removed series by series, which rewrites days
  1h   kept for ever
`, []string{"--retention.rules=FILE", "--retention.resolution-raw=30d", "--retention.resolution-5m=1y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"retention", "explain", tt.selector}
			for _, arg := range tt.args {
				args = append(args, strings.Replace(arg, "FILE", writeRules(t, exampleRules), 1))
			}
			o, err := parseFlags(args)
			if err != nil || o.command != commandRetentionExplain {
				t.Fatal(o, err)
			}
			var out strings.Builder
			if err := o.retention.explain(&out, now); err != nil || out.String() != tt.want {
				t.Errorf("%v\n%s\nwant\n%s", err, out.String(), tt.want)
			}
		})
	}
	bad := retentionOptions{selector: "{a="}
	if err := bad.explain(new(strings.Builder), now); err == nil || !strings.Contains(err.Error(), "selector {a=: ") {
		t.Error(err)
	}
}

package retention_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// TestParseRules: what a rule does not say is as in the flags, and the store keeps each resolution as long as the longest.
func TestParseRules(t *testing.T) {
	flags := bucketstore.Retention{days(30), days(365), 0}
	rules, err := retention.ParseRules("rules.yml", []byte(`
rules:
  - match: '{__name__=~"debug_.*"}'
    raw: 7d
    5m: 90d
  - match: up{job="x"}
    raw: 2y
    5m: forever
    1h: 0
  - match: '{team="y"}'
`), flags)
	if err != nil {
		t.Fatal(err)
	}
	want := []bucketstore.Retention{{days(7), days(90), 0}, {days(730), 0, 0}, flags}
	for i, rule := range rules {
		if rule.Keep != want[i] {
			t.Errorf("rule %d keeps %v, want %v", i+1, rule.Keep, want[i])
		}
	}
	if got := retention.Longest(flags, rules); len(rules) != 3 || got != (bucketstore.Retention{days(730), 0, 0}) {
		t.Errorf("%d rules, the longest is %v", len(rules), got)
	}
	if !rules[1].Matches(labels.FromStrings("__name__", "up", "job", "x")) || rules[1].Matches(labels.FromStrings("__name__", "up")) {
		t.Error("rule 2 matches something else")
	}
	all := retention.WithRest(rules, flags)
	for _, tt := range []struct {
		rule int
		of   rollup.Resolution
		age  time.Duration
	}{{0, rollup.Raw, days(7)}, {0, rollup.FiveMinutes, days(90)}, {0, rollup.OneHour, 0}, {1, rollup.Raw, 0}, {3, rollup.Raw, days(30)}} {
		age, ok := all[tt.rule].Walked(tt.of, retention.Longest(flags, rules))
		if ok != (tt.age > 0) || ok && age != tt.age {
			t.Errorf("rule %d, %s: %s, %t", tt.rule+1, tt.of, age, ok)
		}
	}
}

// TestOffRules: rollups that are off go with what they were made of.
func TestOffRules(t *testing.T) {
	flags := bucketstore.Retention{days(30), timeline.Off, timeline.Off}
	rules, err := retention.ParseRules("rules.yml", []byte("rules: [{match: '{a=\"b\"}', raw: 7d}]"), flags)
	if err != nil {
		t.Fatal(err)
	}
	for of := range rollup.NumResolutions {
		if age, ok := rules[0].Walked(of, retention.Longest(flags, rules)); age != days(7) || !ok {
			t.Errorf("%s: %s, %t", of, age, ok)
		}
	}
}

// TestBadRules: an error names the file, the rule and its selector.
func TestBadRules(t *testing.T) {
	flags := bucketstore.Retention{days(30), days(365), timeline.Off}
	const good = "rules:\n- match: '{a=\"b\"}'\n  raw: 7d\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"file rules.yml has no rules"}},
		{"no YAML", "rules: [", []string{"file rules.yml: yaml"}},
		{"another key", good + "retention: 3d\n", []string{"file rules.yml: ", "retention"}},
		{"another key of a rule", good + "- match: '{c=\"d\"}'\n  raww: 3d\n", []string{`file rules.yml, rule 2 {c="d"}: `, "line 5: field raww"}},
		{"a key twice", "rules:\n- match: '{c=\"d\"}'\n  raw: 3d\n  raw: 4d\n", []string{`file rules.yml, rule 1 {c="d"}: `, "raw"}},
		{"no selector", good + "- raw: 3d\n", []string{"file rules.yml, rule 2 : it has no selector"}},
		{"a bad selector", "rules: [{match: '{a='}]", []string{"file rules.yml, rule 1 {a=: match: "}},
		{"too long a selector", "rules: [{match: '{a=\"" + strings.Repeat("b", 1<<18) + "\"}'}]", []string{"file rules.yml, rule 1 ", "match: PromQL of 262150 bytes, the limit is 262144"}},
		{"a bad duration", "rules: [{match: a, raw: 3}]", []string{"file rules.yml, rule 1 a: raw: ", `"3"`, "forever"}},
		{"too short", "rules: [{match: a, raw: 2d}]", []string{"file rules.yml, rule 1 a: raw: 2d is too short: give it 3d or more"}},
		{"shorter than finer", "rules: [{match: a, 5m: 20d}]", []string{"file rules.yml, rule 1 a: 5m: 20d is shorter than raw: 30d"}},
		{"samples for ever", "rules: [{match: a, raw: forever}]", []string{"file rules.yml, rule 1 a: 5m: 1y is shorter than raw: 0s"}},
		{"off", "rules: [{match: a, 1h: 20y}]", []string{"file rules.yml, rule 1 a: 1h: no such rollups are made", "--retention.resolution-1h=off"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := retention.ParseRules("rules.yml", []byte(tt.text), flags)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\nwant %s", err, part)
				}
			}
		})
	}
}

func matchers(t *testing.T, selector string) []*labels.Matcher {
	t.Helper()
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		rule, selector string
		want           retention.Coverage
	}{
		{`{job="x"}`, `{job="x"}`, retention.Always},
		{`{job="x"}`, `up{job="x"}`, retention.Always},
		{`{job="x"}`, `{job="y"}`, retention.Never},
		{`{job="x"}`, `up`, retention.Maybe},
		{`up{job="x"}`, `{job="x"}`, retention.Maybe},
		{`up{job="x"}`, `{__name__="down",job="x"}`, retention.Never},
		{`{job=~"x.*"}`, `{job="xy"}`, retention.Always},
		{`{job=~"x.*"}`, `{job=~"xa|xb"}`, retention.Always},
		{`{job=~"x.*"}`, `{job=~"xa|b"}`, retention.Maybe},
		{`{job=~"x.*"}`, `{job=~"a|b"}`, retention.Never},
		{`{job=~"x.*"}`, `{job=~"x.*"}`, retention.Always},
		{`{job=~"x.*"}`, `{job!~"x.*",a="b"}`, retention.Never},
		{`{job=~"x.*"}`, `{job=~"y.*"}`, retention.Maybe},
		{`{job!="x",a="b"}`, `{job="",a="b"}`, retention.Always},
		{`{job=~".+"}`, `{job="",a="b"}`, retention.Never},
	} {
		if got := retention.Covers(matchers(t, tt.rule), matchers(t, tt.selector)); got != tt.want {
			t.Errorf("%s of %s: %d, want %d", tt.rule, tt.selector, got, tt.want)
		}
	}
}

// TestDates: what goes now, and when all samples of today go.
func TestDates(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		age  time.Duration
		want []string
	}{
		{days(7), []string{"2026-11-15T00:00:00Z", "2026-11-30T00:00:00Z"}},
		{days(3) + 16*time.Hour, []string{"2026-11-18T00:00:00Z", "2026-11-26T16:00:00Z"}},
		{days(100_000), []string{"1970-01-01T00:00:00Z", "2300-09-08T00:00:00Z"}},
	} {
		before, today := retention.Dates(now, tt.age)
		if got := []string{before.Format(time.RFC3339), today.Format(time.RFC3339)}; !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.age, got, tt.want)
		}
	}
}

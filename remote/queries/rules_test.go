package queries

import (
	"strings"
	"testing"
)

// TestRules: a rule blocks an expression however it is written, and no other.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule string
		blocks     []string
		allows     []string
	}{
		{
			"expression", `= sum by(job) (rate(x_total{b="2",a="1"}[1y]))`,
			[]string{`sum by (job) (rate(x_total{a="1", b="2"}[365d]))`, "sum(rate({__name__='x_total',b='2',a='1'}[1y])) by (job) # a comment"},
			[]string{`sum by (job) (rate(x_total{a="1"}[1y]))`, `2 * sum by (job) (rate(x_total{a="1",b="2"}[1y]))`, "(", ""},
		},
		{
			"pattern", `=~ .*\[1y\].*`,
			[]string{"rate(x[365d])", "1 +\n rate(x[1y])", `count_over_time({job="a\nb"}[1y])`},
			[]string{"rate(x[1d])", "x", "rate(x[1y]"},
		},
		{
			"whole", `=~ up|sum\(up\)`,
			[]string{"up", `{__name__="up"}`, "sum (up)"},
			[]string{`up{job="x"}`, "sum(up) + up", "uptime"},
		},
		{"matchers in order", `=~ up\{a="1",b!="2",b=~"3\.\*"\}`, []string{`up{b=~"3.*",b!="2",a="1"}`}, nil},
		{"experimental function", `= mad_over_time(x[5m])`, []string{"mad_over_time( x [300s] )"}, []string{"x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules, err := ParseRules([]byte(tt.rule))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range tt.blocks {
				if blockingRule(rules, []string{"other", text}) != &rules[0] {
					t.Errorf("%s is not blocked", text)
				}
			}
			for _, text := range tt.allows {
				if blockingRule(rules, []string{text}) != nil {
					t.Errorf("%s is blocked", text)
				}
			}
		})
	}
}

// TestLargeExpression: an expression that would take too long to be written is compared as its client wrote it.
func TestLargeExpression(t *testing.T) {
	t.Parallel()
	rules, err := ParseRules([]byte(`=~ sum\(  up.*`))
	large := "sum(  up" + strings.Repeat(" + up", 1000) + ")"
	if err != nil || blockingRule(rules, []string{large}) == nil || blockingRule(rules, []string{"sum(  up)"}) != nil {
		t.Errorf("the wrong expressions are blocked, %v", err)
	}
}

// TestParseRules: comments right above a rule are its reason, and what is no rule is an error that names the line.
func TestParseRules(t *testing.T) {
	t.Parallel()
	rules, err := ParseRules([]byte("# Rules of the team.\n\n#\n# Took all memory,\n# see the wiki.\n=~ a.*\n= up\r\n\n  # Old.\n\n=~ b\n"))
	want := []Rule{{Line: 6, Text: "=~ a.*", Reason: "Took all memory, see the wiki."}, {Line: 7, Text: "= up"}, {Line: 11, Text: "=~ b"}}
	if err != nil || len(rules) != len(want) {
		t.Fatalf("%+v, %v", rules, err)
	}
	for i, r := range rules {
		if r.Line != want[i].Line || r.Text != want[i].Text || r.Reason != want[i].Reason {
			t.Errorf("%+v, want %+v", r, want[i])
		}
	}
	for text, want := range map[string]string{
		"= up\n\n=~ (": "line 3: error parsing regexp", "= sum(": "line 1: 1:5: parse error", "\nup": "line 2: it is no rule",
		"=~": "line 1: nothing stands behind =~", "=up": "line 1: it is no rule", "= " + strings.Repeat("a+", 1000) + "a": "line 1: it is too large",
	} {
		if _, err := ParseRules([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
	if _, err := parseFile(make([]byte, maxFileBytes+1)); err == nil {
		t.Error("a file that is too large is read")
	}
}

// FuzzParseRules: no text makes ParseRules panic, every rule is of its line, and an exact rule blocks its own expression.
func FuzzParseRules(f *testing.F) {
	f.Add("# Why.\n=~ .*up.*\n= sum by (a) (up{b=\"c\"})")
	f.Add("=~ (\n")
	f.Add("= {\"a.b\",__name__=~\".+\"}[1d:] offset -5m")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules([]byte(text))
		if err != nil {
			return
		}
		lines := strings.Split(text, "\n")
		for i := range rules {
			r := &rules[i]
			if r.Text != strings.TrimSpace(lines[r.Line-1]) {
				t.Errorf("line %d is %q", r.Line, r.Text)
			}
			if written, ok := strings.CutPrefix(r.Text, "= "); ok && blockingRule(rules[i:i+1], []string{written}) == nil {
				t.Errorf("%s does not block itself", r.Text)
			}
		}
	})
}

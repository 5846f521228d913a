package expr_test

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/series/expr"
)

// repeat returns text with n copies of part between begin and end.
func repeat(begin, part string, n int, end string) string {
	return begin + strings.Repeat(part, n) + end
}

// nested returns n pairs of open and end around x.
func nested(open string, n int, end string) string {
	return strings.Repeat(open, n) + "x" + strings.Repeat(end, n)
}

// expressions are texts with as many of something as is wanted, and how many there may be.
var expressions = []struct {
	name  string
	text  func(n int) string
	limit int
	says  string
}{
	{"sum of numbers", func(n int) string { return repeat("1", "+1", n, "") }, 5000, "5000 operators"},
	{"or", func(n int) string { return repeat("x", " or x", n, "") }, 5000, "5000 operators"},
	{"signs", func(n int) string { return repeat("", "-", n, "1") }, 5000, "5000 operators"},
	{"powers", func(n int) string { return repeat("1", "^ 1", n, "") }, 5000, "5000 operators"},
	{"operators on lines with comments", func(n int) string { return repeat("x", " # (((( \"\n atan2 x", n, "") }, 5000, "5000 operators"},
	{"parentheses", func(n int) string { return nested("(", n, ")") }, 200, "200 parentheses"},
	{"parentheses without an end", func(n int) string { return repeat("", "(", n, "") }, 200, "200 parentheses"},
	{"operations in parentheses", func(n int) string { return nested("(x+", n, ")") }, 200, "200 parentheses"},
	{"functions", func(n int) string { return nested("abs(", n, ")") }, 200, "200 parentheses"},
	{"aggregations", func(n int) string { return nested("sum by (a) (", n, ")") }, 200, "200 parentheses"},
	{"subqueries", func(n int) string {
		return repeat("", "(", n%2, nested("max_over_time((", n/2, ")[5m:1m])")+strings.Repeat(")", n%2))
	}, 200, "200 parentheses"},
	{"subqueries one after another", func(n int) string { return repeat("x", "[5m:1m]", n, "") }, 5000, "5000 operators"},
	{"offsets", func(n int) string { return repeat("x", " offset 5m", n, "") }, 5000, "5000 operators"},
	{"times", func(n int) string { return repeat("x", " @ 1", n, "") }, 5000, "5000 operators"},
	{"matchers", func(n int) string { return repeat("x{", `a!="(b",`, n-1, "a='b'}") }, 10_000, "10000 matchers"},
	{"matchers of regular expressions", func(n int) string { return repeat("{", "a=~`b+`,", n-1, "a='b'}") }, 10_000, "10000 matchers"},
	{"labels", func(n int) string { return repeat("sum by (", "a,", n-1, "a) (x)") }, 100, "100 labels"},
	{"labels that group", func(n int) string { return repeat("x * on (a) group_left(", "b,", n-1, "b) y") }, 100, "100 labels"},
	{"arguments", func(n int) string { return repeat("label_join(x,'a','b',", "'a',", n-4, "'a')") }, 100, "100 labels or arguments"},
	{"bytes", func(n int) string { return repeat("x{a='", "b", n-len("x{a=''}"), "'}") }, 256 << 10, "262144"},
	{"bytes of space", func(n int) string { return repeat("x", " ", n-1, "") }, 256 << 10, "262144"},
	{"bytes of a comment", func(n int) string { return repeat("x #", "b", n-len("x #"), "") }, 256 << 10, "262144"},
}

// TestLimits: what is within the limits is as upstream parses it, what is beyond is refused, and the error names the limit.
func TestLimits(t *testing.T) {
	limited, upstream := expr.NewParser(parser.Options{}), parser.NewParser(parser.Options{})
	for _, tt := range expressions {
		t.Run(tt.name, func(t *testing.T) {
			_, err := limited.ParseExpr(tt.text(tt.limit))
			if _, want := upstream.ParseExpr(tt.text(tt.limit)); (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Errorf("at the limit: %v, upstream: %v", err, want)
			}
			for _, n := range []int{tt.limit + 1, tt.limit + 2, 1_000_000} {
				if _, err := limited.ParseExpr(tt.text(n)); err == nil || !(strings.Contains(err.Error(), tt.says) || n == 1_000_000 && strings.Contains(err.Error(), "262144")) {
					t.Errorf("%d: %v, want one that says %q", n, err, tt.says)
				}
			}
		})
	}
}

// TestSelectorLimits: selectors have the same limits, those that come together have them together.
func TestSelectorLimits(t *testing.T) {
	p := expr.NewParser(parser.Options{})
	for _, tt := range []struct {
		name  string
		texts []string
		says  string
	}{
		{"a list of names as Grafana sends it", []string{repeat("up{instance=~\"", `host-1234\\.example:9100|`, 6000, "x\"}")}, ""},
		{"a thousand", strings.Split(repeat("", `{job="(x",a!="",b=~"c+"};`, 999, "up"), ";"), ""},
		{"too long a regular expression", []string{repeat("{a=~\"", "b.*|", 1<<16, "\"}")}, "the limit is 262144"},
		{"too long together", []string{repeat("{a='", "b", 1<<17, "'}"), repeat("{a='", "c", 1<<17, "'}")}, "the limit is 262144"},
		{"too many matchers", []string{repeat("{", "a='b',", 10_001, "}")}, "10000 matchers"},
		{"too many together", strings.Split(repeat("", "{a='b'};", 10_001, "x"), ";"), "10000 matchers"},
		{"parentheses", []string{nested("(", 1000, ")")}, "200 parentheses"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := p.ParseMetricSelectors(tt.texts)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("together: %v, want %q", err, tt.says)
			}
			if len(tt.texts) > 1 {
				return
			}
			if _, err := p.ParseMetricSelector(tt.texts[0]); tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("alone: %v, want %q", err, tt.says)
			}
		})
	}
}

// TestCheckShown: an expression that is formatted, or written as a tree, has less of what takes time then.
func TestCheckShown(t *testing.T) {
	for _, tt := range []struct {
		name, text, says string
	}{
		{"300 operators", repeat("x", " or x", 300, ""), ""},
		{"301 operators", repeat("x", " or x", 301, ""), "300 operators"},
		{"16 KiB", repeat("x{a='", "b", 16<<10-len("x{a=''}"), "'}"), ""},
		{"16 KiB and a byte", repeat("x{a='", "b", 16<<10-len("x{a=''}")+1, "'}"), "16384"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := expr.CheckShown(tt.text); tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

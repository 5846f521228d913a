package queries

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series/expr"
)

// A Rule blocks queries.
type Rule struct {
	// Line is where it stands in its file, from 1 on.
	Line int `json:"line"`
	// Text is the line, and Reason the comment above it, or empty.
	Text   string `json:"rule"`
	Reason string `json:"reason,omitempty"`

	// pattern matches normal expressions as a whole. If it is nil, exact is the one that is blocked.
	pattern *regexp.Regexp
	exact   string
}

// err is the error of a query that the rule blocks: a 422.
func (r *Rule) err() error {
	why := ""
	if r.Reason != "" {
		why = ": " + r.Reason
	}
	return request.WithStatus(http.StatusUnprocessableEntity, "the query is blocked by line %d of --query.block-file%s", r.Line, why)
}

// matches says whether the rule blocks an expression, as normalize writes it.
func (r *Rule) matches(normal string) bool {
	if r.pattern != nil {
		return r.pattern.MatchString(normal)
	}
	return r.exact == normal
}

// ParseRules reads the text of a file of rules. A line is
//
//	=~ PATTERN     a regular expression that matches a whole expression
//	= EXPRESSION   an expression
//	# REASON       a comment: right above a rule, why it is there
//
// or empty. Patterns are compared with expressions as Prometheus writes them, on one line, with the matchers of a selector in the order of
// their names. The error names the line.
func ParseRules(text []byte) (rules []Rule, err error) {
	var reason []string
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, "#"); ok {
			if comment = strings.TrimSpace(comment); comment != "" {
				reason = append(reason, comment)
			}
			continue
		}
		if line != "" {
			r := Rule{Line: i + 1, Text: line, Reason: strings.Join(reason, " ")}
			if err := r.parse(); err != nil {
				return nil, fmt.Errorf("line %d: %w", r.Line, err)
			}
			rules = append(rules, r)
		}
		reason = nil
	}
	return rules, nil
}

// parse reads the text of the rule.
func (r *Rule) parse() (err error) {
	operator, rest, _ := strings.Cut(r.Text, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case operator != "=" && operator != "=~":
		return errors.New("it is no rule: begin it with =~ and a pattern, or = and an expression, with a space between")
	case rest == "":
		return fmt.Errorf("nothing stands behind %s", operator)
	case operator == "=~":
		r.pattern, err = regexp.Compile(`^(?s:` + rest + `)$`)
	default:
		r.exact, err = normalize(rest)
	}
	return err
}

// blockingRule returns the first of rules that blocks one of some expressions, or nil. What is no expression is not blocked: it cannot run.
// An expression that is too large to be normalized is compared as its client wrote it.
func blockingRule(rules []Rule, exprs []string) *Rule {
	if len(rules) == 0 {
		return nil
	}
	for _, text := range exprs {
		normal, err := normalize(text)
		switch {
		case errors.Is(err, errTooLarge):
			normal = text
		case err != nil:
			continue
		}
		if i := slices.IndexFunc(rules, func(r Rule) bool { return r.matches(normal) }); i >= 0 {
			return &rules[i]
		}
	}
	return nil
}

// errTooLarge marks an expression that would take too long to be written.
var errTooLarge = errors.New("it is too large")

// normalize writes an expression as Prometheus does, with the matchers of a selector in order and the metric name in front of them.
func normalize(text string) (string, error) {
	if err := expr.CheckShown(text); err != nil {
		return "", fmt.Errorf("%w: %w", errTooLarge, err)
	}
	root, err := expr.NewParser(parser.Options{
		EnableExperimentalFunctions: true, EnableBinopFillModifiers: true,
	}).ParseExpr(text)
	if err != nil {
		return "", err
	}
	parser.Inspect(root, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			normalizeSelector(s)
		}
		return nil
	})
	return root.String(), nil
}

func normalizeSelector(s *parser.VectorSelector) {
	for _, m := range s.LabelMatchers {
		if s.Name == "" && m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			s.Name = m.Value
		}
	}
	slices.SortFunc(s.LabelMatchers, func(a, b *labels.Matcher) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Value, b.Value))
	})
}

// maxFileBytes is how large a file of rules may be.
const maxFileBytes = 1 << 20

// parseFile is ParseRules, but for files that are too large.
func parseFile(text []byte) ([]Rule, error) {
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", len(text), maxFileBytes)
	}
	return ParseRules(bytes.TrimPrefix(text, []byte("\ufeff")))
}

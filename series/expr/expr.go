// Package expr parses PromQL, as Prometheus does, within limits that hold before anything is parsed.
//
// Upstream's parser looks at all below a node for each node, and what formats an expression does so
// more than once: their time grows with the square, and with the cube, of the depth of an expression.
// They do not end when their client has hung up.
package expr

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// The limits of a text. At all of them at once upstream's parser takes about a third of a second.
const (
	// maxBytes is for regular expressions, which take up to 700 bytes of memory for each of theirs while they are compiled.
	maxBytes = 256 << 10
	// maxTerms is how many operators, modifiers, commas, and opening parentheses and brackets there may be, outside of braces.
	maxTerms = 5000
	// maxMatchers is how many matchers there may be.
	maxMatchers = 10_000
	// maxDepth is how deeply parentheses, brackets and braces may be nested.
	maxDepth = 200
	// maxList is how many labels or arguments there may be in one pair of parentheses. Upstream's parser
	// compares all labels of on with all of group_left, and keeps an error for each that is in both.
	maxList = 100

	// maxShownBytes and maxShownTerms are for an expression that is formatted, or written as a tree.
	maxShownBytes = 16 << 10
	maxShownTerms = 300
)

// NewParser returns upstream's parser, which refuses what is beyond the limits. Several selectors
// that are parsed together have the limits of one.
func NewParser(opts parser.Options) parser.Parser { return limited{parser.NewParser(opts)} }

// CheckShown returns an error if it would take too long to format an expression, or to write its tree.
func CheckShown(text string) error {
	return check(limits{bytes: maxShownBytes, terms: maxShownTerms}, text)
}

// limited is a parser.Parser.
type limited struct{ parser.Parser }

func (p limited) ParseExpr(text string) (parser.Expr, error) {
	if err := check(parsed(), text); err != nil {
		return nil, err
	}
	return p.Parser.ParseExpr(text)
}

func (p limited) ParseMetricSelector(text string) ([]*labels.Matcher, error) {
	if err := check(parsed(), text); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelector(text)
}

func (p limited) ParseMetricSelectors(texts []string) ([][]*labels.Matcher, error) {
	if err := check(parsed(), texts...); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelectors(texts)
}

// limits are those that differ by what becomes of a text.
type limits struct{ bytes, terms int }

func parsed() limits { return limits{bytes: maxBytes, terms: maxTerms} }

// check returns an error that names the limit that texts exceed together, if there is one.
func check(l limits, texts ...string) error {
	bytes := 0
	for _, text := range texts {
		bytes += len(text)
	}
	if bytes > l.bytes {
		return fmt.Errorf("PromQL of %d bytes, the limit is %d", bytes, l.bytes)
	}
	s := scan{limits: l}
	for _, text := range texts {
		s.lists = s.lists[:0]
		lexer := parser.Lex(text)
		for item := (parser.Item{}); item.Typ != parser.EOF && item.Typ != parser.ERROR; {
			lexer.NextItem(&item)
			if err := s.add(item.Typ); err != nil {
				return err
			}
		}
	}
	return nil
}

// A scan counts what is limited.
type scan struct {
	limits          limits
	terms, matchers int
	// lists are what is open.
	lists []list
}

// A list is a pair of parentheses, brackets or braces, and how many commas it has.
type list struct {
	isMatchers bool
	commas     int
}

// add counts the next item of a text. The error names a limit.
func (s *scan) add(t parser.ItemType) error {
	last := len(s.lists) - 1
	inBraces := last >= 0 && s.lists[last].isMatchers
	switch {
	case t == parser.LEFT_PAREN, t == parser.LEFT_BRACKET, t == parser.LEFT_BRACE:
		s.lists = append(s.lists, list{isMatchers: t == parser.LEFT_BRACE})
	case t == parser.RIGHT_PAREN, t == parser.RIGHT_BRACKET, t == parser.RIGHT_BRACE:
		s.lists = s.lists[:max(0, last)] // upstream says what does not match
		return nil
	case t == parser.COMMA && last >= 0:
		s.lists[last].commas++
	}
	switch {
	case t == parser.LEFT_BRACE, inBraces && t == parser.COMMA:
		s.matchers++
	case !inBraces && (t.IsOperator() || t.IsKeyword() || t == parser.LEFT_PAREN || t == parser.LEFT_BRACKET || t == parser.COMMA || t == parser.AT):
		s.terms++
	}
	return s.check()
}

// check returns an error that names a limit which is exceeded.
func (s *scan) check() error {
	const tooMany = "PromQL with more than %d %s: split it into several queries"
	switch last := len(s.lists) - 1; {
	case s.terms > s.limits.terms:
		return fmt.Errorf(tooMany, s.limits.terms, "operators, commas, parentheses and brackets")
	case s.matchers > maxMatchers:
		return fmt.Errorf(tooMany, maxMatchers, "matchers of labels")
	case last >= maxDepth:
		return fmt.Errorf("PromQL with more than %d parentheses, brackets and braces inside each other", maxDepth)
	case last >= 0 && !s.lists[last].isMatchers && s.lists[last].commas >= maxList:
		return fmt.Errorf("PromQL with more than %d labels or arguments in one pair of parentheses", maxList)
	}
	return nil
}

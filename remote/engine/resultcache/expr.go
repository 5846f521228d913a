package resultcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// whyNot returns nothing if expr reads series, and its value at a step is the same to the bit
// whatever other steps a query has. Else it says why not. Upstream's engine looks at other steps where
//
//   - the expression says so: @ start(), range() and others, warnings about sort
//   - it puts series together that are the same without their names, and refuses those that are at the same
//     steps, wherever these are: a range of series of more than one name
//   - it adds up, or compares, the groups of an aggregation: they are in the order of their
//     first series, which may have no sample at this step
//   - the parameter of an aggregation is no number
//
// Features that are not in this list because they are new, or rare, are not cached, either.
func whyNot(expr parser.Expr) (why string) {
	selects := false
	anyNode(expr, func(node parser.Node) bool {
		if _, ok := node.(*parser.VectorSelector); ok {
			selects = true
		}
		why = dependence(node)
		return why != ""
	})
	if why == "" && !selects {
		why = "it reads no series"
	}
	return why
}

const (
	ofTheRange    = "@ start() and @ end() depend on the range of a query"
	ofExpressions = "a duration is an expression, which may depend on the range of a query"
)

// dependence says why the value of node at a step may depend on other steps, if it may.
func dependence(node parser.Node) string {
	switch n := node.(type) {
	case *parser.VectorSelector:
		switch {
		case n.StartOrEnd != 0:
			return ofTheRange
		case n.OriginalOffsetExpr != nil:
			return ofExpressions
		case n.Anchored || n.Smoothed:
			return "anchored and smoothed look at samples around the range"
		}
	case *parser.MatrixSelector:
		switch {
		case n.RangeExpr != nil:
			return ofExpressions
		case !hasOneName(n.VectorSelector.(*parser.VectorSelector)):
			return "the selector of a range does not name one metric"
		}
	case *parser.SubqueryExpr:
		switch {
		case n.StartOrEnd != 0:
			return ofTheRange
		case n.OriginalOffsetExpr != nil || n.RangeExpr != nil || n.StepExpr != nil:
			return ofExpressions
		case anyNode(n.Expr, mixesNames):
			return "the series of a subquery may be of several metrics"
		}
	case *parser.Call:
		if slices.Contains(dependentFunctions, n.Func.Name) {
			return n.Func.Name + "() may depend on the range of a query"
		}
	case *parser.BinaryExpr:
		if m := n.VectorMatching; m != nil && (m.FillValues.LHS != nil || m.FillValues.RHS != nil) {
			return "fill is experimental"
		}
	case *parser.AggregateExpr:
		switch {
		case !isLiteral(n.Param):
			return fmt.Sprintf("the parameter of %s is not a number", n.Op)
		case !slices.Contains(unorderedAggregations, n.Op) && hasGroups(n.Expr):
			return fmt.Sprintf("%s of groups depends on their order", n.Op)
		}
	}
	return ""
}

var (
	// dependentFunctions are those that look at the range of a query.
	dependentFunctions = []string{"start", "end", "range", "step", "sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "info"}
	// unorderedAggregations are those whose value does not depend on the order of the elements. That
	// of the others does: sums are compensated, topk and bottomk choose one of equals, 0 and -0
	// are equal.
	unorderedAggregations = []parser.ItemType{parser.COUNT, parser.GROUP, parser.COUNT_VALUES}
	// renamingFunctions change labels.
	renamingFunctions = []string{"label_replace", "label_join"}
)

// anyNode says whether is is true of a node of expr.
func anyNode(expr parser.Expr, is func(parser.Node) bool) bool {
	found := errors.New("found")
	return parser.Walk(visitor(func(node parser.Node) error {
		if node != nil && is(node) {
			return found
		}
		return nil
	}), expr, nil) != nil
}

// A visitor is a function that sees each node of an expression, until it returns an error.
type visitor func(parser.Node) error

// Visit implements parser.Visitor.
func (v visitor) Visit(node parser.Node, _ []parser.Node) (parser.Visitor, error) {
	return v, v(node)
}

// hasOneName says that all series of a selector have the same metric name.
func hasOneName(s *parser.VectorSelector) bool {
	return slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == labels.MetricName && m.Type == labels.MatchEqual && m.Value != ""
	})
}

// mixesNames says that node may have series that are the same without their names.
func mixesNames(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return !hasOneName(n)
	case *parser.BinaryExpr:
		return n.Op == parser.LOR
	case *parser.AggregateExpr:
		return n.Op == parser.COUNT_VALUES
	case *parser.Call:
		return slices.Contains(renamingFunctions, n.Func.Name)
	}
	return false
}

// isLiteral says that the parameter of an aggregation is a literal, or that there is none.
func isLiteral(param parser.Expr) bool {
	switch p := param.(type) {
	case nil, *parser.NumberLiteral, *parser.StringLiteral:
		return true
	case *parser.ParenExpr:
		return isLiteral(p.Expr)
	case *parser.UnaryExpr:
		return isLiteral(p.Expr)
	}
	return false
}

// hasGroups says that the series of expr are in the order of the groups of an aggregation. Most
// other nodes above an aggregation put their series into the order of a map: there upstream's
// engine does not agree with itself.
func hasGroups(expr parser.Expr) bool {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return hasGroups(e.Expr)
	case *parser.UnaryExpr:
		return hasGroups(e.Expr)
	case *parser.SubqueryExpr:
		return hasGroups(e.Expr)
	case *parser.AggregateExpr:
		return e.Without || len(e.Grouping) > 0
	case *parser.Call:
		return slices.ContainsFunc(e.Args, func(arg parser.Expr) bool {
			isRange := arg.Type() == parser.ValueTypeMatrix
			return (isRange || slices.Contains(renamingFunctions, e.Func.Name)) && hasGroups(arg)
		})
	}
	return false
}

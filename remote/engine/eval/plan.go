package eval

import (
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/schema"
)

// A planner finds the parts of an expression.
type planner struct {
	lookback time.Duration
	// subqueryStep is the step of subqueries that name none, in milliseconds.
	subqueryStep func(rangeMs int64) int64
	// unknown has the places of expressions that are left to upstream's engine, over the parts inside.
	unknown map[posrange.PositionRange]bool
	parts   *parts
	// steps is how many steps the query has, and within where the planner is.
	steps  int
	within place
	// notes, unless nil, says what becomes of each expression, and why.
	notes *notes
}

// replace puts a selector in place of each part of expr, which is evaluated at the times
// of g, and returns what has become of expr.
func (p *planner) replace(expr parser.Expr, g grid) parser.Expr {
	part := p.match(expr)
	if part != nil && p.fits(part, g) {
		if part.place = expr.PositionRange(); !p.unknown[part.place] {
			part.begin(g)
			part.within, part.steps = p.within, p.steps
			p.notes.streams(expr, part)
			return p.parts.add(part)
		}
	}
	p.notes.doesNotStream(expr)
	p.leave(expr, g)
	switch n := expr.(type) {
	case *parser.AggregateExpr:
		n.Expr = p.replace(n.Expr, g)
		if n.Param != nil {
			n.Param = p.replace(n.Param, g)
		}
	case *parser.BinaryExpr:
		n.LHS, n.RHS = p.replace(n.LHS, g), p.replace(n.RHS, g)
	case *parser.Call:
		p.replaceArguments(n, g)
	case *parser.ParenExpr:
		n.Expr = p.replace(n.Expr, g)
	case *parser.UnaryExpr:
		n.Expr = p.replace(n.Expr, g)
	case *parser.StepInvariantExpr:
		if p.within == wholeQuery {
			p.within = fixedTime
			defer func() { p.within = wholeQuery }()
		}
		n.Expr = p.replace(n.Expr, g.first())
	case *parser.SubqueryExpr:
		if n.Timestamp != nil {
			p.refuse(n, "has a fixed time (@)")
			p.notes.doesNotStream(n.Expr)
			break
		}
		defer func(before place) { p.within = before }(p.within)
		p.within = subquery
		n.Expr = p.replace(n.Expr, p.subqueryGrid(n, g))
	}
	return expr
}

// looksAtSelector are functions that look at their argument and not only at its value. Of the first three that is so only where the
// argument is a selector.
var looksAtSelector = []string{"absent", "absent_over_time", "timestamp", "start_timestamp", "info"}

func (p *planner) replaceArguments(call *parser.Call, g grid) {
	if i := slices.Index(looksAtSelector, call.Func.Name); i > 2 || i >= 0 && p.becomesSelector(call.Args[0]) {
		p.refuse(call, "looks at its selector, not only at values")
		for _, arg := range call.Args {
			p.notes.doesNotStream(arg)
		}
		p.leave(call.Args[0], g)
		return
	}
	for i, arg := range call.Args {
		call.Args[i] = p.replace(arg, g)
	}
}

// becomesSelector says whether upstream's engine would take the argument of a function for a selector: because it is one, or because a part, in
// whose place a selector stands, would be.
func (p *planner) becomesSelector(arg parser.Expr) bool {
	switch e := arg.(type) {
	case *parser.ParenExpr:
		return p.becomesSelector(e.Expr)
	case *parser.StepInvariantExpr:
		return p.becomesSelector(e.Expr)
	case *parser.VectorSelector, *parser.MatrixSelector:
		return true
	}
	quiet := *p // says nothing of what it refuses
	quiet.notes = nil
	return quiet.match(arg) != nil
}

// leave notes what is needed of a selector that is left to upstream's engine at the times of g.
func (p *planner) leave(expr parser.Expr, g grid) {
	window := p.lookback
	switch n := expr.(type) {
	case *parser.ParenExpr:
		p.leave(n.Expr, g)
	case *parser.StepInvariantExpr:
		p.leave(n.Expr, g.first())
	case *parser.MatrixSelector:
		expr, window = n.VectorSelector, n.Range
	}
	vector, ok := expr.(*parser.VectorSelector)
	if !ok {
		return
	}
	if vector.Timestamp != nil {
		g = g.first()
	}
	if part := p.selector(vector, window); part != nil && p.fits(part, g) {
		part.begin(g)
		p.parts.leave(vector, part.windows())
	}
}

// subqueryGrid returns the times at which a subquery evaluates its expression, if it is
// itself evaluated at those of g: multiples of its step.
func (p *planner) subqueryGrid(n *parser.SubqueryExpr, g grid) grid {
	sub := grid{step: n.Step.Milliseconds()}
	if sub.step == 0 {
		sub.step = p.subqueryStep(n.Range.Milliseconds())
	}
	offset := n.OriginalOffset.Milliseconds()
	after := g.start - offset - n.Range.Milliseconds()
	sub.start = sub.step * (after / sub.step)
	if sub.start <= after {
		sub.start += sub.step
	}
	if end := g.last() - offset; end >= sub.start {
		sub.count = int((end-sub.start)/sub.step) + 1
	}
	return sub
}

// match returns the part that expr is, or nil if it is none.
func (p *planner) match(expr parser.Expr) *part {
	if call, ok := expr.(*parser.Call); ok && (call.Func.Name == "absent" || call.Func.Name == "absent_over_time") {
		return p.absent(call)
	}
	e, ok := expr.(*parser.AggregateExpr)
	if !ok {
		return p.elements(expr)
	}
	part := p.elements(e.Expr)
	if part == nil {
		return nil
	}
	if refusal := part.aggregateBy(e); refusal != "" {
		return p.refuse(e, refusal)
	}
	part.grouping = grouping(e, part)
	return part
}

// refuse says why e, and so what it is an operand of, is no part.
func (p *planner) refuse(e parser.Expr, why string) *part {
	p.notes.refuse(e, why)
	return nil
}

// maxK is the largest k of topk and bottomk that a part knows.
const maxK = 1_000_000

// aggregateBy adds an aggregation. It returns why it does not, if it is none that a part knows.
func (part *part) aggregateBy(e *parser.AggregateExpr) (refusal string) {
	const noNumber = "has a parameter that is no number literal"
	part.aggregation, part.aggregate = e, aggregates[e.Op]
	var ok bool
	switch e.Op {
	case parser.QUANTILE:
		if part.number, ok = number(e.Param); !ok {
			return noNumber
		}
	case parser.TOPK, parser.BOTTOMK:
		if part.number, ok = number(e.Param); !ok {
			return noNumber
		}
		if !(part.number >= 1 && part.number <= maxK) {
			return "has a parameter that is not from 1 to a million"
		}
	case parser.COUNT_VALUES:
		name, ok := e.Param.(*parser.StringLiteral)
		if !ok || name.Val == labels.MetricName || !model.UTF8Validation.IsValidLabelName(name.Val) {
			return "has no plain label name"
		}
		part.valueLabel = name.Val
	default:
		if part.aggregate == nil {
			return "is no aggregation that streams"
		}
	}
	return ""
}

// grouping returns the labels that tell groups apart, or, of without, those that do not,
// sorted.
func grouping(e *parser.AggregateExpr, part *part) []string {
	names := slices.Clone(e.Grouping)
	if e.Without || part.dropsName {
		names = slices.DeleteFunc(names, schema.IsMetadataLabel)
	}
	switch {
	case e.Without:
		names = append(names, labels.MetricName, metricType, metricUnit)
	case e.Op == parser.COUNT_VALUES:
		names = append(names, part.valueLabel)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// elements is match of what an aggregation has inside.
func (p *planner) elements(expr parser.Expr) *part {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return p.elements(e.Expr)
	case *parser.VectorSelector:
		return p.selector(e, p.lookback)
	case *parser.Call:
		if e.Func.Name == "timestamp" {
			return p.timestamp(e)
		}
		if fn := simpleFunctions[e.Func.Name]; fn != nil && len(e.Args) == 1 {
			return p.with(p.elements(e.Args[0]), e, always(fn), true)
		}
		return p.call(e)
	case *parser.UnaryExpr:
		if e.Op == parser.SUB {
			return p.with(p.elements(e.Expr), e, always(negate), true)
		}
		return p.elements(e.Expr)
	case *parser.BinaryExpr:
		return p.binary(e)
	case *parser.StepInvariantExpr:
		return p.refuse(e, "has a fixed time (@)")
	case *parser.AggregateExpr:
		return p.refuse(e, "is an aggregation, whose result no part begins with")
	}
	return p.refuse(expr, "is no selector, and no operation on one")
}

func (p *planner) binary(e *parser.BinaryExpr) *part {
	elements, scalar, numberFirst := e.LHS, e.RHS, false
	n, ok := number(scalar)
	if !ok {
		elements, scalar, numberFirst = e.RHS, e.LHS, true
		n, ok = number(scalar)
	}
	if !ok && e.LHS.Type() == parser.ValueTypeVector && e.RHS.Type() == parser.ValueTypeVector {
		return p.refuse(e, "is an operation between vectors")
	}
	if !ok || elements.Type() != parser.ValueTypeVector {
		return p.refuse(e, "has a scalar that is no number literal")
	}
	op, drops, ok := binary(e, n, numberFirst)
	if !ok {
		return p.refuse(e, "is no operator that streams")
	}
	return p.with(p.elements(elements), e, op, drops)
}

// with adds the operation of e to the elements of part, which may be nil. An operation that
// drops names could make two series the same, unless all have one name.
func (p *planner) with(part *part, e parser.Expr, op operation, drops bool) *part {
	if part == nil {
		return nil
	}
	if drops && !part.oneName {
		return p.refuse(e, "drops metric names, and its selector is not of one metric")
	}
	part.operations = append(part.operations, op)
	part.dropsName = part.dropsName || drops
	return part
}

// rangeFunctions are functions of a window of samples that depend on nothing else, but for
// numbers. Upstream calls them once for each series and step.
var rangeFunctions = map[string]bool{
	"rate": true, "increase": true, "delta": true, "irate": true, "idelta": true,
	"deriv": true, "changes": true, "resets": true, "predict_linear": true,
	"avg_over_time": true, "count_over_time": true, "first_over_time": true, "last_over_time": true,
	"mad_over_time": true, "max_over_time": true, "min_over_time": true, "present_over_time": true,
	"quantile_over_time": true, "stddev_over_time": true, "stdvar_over_time": true, "sum_over_time": true,
	"ts_of_first_over_time": true, "ts_of_last_over_time": true, "ts_of_max_over_time": true, "ts_of_min_over_time": true,
}

// call is elements of a function of a window.
func (p *planner) call(e *parser.Call) *part {
	if !rangeFunctions[e.Func.Name] {
		return p.refuse(e, "cannot be streamed")
	}
	var part *part
	var arguments []promql.Vector
	for _, arg := range e.Args {
		if m, ok := arg.(*parser.MatrixSelector); ok {
			if part = p.selector(m.VectorSelector.(*parser.VectorSelector), m.Range); part == nil {
				return nil
			}
			continue
		}
		n, ok := number(arg)
		if !ok {
			if arg.Type() == parser.ValueTypeMatrix {
				return p.refuse(e, "is over a subquery")
			}
			return p.refuse(e, "has a scalar that is no number literal")
		}
		arguments = append(arguments, promql.Vector{{F: n}})
	}
	if part == nil {
		return nil // rate and the like have one
	}
	part.call, part.arguments, part.function = e, arguments, promql.FunctionCalls[e.Func.Name]
	part.dropsName = e.Func.Name != "first_over_time" && e.Func.Name != "last_over_time"
	return part
}

// selector is elements that are read over a window of this length: the lookback, if there
// is no function.
func (p *planner) selector(e *parser.VectorSelector, window time.Duration) *part {
	if e.Anchored || e.Smoothed {
		return p.refuse(e, "is anchored or smoothed")
	}
	if len(e.LabelMatchers) == 0 {
		return p.refuse(e, "has no matcher")
	}
	part := &part{vector: e, rangeMs: window.Milliseconds()}
	for _, m := range e.LabelMatchers {
		part.oneName = part.oneName || m.Name == labels.MetricName && m.Type == labels.MatchEqual && m.Value != ""
	}
	return part
}

// maxSteps is how many steps a part knows: it has memory for each. Only subqueries have more.
const maxSteps = 1_000_000

// fits says whether the part can be evaluated at the times of g. At a fixed time (@) it
// has one value, which upstream evaluates once.
func (p *planner) fits(part *part, g grid) bool {
	switch {
	case g.count > maxSteps:
		p.refuse(part.vector, "is read at more than a million steps")
		return false
	case part.vector.Timestamp != nil && g.count != 1:
		p.refuse(part.vector, "has a fixed time (@), and is read at many steps")
		return false
	}
	return true
}

// number returns the value of a number literal.
func number(expr parser.Expr) (v float64, ok bool) {
	switch e := expr.(type) {
	case *parser.NumberLiteral:
		return e.Val, true
	case *parser.ParenExpr:
		return number(e.Expr)
	case *parser.StepInvariantExpr:
		return number(e.Expr)
	case *parser.UnaryExpr:
		if v, ok = number(e.Expr); e.Op == parser.SUB {
			v = -v
		}
		return v, ok
	}
	return 0, false
}

package eval

import (
	"errors"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/util/annotations"
)

// RollupsOnly is a warning that samples before a time are kept as rollups alone, which do not tell what an expression needs.
type RollupsOnly struct {
	// Selector is what was read, Before the time in milliseconds.
	Selector string
	Before   int64
}

// Error implements error.
func (e *RollupsOnly) Error() string {
	return annotations.PromQLWarning.Error() + ": of " + e.Selector + ", what is before " + time.UnixMilli(e.Before).UTC().Format(time.RFC3339) +
		" is only kept as rollups, which do not tell what this expression needs: there it has no value"
}

// Unwrap implements error.
func (e *RollupsOnly) Unwrap() error { return annotations.PromQLWarning }

// An absence is where the other results of a part are to be found at no step: absent or absent_over_time of it.
type absence struct {
	labels labels.Labels
	// present says at which steps there is a value, unknown at which it is not known whether there is one. There it has no value either.
	present, unknown []bool
}

// absent returns the part that a call of absent or absent_over_time is, or nil if it is none.
func (p *planner) absent(call *parser.Call) *part {
	arg := call.Args[0]
	for paren, ok := arg.(*parser.ParenExpr); ok; paren, ok = arg.(*parser.ParenExpr) {
		arg = paren.Expr
	}
	var inner *part
	if call.Func.Name == "absent" {
		inner = p.match(arg)
	} else if _, ok := arg.(*parser.MatrixSelector); ok { // a value where there is a sample
		if inner = p.call(&parser.Call{Func: parser.Functions["present_over_time"], Args: parser.Expressions{arg}, PosRange: call.PosRange}); inner != nil {
			inner.dropsName = false // there may be series that differ in nothing else
		}
	}
	if inner == nil || inner.absent != nil {
		return p.refuse(call, "has an argument that does not stream")
	}
	inner.absent = &absence{labels: absentLabels(arg)}
	return inner
}

// absentLabels returns the labels that upstream gives the result: those that a selector wants to be equal to one value.
func absentLabels(arg parser.Expr) labels.Labels {
	if m, ok := arg.(*parser.MatrixSelector); ok {
		arg = m.VectorSelector
	}
	selector, ok := arg.(*parser.VectorSelector)
	if !ok {
		return labels.EmptyLabels()
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	isSet := make(map[string]bool)
	for _, m := range selector.LabelMatchers {
		switch {
		case schema.IsMetadataLabel(m.Name):
		case m.Type == labels.MatchEqual && !isSet[m.Name]:
			b.Set(m.Name, m.Value)
			isSet[m.Name] = true
		default:
			b.Del(m.Name)
		}
	}
	return b.Labels()
}

// begin forgets the steps of an earlier evaluation.
func (a *absence) begin(steps int) {
	a.present, a.unknown = make([]bool, steps), make([]bool, steps)
}

// add notes at which steps a series has a value.
func (a *absence) add(c *column) {
	for i, has := range c.has {
		a.present[i] = a.present[i] || has
	}
}

// absentElements are the elements of a part of which only the absence is asked for.
type absentElements struct {
	*absence
	holding
}

// add implements collector.
func (e *absentElements) add(_ labels.Labels, c *column) error {
	e.absence.add(c)
	return nil
}

// results implements collector. What is held is counted as one sample a step, as upstream does.
func (e *absentElements) results() ([]result, annotations.Annotations, error) {
	return nil, nil, e.hold(len(e.present), len(e.present)*pointSize)
}

// of returns the results of the absence, of those of a part that adds none to it itself.
func (a *absence) of(results []result) []result {
	for i := range results {
		a.add(&results[i].column)
	}
	c := newColumn(len(a.present))
	for i, present := range a.present {
		if !present && !a.unknown[i] {
			c.set(i, 1)
		}
	}
	if c.isEmpty() {
		return nil
	}
	return []result{{a.labels, c}}
}

// noteRollupsOnly notes the steps whose windows reach to where a part of the samples is only kept as rollups that were not read: there it is
// not known what there is.
func (p *part) noteRollupsOnly(warnings annotations.Annotations) {
	for _, warning := range warnings {
		var only *RollupsOnly
		if !errors.As(warning, &only) {
			continue
		}
		for i := range p.grid.count {
			p.absent.unknown[i] = p.absent.unknown[i] || p.grid.at(i)-p.shift-p.rangeMs < only.Before
		}
	}
}

// timestamp returns the elements that a call of timestamp is, or nil if it is none: of a selector these are the times of its samples.
func (p *planner) timestamp(e *parser.Call) *part {
	arg := e.Args[0]
	for paren, ok := arg.(*parser.ParenExpr); ok; paren, ok = arg.(*parser.ParenExpr) {
		arg = paren.Expr
	}
	selector, ok := arg.(*parser.VectorSelector)
	if !ok {
		return p.refuse(e, "is of no selector")
	}
	part := p.selector(selector, p.lookback)
	if part != nil {
		part.isTimestamp = true
	}
	return p.with(part, e, always(func(seconds float64) float64 { return seconds }), true)
}

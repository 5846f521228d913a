package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// A Node is an expression, as it is evaluated.
type Node struct {
	// Text is the expression as it is written.
	Text string
	// Kind says what it is: "aggregation", "function", "operator", "selector", "range selector",
	// "subquery" or "literal". Parentheses are no nodes.
	Kind string
	// Type is the type of its value, as Prometheus' documentation names it.
	Type string
	// Streamed says what is evaluated while series are read, such as "sum by (job) of rate". It
	// is empty if that is not the root of what is streamed.
	Streamed string
	// InStreamed says that the expression is inside one that is streamed.
	InStreamed bool
	// Reason says why the expression is evaluated by Prometheus' engine. It is empty if it is
	// not, and if nothing in it is read.
	Reason string
	// Read is what a selector reads, nil of other expressions.
	Read     *Read
	Children []*Node
}

// A Read is a selector and the times of which it is read, in milliseconds, both inclusive.
type Read struct {
	Matchers   []*labels.Matcher
	Mint, Maxt int64
	// Buckets says what of these times is needed. It is nil if all samples are.
	Buckets *Buckets
}

// maxNodes is how large an expression is explained.
const maxNodes = 1000

// Explain returns the tree of an expression that is evaluated from start to end, each step, or
// at start if step is 0. It reads nothing. What a part meets in its series, and gives up for,
// it does not say. The info metrics of info, which upstream's engine chooses by the series
// that it finds, are missing.
func (e *Engine) Explain(ctx context.Context, expr string, start, end time.Time, step time.Duration) (*Node, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	notes := &notes{ctx: ctx, text: expr, nodes: make(map[parser.Node]*Node), selectors: make(map[*labels.Matcher]*Node)}
	q := &query{engine: e, source: hintsOnly{notes, cancel}, notes: notes}
	q.upstream = func(source storage.Queryable) (promql.Query, error) {
		if step == 0 {
			return e.upstream.NewInstantQuery(ctx, source, nil, expr, start)
		}
		return e.upstream.NewRangeQuery(ctx, source, nil, expr, start, end, step)
	}
	if err := q.plan(); err != nil {
		return nil, err
	}
	defer q.Close()
	if err := q.Query.Exec(ctx).Err; !errors.Is(context.Cause(ctx), errHinted) {
		return nil, err
	}
	notes.finish(notes.root, false, "")
	return notes.root, nil
}

// errHinted ends the execution of a query whose selectors are named.
var errHinted = errors.New("all selectors are named")

// hintsOnly is a source without series that takes notes of what is to be read. Upstream's
// engine names all selectors before it evaluates anything, which ends then.
type hintsOnly struct {
	notes  *notes
	cancel context.CancelCauseFunc
}

// Querier implements storage.Queryable.
func (h hintsOnly) Querier(int64, int64) (storage.Querier, error) {
	h.cancel(errHinted)
	return h, nil
}

// Select implements storage.Querier.
func (h hintsOnly) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	h.notes.reads(hints, ms, BucketsOf(ctx))
	return storage.EmptySeriesSet()
}

// LabelValues implements storage.LabelQuerier.
func (hintsOnly) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier.
func (hintsOnly) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.LabelQuerier.
func (hintsOnly) Close() error { return nil }

// notes are what a planner says of the expressions of a query. Most queries have none: all
// methods but finish do nothing on nil.
type notes struct {
	// ctx is that of the query.
	ctx context.Context
	// text is that of the query.
	text  string
	root  *Node
	count int
	// nodes are those of all expressions, selectors those of selectors by their first matcher.
	nodes     map[parser.Node]*Node
	selectors map[*labels.Matcher]*Node
	// reason is that of the last refusal, of the expression about.
	about  parser.Expr
	reason string
}

// begin makes the nodes of a query.
func (n *notes) begin(expr parser.Expr) error {
	if n == nil {
		return nil
	}
	if n.root = n.node(expr); n.count > maxNodes {
		return fmt.Errorf("the expression has more than %d operations, selectors and literals", maxNodes)
	}
	return nil
}

// node makes the node of an expression.
func (n *notes) node(expr parser.Node) *Node {
	x := &Node{}
	switch e := expr.(type) {
	case *parser.ParenExpr:
		x = n.node(e.Expr)
	case *parser.StepInvariantExpr:
		x = n.node(e.Expr)
	case *parser.MatrixSelector:
		x = n.node(e.VectorSelector)
		x.describe(e, n.text)
	default:
		if n.count++; n.count > maxNodes {
			return x
		}
		x.describe(e.(parser.Expr), n.text)
		if s, ok := e.(*parser.VectorSelector); ok && len(s.LabelMatchers) > 0 {
			n.selectors[s.LabelMatchers[0]] = x
		}
		for child := range parser.ChildrenIter(e) {
			x.Children = append(x.Children, n.node(child))
		}
	}
	n.nodes[expr] = x
	return x
}

// describe says what an expression is.
func (x *Node) describe(expr parser.Expr, text string) {
	switch expr.(type) {
	case *parser.AggregateExpr:
		x.Kind = "aggregation"
	case *parser.Call:
		x.Kind = "function"
	case *parser.BinaryExpr, *parser.UnaryExpr:
		x.Kind = "operator"
	case *parser.VectorSelector:
		x.Kind = "selector"
	case *parser.MatrixSelector:
		x.Kind = "range selector"
	case *parser.SubqueryExpr:
		x.Kind = "subquery"
	default:
		x.Kind = "literal"
	}
	at := expr.PositionRange()
	x.Text = text[at.Start:min(int(at.End), len(text))]
	x.Type = parser.DocumentedType(expr.Type())
}

// streams says that an expression is a part.
func (n *notes) streams(expr parser.Expr, p *part) {
	if n == nil {
		return
	}
	n.nodes[expr].Streamed = p.describe()
	n.reads(p.hints(), p.vector.LabelMatchers, p.buckets(n.ctx))
}

// refuse says why an expression is no part. It may be an operand of the one that is asked for.
func (n *notes) refuse(expr parser.Expr, reason string) {
	if n != nil {
		n.about, n.reason = expr, reason
	}
}

// doesNotStream says that an expression is no part, for the reason of the last refusal.
func (n *notes) doesNotStream(expr parser.Expr) {
	if n == nil {
		return
	}
	x, about := n.nodes[expr], n.nodes[n.about]
	switch {
	case about == nil:
		x.Reason = n.reason
	case about == x:
		x.Reason = name(n.about) + " " + n.reason
	default:
		x.Reason = abbreviate(about.Text) + " " + n.reason
	}
}

// reads says of which times a selector is read.
func (n *notes) reads(hints *storage.SelectHints, ms []*labels.Matcher, b *Buckets) {
	if len(ms) == 0 {
		return
	}
	if x := n.selectors[ms[0]]; x != nil {
		x.Read = &Read{ms, hints.Start, hints.End, b}
	}
}

// finish completes what is said of x and all that is inside. reason is that of x, if it has
// none of its own. It returns how many parts are inside, and whether anything is read.
func (n *notes) finish(x *Node, inStreamed bool, reason string) (parts int, reads bool) {
	x.InStreamed, reads = inStreamed, x.Read != nil
	if x.Reason == "" {
		x.Reason = reason
	}
	for _, child := range x.Children {
		p, r := n.finish(child, inStreamed || x.Streamed != "", x.Reason)
		parts, reads = parts+p, reads || r
	}
	switch {
	case x.Streamed != "":
		x.Reason = ""
		return 1, true
	case inStreamed || !reads:
		x.Reason = ""
	case parts == 1:
		x.Reason += ": Prometheus' engine evaluates it over the streamed part below"
	case parts > 1:
		x.Reason += ": Prometheus' engine evaluates it over the streamed parts below"
	default:
		x.Reason += ": Prometheus' engine evaluates it"
	}
	return parts, reads
}

// name returns the name of what an expression does.
func name(expr parser.Expr) string {
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		return e.Op.String()
	case *parser.Call:
		return e.Func.Name
	case *parser.BinaryExpr:
		return e.Op.String()
	case *parser.SubqueryExpr:
		return "the subquery"
	case *parser.VectorSelector:
		return "the selector"
	}
	return "it"
}

// abbreviate cuts an expression for a sentence.
func abbreviate(text string) string {
	const limit = 100
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// describe says what the part evaluates, such as "sum by (job) of rate".
func (p *part) describe() string {
	text := "selector"
	if p.call != nil {
		text = p.call.Func.Name
	}
	operations := len(p.operations)
	if p.isTimestamp {
		text, operations = "timestamp", operations-1
	}
	switch n := operations; {
	case n == 1:
		text = "an operation on " + text
	case n > 1:
		text = fmt.Sprintf("%d operations on %s", n, text)
	}
	if p.aggregation != nil {
		text = strings.TrimSpace(p.aggregation.ShortString()) + " of " + text
	}
	if p.absent != nil {
		text = "absence of " + text
	}
	return text
}

package eval

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/promtable/promtable/remote/spans"
)

// An Engine is a promql.QueryEngine. It is safe for concurrent use.
type Engine struct {
	upstream *promql.Engine
	opts     promql.EngineOpts
	memory   *Memory
	cores    *Cores
}

var _ promql.QueryEngine = (*Engine)(nil)

// New returns an engine with the options of upstream's. Its queries hold what memory allows. They compute on as many cores as there are, see Cores.
func New(opts promql.EngineOpts, memory *Memory) *Engine {
	return &Engine{upstream: promql.NewEngine(opts), opts: opts, memory: memory, cores: newCores(runtime.GOMAXPROCS(0))}
}

// Cores returns what the queries of e compute with.
func (e *Engine) Cores() *Cores { return e.cores }

// Close closes upstream's engine.
func (e *Engine) Close() error { return e.upstream.Close() }

// NewInstantQuery implements promql.QueryEngine.
func (e *Engine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	return e.newQuery(opts, q, func(q storage.Queryable) (promql.Query, error) {
		return e.upstream.NewInstantQuery(ctx, q, opts, qs, ts)
	})
}

// NewRangeQuery implements promql.QueryEngine.
func (e *Engine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	return e.newQuery(opts, q, func(q storage.Queryable) (promql.Query, error) {
		return e.upstream.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
	})
}

// A query is one of upstream's engine in which parts are replaced.
type query struct {
	promql.Query
	engine *Engine
	opts   promql.QueryOpts // may be nil
	source storage.Queryable
	// upstream makes the query of upstream's engine.
	upstream func(storage.Queryable) (promql.Query, error)
	// parts are those that are replaced, unknown the places of those that are not.
	parts   *parts
	unknown map[posrange.PositionRange]bool
	// notes are those of the planner, nil unless the query is to be explained.
	notes *notes
}

func (e *Engine) newQuery(opts promql.QueryOpts, source storage.Queryable, upstream func(storage.Queryable) (promql.Query, error)) (promql.Query, error) {
	q := &query{engine: e, opts: opts, source: source, upstream: upstream, unknown: map[posrange.PositionRange]bool{}}
	if err := q.plan(); err != nil {
		return nil, err
	}
	return q, nil
}

// plan makes the query and replaces its parts.
func (q *query) plan() error {
	parts := &parts{source: q.source, maxSamples: q.engine.opts.MaxSamples}
	made, err := q.upstream(embedding{q.source, parts})
	if err != nil {
		return err
	}
	if q.Query != nil { // this is another try, whose timers go on
		made.Stats().Timers.TimerGroup = q.Query.Stats().Timers.TimerGroup
	}
	q.Query, q.parts = made, parts
	stmt, ok := made.Statement().(*parser.EvalStmt)
	if !ok {
		return nil
	}
	if err := q.engine.checkSubqueries(stmt); err != nil {
		made.Close()
		return err
	}
	if err := q.notes.begin(stmt.Expr); err != nil {
		made.Close()
		return err
	}
	if option := q.unknownOption(); option != "" {
		q.notes.refuse(nil, option+" is on")
		q.notes.doesNotStream(stmt.Expr)
		return nil
	}
	p := planner{lookback: stmt.LookbackDelta, subqueryStep: q.engine.opts.NoStepSubqueryIntervalFn, unknown: q.unknown, parts: parts, notes: q.notes}
	g := gridOf(stmt)
	p.steps = g.count
	stmt.Expr = p.replace(stmt.Expr, g)
	if selector, ok := stmt.Expr.(*parser.VectorSelector); ok {
		parts.whole = parts.find(selector.LabelMatchers)
	}
	parts.stats = made.Stats().Samples
	return nil
}

// maxSubquerySteps is how many steps a subquery may have. Upstream's engine takes 16 bytes for
// each, before it looks at any limit.
const maxSubquerySteps = 10_000_000

// checkSubqueries returns an error that names a subquery with too many steps.
func (e *Engine) checkSubqueries(s *parser.EvalStmt) error {
	return parser.Walk(visitor(func(node parser.Node, path []parser.Node) error {
		n, ok := node.(*parser.SubqueryExpr)
		if !ok {
			return nil
		}
		step := n.Step.Milliseconds()
		if step == 0 {
			step = e.opts.NoStepSubqueryIntervalFn(n.Range.Milliseconds())
		}
		span := s.End.UnixMilli() - s.Start.UnixMilli() + n.Range.Milliseconds()
		for _, outer := range path {
			if outer, ok := outer.(*parser.SubqueryExpr); ok {
				span += outer.Range.Milliseconds()
			}
		}
		if steps := span / max(1, step); steps > maxSubquerySteps {
			return fmt.Errorf("subquery %s has %d steps, %d are allowed: give it a longer step or a shorter range", n, steps, maxSubquerySteps)
		}
		return nil
	}), s.Expr, nil)
}

// A visitor is a function that sees each node of an expression and those above it, until it
// returns an error.
type visitor func(node parser.Node, path []parser.Node) error

// Visit implements parser.Visitor.
func (v visitor) Visit(node parser.Node, path []parser.Node) (parser.Visitor, error) {
	return v, v(node, path)
}

// unknownOption names an option that is on and changes what a part is, if there is one.
func (q *query) unknownOption() string {
	switch o := q.engine.opts; {
	case o.EnableDelayedNameRemoval:
		return "promql-delayed-name-removal"
	case o.EnableTypeAndUnitLabels:
		return "type-and-unit-labels"
	case UsesStartTimestamps(o, q.opts):
		return "use-start-timestamps"
	}
	return ""
}

// UsesStartTimestamps says whether a query evaluates the start timestamps of samples: its own options say so, or else those of the engine.
// The former may be nil.
func UsesStartTimestamps(engine promql.EngineOpts, query promql.QueryOpts) bool {
	if query != nil && query.UseStartTimestamps() != nil {
		return *query.UseStartTimestamps()
	}
	return engine.UseStartTimestamps
}

// gridOf returns the times at which a statement is evaluated.
func gridOf(s *parser.EvalStmt) grid {
	g := grid{start: s.Start.UnixMilli(), step: s.Interval.Milliseconds(), count: 1}
	if g.step == 0 {
		g.step = 1
	}
	if end := s.End.UnixMilli(); end != g.start {
		g.count = max(0, int((end-g.start)/g.step)+1)
	}
	return g
}

// Exec implements promql.Query. If a part meets what it cannot evaluate, upstream's engine
// does, from the beginning, over smaller parts inside it.
func (q *query) Exec(ctx context.Context) (result *promql.Result) {
	defer q.report(ctx)
	ctx, span := spans.Start(ctx, "evaluate")
	defer func() { span.End(result.Err) }()
	for {
		res := q.execOnce(ctx)
		if !errors.Is(res.Err, errUnknown) {
			if failed := (*evaluationError)(nil); errors.As(res.Err, &failed) {
				res.Err = failed.error
			}
			if q.parts.whole != nil && res.Err == nil {
				res.Value = q.parts.value(res.Value.Type())
			}
			LimitOf(ctx).count(res)
			return res
		}
		q.Query.Close()
		q.unknown[q.parts.gaveUp] = true
		if err := q.plan(); err != nil {
			return &promql.Result{Err: err}
		}
	}
}

func (q *query) execOnce(ctx context.Context) *promql.Result {
	ctx, end := q.engine.memory.With(ctx)
	defer end()
	ctx, leave := q.engine.cores.with(ctx)
	defer leave()
	return q.Query.Exec(ctx)
}

// An evaluationError is one that upstream's engine gives for the same reason. It is told as
// that engine does: upstream takes it for an error in reading series, and says so.
type evaluationError struct{ error }

// An embedding is a source of series that also has the results of parts.
type embedding struct {
	storage.Queryable
	parts *parts
}

// Querier implements storage.Queryable.
func (e embedding) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := e.Queryable.Querier(mint, maxt)
	return embeddedQuerier{q, e.parts}, err
}

type embeddedQuerier struct {
	storage.Querier
	parts *parts
}

// Select implements storage.Querier.
func (q embeddedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if part := q.parts.find(ms); part != nil {
		set := &resultSet{grid: part.grid, evaluate: func() ([]result, annotations.Annotations, error) {
			return q.parts.evaluate(ctx, part)
		}}
		hints := &storage.SelectHints{Start: part.grid.start, End: part.grid.last(), Step: part.grid.step}
		return lending(ctx, set, hints, part.vector.LabelMatchers)
	}
	if len(ms) > 0 {
		if b := q.parts.left[ms[0]]; b != nil {
			ctx = context.WithValue(ctx, bucketsKey{}, b)
		}
	}
	return lending(ctx, q.Querier.Select(ctx, sorted, hints, ms...), hints, ms)
}

// parts are those of a query.
type parts struct {
	source storage.Queryable
	stats  *stats.QuerySamples
	// maxSamples is how many samples a query may hold.
	maxSamples int
	bySelector map[*labels.Matcher]*part
	// left is what is needed of selectors that are left to upstream's engine, by their first matcher.
	left map[*labels.Matcher]*Buckets
	// whole is the part that is the whole expression, or nil, and matrix its results. Upstream's
	// engine sees no series of it: it would copy all samples, and look for each again.
	whole  *part
	matrix promql.Matrix
	// gaveUp is the place of the part that met what it cannot evaluate.
	gaveUp posrange.PositionRange
}

// add adds a part, and returns the selector that stands in its place.
func (ps *parts) add(p *part) *parser.VectorSelector {
	m := labels.MustNewMatcher(labels.MatchEqual, "part", strconv.Itoa(int(p.place.Start)))
	if ps.bySelector == nil {
		ps.bySelector = make(map[*labels.Matcher]*part)
	}
	ps.bySelector[m] = p
	return &parser.VectorSelector{LabelMatchers: []*labels.Matcher{m}, PosRange: p.place}
}

// leave notes what is needed of a selector that is left to upstream's engine.
func (ps *parts) leave(vector *parser.VectorSelector, b *Buckets) {
	if ps.left == nil {
		ps.left = make(map[*labels.Matcher]*Buckets)
	}
	ps.left[vector.LabelMatchers[0]] = b
}

// find returns the part that a selector stands in place of, or nil.
func (ps *parts) find(ms []*labels.Matcher) *part {
	if len(ms) != 1 {
		return nil
	}
	return ps.bySelector[ms[0]]
}

// evaluate evaluates a part.
func (ps *parts) evaluate(ctx context.Context, p *part) ([]result, annotations.Annotations, error) {
	if p == ps.whole {
		p.limit = LimitOf(ctx)
	}
	results, err := p.evaluate(ctx, ps.source, ps.maxSamples)
	if ended := ctx.Err(); err != nil && ended != nil {
		err = &evaluationError{endedError(ended)}
	}
	switch {
	case errors.Is(err, errUnknown):
		ps.gaveUp = p.place
	case err != nil:
	case p == ps.whole:
		ps.matrix = p.matrix(results)
		ps.stats.UpdatePeak(ps.matrix.TotalSamples())
		p.addStats(ps.stats, nil)
		results = nil
	default:
		p.addStats(ps.stats, results)
	}
	return results, p.warnings, err
}

// endedError returns upstream's error of a query whose context has ended.
func endedError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return promql.ErrQueryTimeout("expression evaluation")
	}
	return promql.ErrQueryCanceled("expression evaluation")
}

// value returns the results of the whole expression as upstream's engine does.
func (ps *parts) value(kind parser.ValueType) parser.Value {
	if kind == parser.ValueTypeMatrix {
		sort.Sort(ps.matrix)
		return ps.matrix
	}
	vector := make(promql.Vector, len(ps.matrix))
	for i, s := range ps.matrix {
		vector[i] = promql.Sample{Metric: s.Metric, T: ps.whole.grid.start}
		if len(s.Histograms) > 0 {
			vector[i].H = s.Histograms[0].H
		} else {
			vector[i].F = s.Floats[0].F
		}
	}
	return vector
}

package resultcache

import (
	"context"
	"math"
	"sort"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/scope"
)

const (
	// margin is how old all that a step reads must be for the step to be closed. Samples come within
	// it when all is well: senders retry, rules and scrapes are late by an interval. With less,
	// ordinary writes would drop what queries have just added; those that move on evaluate the steps
	// of this time anew each time.
	margin = 10 * time.Minute
	// gridOffset is of which times, besides its step, a query may begin at a multiple to be cached.
	// Clients align queries to the step, those with steps of hours in a time zone. The steps of
	// other queries are never asked for again.
	gridOffset = 15 * time.Minute
	// maxGaps is how many ranges of steps a query may evaluate apart. Each costs a look-up of
	// its series; with more, the query is evaluated as a whole.
	maxGaps = 8
)

// Config says what an Engine stands in front of. The first ones are required. What is cached is that of the tenants of a context.
type Config struct {
	// Engine evaluates what is not cached, Options are its options.
	Engine  promql.QueryEngine
	Options promql.EngineOpts
	// Memory bounds what queries hold.
	Memory *eval.Memory
	// Now is the clock. If it goes back, only hits are lost.
	Now func() time.Time
	// Cut, if set, returns the time in milliseconds before which nothing is shown when the clock
	// says now. What reads earlier times is not cached.
	Cut func(now time.Time) int64
	// Confirm, if set, says that the cache was told of all that was written until it is called. A query that it does not say so of is
	// evaluated, and not cached.
	Confirm func(ctx context.Context) bool
	// Sources, if set, returns what was read with a context so far, as bits; then Reuse is called with those of the cached results
	// that answers are made of.
	Sources func(ctx context.Context) uint8
	Reuse   func(ctx context.Context, sources uint8)
}

// An Engine is a promql.QueryEngine that answers range queries from a Cache. It is safe for
// concurrent use. Instant queries pass through.
type Engine struct {
	promql.QueryEngine
	cache *Cache
	cfg   Config
}

var _ promql.QueryEngine = (*Engine)(nil)

// Engine returns an engine that uses c. The store that queries name must be the same in all.
func (c *Cache) Engine(cfg Config) *Engine {
	return &Engine{QueryEngine: cfg.Engine, cache: c, cfg: cfg}
}

// uncached is the key of a context that asks for an evaluation.
type uncached struct{}

// WithoutCache returns a context in which queries are neither answered from a cache nor cached.
func WithoutCache(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncached{}, true)
}

// NewRangeQuery implements promql.QueryEngine.
func (e *Engine) NewRangeQuery(ctx context.Context, source storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	whole, err := e.QueryEngine.NewRangeQuery(ctx, source, opts, qs, start, end, interval)
	if err != nil {
		return whole, err
	}
	q, why := e.plan(ctx, opts, rangeQuery{qs, start, end, interval})
	if why != "" {
		return whole, nil
	}
	q.Query, q.source = whole, source
	return q, nil
}

// A rangeQuery is an expression and its steps.
type rangeQuery struct {
	text       string
	start, end time.Time
	interval   time.Duration
}

// plan returns a query without what evaluates it, or why queries like it are not cached.
func (e *Engine) plan(ctx context.Context, opts promql.QueryOpts, of rangeQuery) (q *query, why string) {
	switch {
	case ctx.Value(uncached{}) != nil:
		return nil, "it is asked for without cached results, as each query with max_source_resolution is"
	case !e.knowsOptions(opts):
		return nil, "a feature that is enabled makes steps depend on each other"
	}
	g, why := gridOf(of.start, of.end, of.interval)
	if why != "" {
		return nil, why
	}
	expr, err := e.cfg.Options.Parser.ParseExpr(of.text)
	if err != nil {
		return nil, err.Error()
	}
	if why := whyNot(expr); why != "" {
		return nil, why
	}
	lookback := e.cfg.Options.LookbackDelta
	if opts != nil && opts.LookbackDelta() > 0 {
		lookback = opts.LookbackDelta()
	}
	return &query{
		engine: e, opts: opts, grid: g,
		stmt: parser.EvalStmt{Expr: expr, Interval: of.interval, LookbackDelta: lookback},
		key:  queryKey{exprKey{scope.Of(ctx), of.text, lookback.Milliseconds()}, gridKey{g.step, g.phase}},
	}, ""
}

// A Coverage is how many steps of a range query would be answered from a cache.
type Coverage struct {
	// Why is empty, or says why queries like this one are never answered from the cache; then nothing else is set.
	Why string
	// Steps are those of the query. Closed ones are so old that they are cached once they are evaluated, unless there is a warning;
	// Cached ones are there.
	Steps, Closed, Cached int64
}

// Coverage returns how many steps of a range query, with the default options, would be answered from the cache now. It
// evaluates nothing and changes nothing.
func (e *Engine) Coverage(ctx context.Context, qs string, start, end time.Time, interval time.Duration) Coverage {
	q, why := e.plan(ctx, nil, rangeQuery{qs, start, end, interval})
	if why != "" {
		return Coverage{Why: why}
	}
	closed := q.closed()
	_, gaps := q.split(q.thinned(e.cache.peek(q.key, closed), closed), closed)
	n := closed.limit - closed.start
	return Coverage{Steps: q.steps.limit - q.steps.start, Closed: n, Cached: n - missingOf(gaps, closed)}
}

// knowsOptions says that no option makes steps depend on each other. Without names that are dropped
// at once, series of the same labels are put together at the end.
func (e *Engine) knowsOptions(opts promql.QueryOpts) bool {
	o := e.cfg.Options
	return !o.EnableDelayedNameRemoval && !o.EnableTypeAndUnitLabels && !eval.UsesStartTimestamps(o, opts)
}

// steps is a range [start, limit) of steps, which are numbered from the phase of a grid on.
type steps struct{ start, limit int64 }

func (s steps) isEmpty() bool { return s.start >= s.limit }
func (s steps) len() int64    { return s.limit - s.start }

// within returns the steps that are in o, too.
func (s steps) within(o steps) steps {
	s = steps{max(s.start, o.start), min(s.limit, o.limit)}
	s.limit = max(s.start, s.limit)
	return s
}

// blocks returns the numbers of the blocks that have any of the steps.
func (s steps) blocks() func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for n := s.start / blockSteps; n*blockSteps < s.limit && yield(n); n++ {
		}
	}
}

// stepsOf returns the steps that a block may have.
func stepsOf(block int64) steps { return steps{block * blockSteps, (block + 1) * blockSteps} }

// A grid has the times of the steps of a query, in milliseconds.
type grid struct {
	phase, step int64
	steps       steps
}

// gridOf returns the grid of a range query, or why queries on it are not cached.
func gridOf(start, end time.Time, interval time.Duration) (g grid, why string) {
	first, last := start.UnixMilli(), end.UnixMilli()
	g.step = interval.Milliseconds()
	switch {
	case g.step <= 0 || interval%time.Millisecond != 0:
		return g, "its step is not a number of milliseconds"
	case first < 0:
		return g, "it begins before 1970"
	case last-first < g.step:
		return g, "it has one step" // with which upstream's engine orders series in another way
	}
	g.phase = first % g.step
	g.steps.start = first / g.step
	g.steps.limit = g.steps.start + (last-first)/g.step + 1
	if g.phase != 0 && first%gridOffset.Milliseconds() != 0 {
		return g, "its start is a multiple neither of its step nor of 15 minutes"
	}
	return g, ""
}

func (g grid) time(step int64) int64 { return g.phase + step*g.step }

// times returns the times of the first and the last of some steps.
func (g grid) times(s steps) span { return span{g.time(s.start), g.time(s.limit - 1)} }

// read returns the times that some steps of q read.
func (q *query) read(s steps) (read span) {
	times, stmt := q.times(s), q.stmt
	stmt.Start, stmt.End = time.UnixMilli(times.mint), time.UnixMilli(times.maxt)
	read.mint, read.maxt = promql.FindMinMaxTime(&stmt)
	return read
}

// closed returns the steps of q that are closed now, and read nothing that is cut.
func (q *query) closed() steps {
	now := q.engine.cfg.Now()
	latest, cut := now.Add(-margin).UnixMilli(), int64(math.MinInt64)
	if q.engine.cfg.Cut != nil {
		cut = q.engine.cfg.Cut(now)
	}
	limit := q.firstStep(func(read span) bool { return read.maxt > latest })
	return steps{min(limit, q.firstStep(func(read span) bool { return read.mint >= cut })), limit}
}

// firstStep returns the first step of q for which is is true of what it reads, and then of what
// all later ones read.
func (q *query) firstStep(is func(read span) bool) int64 {
	n := sort.Search(int(q.steps.limit-q.steps.start), func(i int) bool {
		step := q.steps.start + int64(i)
		return is(q.read(steps{step, step + 1}))
	})
	return q.steps.start + int64(n)
}

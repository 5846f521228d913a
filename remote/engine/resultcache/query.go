package resultcache

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/promtable/promtable/remote/engine/eval"
)

// A query is a range query that can be cached.
type query struct {
	// Query evaluates all steps.
	promql.Query
	engine *Engine
	source storage.Queryable
	opts   promql.QueryOpts
	grid
	// stmt is what is evaluated, without times.
	stmt parser.EvalStmt
	key  queryKey

	// fromCache says that Query is not executed. made are those that are, in place of it.
	fromCache bool
	made      []gap
	// limit is that of the query, or nil.
	limit *eval.Limit
	// samples is how many samples the answer has.
	samples int
	timers  *stats.QueryTimers
	cancel  context.CancelFunc
}

// A gap is a range of steps that are evaluated, with the query for it.
type gap struct {
	steps
	promql.Query
}

func (q *query) Exec(ctx context.Context) *promql.Result {
	cache, closed := q.engine.cache, q.closed()
	if confirm := q.engine.cfg.Confirm; confirm != nil && !closed.isEmpty() && !confirm(ctx) {
		return q.Query.Exec(ctx)
	}
	q.limit = eval.LimitOf(ctx)
	blocks := q.addThinned(cache.find(q.key, closed), closed)
	parts, gaps := q.split(blocks, closed)
	missing := missingOf(gaps, closed)
	cache.metrics.hits.Add(float64(closed.limit - closed.start - missing))
	cache.metrics.misses.Add(float64(missing))

	var running *evaluation
	if missing > 0 {
		running = cache.begin(q.key.scope, q.readBy(gaps, closed))
		defer cache.end(running)
	}
	q.fromCache = len(parts) > 0
	res := q.evaluate(ctx, parts, gaps)
	if res.Err == nil && missing > 0 && len(res.Warnings) == 0 && !q.limit.IsCut() {
		q.store(running, evaluated{res.Value.(promql.Matrix), gaps, closed, q.engine.sources(ctx)}, blocks)
	}
	if q.fromCache && q.engine.cfg.Reuse != nil {
		q.engine.cfg.Reuse(ctx, sourcesOf(blocks, closed))
	}
	return res
}

// sources returns those of the Config.
func (e *Engine) sources(ctx context.Context) uint8 {
	if e.cfg.Sources == nil {
		return 0
	}
	return e.cfg.Sources(ctx)
}

// sourcesOf returns those of the blocks that have any of some steps.
func sourcesOf(blocks map[int64]*block, of steps) (sources uint8) {
	for _, b := range blocks {
		if !b.steps.within(of).isEmpty() {
			sources |= b.sources
		}
	}
	return sources
}

// split returns the parts of the answer that blocks have, and the steps between them.
func (q *query) split(blocks map[int64]*block, closed steps) (parts []part, gaps []steps) {
	at := q.steps.start
	for number := range closed.blocks() {
		b := blocks[number]
		if b == nil {
			continue
		}
		found := b.steps.within(closed)
		if found.isEmpty() {
			continue
		}
		if found.start > at {
			gaps = append(gaps, steps{at, found.start})
		}
		parts = append(parts, part{b.matrix, q.times(found)})
		at = found.limit
	}
	if at < q.steps.limit {
		gaps = append(gaps, steps{at, q.steps.limit})
	}
	if len(gaps) > maxGaps {
		return nil, []steps{q.steps}
	}
	return parts, gaps
}

// missingOf returns how many of some closed steps are in gaps.
func missingOf(gaps []steps, closed steps) (n int64) {
	for _, g := range gaps {
		of := g.within(closed)
		n += of.limit - of.start
	}
	return n
}

// readBy returns the times that the closed steps in gaps read.
func (q *query) readBy(gaps []steps, closed steps) span {
	all := nothing
	for _, g := range gaps {
		if of := g.within(closed); !of.isEmpty() {
			all = all.covering(q.read(of))
		}
	}
	return all
}

// evaluate evaluates the gaps and puts the answer together. If there are warnings it evaluates all
// steps: some tell of how many samples they hold, and where. So answers with warnings are not cached.
// It does so, too, if there are more series than the limit, of which no more are to be held.
func (q *query) evaluate(ctx context.Context, parts []part, gaps []steps) *promql.Result {
	if !q.fromCache {
		return q.Query.Exec(ctx)
	}
	q.timers = stats.NewQueryTimers()
	timer, ctx := q.timers.GetSpanTimer(ctx, stats.ExecTotalTime)
	defer timer.Finish()
	ctx, q.cancel = context.WithCancel(ctx)
	defer q.cancel()

	for _, g := range gaps {
		res, isCut := q.evaluateGap(ctx, g)
		switch {
		case len(res.Warnings) > 0, isCut:
			q.fromCache = false
			return q.Query.Exec(ctx)
		case res.Err != nil:
			return res
		}
		parts = append(parts, part{res.Value.(promql.Matrix), q.times(g)})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.times.mint, b.times.mint) })
	matrix, isCut, err := q.assemble(ctx, parts)
	switch {
	case isCut:
		q.fromCache = false
		return q.Query.Exec(ctx)
	case err != nil:
		return &promql.Result{Err: err}
	}
	return &promql.Result{Value: matrix}
}

// evaluateGap evaluates some steps, within a limit of their own, and says whether it cut them.
func (q *query) evaluateGap(ctx context.Context, s steps) (res *promql.Result, isCut bool) {
	timer, ctx := q.timers.GetSpanTimer(ctx, stats.EvalTotalTime)
	defer timer.Finish()
	times := q.times(s)
	made, err := q.engine.QueryEngine.NewRangeQuery(ctx, q.source, q.opts, q.key.text, time.UnixMilli(times.mint), time.UnixMilli(times.maxt), q.stmt.Interval)
	if err != nil {
		return &promql.Result{Err: err}, false
	}
	q.made = append(q.made, gap{s, made})
	if q.limit == nil {
		return made.Exec(ctx), false
	}
	limit := &eval.Limit{Series: q.limit.Series}
	res = made.Exec(eval.WithLimit(ctx, limit))
	return res, limit.IsCut()
}

// assemble puts the parts of an answer together, within the limits of any answer, unless it has more series than the limit.
func (q *query) assemble(ctx context.Context, parts []part) (matrix promql.Matrix, isCut bool, err error) {
	if q.limit != nil && slices.ContainsFunc(parts, func(p part) bool { return len(p.matrix) > q.limit.Series && len(p.series()) > q.limit.Series }) {
		return nil, true, nil
	}
	if len(parts) == 1 {
		matrix = parts[0].series()
	} else {
		matrix = merge(parts)
	}
	if q.limit != nil {
		if len(matrix) > q.limit.Series {
			return nil, true, nil
		}
		q.limit.Found = len(matrix)
	}
	q.samples = matrix.TotalSamples()
	if q.samples > q.engine.cfg.Options.MaxSamples {
		return nil, false, promql.ErrTooManySamples("query execution")
	}
	ctx, end := q.engine.cfg.Memory.With(ctx)
	defer end()
	return matrix, false, eval.Hold(ctx, int(bytesOf(matrix)), "the result")
}

// An evaluated answer has closed steps, of which those in gaps were evaluated, from sources.
type evaluated struct {
	answer  promql.Matrix
	gaps    []steps
	closed  steps
	sources uint8
}

// store caches the closed steps of an answer that were evaluated. blocks are those that were there before.
func (q *query) store(running *evaluation, e evaluated, blocks map[int64]*block) {
	for number := range e.closed.blocks() {
		of := stepsOf(number).within(e.closed)
		if missingOf(e.gaps, of) == 0 {
			continue
		}
		if b := q.newBlock(number, of, e.answer, blocks[number]); b != nil {
			b.sources |= e.sources
			q.engine.cache.add(running, b, blocks[number])
		}
	}
}

// newBlock returns a block with some steps of an answer, and with those of before next to them. It
// returns nil if before has more steps that are elsewhere.
func (q *query) newBlock(number int64, of steps, answer promql.Matrix, before *block) *block {
	parts := []part{{answer, q.times(of)}}
	sources := uint8(0)
	if before != nil {
		old := before.steps
		apart := old.start > of.limit || old.limit < of.start
		if apart && old.limit-old.start > of.limit-of.start {
			return nil
		}
		if !apart && old.start < of.start {
			parts = slices.Insert(parts, 0, part{before.matrix, q.times(steps{old.start, of.start})})
			of.start = old.start
		}
		if !apart && old.limit > of.limit {
			parts = append(parts, part{before.matrix, q.times(steps{of.limit, old.limit})})
			of.limit = old.limit
		}
		if !apart {
			sources = before.sources // of its steps that stay, and of those that are in the answer
		}
	}
	matrix := merge(parts)
	for _, s := range matrix {
		for i := range s.Histograms {
			s.Histograms[i].H = s.Histograms[i].H.Copy() // upstream's engine uses it again
		}
	}
	return &block{key: blockKey{q.key, number}, steps: of, read: q.read(of), matrix: matrix, sources: sources}
}

// Stats implements promql.Query: what was evaluated, and the time that the query took.
func (q *query) Stats() *stats.Statistics {
	whole := q.Query.Stats()
	if !q.fromCache {
		return whole
	}
	samples := stats.NewQuerySamples(whole.Samples.StepTrackingEnabled())
	times := q.times(q.steps)
	samples.InitStepTracking(times.mint, times.maxt, q.step)
	samples.UpdatePeak(q.samples)
	for _, g := range q.made {
		of := g.Stats().Samples
		samples.UpdatePeak(of.PeakSamples)
		samples.TotalSamples += of.TotalSamples
		samples.SamplesRead += of.SamplesRead
		if samples.StepTrackingEnabled() {
			copy(samples.TotalSamplesPerStep[g.start-q.steps.start:], of.TotalSamplesPerStep)
			copy(samples.SamplesReadPerStep[g.start-q.steps.start:], of.SamplesReadPerStep)
		}
	}
	return &stats.Statistics{Timers: q.timers, Samples: samples}
}

func (q *query) Cancel() {
	q.Query.Cancel()
	if q.cancel != nil {
		q.cancel()
	}
}

func (q *query) Close() {
	for _, g := range q.made {
		g.Query.Close()
	}
	q.Query.Close()
}

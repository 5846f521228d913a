package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/ingest"
)

const (
	// maxSteps is how many steps a rule is evaluated at by one query at most.
	maxSteps = 200
	// appendSeries is how many series of results are stored at once.
	appendSeries = 1000
)

// A recording is a recording rule.
type recording struct {
	// id says what it is: its name, labels and expression.
	id, name, expr string
	labels         labels.Labels
	// begin is the time before the first step of a new rule.
	begin int64
	// done is the time of the last step that is stored, in milliseconds, 0 if that is not known yet, and since that of the one before the first.
	done, since int64
	// ok is the time of the last step that has not failed, and previous what it had. That is nil before this process has evaluated the rule.
	ok       int64
	previous promql.Vector
	// result is that of the last step.
	result result
	// position is that in the group's recordings.
	position int
}

// A result is what a rule has at a step.
type result struct {
	at     int64
	vector promql.Vector
	err    error
}

// A group is the recording rules of a group of Prometheus' manager.
type group struct {
	runner    *Runner
	of        *rules.Group
	key, name string
	// step is the interval, in milliseconds.
	step       int64
	recordings []recording
	// made are the recordings as they were made, ids theirs, and names their metrics. They do not change; recordings are for what runs alone.
	made  []recording
	ids   []string
	names map[string]bool
	// stepwise says that a rule may read what it, or a later one, has recorded: then all rules are evaluated step by step.
	stepwise bool
	cell     meta.Cell
	late     *lateSteps
	// corrected is the step up to which late samples are accounted for, in milliseconds, as in the state.
	corrected int64
	// restorable says that the state of alerts could be read.
	restorable bool

	end     context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// results are those of recordings. advanced is closed, and made anew, when they change.
	results  map[string]result
	advanced chan struct{}
}

func newGroup(r *Runner, of *rules.Group, begins map[ruleKey]int64) *group {
	g := &group{
		runner: r, of: of, key: rules.GroupKey(of.File(), of.Name()), name: of.Name(), step: of.Interval().Milliseconds(),
		results: make(map[string]result), names: make(map[string]bool), advanced: make(chan struct{}),
		late: newLateSteps(r.cfg.Lookback),
	}
	for i, rule := range of.Rules() {
		if rule, ok := rule.(*rules.RecordingRule); ok {
			made := recording{position: len(g.recordings), name: rule.Name(), expr: rule.Query().String(), labels: rule.Labels(), begin: begins[ruleKey{of.File(), of.Name(), i}]}
			made.id = strconv.FormatUint(xxhash.Sum64String(made.name+"\xff"+made.labels.String()+"\xff"+made.expr), 16)
			g.stepwise = g.stepwise || g.readsLater(rule.Query(), i)
			g.recordings, g.ids = append(g.recordings, made), append(g.ids, made.id)
			g.names[made.name] = true
			g.late.widen(rule.Query(), r.cfg.Lookback)
		}
	}
	g.made = slices.Clone(g.recordings)
	return g
}

// readsLater says whether an expression may read what the rule with this position in the group, or one after it, records.
func (g *group) readsLater(expr parser.Expr, position int) bool {
	found := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		for _, rule := range g.of.Rules()[position:] {
			if rule, ok := rule.(*rules.RecordingRule); ok && mayMatch(selector.LabelMatchers, rule.Name()) {
				found = true
			}
		}
		return nil
	})
	return found
}

// mayMatch says whether matchers may match series of a metric.
func mayMatch(ms []*labels.Matcher, name string) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && !m.Matches(name) })
}

// equals says whether two groups record the same at the same times.
func (g *group) equals(o *group) bool {
	return g.key == o.key && g.step == o.step && g.of.QueryOffset() == o.of.QueryOffset() && g.of.Limit() == o.of.Limit() &&
		slices.Equal(g.ids, o.ids)
}

// inherit makes rules that are new, and have the name and labels of one of before, say which of its series have ended.
func (g *group) inherit(before *group) {
	for i := range g.recordings {
		rule := &g.recordings[i]
		for _, of := range before.recordings {
			if of.id != rule.id && of.name == rule.name && labels.Equal(of.labels, rule.labels) && rule.begin == 0 {
				rule.previous = of.previous
			}
		}
	}
}

// start begins to record, until ctx ends or stop is called.
func (g *group) start(ctx context.Context) {
	ctx, g.end = context.WithCancel(ctx)
	if len(g.ids) > 0 {
		g.runner.metrics.add(g.key)
		g.running.Go(func() { g.run(ctx) })
	}
}

func (g *group) stop() {
	if g.end != nil {
		g.end()
	}
	g.running.Wait()
	g.runner.metrics.remove(g.key)
}

// timeOf returns the time of samples of the last step at a time or before it, in milliseconds.
func (g *group) timeOf(at time.Time) int64 {
	return timestamp.FromTime(g.of.EvalTimestamp(at.UnixNano()).Add(-g.of.QueryOffset()))
}

// run records all steps that are due, as they come.
func (g *group) run(ctx context.Context) {
	isRead := false
	for ctx.Err() == nil {
		var err error
		if !isRead {
			if err = g.begin(ctx); err == nil {
				isRead = true
			}
		}
		now := g.runner.cfg.Now()
		due := g.timeOf(now)
		if err == nil {
			g.runner.metrics.behind.WithLabelValues(g.key).Set(max(0, float64(due-g.first()+g.step)/1000))
			if g.first() > due {
				if err = g.correctLate(ctx); err == nil {
					next := time.UnixMilli(g.first()).Add(g.of.QueryOffset()).Sub(g.runner.cfg.Now())
					_ = bucketstore.Sleep(ctx, min(max(next, time.Millisecond), g.of.Interval()))
					continue
				}
			} else {
				err = g.advance(ctx, due)
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !errors.Is(err, errTaken) {
			g.runner.metrics.failures.WithLabelValues(g.key, failedStore).Inc()
			level.Warn(g.runner.cfg.Logger).Log("msg", "rules are not recorded, trying again", "group", g.key, "err", err)
		}
		_ = bucketstore.Sleep(ctx, min(retryInterval, g.of.Interval()))
	}
}

// begin reads how far the rules are. New ones begin now, or when they say.
func (g *group) begin(ctx context.Context) error {
	if err := g.readState(ctx); err != nil {
		return err
	}
	now := g.runner.cfg.Now()
	for i := range g.recordings {
		rule := &g.recordings[i]
		if rule.done == 0 {
			rule.done = g.timeOf(now)
			if rule.begin > 0 && rule.begin < now.UnixMilli() {
				rule.done = g.timeOf(time.UnixMilli(rule.begin))
			}
			rule.since = rule.done
		}
		g.runner.evaluates(g, rule.done)
	}
	// Of samples that came late to another process, or to one that has ended, this one does not know. They may have come when fewer steps were
	// evaluated than now.
	if done := g.first() - g.step; g.corrected == 0 || g.corrected > done || g.runner.cfg.Reevaluate == 0 {
		g.corrected = done
	}
	g.late.add(g.corrected-g.runner.cfg.Reevaluate.Milliseconds(), math.MaxInt64, math.MaxInt64/4)
	return nil
}

// first returns the time of the first step at which a rule is not stored.
func (g *group) first() int64 {
	return slices.MinFunc(g.recordings, func(a, b recording) int { return cmp.Compare(a.done, b.done) }).done + g.step
}

// querySteps is how many steps a rule is evaluated at by one query.
func (g *group) querySteps() int64 {
	if g.stepwise {
		return 1
	}
	return maxSteps
}

// advance records the next steps, up to the one that is due last.
func (g *group) advance(ctx context.Context, due int64) error {
	end := min(due, g.first()+(g.querySteps()-1)*g.step)
	g.runner.evaluates(g, end)
	next := slices.Clone(g.recordings)
	for i := range g.recordings {
		rule := &g.recordings[i]
		if rule.done >= end {
			continue
		}
		out, made, err := g.evaluate(ctx, rule, rule.done+g.step, end)
		if err != nil {
			return fmt.Errorf("rule %s: %w", rule.name, err)
		}
		for some := range slices.Chunk(out, appendSeries) {
			if err := g.store(ctx, rule, some); err != nil {
				return fmt.Errorf("rule %s: %w", rule.name, err)
			}
		}
		next[i] = *made
	}
	if err := g.writeState(ctx, next); err != nil {
		return err
	}
	for i := range next {
		g.runner.metrics.steps.WithLabelValues(g.key).Add(float64((next[i].done - g.recordings[i].done) / g.step))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recordings = next
	for _, rule := range g.recordings {
		g.results[rule.id] = rule.result
	}
	close(g.advanced)
	g.advanced = make(chan struct{})
	return nil
}

// store stores results of a rule. What is rejected is said, and not tried again.
func (g *group) store(ctx context.Context, rule *recording, batch []ingest.Series) error {
	err := appendAll(ctx, g.runner.cfg, batch)
	if rejected := (*rejectedError)(nil); errors.As(err, &rejected) {
		g.runner.metrics.failures.WithLabelValues(g.key, failedRejected).Inc()
		g.warn(rule, "results of a recording rule are rejected", "err", err)
		return nil
	}
	return err
}

// warn logs something about a rule.
func (g *group) warn(rule *recording, msg string, pairs ...any) {
	level.Warn(g.runner.cfg.Logger).Log(append([]any{"msg", msg, "group", g.key, "rule", rule.name}, pairs...)...)
}

// await waits until all rules are recorded up to a time, but not for longer than some.
func (g *group) await(ctx context.Context, at int64, most time.Duration) {
	if len(g.ids) == 0 {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		g.mu.Lock()
		advanced, isThere := g.advanced, true
		for _, rule := range g.made {
			isThere = isThere && g.results[rule.id].at >= at
		}
		g.mu.Unlock()
		if isThere {
			return
		}
		select {
		case <-advanced:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// recorded returns what a rule has at a time, for Prometheus' manager.
func (g *group) recorded(of rules.RuleDetail, at int64) (promql.Vector, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, rule := range g.made {
		if rule.name != of.Name || rule.expr != of.Query || !labels.Equal(rule.labels, of.Labels) {
			continue
		}
		found := g.results[rule.id]
		switch {
		case found.at > at: // it is ahead: of this step nothing else is known
			return nil, found.err
		case found.at == 0:
			return nil, errors.New("the rule is not recorded yet since the start")
		case found.at < at:
			return nil, fmt.Errorf("the rule is behind: it is recorded up to %s", timeText(found.at))
		}
		return slices.Clone(found.vector), found.err // whose labels the manager changes
	}
	return nil, errors.New("the rule is not recorded: its file has changed")
}

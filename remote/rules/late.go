package rules

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/bucketstore"
)

// lateRounds is how often a group is evaluated anew while Config.Reevaluate passes, if late samples go on to come.
const lateRounds = 12

// lateSteps are the steps of a group that late samples may have changed.
type lateSteps struct {
	// before and after say at which steps a sample may be read: from before its time, to after it, in milliseconds.
	before, after int64

	mu sync.Mutex
	// evaluated is the last step whose evaluation has begun: what is written since at its time, or before it, is late.
	evaluated int64
	// mint and maxt are the times of late samples. There are some if mint <= maxt.
	mint, maxt int64
	// next is when they are looked at.
	next time.Time
}

func newLateSteps(lookback time.Duration) *lateSteps {
	return &lateSteps{after: lookback.Milliseconds(), mint: math.MaxInt64, maxt: math.MinInt64}
}

// widen notes what an expression reads.
func (l *lateSteps) widen(expr parser.Expr, lookback time.Duration) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		before, after := -selector.Offset, selector.Offset+lookback
		isFixed := selector.Timestamp != nil || selector.StartOrEnd != 0
		for _, over := range path {
			switch over := over.(type) {
			case *parser.MatrixSelector:
				after += over.Range
			case *parser.SubqueryExpr:
				before -= over.Offset
				after += over.Offset + over.Range
				isFixed = isFixed || over.Timestamp != nil || over.StartOrEnd != 0
			}
		}
		if isFixed { // any step may read it
			before, after = math.MaxInt64/4, math.MaxInt64/4
		}
		l.before, l.after = max(l.before, before.Milliseconds()), max(l.after, after.Milliseconds())
		return nil
	})
}

// begin notes that steps are evaluated up to one.
func (l *lateSteps) begin(step int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.evaluated = max(l.evaluated, step)
}

// add notes samples from mint to maxt, as far as they are late by at most some time.
func (l *lateSteps) add(mint, maxt int64, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mint, maxt = max(mint, l.evaluated-most.Milliseconds()), min(maxt, l.evaluated+l.before)
	if l.evaluated > 0 && mint <= maxt {
		l.mint, l.maxt = min(l.mint, mint), max(l.maxt, maxt)
	}
}

// take returns the times of late samples, if it is time to look at them.
func (l *lateSteps) take(now time.Time, interval time.Duration) (mint, maxt int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mint > l.maxt || now.Before(l.next) {
		return 0, 0, false
	}
	mint, maxt = l.mint, l.maxt
	l.mint, l.maxt, l.next = math.MaxInt64, math.MinInt64, now.Add(interval)
	return mint, maxt, true
}

// isEmpty says that no late samples are known.
func (l *lateSteps) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mint > l.maxt
}

// Written notes samples that the tenant has written, for rules that were evaluated before that. It must be called when reads find them, or may
// find them.
func (r *Runner) Written(samples []bucketstore.Sample) {
	limit := r.evaluated.Load()
	mint, maxt := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range samples {
		if t := samples[i].T; t <= limit {
			mint, maxt = min(mint, t), max(maxt, t)
		}
	}
	if mint <= maxt {
		r.WrittenBetween(mint, maxt)
	}
}

// WrittenBetween is Written for samples at some of the times from mint to maxt, in milliseconds, inclusive.
func (r *Runner) WrittenBetween(mint, maxt int64) {
	if all := r.late.Load(); all != nil && r.cfg.Reevaluate > 0 {
		for _, l := range *all {
			l.add(mint, maxt, r.cfg.Reevaluate)
		}
	}
}

// evaluates notes that a group evaluates steps up to one, so that samples that are written from now on are late for it.
func (r *Runner) evaluates(g *group, step int64) {
	g.late.begin(step)
	for {
		before, at := r.evaluated.Load(), step+g.late.before
		if at <= before || r.evaluated.CompareAndSwap(before, at) {
			return
		}
	}
}

// correctLate evaluates steps anew that late samples may have changed.
func (g *group) correctLate(ctx context.Context) error {
	within := g.runner.cfg.Reevaluate
	done := g.first() - g.step
	mint, maxt, ok := g.late.take(g.runner.cfg.Now(), max(within/lateRounds, g.of.Interval()))
	if !ok {
		if g.late.isEmpty() {
			g.corrected = done
		}
		return nil
	}
	end := min(maxt+g.late.after+g.step, done) // the last one for markers of staleness
	if g.stepwise {                            // later steps read what changes
		end = done
	}
	offset := g.of.QueryOffset()
	start := g.timeOf(time.UnixMilli(mint - min(g.late.before, within.Milliseconds())).Add(offset))
	d, err := g.correct(ctx, g.recordings, start, end, false)
	g.runner.metrics.reevaluated.WithLabelValues(g.key).Add(float64(d.Steps))
	g.runner.metrics.corrected.WithLabelValues(g.key).Add(float64(d.Samples()))
	if rejected := (*rejectedError)(nil); errors.As(err, &rejected) {
		g.runner.metrics.failures.WithLabelValues(g.key, failedRejected).Inc()
		level.Warn(g.runner.cfg.Logger).Log("msg", "corrections of recording rules are rejected", "group", g.key, "err", err)
		return nil
	}
	if err != nil {
		g.late.add(mint, maxt, math.MaxInt64/4)
	}
	return err
}

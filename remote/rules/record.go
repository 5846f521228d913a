package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/ingest"
)

// errSameLabels is Prometheus' error.
var errSameLabels = errors.New("vector contains metrics with the same labelset after applying rule labels")

// A stepValue is what a series has at a step.
type stepValue struct {
	isSet bool
	f     float64
	h     *histogram.FloatHistogram // nil if it is a float
}

// equals says whether two values are the same to the bit.
func (v stepValue) equals(o stepValue) bool {
	if v.isSet != o.isSet || (v.h == nil) != (o.h == nil) {
		return false
	}
	if v.h != nil {
		return sameHistogram(v.h, o.h)
	}
	return math.Float64bits(v.f) == math.Float64bits(o.f)
}

// sameHistogram compares without buckets that are empty at the ends of spans: those come and go in chunks.
func sameHistogram(a, b *histogram.FloatHistogram) bool {
	isGauge := func(h *histogram.FloatHistogram) bool { return h.CounterResetHint == histogram.GaugeType }
	return isGauge(a) == isGauge(b) && a.Copy().Compact(0).Equals(b.Copy().Compact(0))
}

// An output is a series that a rule records, with its values at the steps of an evaluation. wasThere says that it was there before.
type output struct {
	labels   labels.Labels
	values   []stepValue
	wasThere bool
}

// An evaluation is one of a rule at the steps of a range.
type evaluation struct {
	group *group
	rule  *recording
	// start is the time of the first step, n how many there are.
	start int64
	n     int
	// outputs are in order of their first result, by position.
	outputs  []output
	position map[string]int
	counts   []int
	// failed has the errors of steps.
	failed []error
}

// evaluate evaluates a rule at all steps from one to another, in milliseconds, and returns what is to be stored, and the rule after that. An error is the
// store's; steps at which the expression fails have no samples.
func (g *group) evaluate(ctx context.Context, rule *recording, start, end int64) (out []ingest.Series, next *recording, err error) {
	e, previous, err := g.evaluation(ctx, rule, start, end)
	if err != nil {
		return nil, nil, err
	}
	e.tell()
	made := *rule
	made.done, made.previous = end, previous
	for i := range e.n {
		if e.failed[i] == nil {
			made.ok, made.previous = e.time(i), e.vector(i)
		}
	}
	made.result = result{at: end, err: e.failed[e.n-1]}
	if made.result.err == nil {
		made.result.vector = made.previous
	}
	return e.series(nil, &Difference{}), &made, nil
}

// evaluation returns what a rule has at all steps from one to another, and what it had before.
func (g *group) evaluation(ctx context.Context, rule *recording, start, end int64) (e *evaluation, previous promql.Vector, err error) {
	previous = rule.previous
	if previous == nil && rule.ok > 0 { // this process has not evaluated it yet
		before := newEvaluation(g, rule, rule.ok, rule.ok)
		if err := before.run(ctx); err != nil {
			return nil, nil, err
		}
		previous = before.vector(0)
	}
	e = newEvaluation(g, rule, start, end)
	for _, s := range previous {
		e.output(s.Metric).wasThere = true
	}
	return e, previous, e.run(ctx)
}

func newEvaluation(g *group, rule *recording, start, end int64) *evaluation {
	n := int((end-start)/g.step) + 1
	return &evaluation{group: g, rule: rule, start: start, n: n, position: make(map[string]int), counts: make([]int, n), failed: make([]error, n)}
}

// run evaluates all steps.
func (e *evaluation) run(ctx context.Context) error {
	if err := e.fill(ctx, e.start, e.time(e.n-1)); err != nil {
		return err
	}
	e.limit()
	return nil
}

// tell counts the steps that have failed. Prometheus' manager logs the last one, this the ones before it.
func (e *evaluation) tell() {
	failed, first := 0, -1
	for i, err := range e.failed {
		if err == nil {
			continue
		}
		e.group.runner.metrics.failures.WithLabelValues(e.group.key, failedExpression).Inc()
		if failed++; first < 0 {
			first = i
		}
	}
	if first >= 0 && first < e.n-1 {
		e.group.warn(e.rule, "a recording rule fails", "steps", failed, "first", timeText(e.time(first)), "err", e.failed[first])
	}
}

func (e *evaluation) time(step int) int64 { return e.start + int64(step)*e.group.step }

// fill evaluates the steps from one time to another. Where the expression fails it is evaluated in halves, down to the step that fails.
func (e *evaluation) fill(ctx context.Context, from, to int64) error {
	err := e.query(ctx, from, to)
	timedOut := promql.ErrQueryTimeout("")
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case e.group.runner.cfg.StoreFailed(err) && !errors.As(err, &timedOut), errors.As(err, &timedOut) && from == to:
		return err
	case from == to:
		e.failed[(from-e.start)/e.group.step] = err
		return nil
	}
	middle := from + (to-from)/e.group.step/2*e.group.step
	if err := e.fill(ctx, from, middle); err != nil {
		return err
	}
	return e.fill(ctx, middle+e.group.step, to)
}

// query evaluates steps by one query and adds what it finds.
func (e *evaluation) query(ctx context.Context, from, to int64) error {
	cfg := e.group.runner.cfg
	step := time.Duration(e.group.step) * time.Millisecond
	source := cfg.Queryable
	if e.group.stepwise {
		source = &beforeStep{source, from, e.group.made[e.rule.position:]}
	}
	q, err := cfg.Engine.NewRangeQuery(ctx, source, nil, e.rule.expr, time.UnixMilli(from), time.UnixMilli(to), step)
	if err != nil {
		return err
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return res.Err
	}
	matrix, err := res.Matrix()
	if err != nil {
		return err
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, s := range matrix {
		b.Reset(s.Metric)
		b.Set(labels.MetricName, e.rule.name)
		e.rule.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
		o := e.output(b.Labels())
		for _, p := range s.Floats {
			e.set(o, p.T, stepValue{isSet: true, f: p.F})
		}
		for _, p := range s.Histograms {
			e.set(o, p.T, stepValue{isSet: true, h: p.H.Copy()})
		}
	}
	return nil
}

// output returns the output with these labels.
func (e *evaluation) output(ls labels.Labels) *output {
	key := string(ls.Bytes(nil))
	i, ok := e.position[key]
	if !ok {
		i = len(e.outputs)
		e.position[key] = i
		e.outputs = append(e.outputs, output{labels: ls, values: make([]stepValue, e.n)})
	}
	return &e.outputs[i]
}

func (e *evaluation) set(o *output, t int64, v stepValue) {
	i := (t - e.start) / e.group.step
	if o.values[i].isSet {
		e.failed[i] = errSameLabels
	}
	o.values[i] = v
	e.counts[i]++
}

// limit fails the steps with more results than the limit of the group.
func (e *evaluation) limit() {
	limit := e.group.of.Limit()
	for i, n := range e.counts {
		if limit > 0 && n > limit && e.failed[i] == nil {
			e.failed[i] = fmt.Errorf("exceeded limit of %d with %d series", limit, n)
		}
	}
}

// series returns what is to be stored, and is not, and counts it: the values, and a marker of staleness where a series ends, or where one has a value that it
// should not have. stored has values by the bytes of the labels and by time; it may be nil.
func (e *evaluation) series(stored map[string]map[int64]stepValue, d *Difference) (all []ingest.Series) {
	stale := stepValue{isSet: true, f: math.Float64frombits(value.StaleNaN)}
	for _, o := range e.outputs {
		s, found := ingest.Series{Labels: o.labels}, stored[string(o.labels.Bytes(nil))]
		isThere := o.wasThere // at the last step that has not failed
		for i, v := range o.values {
			if e.failed[i] != nil {
				continue
			}
			t := e.time(i)
			have := found[t]
			wasThere := isThere
			isThere = v.isSet
			switch {
			case !v.isSet && have.isSet && !have.equals(stale) && !wasThere:
				v = stale
				d.Extra++
			case !v.isSet && !wasThere:
				continue
			default:
				if !v.isSet {
					v = stale
				}
				if !d.count(have, v) {
					continue
				}
			}
			if v.h != nil {
				s.Histograms = append(s.Histograms, ingest.Histogram{T: t, FH: v.h})
			} else {
				s.Samples = append(s.Samples, ingest.Sample{T: t, V: v.f})
			}
		}
		if len(s.Samples)+len(s.Histograms) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// vector returns the results at a step.
func (e *evaluation) vector(step int) (all promql.Vector) {
	for _, o := range e.outputs {
		if v := o.values[step]; v.isSet && e.failed[step] == nil {
			all = append(all, promql.Sample{Metric: o.labels, T: e.time(step), F: v.f, H: v.h})
		}
	}
	return all
}

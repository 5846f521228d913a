package eval

import (
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/kahansum"
)

// errTooMany is upstream's error of a query that holds too many samples.
var errTooMany = &evaluationError{promql.ErrTooManySamples("query execution")}

// An aggregate puts values together, in the order of the series: the values of a group at
// one step. Its arithmetic is upstream's, operation for operation.
type aggregate interface {
	// first begins with a value.
	first(a *accumulator, v float64)
	// next adds another.
	next(a *accumulator, v float64)
	// result returns what they make.
	result(p *part, a *accumulator) float64
}

// An accumulator has the state of an aggregate. What it holds in each field is that
// aggregate's affair.
type accumulator struct {
	seen bool
	// incremental says that a sum of avg would overflow.
	incremental              bool
	count                    float64
	value, mean, compensated float64
	values                   []float64
	// histograms is nil if there are none, and floats says that there are floats: sum and
	// avg of both have no result.
	histograms *sumOfHistograms
	floats     bool
}

var aggregates = map[parser.ItemType]aggregate{
	parser.SUM:      sum{},
	parser.AVG:      avg{},
	parser.COUNT:    count{},
	parser.GROUP:    group{},
	parser.MIN:      extreme{func(a, b float64) bool { return a > b }},
	parser.MAX:      extreme{func(a, b float64) bool { return a < b }},
	parser.STDVAR:   variance{func(v float64) float64 { return v }},
	parser.STDDEV:   variance{math.Sqrt},
	parser.QUANTILE: quantile{},
}

type sum struct{}

func (sum) first(a *accumulator, v float64) { a.value = v }
func (sum) next(a *accumulator, v float64) {
	a.value, a.compensated = kahansum.Inc(v, a.value, a.compensated)
}
func (sum) result(_ *part, a *accumulator) float64 { return a.value + a.compensated }

// avg is a sum divided by the count, or, if the sum would overflow, a mean that is brought
// up to date with each value.
type avg struct{}

func (avg) first(a *accumulator, v float64) { a.value, a.count = v, 1 }
func (avg) next(a *accumulator, v float64) {
	a.count++
	if !a.incremental {
		sum, c := kahansum.Inc(v, a.value, a.compensated)
		if !math.IsInf(sum, 0) {
			a.value, a.compensated = sum, c
			return
		}
		a.incremental = true
		a.mean = a.value / (a.count - 1)
		a.compensated /= a.count - 1
	}
	q := (a.count - 1) / a.count
	a.mean, a.compensated = kahansum.Inc(v/a.count, q*a.mean, q*a.compensated)
}
func (avg) result(_ *part, a *accumulator) float64 {
	if a.incremental {
		return a.mean + a.compensated
	}
	return a.value/a.count + a.compensated/a.count
}

type count struct{}

func (count) first(a *accumulator, _ float64)        { a.count = 1 }
func (count) next(a *accumulator, _ float64)         { a.count++ }
func (count) result(_ *part, a *accumulator) float64 { return a.count }

type group struct{}

func (group) first(*accumulator, float64)            {}
func (group) next(*accumulator, float64)             {}
func (group) result(_ *part, _ *accumulator) float64 { return 1 }

// extreme is min or max: worse says whether a value gives way to another.
type extreme struct {
	worse func(value, other float64) bool
}

func (extreme) first(a *accumulator, v float64) { a.value = v }
func (e extreme) next(a *accumulator, v float64) {
	if e.worse(a.value, v) || math.IsNaN(a.value) {
		a.value = v
	}
}
func (extreme) result(_ *part, a *accumulator) float64 { return a.value }

type variance struct{ of func(float64) float64 }

func (variance) first(a *accumulator, v float64) {
	a.count, a.mean, a.value = 1, v, 0
	if math.IsNaN(v) || math.IsInf(v, 0) {
		a.value = math.NaN()
	}
}
func (variance) next(a *accumulator, v float64) {
	a.count++
	delta := v - a.mean
	a.mean += delta / a.count
	a.value += delta * (v - a.mean)
}
func (v variance) result(_ *part, a *accumulator) float64 { return v.of(a.value / a.count) }

type quantile struct{}

func (quantile) first(a *accumulator, v float64) { a.values = append(a.values[:0], v) }
func (quantile) next(a *accumulator, v float64)  { a.values = append(a.values, v) }
func (quantile) result(p *part, a *accumulator) float64 {
	q := p.number
	switch {
	case math.IsNaN(q):
		return math.NaN()
	case q < 0:
		return math.Inf(-1)
	case q > 1:
		return math.Inf(+1)
	}
	sort.Sort(nanFirst(a.values))
	n := float64(len(a.values))
	rank := q * (n - 1)
	lower := math.Max(0, math.Floor(rank))
	upper := math.Min(n-1, lower+1)
	weight := rank - math.Floor(rank)
	if weight == 0 {
		return a.values[int(lower)] // the other one may be infinite
	}
	return a.values[int(lower)]*(1-weight) + a.values[int(upper)]*weight
}

// nanFirst sorts values, NaN before all.
type nanFirst []float64

func (v nanFirst) Len() int           { return len(v) }
func (v nanFirst) Less(i, j int) bool { return math.IsNaN(v[i]) || v[i] < v[j] }
func (v nanFirst) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }

// groups puts the elements of each group together.
type groups struct {
	grouper
	// steps has an accumulator of each group for each step.
	steps    [][]accumulator
	warnings annotations.Annotations
}

func newGroups(p *part, held holding) *groups { return &groups{grouper: newGrouper(p, held)} }

func (g *groups) add(metric labels.Labels, c *column) error {
	group, isNew := g.of(metric)
	if isNew {
		if err := g.hold(len(c.has), len(c.has)*accumulatorSize); err != nil {
			return err
		}
		g.steps = append(g.steps, make([]accumulator, len(c.has)))
	}
	for i, has := range c.has {
		a := &g.steps[group][i]
		switch h := c.histogram(i); {
		case h != nil:
			g.addHistogram(a, metric, h)
		case has && !a.isIncompatible():
			a.floats = true
			g.addFloat(a, c.values[i])
		}
	}
	return nil
}

func (g *groups) addFloat(a *accumulator, v float64) {
	if a.seen {
		g.p.aggregate.next(a, v)
		return
	}
	a.seen = true
	g.p.aggregate.first(a, v)
}

// isIncompatible says that there are histograms that cannot be added: then there is no
// result, whatever else comes.
func (a *accumulator) isIncompatible() bool { return a.histograms != nil && a.histograms.incompatible }

func (g *groups) results() ([]result, annotations.Annotations, error) {
	if q := g.p.number; g.p.aggregation.Op == parser.QUANTILE && (math.IsNaN(q) || q < 0 || q > 1) {
		g.warnings.Add(annotations.NewInvalidQuantileWarning(q, g.p.aggregation.Param.PositionRange()))
	}
	found := make([]result, len(g.steps))
	for i, steps := range g.steps {
		found[i] = result{g.metrics[i], newColumn(len(steps))}
		for step := range steps {
			g.finish(&steps[step], step, &found[i].column)
		}
	}
	return slices.DeleteFunc(found, func(r result) bool { return r.isEmpty() }), g.warnings, nil
}

// finish puts the result of a group at a step into a column.
func (g *groups) finish(a *accumulator, step int, c *column) {
	place := g.p.aggregation.Expr.PositionRange()
	s := a.histograms
	switch {
	case !a.seen:
	case s == nil:
		c.set(step, g.p.aggregate.result(g.p, a))
	case a.floats:
		g.warnings.Add(annotations.NewMixedFloatsHistogramsAggWarning(place))
	case !s.incompatible:
		_, isAverage := g.p.aggregate.(avg)
		c.setHistogram(step, s.result(isAverage, a.count))
		if s.reset && s.noReset {
			g.warnings.Add(annotations.NewHistogramCounterResetCollisionWarning(place, annotations.HistogramAgg))
		}
	}
}

package eval

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/series/rollup"
)

// A part is a part of an expression that is evaluated while its series are read.
type part struct {
	// place is where it stands in the text of the query, and grid the times at which it
	// is evaluated.
	place posrange.PositionRange
	grid  grid
	// within says how often upstream's engine evaluates it, and steps is how many steps the
	// query has.
	within place
	steps  int
	counts counts
	// held is how many samples it holds.
	held int

	// vector selects the series. The window of a step at t is (t-shift-rangeMs, t-shift],
	// in milliseconds: the range, or the lookback if there is no function.
	vector         *parser.VectorSelector
	rangeMs, shift int64
	// oneName says that all series have the same metric name.
	oneName bool

	// call is the function, or nil.
	call      *parser.Call
	function  promql.FunctionCall
	arguments []promql.Vector
	// dropsName says that the results have no metric name.
	dropsName bool

	// isTimestamp says that the elements are the times of the samples of a selector, in seconds.
	isTimestamp bool
	operations  []operation

	// aggregation is nil if the results are those of single series.
	// aggregate is nil for topk, bottomk and count_values.
	aggregation *parser.AggregateExpr
	// absent, unless nil, is what the results are in place of those of the part.
	absent *absence
	// limit bounds the results, if it is not nil.
	limit     *Limit
	aggregate aggregate
	grouping  []string
	// number is the parameter of quantile, topk or bottomk, valueLabel that of
	// count_values.
	number     float64
	valueLabel string

	// want is what is asked of buckets, and known what they tell of a series. isWide says that a window was widened to buckets, isUnknown
	// that buckets did not tell the value of one.
	want                           rollup.Want
	known                          rollup.Points
	isWide, isUnknown, isEstimated bool

	warnings annotations.Annotations
	// points, input and helper are those of a call of upstream's function.
	points []promql.FPoint
	input  promql.Matrix
	helper promql.EvalNodeHelper
}

// begin sets the times at which the part is evaluated.
func (p *part) begin(g grid) {
	p.grid, p.shift = g, p.vector.OriginalOffset.Milliseconds()
	if at := p.vector.Timestamp; at != nil {
		p.shift += g.start - *at
	}
}

// evaluate returns the results: of an aggregation in the order in which groups are met,
// else in that of the series.
func (p *part) evaluate(ctx context.Context, source storage.Queryable, maxSamples int) ([]result, error) {
	p.vector.Offset = time.Duration(p.shift) * time.Millisecond // where upstream's functions look for it
	p.warnings, p.counts = nil, newCounts(p.grid.count)
	hints := p.hints()
	querier, err := source.Querier(hints.Start, hints.End)
	if err != nil {
		return nil, err
	}
	defer querier.Close()
	p.isWide, p.isUnknown, p.isEstimated = false, false, false
	if p.absent != nil {
		p.absent.begin(p.grid.count)
	}
	evaluated := newBatches(ctx, p)
	selecting := context.WithValue(ctx, passing{}, evaluated.finish)
	if b := p.buckets(ctx); b != nil {
		p.want = b.Want
		selecting = context.WithValue(selecting, bucketsKey{}, b)
	}
	set := querier.Select(selecting, false, hints, p.vector.LabelMatchers...)
	collect := p.newCollector(holding{ctx: ctx, part: p, maxSamples: maxSamples})
	if err := evaluated.evaluate(set, collect); err != nil {
		return nil, err
	}
	var results []result
	var warnings annotations.Annotations
	if err := evaluated.cores.compute(ctx, func() (err error) {
		results, warnings, err = collect.results()
		return err
	}); err != nil {
		return nil, err
	}
	p.warnings.Merge(warnings) // in upstream's order: of some that say the same the place of one is told
	p.warnings.Merge(set.Warnings())
	p.warnOfBuckets()
	if p.absent != nil {
		p.noteRollupsOnly(set.Warnings())
		results = p.absent.of(results)
	}
	return results, set.Err()
}

// hints says what is read.
func (p *part) hints() *storage.SelectHints {
	hints := &storage.SelectHints{
		Start: p.grid.start - p.shift - p.rangeMs + 1,
		End:   p.grid.last() - p.shift,
		Step:  p.grid.step,
	}
	if p.call != nil {
		hints.Func, hints.Range = p.call.Func.Name, p.rangeMs
	}
	if p.aggregation != nil {
		hints.By, hints.Grouping = !p.aggregation.Without, p.aggregation.Grouping
		if p.call == nil {
			hints.Func = p.aggregation.Op.String()
		}
	}
	return hints
}

// A collector takes the elements, one series after the other.
type collector interface {
	// add takes the column of a series, which it may change but not keep.
	add(metric labels.Labels, c *column) error
	// results returns all results, and what is to be said of putting elements together.
	results() ([]result, annotations.Annotations, error)
}

func (p *part) newCollector(held holding) collector {
	switch {
	case p.aggregation == nil && p.absent != nil:
		return &absentElements{p.absent, held}
	case p.aggregation == nil && p.limit != nil:
		return &limited{elements: elements{p: p, holding: held}, limit: p.limit}
	case p.aggregation == nil:
		return &elements{p: p, holding: held}
	}
	switch p.aggregation.Op {
	case parser.TOPK, parser.BOTTOMK:
		return newTopk(p, held)
	case parser.COUNT_VALUES:
		return newCountValues(p, held)
	}
	return newGroups(p, held)
}

// evaluateOne evaluates the column of a series. It returns how many bytes it held meanwhile, and how many samples that cost.
func (p *part) evaluateOne(s storage.Series, read *samples, evaluate func(*samples, *column), out *column) (held, cost int, err error) {
	if points, is := s.(rollup.PointSeries); is && points.HasBuckets() {
		held, err = p.pointsColumn(points, out)
		return held, pointCost * len(p.known.Times), err
	}
	floats, err := read.read(s)
	switch {
	case err != nil:
		return 0, 0, err
	case !floats:
		return 0, 0, p.mixedColumn(s, out)
	}
	if p.call != nil {
		read.dropStale()
	}
	evaluate(read, out)
	return 0, len(read.ts), nil
}

// collect gives the column of a series to a collector.
func (p *part) collect(to collector, names *names, metric labels.Labels, c *column) error {
	if p.call != nil && c.hasFloat() {
		p.warnIfNoCounter(metric)
	}
	if err := names.check(metric); err != nil {
		return err
	}
	for _, op := range p.operations {
		if err := c.apply(op); err != nil {
			return err
		}
	}
	if c.isEmpty() {
		return nil
	}
	return to.add(metric, c)
}

// names tells series apart whose names are dropped.
type names struct {
	p    *part
	seen map[uint64]struct{}
}

func newNames(p *part) *names { return &names{p, make(map[uint64]struct{})} }

// check returns an error if a series is not to be told from one before.
func (n *names) check(metric labels.Labels) error {
	switch {
	case !n.p.dropsName:
		return nil
	case metric.Has(metricType) || metric.Has(metricUnit):
		return errUnknown // these are dropped, too
	case n.p.oneName:
		return nil
	}
	hash, _ := metric.HashWithoutLabels(nil, labels.MetricName)
	if _, ok := n.seen[hash]; ok {
		return errUnknown // upstream puts them together, or refuses them where they have values at the same step
	}
	n.seen[hash] = struct{}{}
	return nil
}

const (
	metricType = "__type__"
	metricUnit = "__unit__"
)

// columnFunc returns what evaluates the column of a series.
func (p *part) columnFunc() func(*samples, *column) {
	if p.call == nil {
		return p.selectColumn
	}
	switch p.call.Func.Name {
	case "rate", "increase", "delta":
		e := p.newExtrapolated()
		return func(s *samples, out *column) { e.columnOf(p, s, out) }
	}
	return p.callColumn
}

// newExtrapolated returns what evaluates rate, increase or delta.
func (p *part) newExtrapolated() *extrapolated {
	name := p.call.Func.Name
	return &extrapolated{
		counter: name != "delta", perSecond: name == "rate", window: time.Duration(p.rangeMs) * time.Millisecond,
	}
}

// warnIfNoCounter warns if the name of a metric is none of a counter.
func (p *part) warnIfNoCounter(metric labels.Labels) {
	if name := p.call.Func.Name; name != "rate" && name != "increase" {
		return
	}
	name := metric.Get(labels.MetricName)
	if name == "" {
		return
	}
	for _, suffix := range []string{"_total", "_sum", "_count", "_bucket"} {
		if strings.HasSuffix(name, suffix) {
			return
		}
	}
	p.warnings.Add(annotations.NewPossibleNonCounterInfo(name, p.call.Args[0].PositionRange()))
}

// elements are results of single series.
type elements struct {
	p *part
	holding
	found []result
}

func (e *elements) add(metric labels.Labels, c *column) error { return e.keep(e.nameOf(metric), c) }

// nameOf returns the labels of the result of a series.
func (e *elements) nameOf(metric labels.Labels) labels.Labels {
	if e.p.dropsName {
		return metric.DropReserved(schema.IsMetadataLabel)
	}
	return metric
}

func (e *elements) keep(metric labels.Labels, c *column) error {
	if err := e.hold(c.size()); err != nil {
		return err
	}
	e.found = append(e.found, result{metric, c.clone()})
	return nil
}

func (e *elements) results() ([]result, annotations.Annotations, error) { return e.found, nil, nil }

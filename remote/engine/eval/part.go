package eval

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// A part is a part of an expression that is evaluated while its series are read.
type part struct {
	// place is where it stands in the text of the query, and grid the times at which it
	// is evaluated.
	place posrange.PositionRange
	grid  grid

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

	operations []operation

	// aggregation is nil if the results are those of single series.
	aggregation *parser.AggregateExpr
	aggregate   aggregate
	grouping    []string
	quantile    float64

	warnings annotations.Annotations
	// points, input and helper are those of a call of upstream's function.
	points []promql.FPoint
	input  promql.Matrix
	helper promql.EvalNodeHelper
}

// evaluate returns the results: of an aggregation in the order in which groups are met,
// else in that of the series.
func (p *part) evaluate(ctx context.Context, source storage.Queryable, maxSamples int) ([]result, error) {
	p.shift = p.vector.OriginalOffset.Milliseconds()
	if at := p.vector.Timestamp; at != nil {
		p.shift += p.grid.start - *at
	}
	p.vector.Offset = time.Duration(p.shift) * time.Millisecond // where upstream's functions look for it
	p.input, p.warnings = make(promql.Matrix, 1), nil

	hints := p.hints()
	querier, err := source.Querier(hints.Start, hints.End)
	if err != nil {
		return nil, err
	}
	defer querier.Close()
	p.warnOfQuantile()
	set := querier.Select(ctx, false, hints, p.vector.LabelMatchers...)
	collect := p.newCollector(maxSamples)
	if err := p.evaluateSeries(ctx, set, collect); err != nil {
		return nil, err
	}
	p.warnings.Merge(set.Warnings())
	return collect.results(), set.Err()
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
	results() []result
}

func (p *part) newCollector(maxSamples int) collector {
	if p.aggregation != nil {
		return newGroups(p, maxSamples)
	}
	return &elements{p: p, maxSamples: maxSamples}
}

// evaluateSeries gives the column of each series to collect, if it has a value.
func (p *part) evaluateSeries(ctx context.Context, set storage.SeriesSet, collect collector) error {
	evaluate := p.columnFunc()
	out := newColumn(p.grid.count)
	seen := make(map[uint64]struct{})
	var read samples
	for set.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := set.At()
		if err := read.read(s); err != nil {
			return err
		}
		metric := s.Labels()
		if p.dropsName && (metric.Has(metricType) || metric.Has(metricUnit)) {
			return errUnknown // names do not tell them apart
		}
		clear(out.has)
		if p.call != nil {
			read.dropStale()
			p.input[0].Metric = metric
		}
		evaluate(&read, &out)
		if out.count() == 0 {
			continue
		}
		if p.call != nil {
			p.warnIfNoCounter(metric)
		}
		if p.dropsName && !p.oneName {
			hash, _ := metric.HashWithoutLabels(nil, labels.MetricName)
			if _, ok := seen[hash]; ok {
				return errSameLabels
			}
			seen[hash] = struct{}{}
		}
		for _, op := range p.operations {
			out.apply(op)
		}
		if err := collect.add(metric, &out); err != nil {
			return err
		}
	}
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
	e := &extrapolated{window: time.Duration(p.rangeMs) * time.Millisecond}
	switch p.call.Func.Name {
	case "rate":
		e.counter, e.perSecond = true, true
	case "increase":
		e.counter = true
	case "delta":
	default:
		return p.callColumn
	}
	return func(s *samples, out *column) { e.columnOf(p, s, out) }
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

// warnOfQuantile warns of a quantile that is none.
func (p *part) warnOfQuantile() {
	if p.aggregation == nil || p.aggregation.Op != parser.QUANTILE {
		return
	}
	if q := p.quantile; math.IsNaN(q) || q < 0 || q > 1 {
		p.warnings.Add(annotations.NewInvalidQuantileWarning(q, p.aggregation.Param.PositionRange()))
	}
}

// elements are results of single series.
type elements struct {
	p          *part
	maxSamples int
	held       int
	found      []result
}

func (e *elements) add(metric labels.Labels, c *column) error {
	n := c.count()
	if n == 0 {
		return nil
	}
	if e.held += n; e.held > e.maxSamples {
		return errTooMany
	}
	if e.p.dropsName {
		metric = metric.DropReserved(schema.IsMetadataLabel)
	}
	e.found = append(e.found, result{metric, c.clone()})
	return nil
}

func (e *elements) results() []result { return e.found }

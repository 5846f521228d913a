package eval

import (
	"errors"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"
)

// sumOfHistograms is the state of a sum or an average of histograms. Its arithmetic is
// upstream's, operation for operation.
type sumOfHistograms struct {
	// value is nil if a float came before the first histogram: then there is no result.
	value, mean, compensated *histogram.FloatHistogram
	// incremental says that the sum of an average would overflow.
	incremental bool
	// incompatible says that histograms cannot be added.
	incompatible bool
	// reset and noReset say that a histogram with this hint was met.
	reset, noReset bool
}

// addHistogram adds a histogram of a series to the values of a group at a step.
func (g *groups) addHistogram(a *accumulator, metric labels.Labels, h *histogram.FloatHistogram) {
	switch g.p.aggregate.(type) {
	case count, group:
		g.addFloat(a, 0)
		return
	case sum, avg:
	default:
		g.warnings.Add(annotations.NewHistogramIgnoredInAggregationInfo(g.p.aggregation.Op.String(), g.p.aggregation.Expr.PositionRange()))
		return
	}
	_, isAverage := g.p.aggregate.(avg)
	a.count++
	if !a.seen {
		a.seen = true
		a.histograms = &sumOfHistograms{value: h.Copy()}
		a.histograms.hint(h)
		return
	}
	if a.histograms == nil {
		a.histograms = new(sumOfHistograms)
	}
	s := a.histograms
	if s.value == nil || s.incompatible {
		return
	}
	s.hint(h)
	var reconciled bool
	var err error
	if isAverage {
		reconciled, err = s.addToAverage(h, a.count)
	} else {
		s.compensated, _, reconciled, err = s.value.KahanAdd(h, s.compensated)
	}
	g.warn(s, metric, reconciled, err)
}

// warn warns of what went wrong with a histogram.
func (g *groups) warn(s *sumOfHistograms, metric labels.Labels, reconciled bool, err error) {
	place := g.p.aggregation.Expr.PositionRange()
	if err != nil {
		s.incompatible = true
		if errors.Is(err, histogram.ErrHistogramsIncompatibleSchema) {
			name := metric.Get(labels.MetricName)
			if g.p.dropsName {
				name = ""
			}
			g.warnings.Add(annotations.NewMixedExponentialCustomHistogramsWarning(name, place))
		}
	}
	if reconciled {
		g.warnings.Add(annotations.NewMismatchedCustomBucketsHistogramsInfo(place, annotations.HistogramAgg))
	}
}

func (s *sumOfHistograms) hint(h *histogram.FloatHistogram) {
	switch h.CounterResetHint {
	case histogram.CounterReset:
		s.reset = true
	case histogram.NotCounterReset:
		s.noReset = true
	}
}

// addToAverage adds the count-th histogram of an average.
func (s *sumOfHistograms) addToAverage(h *histogram.FloatHistogram, count float64) (reconciled bool, err error) {
	if !s.incremental {
		value, compensated := s.value.Copy(), s.compensated
		if compensated != nil {
			compensated = compensated.Copy()
		}
		compensated, _, reconciled, err = value.KahanAdd(h, compensated)
		if err != nil {
			return false, err
		}
		if !value.HasOverflow() {
			s.value, s.compensated = value, compensated
			return reconciled, nil
		}
		s.incremental = true
		s.mean = s.value.Copy().Div(count - 1)
		if s.compensated != nil {
			s.compensated.Div(count - 1)
		}
	}
	q := (count - 1) / count
	if s.compensated != nil {
		s.compensated.Mul(q)
	}
	var again bool
	s.compensated, _, again, err = s.mean.Mul(q).KahanAdd(h.Copy().Div(count), s.compensated)
	return reconciled || again, err
}

// result returns the sum, or the average of count histograms. An addition cannot fail
// that did not fail before.
func (s *sumOfHistograms) result(isAverage bool, count float64) *histogram.FloatHistogram {
	value, compensated := s.value, s.compensated
	switch {
	case s.incremental:
		value = s.mean
	case isAverage:
		value.Div(count)
		if compensated != nil {
			compensated.Div(count)
		}
	}
	if compensated != nil {
		value, _, _, _ = value.Add(compensated)
	}
	return value.Compact(0)
}

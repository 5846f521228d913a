package eval

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
)

// A grouper divides series into groups, and bounds what is held of them.
type grouper struct {
	p *part
	// metrics are the labels of the groups, in the order in which they are met.
	metrics []labels.Labels

	byKey   map[string]int
	key     []byte
	builder *labels.Builder

	holding
}

func newGrouper(p *part, held holding) grouper {
	return grouper{p: p, byKey: make(map[string]int), builder: labels.NewBuilder(labels.EmptyLabels()), holding: held}
}

// of returns the position of the group of a series, and whether it is new.
func (g *grouper) of(metric labels.Labels) (position int, isNew bool) {
	if g.p.aggregation.Without {
		g.key = metric.BytesWithoutLabels(g.key, g.p.grouping...)
	} else {
		g.key = metric.BytesWithLabels(g.key, g.p.grouping...)
	}
	if i, ok := g.byKey[string(g.key)]; ok {
		return i, false
	}
	g.byKey[string(g.key)] = len(g.metrics)
	g.metrics = append(g.metrics, g.labels(metric))
	return len(g.metrics) - 1, true
}

// labels returns the labels of the group of a series.
func (g *grouper) labels(metric labels.Labels) labels.Labels {
	g.builder.Reset(metric)
	if g.p.aggregation.Without {
		return g.builder.Del(g.p.grouping...).Labels()
	}
	return g.builder.Keep(g.p.grouping...).Labels()
}

// holding bounds the results that a part holds.
type holding struct {
	ctx  context.Context
	part *part
	// samples is how many are held, of maxSamples.
	samples, maxSamples int
}

// hold notes that so many more samples are held, as upstream counts, and bytes.
func (h *holding) hold(samples, bytes int) error {
	h.samples += samples
	if h.part.held = h.samples; h.samples > h.maxSamples {
		return errTooMany
	}
	if err := Hold(h.ctx, bytes, h.part.vector.String()); err != nil {
		return &evaluationError{err}
	}
	return nil
}

const (
	// pointSize is how many bytes a value of a column takes.
	pointSize = 9
	// sampleSize is how many bytes a sample takes, as upstream counts.
	sampleSize = 16
	// accumulatorSize is how many bytes an accumulator takes, and elementSize an element of a
	// heap.
	accumulatorSize = 88
	elementSize     = 16
)

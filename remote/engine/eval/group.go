package eval

import (
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

	held, maxSamples int
}

func newGrouper(p *part, maxSamples int) grouper {
	return grouper{p: p, byKey: make(map[string]int), builder: labels.NewBuilder(labels.EmptyLabels()), maxSamples: maxSamples}
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

// hold counts samples that are held, and returns an error if they are too many.
func (g *grouper) hold(samples int) error {
	if g.held += samples; g.held > g.maxSamples {
		return errTooMany
	}
	return nil
}

package eval

import (
	"github.com/prometheus/prometheus/util/stats"
)

// counts are how many samples a part needs at each step, as upstream counts them.
type counts struct {
	// total has all samples of the windows, and read those that no earlier window has.
	total, read []int64
}

func newCounts(steps int) counts { return counts{make([]int64, steps), make([]int64, steps)} }

// addWindow counts a window at step i. before is the one of the step before.
func (c *counts) addWindow(i int, before, w window) {
	c.total[i] += int64(w.limit - w.first)
	c.read[i] += int64(w.limit - max(w.first, before.limit))
}

// add counts samples at step i.
func (c *counts) add(i, total, read int) {
	c.total[i] += int64(total)
	c.read[i] += int64(read)
}

// addStats adds the counts to those of a query. Upstream's engine takes the results of the part
// for samples, and counts them itself. Of a subquery only what is read is told.
func (p *part) addStats(to *stats.QuerySamples, results []result) {
	to.UpdatePeak(p.held)
	for i := range results {
		for step := range p.grid.count {
			held := int64(results[i].heldAt(step))
			p.counts.total[step] -= held
			p.counts.read[step] -= held
		}
	}
	for step := range p.grid.count {
		switch p.within {
		case wholeQuery:
			to.IncrementSamplesAtStep(step, p.counts.total[step])
			to.IncrementSamplesReadAtStep(step, p.counts.read[step])
		case fixedTime:
			for i := range p.steps {
				to.IncrementSamplesAtStep(i, p.counts.total[step])
			}
			to.IncrementSamplesReadAtStep(0, p.counts.read[step])
		default:
			to.IncrementSamplesReadAtStep(0, p.counts.read[step])
		}
	}
}

// A place says how often upstream's engine evaluates a part.
type place int

// The places: at the steps of the query, once for all of them, or at those of a subquery.
const (
	wholeQuery place = iota
	fixedTime
	subquery
)

package eval

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/util/annotations"
)

// topk finds the k largest or smallest elements of each group at each step. It holds these.
type topk struct {
	grouper
	k        int
	smallest bool

	series []labels.Labels
	// heaps has those of each group, one for each step.
	heaps [][]kHeap
}

// A kHeap has up to k elements, in front the first to give way to another.
type kHeap struct {
	elements []kElement
	smallest bool
}

// A kElement is a value and the position of its series.
type kElement struct {
	v      float64
	series int
}

func (h *kHeap) Len() int { return len(h.elements) }
func (h *kHeap) Less(i, j int) bool {
	vi, vj := h.elements[i].v, h.elements[j].v
	return math.IsNaN(vi) || !h.smallest && vi < vj || h.smallest && vi > vj
}
func (h *kHeap) Swap(i, j int) { h.elements[i], h.elements[j] = h.elements[j], h.elements[i] }
func (h *kHeap) Push(x any)    { h.elements = append(h.elements, x.(kElement)) }
func (*kHeap) Pop() any        { panic("eval: nothing is taken from a heap") }

// offer puts an element into the heap if it is one of the k first so far.
func (h *kHeap) offer(k int, e kElement) {
	if len(h.elements) < k {
		heap.Push(h, e)
		return
	}
	worst := h.elements[0].v
	if !h.smallest && worst < e.v || h.smallest && worst > e.v || math.IsNaN(worst) && !math.IsNaN(e.v) {
		h.elements[0] = e
		heap.Fix(h, 0)
	}
}

func newTopk(p *part, held holding) *topk {
	return &topk{grouper: newGrouper(p, held), k: int(p.number), smallest: p.aggregation.Op == parser.BOTTOMK}
}

func (t *topk) add(metric labels.Labels, c *column) error {
	if c.histograms != nil {
		return errUnknown
	}
	group, isNew := t.of(metric)
	if isNew {
		t.heaps = append(t.heaps, make([]kHeap, t.p.grid.count))
	}
	if t.p.dropsName {
		metric = metric.DropReserved(schema.IsMetadataLabel)
	}
	t.series = append(t.series, metric)
	for i, has := range c.has {
		if !has {
			continue
		}
		h := &t.heaps[group][i]
		h.smallest = t.smallest
		if len(h.elements) < t.k {
			if err := t.hold(1, elementSize); err != nil {
				return err
			}
		}
		h.offer(t.k, kElement{c.values[i], len(t.series) - 1})
	}
	return nil
}

// results returns the series that are among the first at any step, in their order. At a
// single step they come in order of their values, group by group.
func (t *topk) results() ([]result, annotations.Annotations, error) {
	type found struct {
		series int
		result
	}
	var all []found
	at := make(map[int]int) // from positions in series to those in all
	for _, heaps := range t.heaps {
		for step := range heaps {
			h := &heaps[step]
			sort.Sort(sort.Reverse(h))
			for _, e := range h.elements {
				if _, ok := at[e.series]; !ok {
					if err := t.hold(0, t.p.grid.count*pointSize); err != nil {
						return nil, nil, err
					}
					at[e.series] = len(all)
					all = append(all, found{e.series, result{t.series[e.series], newColumn(t.p.grid.count)}})
				}
				all[at[e.series]].set(step, e.v)
			}
		}
	}
	if t.p.grid.count > 1 {
		slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.series, b.series) })
	}
	results := make([]result, len(all))
	for i := range all {
		results[i] = all[i].result
	}
	return results, nil, nil
}

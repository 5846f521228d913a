package eval

import (
	"container/heap"
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/annotations"
)

// A Limit bounds the series that a range query holds, where these are results of single series and
// the whole expression. Of others it holds all.
type Limit struct {
	// Series is how many are held at most: the first in the order of their labels. It is more than 0.
	Series int
	// Found is how many there are. Exec sets it.
	Found int
}

type limitKey struct{}

// IsCut says whether Exec left series out. Without a limit, which is nil, it did not.
func (l *Limit) IsCut() bool { return l != nil && l.Found > l.Series }

// WithLimit returns a context in which the Exec of a range query obeys l. It is for one query.
func WithLimit(ctx context.Context, l *Limit) context.Context {
	return context.WithValue(ctx, limitKey{}, l)
}

// LimitOf returns the limit of WithLimit, or nil.
func LimitOf(ctx context.Context) *Limit {
	l, _ := ctx.Value(limitKey{}).(*Limit)
	return l
}

// count notes how many series a query has found that held them all.
func (l *Limit) count(res *promql.Result) {
	if m, ok := res.Value.(promql.Matrix); l != nil && ok && l.Found == 0 {
		l.Found = len(m)
	}
}

// limited are the elements that a Limit leaves.
type limited struct {
	elements
	limit *Limit
	count int
}

// results implements collector.
func (e *limited) results() ([]result, annotations.Annotations, error) {
	e.limit.Found = e.count
	return e.found, nil, nil
}

// add implements collector.
func (e *limited) add(metric labels.Labels, c *column) error {
	metric = e.nameOf(metric)
	e.count++
	if len(e.found) < e.limit.Series {
		if err := e.keep(metric, c); err != nil {
			return err
		}
		if len(e.found) == e.limit.Series {
			heap.Init(e)
		}
		return nil
	}
	last := &e.found[0]
	if labels.Compare(metric, last.metric) >= 0 {
		return nil
	}
	samples, bytes := c.size()
	before, bytesBefore := last.size()
	if err := e.hold(samples-before, bytes-bytesBefore); err != nil {
		return err
	}
	*last = result{metric, c.clone()}
	heap.Fix(e, 0)
	return nil
}

// In front of the heap is the last of the elements.

func (e *limited) Len() int { return len(e.found) }
func (e *limited) Less(i, j int) bool {
	return labels.Compare(e.found[i].metric, e.found[j].metric) > 0
}
func (e *limited) Swap(i, j int) { e.found[i], e.found[j] = e.found[j], e.found[i] }
func (*limited) Push(any)        { panic("eval: elements are put into the heap as a whole") }
func (*limited) Pop() any        { panic("eval: nothing is taken from a heap") }

package engine

import (
	"sync/atomic"

	"github.com/promtable/promtable/series"
)

// indexed is which index periods have the rows of a series. It is safe for
// concurrent use.
type indexed struct {
	// durable are the periods whose rows are durable.
	durable periods
	// prewriteFrom is from where in an index period on the series is needed in the next
	// one too, in milliseconds.
	prewriteFrom int64
	// queued is the number of the last index period whose rows the index has queued,
	// to be prewritten.
	queued atomic.Int64
}

// has says whether the index need not see a sample at t: all rows that it needs are
// durable, and those of the next period are queued if it is time.
func (x *indexed) has(t int64) bool {
	n := t / series.IndexPeriod
	return x.durable.has(n) && (t%series.IndexPeriod < x.prewriteFrom || x.queued.Load() == n+1)
}

// add notes that the index has seen a sample at t.
func (x *indexed) add(t int64) {
	n := t / series.IndexPeriod
	x.durable.add(n)
	if t%series.IndexPeriod >= x.prewriteFrom {
		x.queued.Store(n + 1)
	}
}

// periods is a set of numbers of index periods: the greatest one ever added, and
// which of the 31 before it. What is dropped is only written again. It is
// safe for concurrent use.
type periods struct {
	// bits has the greatest number, plus one, in its upper half; bit i of its
	// lower half stands for the number that is less by i.
	bits atomic.Uint64
}

// has says whether n, which is not negative, is in p.
func (p *periods) has(n int64) bool {
	bits := p.bits.Load()
	back := int64(bits>>32) - 1 - n
	return back >= 0 && back < 32 && bits>>back&1 == 1
}

// add adds n, which is not negative and less than 1<<32 - 1.
func (p *periods) add(n int64) {
	for {
		bits := p.bits.Load()
		greatest, set := int64(bits>>32)-1, uint32(bits)
		if n > greatest {
			// A shift by 32 or more leaves nothing.
			set, greatest = set<<uint64(n-greatest)|1, n
		} else if back := greatest - n; back < 32 {
			set |= 1 << back
		}
		if p.bits.CompareAndSwap(bits, uint64(greatest+1)<<32|uint64(set)) {
			return
		}
	}
}

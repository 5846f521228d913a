package merge

import (
	"cmp"
	"math"
	"slices"

	"github.com/promtable/promtable/series/chunk"
)

// A sampleRun is samples in order of time: the raw cells of a family or a chunk.
type sampleRun struct {
	// stamp and order say which run counts at equal times: the greater one. Raw
	// cells have a stamp that no chunk has.
	stamp int64
	order int
	// cells are raw cells, at the times in ts; nil in a chunk.
	cells [][]byte
	// at is the position of the next sample, or the current one, in ts.
	at int
	// seen says that a sample of this run has been the current one.
	seen bool
	chunkDecoder
}

type pendingChunk struct {
	chunk.Sealed
	order int
}

const rawStamp = math.MaxInt64

// nextSample moves to the next sample and says whether there is one.
func (r *Row) nextSample() bool {
	if r.inRun() {
		r.current.at++
		return true
	}
	return r.merge()
}

// inRun says whether the next sample is that after the current one in its run.
func (r *Row) inRun() bool {
	run := r.current
	return run != nil && run.at+1 < len(run.ts) && run.ts[run.at+1] < r.bound
}

// merge moves to the next sample where that is not the next one of its run.
func (r *Row) merge() bool {
	if !r.passCurrent() {
		return false
	}
	for r.opened < len(r.chunks) && r.pendingFirst(r.opened) <= r.heapTime() {
		if r.err = r.openChunk(); r.err != nil {
			return false
		}
	}
	if r.heapTime() >= r.limit {
		return false
	}
	r.current = r.heap[0]
	r.follows = r.current == r.previous && r.current.seen
	r.current.seen = true
	r.bound = min(r.limit, r.pendingFirst(r.opened))
	for _, run := range r.heap[1:min(3, len(r.heap))] {
		r.bound = min(r.bound, run.t())
	}
	return true
}

// passCurrent moves all runs behind the current sample, so that there is none. It
// returns false after an error.
func (r *Row) passCurrent() bool {
	if !r.merging {
		r.begin()
	}
	if r.current == nil || r.err != nil {
		return r.err == nil
	}
	done := r.current.t()
	r.previous, r.current = r.current, nil
	for len(r.heap) > 0 && r.heap[0].t() <= done {
		ok, err := r.heap[0].advance()
		if err != nil {
			r.err = err
			return false
		}
		if !ok {
			r.pop()
		}
		r.sink()
	}
	return true
}

func (r *Row) begin() {
	r.merging = true
	for _, run := range r.raw {
		if run != nil && len(run.ts) > 0 {
			r.push(run)
		}
	}
	byFirst := func(a, b pendingChunk) int { return cmp.Compare(a.First, b.First) }
	if !slices.IsSortedFunc(r.chunks, byFirst) {
		slices.SortFunc(r.chunks, byFirst)
	}
}

// openChunk puts the next chunk into the heap, unless it has no sample in the
// range.
func (r *Row) openChunk() error {
	c := r.chunks[r.opened]
	r.opened++
	run := r.freeRun()
	run.stamp, run.order, run.at, run.seen = c.Stamp, c.order, 0, false
	if err := run.open(r.base, c.Sealed); err != nil {
		return err
	}
	ok, err := run.seek(r.start)
	if ok {
		r.push(run)
	} else {
		r.recycle(run)
	}
	return err
}

// pendingFirst returns the time of the first sample of chunk i, or the end of
// time if there is no such chunk.
func (r *Row) pendingFirst(i int) int64 {
	if i >= len(r.chunks) {
		return math.MaxInt64
	}
	return r.base + int64(r.chunks[i].First)
}

// heapTime returns the time of the next sample in the heap, or the end of time.
func (r *Row) heapTime() int64 {
	if len(r.heap) == 0 {
		return math.MaxInt64
	}
	return r.heap[0].t()
}

func (r *Row) freeRun() *sampleRun {
	n := len(r.free)
	if n == 0 {
		return &sampleRun{}
	}
	run := r.free[n-1]
	r.free = r.free[:n-1]
	return run
}

// recycle keeps the buffers of a chunk's run for another chunk.
func (r *Row) recycle(run *sampleRun) {
	if run.cells == nil {
		run.chunk.Data = nil
		r.free = append(r.free, run)
	}
}

func (r *Row) push(run *sampleRun) {
	r.heap = append(r.heap, run)
	for i := len(r.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !r.heap[i].before(r.heap[parent]) {
			return
		}
		r.heap[i], r.heap[parent] = r.heap[parent], r.heap[i]
		i = parent
	}
}

// pop removes the first run and moves the last one there.
func (r *Row) pop() {
	n := len(r.heap) - 1
	r.recycle(r.heap[0])
	r.heap[0], r.heap[n] = r.heap[n], nil
	r.heap = r.heap[:n]
}

// sink moves the first run to where it belongs.
func (r *Row) sink() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(r.heap) {
			return
		}
		if child+1 < len(r.heap) && r.heap[child+1].before(r.heap[child]) {
			child++
		}
		if !r.heap[child].before(r.heap[i]) {
			return
		}
		r.heap[i], r.heap[child] = r.heap[child], r.heap[i]
		i = child
	}
}

func (run *sampleRun) t() int64 { return run.ts[run.at] }

// before says whether the next sample of run comes before that of other, or
// counts more at the same time.
func (run *sampleRun) before(other *sampleRun) bool {
	if t, u := run.t(), other.t(); t != u {
		return t < u
	}
	if run.stamp != other.stamp {
		return run.stamp > other.stamp
	}
	return run.order > other.order
}

// advance moves to the next sample. There is none left if it returns false.
func (run *sampleRun) advance() (bool, error) {
	if run.at+1 < len(run.ts) {
		run.at++
		return true, nil
	}
	if run.cells == nil && len(run.vs) == 0 {
		return run.nextHistogram()
	}
	return false, nil
}

// seek moves to the first sample at start or later. There is none if it returns
// false.
func (run *sampleRun) seek(start int64) (bool, error) {
	if len(run.vs) > 0 {
		run.at, _ = slices.BinarySearch(run.ts, start)
		return run.at < len(run.ts), nil
	}
	for run.t() < start {
		if ok, err := run.nextHistogram(); !ok {
			return false, err
		}
	}
	return true, nil
}

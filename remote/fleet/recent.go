package fleet

import "sync"

// maxIndexed is how many series that were indexed are kept for others, at about 200 bytes each. Others ask with each of their queries, and
// read their lists again if they have missed some. maxLate is how many spans of late samples are.
const (
	maxIndexed = 1 << 17
	maxLate    = 1 << 12
)

// A recent has the last values that were added, for others, who ask for those that they have not been told.
type recent[T any] struct {
	limit int

	mu sync.Mutex
	// next is the number of the next value. The last ones are in ring, at their numbers modulo its length.
	next uint64
	ring []T
}

// add adds a value.
func (r *recent[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, v)
	} else {
		r.ring[r.next%uint64(r.limit)] = v
	}
	r.next++
}

// since returns what was added from a number on, up to next. isLost says that it is not known any more, or never was.
func (r *recent[T]) since(number uint64) (all []T, next uint64, isLost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number > r.next || r.next-number > uint64(len(r.ring)) {
		return nil, r.next, true
	}
	for ; number < r.next; number++ {
		all = append(all, r.ring[number%uint64(r.limit)])
	}
	return all, r.next, false
}

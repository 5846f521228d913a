package fleet

import (
	"sync"

	"github.com/promtable/promtable/index"
)

// maxIndexed is how many series that were indexed are kept for others, at about 200 bytes each. Others ask with each of their queries, and
// read their lists again if they have missed some.
const maxIndexed = 1 << 17

// An indexedLog has the last series that this process has indexed.
type indexedLog struct {
	mu sync.Mutex
	// next is the number of the next series. The last ones are in ring, at their numbers modulo its length.
	next uint64
	ring []index.Learned
}

// Indexed notes that a series was written to the index, before a sample of it is acknowledged.
func (f *Fleet) Indexed(period int64, seriesKey []byte) {
	l := &f.indexed
	s := index.Learned{Period: period, Key: string(seriesKey)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < maxIndexed {
		l.ring = append(l.ring, s)
	} else {
		l.ring[l.next%maxIndexed] = s
	}
	l.next++
}

// since returns what was indexed from a number on, up to next. isLost says that it is not known any more, or never was.
func (l *indexedLog) since(number uint64) (all []index.Learned, next uint64, isLost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number > l.next || l.next-number > uint64(len(l.ring)) {
		return nil, l.next, true
	}
	for ; number < l.next; number++ {
		all = append(all, l.ring[number%maxIndexed])
	}
	return all, l.next, false
}

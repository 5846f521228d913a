package index

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A rowID names a row in an index period: the commit mark of a series by the hash of
// the series key, a label value or name by the hash of its row key.
type rowID struct {
	period int64
	hash   hash128
}

// hash128 is seeded by the process: a sender cannot make two texts collide, and by
// chance they do not.
type hash128 [2]uint64

// hasher makes hashes.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) of(text []byte) hash128 {
	return hash128{maphash.Bytes(h.a, text), maphash.Bytes(h.b, text)}
}

// A rowSet remembers up to max rows. When it is full, the oldest period loses a part of
// its rows, chosen at random. So all rows of the running period and the next one are
// kept if there are no more than max of them, whatever was written to older periods.
// Beyond that the set keeps as large a share as it has room for; a set that forgot what
// was not used for longest would keep nothing, because senders repeat their series in
// the same order. Not safe for concurrent use.
type rowSet struct {
	max, len int
	// periods are ascending. None is empty.
	periods []*periodRows
	evicted prometheus.Counter
	// whole has the periods of which all rows of the table are here, and with false those
	// of which they are being read.
	whole map[int64]bool
}

// periodRows are the rows of a period, in parts by their hashes.
type periodRows struct {
	period int64
	len    int
	parts  [64]hashTable
}

// part returns the part that h belongs to.
func (p *periodRows) part(h hash128) *hashTable { return &p.parts[h[0]%uint64(len(p.parts))] }

// find returns where a period is in s.periods, or where it would be.
func (s *rowSet) find(period int64) (at int, ok bool) {
	return slices.BinarySearchFunc(s.periods, period, func(p *periodRows, period int64) int { return cmp.Compare(p.period, period) })
}

func (s *rowSet) has(r rowID) bool {
	at, ok := s.find(r.period)
	return ok && s.periods[at].part(r.hash).has(r.hash)
}

func (s *rowSet) add(r rowID) {
	if s.has(r) {
		return
	}
	if s.len >= s.max {
		s.evict()
	}
	at, ok := s.find(r.period)
	if !ok {
		s.periods = slices.Insert(s.periods, at, &periodRows{period: r.period})
	}
	s.periods[at].part(r.hash).add(r.hash)
	s.periods[at].len++
	s.len++
}

// evict forgets a part of the oldest period.
func (s *rowSet) evict() {
	oldest := s.periods[0]
	at := rand.IntN(len(oldest.parts))
	for oldest.parts[at].len == 0 {
		at = (at + 1) % len(oldest.parts)
	}
	n := oldest.parts[at].len
	oldest.parts[at] = hashTable{}
	oldest.len -= n
	s.len -= n
	s.evicted.Add(float64(n))
	delete(s.whole, oldest.period)
	if oldest.len == 0 {
		s.periods = slices.Delete(s.periods, 0, 1)
	}
}

// A hashTable is a set of hashes, with open addressing. It is at least 64% and at most
// 80% full, so a hash takes 20 to 25 bytes; in a map it takes up to 56.
type hashTable struct {
	// slots are hashes, or zero: no text has that hash, but by chance.
	slots []hash128
	len   int
}

// slot returns where h is, or where it would be.
func (t *hashTable) slot(h hash128) *hash128 {
	at, _ := bits.Mul64(h[1], uint64(len(t.slots)))
	for t.slots[at] != h && t.slots[at] != (hash128{}) {
		if at++; at == uint64(len(t.slots)) {
			at = 0
		}
	}
	return &t.slots[at]
}

func (t *hashTable) has(h hash128) bool { return t.len > 0 && *t.slot(h) == h }

// add adds h, which is not in t.
func (t *hashTable) add(h hash128) {
	if 5*(t.len+1) > 4*len(t.slots) {
		old := t.slots
		t.slots = make([]hash128, max(8, len(old)*5/4))
		for _, h := range old {
			if h != (hash128{}) {
				*t.slot(h) = h
			}
		}
	}
	*t.slot(h) = h
	t.len++
}

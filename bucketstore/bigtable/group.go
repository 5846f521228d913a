package bigtable

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A group is the samples of one row. It has no pointers, so that there is nothing
// to clear.
type group struct {
	// hash is that of the series and the bucket.
	hash uint32
	// bucket is the number of the bucket: its base by series.Period.
	bucket int32
	// first and last are the positions of its first and last sample, n is how many
	// there are.
	first, last, n int32
}

// base returns the base of the bucket.
func (r *group) base() int64 { return int64(r.bucket) * series.Period }

// A grouping gathers samples by row. It is scratch memory: one for each call
// that runs.
type grouping struct {
	samples []bucketstore.Sample
	// groups are in the order in which their rows first occur.
	groups []group
	// next holds for each sample the position of the next one of its row. It is
	// filled only for rows that have a next one.
	next []int32
	// slots is a hash table of positions in groups, plus one. Its size is a power
	// of two, and at least half of it is empty.
	slots []int32
	// order is where the samples of one row are put in order.
	order []int32
}

// reset makes g ready for samples.
func (g *grouping) reset(samples []bucketstore.Sample) {
	n := len(samples)
	g.samples, g.groups = samples, g.groups[:0]
	size := 1 << bits.Len(uint(2*n))
	if cap(g.slots) < size {
		g.slots = make([]int32, size)
	}
	g.slots = g.slots[:size]
	clear(g.slots)
	if cap(g.next) < n {
		g.next = make([]int32, n)
	}
	g.next = g.next[:n]
}

// gather puts samples into groups.
func (g *grouping) gather(samples []bucketstore.Sample) {
	g.reset(samples)
	var row *group
	var of *ref
	for i := range samples {
		r, bucket := samples[i].Ref.(*ref), int32(samples[i].T/series.Period)
		if r != of || bucket != row.bucket {
			row, of = g.find(r, bucket), r
		}
		row.add(g.next, i)
	}
}

// find returns the group of a row, which is empty if it is new. It is valid until
// the next find.
func (g *grouping) find(r *ref, bucket int32) *group {
	// Multiplying spreads the few bits in which buckets differ.
	hash := r.hash ^ uint32(bucket)*0x9e3779b9
	mask := uint32(len(g.slots) - 1)
	for slot := hash & mask; ; slot = (slot + 1) & mask {
		n := g.slots[slot]
		if n == 0 {
			g.groups = append(g.groups, group{hash: hash, bucket: bucket})
			g.slots[slot] = int32(len(g.groups))
			return &g.groups[len(g.groups)-1]
		}
		if row := &g.groups[n-1]; row.hash == hash && row.bucket == bucket && g.ref(row).isSame(r) {
			return row
		}
	}
}

// ref returns the series of a group that is not empty.
func (g *grouping) ref(r *group) *ref { return g.samples[r.first].Ref.(*ref) }

// add adds the sample at position i.
func (r *group) add(next []int32, i int) {
	if r.n == 0 {
		r.first = int32(i)
	} else {
		next[r.last] = int32(i)
	}
	r.last = int32(i)
	r.n++
}

// each calls f with the position of each sample of a group.
func (g *grouping) each(r *group, f func(i int)) {
	for i, n := r.first, r.n; n > 0; i, n = g.next[i], n-1 {
		f(int(i))
	}
}

// columns returns the positions of the samples of a group that are to be written:
// in order of time, and of those of one time the last. They are valid until the
// next call.
func (g *grouping) columns(r *group) []int32 {
	if r.n == 1 {
		g.order = append(g.order[:0], r.first)
		return g.order
	}
	samples, order, ascending := g.samples, g.order[:0], true
	g.each(r, func(i int) {
		if n := len(order); n > 0 && samples[order[n-1]].T >= samples[i].T {
			ascending = false
		}
		order = append(order, int32(i))
	})
	g.order = order
	if ascending {
		return order
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(samples[a].T, samples[b].T), cmp.Compare(a, b))
	})
	n := 0
	for i, c := range order {
		if i+1 == len(order) || samples[order[i+1]].T != samples[c].T {
			order[n] = c
			n++
		}
	}
	return order[:n]
}

// isSame says whether both stand for the same series.
func (r *ref) isSame(other *ref) bool {
	return r == other || r.hash == other.hash && bytes.Equal(r.key, other.key)
}

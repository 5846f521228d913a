package engine

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	// maxKnown is how many series are known at most.
	maxKnown = 2_000_000
	// maxKnownBytes is about how many bytes they may take in memory.
	maxKnownBytes = 2 << 30
)

// knownSeries holds known series and forgets those not asked for longest: it has
// two halves, and when the young one is full the old one goes. To find a series
// takes no lock. It is safe for concurrent use.
type knownSeries struct {
	// hash hashes what a series is found by, but for tests. It is seeded, so that
	// nobody outside can make two things collide.
	hash func(tenant string, text []byte) uint64

	// symbols are those of the current epoch.
	symbols atomic.Pointer[Symbols]
	// symbolHash hashes texts, but for tests, and maxSymbolBytes bounds them.
	symbolHash     func(text string) uint32
	maxSymbolBytes int

	young, old atomic.Pointer[knownTable]
	// age counts how often the old half went.
	age atomic.Uint32

	// mu is for whoever adds a series.
	mu sync.Mutex
	// bytes is about what the young half takes in memory.
	bytes int
	// maxSeries and maxBytes bound both halves together.
	maxSeries, maxBytes int
}

// newKnownSeries bounds symbols by their bytes.
func newKnownSeries(maxSymbolBytes int) *knownSeries {
	seed := maphash.MakeSeed()
	c := &knownSeries{maxSeries: maxKnown, maxBytes: maxKnownBytes}
	c.hash = func(tenant string, text []byte) uint64 {
		h := maphash.Bytes(seed, text)
		if tenant != "" {
			h ^= maphash.String(seed, tenant)
		}
		return h
	}
	c.symbolHash, c.maxSymbolBytes = newSymbolHash(), maxSymbolBytes
	c.symbols.Store(newSymbols(c, 1))
	c.young.Store(newKnownTable(minKnownSlots))
	c.old.Store(newKnownTable(minKnownSlots))
	return c
}

// find returns the series that a tenant's sender spells so, or nil.
func (c *knownSeries) find(tenant string, s Spelling) *Known {
	hash := c.hash(tenant, s.Text)
	if k := c.young.Load().find(hash, tenant, s); k != nil {
		return k
	}
	k := c.old.Load().find(hash, tenant, s)
	if k != nil {
		c.add(k)
	}
	return k
}

// keeps says whether k, which was found before, has not been forgotten, as if it
// were found once more.
func (c *knownSeries) keeps(k *Known) bool {
	switch c.age.Load() - k.age.Load() {
	case 0:
		return true
	case 1:
		c.add(k)
		return true
	}
	return false
}

// add adds a series, unless one spelled like it is known.
func (c *knownSeries) add(k *Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	young := c.young.Load()
	if young.has(k) {
		return
	}
	switch {
	case young.n >= (c.maxSeries+1)/2 || c.bytes >= c.maxBytes/2:
		k.age.Store(c.age.Load() + 1) // it stays
		young = c.turn()
	case young.n >= len(young.slots)/2:
		young = young.grown()
		c.young.Store(young)
		fallthrough
	default:
		k.age.Store(c.age.Load())
	}
	young.add(k)
	c.bytes += k.size()
}

// turn lets the old half go and returns a new young one.
func (c *knownSeries) turn() *knownTable {
	gone, young := c.old.Load(), newKnownTable(minKnownSlots)
	age := c.age.Add(1)
	c.old.Store(c.young.Load())
	c.young.Store(young)
	c.bytes = 0
	for i := range gone.slots {
		// One that is forgotten must not keep others, and those again others, in
		// memory.
		if k := gone.slots[i].Load(); k != nil && age-k.age.Load() > 1 {
			k.next.Store(nil)
		}
	}
	return young
}

// count returns how many series are known, some of them twice.
func (c *knownSeries) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.young.Load().n + c.old.Load().n
}

// minKnownSlots is how many slots a table begins with.
const minKnownSlots = 1 << 10

// knownTable is a hash table with linear probing, never more than half full.
// Series are only added, by one at a time.
type knownTable struct {
	// slots are a power of two.
	slots []atomic.Pointer[Known]
	// n is how many are taken. It belongs to whoever adds.
	n int
}

func newKnownTable(slots int) *knownTable {
	return &knownTable{slots: make([]atomic.Pointer[Known], slots)}
}

// find returns the series that a tenant's sender spells so, or nil.
func (t *knownTable) find(hash uint64, tenant string, s Spelling) *Known {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		k := t.slots[i].Load()
		if k == nil || k.hash == hash && k.is(tenant, s) {
			return k
		}
	}
}

// has says whether a series spelled like k is there.
func (t *knownTable) has(k *Known) bool {
	mask := uint64(len(t.slots) - 1)
	for i := k.hash & mask; ; i = (i + 1) & mask {
		have := t.slots[i].Load()
		if have == nil || have.text == k.text && have.form == k.form && have.tenant == k.tenant {
			return have != nil
		}
	}
}

// add adds a series that is not there.
func (t *knownTable) add(k *Known) {
	mask := uint64(len(t.slots) - 1)
	i := k.hash & mask
	for t.slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	t.slots[i].Store(k)
	t.n++
}

// grown returns a table twice as large with the same series. Who reads t
// meanwhile misses no more than what is added later.
func (t *knownTable) grown() *knownTable {
	larger := newKnownTable(2 * len(t.slots))
	for i := range t.slots {
		if k := t.slots[i].Load(); k != nil {
			larger.add(k)
		}
	}
	return larger
}

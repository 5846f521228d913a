// Package seriescache finds a stored series by the bytes in which a sender writes its
// labels, so that they need not be decoded, checked and looked up again.
//
//	Cache         wire text -> Entry                         cache.go
//	Entry         one series, in the state of its owner      entry.go
//	SymbolTable   texts of senders -> numbers in wire texts  symbols.go
package seriescache

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// Config bounds a Cache. The zero value is the defaults.
type Config struct {
	// MaxSeries is how many series are cached at most. 0 is 2,000,000.
	MaxSeries int
	// MaxBytes is about how many bytes they may take in memory. 0 is 2 GB.
	MaxBytes int
	// MaxSymbolBytes is about how many bytes the texts of a SymbolTable may take in
	// memory until another one begins. 0 is 512 MB: enough for as many as there are
	// cached series at most.
	MaxSymbolBytes int
}

const (
	defaultMaxSeries      = 2_000_000
	defaultMaxBytes       = 2 << 30
	defaultMaxSymbolBytes = 512 << 20
)

// MaxText bounds the texts that are cached, in bytes: more than a series key can
// hold. A message can be written so that its labels take any space.
const MaxText = 2 * series.MaxSeriesKey

// A Cache holds entries and drops the least recently used. It is safe for concurrent
// use.
type Cache struct {
	hash func(t ingest.WireText) uint64
	// shards are a power of two; the upper bits of a hash say which it belongs to.
	shards    []shard
	hashShift int
	symbols   symbolTables
}

const (
	// maxShards is how many shards there are, unless each had less than
	// minShardSeries then.
	maxShards      = 64
	minShardSeries = 1 << 10
)

// New returns an empty cache.
func New(cfg Config) *Cache {
	if cfg.MaxSeries <= 0 {
		cfg.MaxSeries = defaultMaxSeries
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.MaxSymbolBytes <= 0 {
		cfg.MaxSymbolBytes = defaultMaxSymbolBytes
	}
	shards := 1
	for shards < maxShards && cfg.MaxSeries/shards >= 2*minShardSeries {
		shards *= 2
	}
	c := &Cache{hash: newHash(), shards: make([]shard, shards), hashShift: 64 - bits.TrailingZeros(uint(shards))}
	c.symbols.init(cfg.MaxSymbolBytes)
	for i := range c.shards {
		s := &c.shards[i]
		s.young, s.old = make(map[uint64]*Entry), make(map[uint64]*Entry)
		s.maxYoung, s.maxYoungBytes = (cfg.MaxSeries/shards+1)/2, cfg.MaxBytes/shards/2
	}
	return c
}

// newHash returns a hash that is seeded, so that no sender can make two texts
// collide.
func newHash() func(t ingest.WireText) uint64 {
	seed := maphash.MakeSeed()
	return func(t ingest.WireText) uint64 { return maphash.Bytes(seed, t.Text) + uint64(t.Form) }
}

func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>c.hashShift] }

// Find returns the entry of the series that a sender writes so, or nil. It does not
// keep the text.
func (c *Cache) Find(t ingest.WireText) *Entry {
	if len(t.Text) > MaxText {
		return nil
	}
	hash := c.hash(t)
	e := c.shard(hash).find(hash)
	if e == nil || !e.matches(t) {
		return nil
	}
	return e
}

// entryBytes is about what an entry takes in memory, with its entries in maps,
// without its text and state.
const entryBytes = 200

// Init makes e, which is zero but for its State, an entry that Add may add once the series is stored, or returns false if
// there is no text to find it by. stateBytes is about what its state takes in memory. It does not keep the text.
func (c *Cache) Init(e *Entry, t ingest.WireText, stateBytes int) bool {
	if t.Form == 0 || len(t.Text) > MaxText {
		return false
	}
	e.hash = c.hash(t)
	e.shard = c.shard(e.hash)
	e.text, e.form = string(t.Text), t.Form
	e.bytes = entryBytes + len(t.Text) + stateBytes
	return true
}

// Add adds an entry, unless there is one of the same text. One of another text that
// has the same hash, which is rare, is dropped.
func (c *Cache) Add(e *Entry) { e.shard.add(e) }

// Clear drops all entries, also those that others lead to.
func (c *Cache) Clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.dropOld()
		s.dropOld()
		s.mu.Unlock()
	}
}

// Len returns how many entries there are, some of them counted twice.
func (c *Cache) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.young) + len(s.old)
		s.mu.RUnlock()
	}
	return n
}

// A shard has the entries of some hashes, in two generations: when the young one is
// full, it becomes the old one, and what only the old one had is dropped.
type shard struct {
	mu         sync.RWMutex
	young, old map[uint64]*Entry
	// bytes is about what the young generation takes in memory.
	bytes int
	// maxYoung and maxYoungBytes bound the young generation.
	maxYoung, maxYoungBytes int
	// age counts how many generations were dropped.
	age atomic.Uint32
}

// find returns the entry of this hash, or nil. An old entry becomes young.
func (s *shard) find(hash uint64) *Entry {
	s.mu.RLock()
	e, isYoung := s.young[hash]
	if !isYoung {
		e = s.old[hash]
	}
	s.mu.RUnlock()
	if e != nil && !isYoung {
		s.add(e)
	}
	return e
}

// keep says whether e, which was found before, has not been dropped, as if it were
// found once more.
func (s *shard) keep(e *Entry) bool {
	switch s.age.Load() - e.age.Load() {
	case 0:
		return true
	case 1:
		s.add(e)
		return true
	}
	return false
}

// add adds e to the young generation, unless that has an entry of the same text.
func (s *shard) add(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.young[e.hash]; ok && have.equals(e) {
		return
	}
	if len(s.young) >= s.maxYoung || s.bytes >= s.maxYoungBytes {
		e.age.Store(s.age.Load() + 1) // so that dropOld leaves it as it is
		s.dropOld()
	} else {
		e.age.Store(s.age.Load())
	}
	s.young[e.hash] = e
	s.bytes += e.bytes
}

// dropOld drops the old generation and begins a young one.
func (s *shard) dropOld() {
	dropped := s.old
	s.old, s.young, s.bytes = s.young, make(map[uint64]*Entry), 0
	age := s.age.Add(1)
	for _, e := range dropped {
		// A dropped entry must not keep others, and those again others, in memory.
		if age-e.age.Load() > 1 {
			e.next.Store(nil)
		}
	}
}

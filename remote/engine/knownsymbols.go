package engine

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Symbols gives texts numbers, so that a spelling can be made of those where a
// sender writes a text once and refers to it many times. A number is never given
// to another text: when there is no more room, all of them end, and others begin
// in another epoch. A spelling must begin with its epoch; those of an epoch that
// has ended are found no more. It is safe for concurrent use. A nil *Symbols has
// no numbers to give.
type Symbols struct {
	epoch uint32
	known *knownSeries

	// n is how many texts there are, which are numbered from 1 on. It is stored
	// after, and loaded before, what it stands for.
	n atomic.Uint32
	// texts has room for more than n.
	texts atomic.Pointer[[]string]
	// slots are a hash table with linear probing, never more than half full, to
	// which texts are only added. Their number is a power of two. A slot is 0 or
	// has the hash of a text in its upper half, and its number in its lower.
	slots atomic.Pointer[[]atomic.Uint64]

	// mu is for whoever adds a text.
	mu sync.Mutex
	// bytes is about what they take in memory.
	bytes int
	// space is where the next ones go: texts that came together lie together.
	space []byte
}

const (
	// symbolBytes is about what one takes without its bytes, with its slots.
	symbolBytes = 64
	// minSymbols is for how many there is room at first.
	minSymbols = 1 << 9
	// symbolSpace is how much memory is allocated at once for texts.
	symbolSpace = 16 << 10
)

func newSymbols(known *knownSeries, epoch uint32) *Symbols {
	s := &Symbols{epoch: epoch, known: known}
	s.grow(minSymbols, nil)
	return s
}

// newSymbolHash returns a hash that is seeded, so that nobody outside can make
// two texts collide.
func newSymbolHash() func(text string) uint32 {
	seed := maphash.MakeSeed()
	return func(text string) uint32 { return uint32(maphash.String(seed, text)) }
}

// Symbols returns the numbers of the current epoch, or nil if nobody would find
// a series by them.
func (e *Engine) Symbols() *Symbols {
	if e.elections != nil {
		return nil
	}
	return e.known.symbols.Load()
}

// Epoch returns the number of the epoch.
func (s *Symbols) Epoch() uint32 {
	if s == nil {
		return 0
	}
	return s.epoch
}

// Find puts the numbers of texts into numbers, which is as long, and 0 for those
// that have none. It is quick where they come in the order in which they were
// added.
func (s *Symbols) Find(numbers []uint32, texts []string) {
	clear(numbers)
	if s == nil {
		return
	}
	n := s.n.Load()
	known, slots := (*s.texts.Load())[:n], *s.slots.Load()
	next := 0 // the index of the text after the last one that was found
	for i, text := range texts {
		if next < len(known) && known[next] == text {
			next++
			numbers[i] = uint32(next)
			continue
		}
		if len(text) > maxSpelling {
			continue
		}
		if _, number := findSymbol(slots, known, s.known.symbolHash(text), text); number > 0 {
			numbers[i], next = number, int(number)
		}
	}
}

// findSymbol returns the number of text, and which slot has it, or else 0 and
// which slot it may take.
func findSymbol(slots []atomic.Uint64, texts []string, hash uint32, text string) (slot, number uint32) {
	mask := uint32(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		have := slots[i].Load()
		if have == 0 {
			return i, 0
		}
		// It may have been added after texts were looked at.
		if n := uint32(have); uint32(have>>32) == hash && n <= uint32(len(texts)) && texts[n-1] == text {
			return i, n
		}
	}
}

// Add returns the number of text, which gets one if it has none. It keeps a
// copy. If it is 0, text is too long, or there is no more room: then others begin
// in another epoch.
func (s *Symbols) Add(text string) uint32 {
	if s == nil || len(text) > maxSpelling {
		return 0
	}
	hash := s.known.symbolHash(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n.Load()
	texts, slots := *s.texts.Load(), *s.slots.Load()
	slot, number := findSymbol(slots, texts[:n], hash, text)
	if number > 0 {
		return number
	}
	if s.bytes >= s.known.maxSymbolBytes {
		if s.known.symbols.Load() == s {
			s.known.symbols.CompareAndSwap(s, newSymbols(s.known, s.epoch+1))
		}
		return 0
	}
	if int(n) == len(texts) {
		s.grow(2*len(texts), texts)
		texts, slots = *s.texts.Load(), *s.slots.Load()
		slot, _ = findSymbol(slots, texts[:n], hash, text)
	}
	texts[n] = s.keep(text)
	s.bytes += symbolBytes + len(text)
	s.n.Store(n + 1)
	slots[slot].Store(uint64(hash)<<32 | uint64(n+1))
	return n + 1
}

// keep returns a copy of text.
func (s *Symbols) keep(text string) string {
	if len(text) == 0 {
		return ""
	}
	if len(text) > cap(s.space)-len(s.space) {
		s.space = make([]byte, 0, max(symbolSpace, len(text)))
	}
	first := len(s.space)
	s.space = append(s.space, text...)
	return unsafe.String(&s.space[first], len(text))
}

// grow makes room for so many texts, and takes over those that there are. Who
// reads meanwhile misses no more than what is added later.
func (s *Symbols) grow(room int, have []string) {
	texts, slots := make([]string, room), make([]atomic.Uint64, 2*room)
	copy(texts, have)
	for i, text := range have {
		hash := s.known.symbolHash(text)
		slot, _ := findSymbol(slots, nil, hash, text)
		slots[slot].Store(uint64(hash)<<32 | uint64(i+1))
	}
	s.texts.Store(&texts)
	s.slots.Store(&slots)
}

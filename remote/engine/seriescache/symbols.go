package seriescache

import (
	"strings"
	"sync"
	"sync/atomic"
)

// A SymbolTable gives texts numbers. A WireText is made of these numbers if the sender
// writes each text once and refers to it, as in remote write 2.0. A number is never
// given to another text: a full table is replaced by one with the next epoch. A
// WireText must begin with its epoch, and is not found after the epoch has ended. A
// SymbolTable is safe for concurrent use. A nil *SymbolTable has no numbers.
type SymbolTable struct {
	epoch  uint32
	tables *symbolTables

	mu sync.RWMutex
	// texts are numbered from 1 on; numbers has them by text.
	texts   []string
	numbers map[string]uint32
	// bytes is about what they take in memory.
	bytes int
	// space is the memory of the next texts: texts of one request are neighbours.
	space strings.Builder
}

// symbolTables has the SymbolTable of the current epoch.
type symbolTables struct {
	current  atomic.Pointer[SymbolTable]
	maxBytes int
}

func (t *symbolTables) init(maxBytes int) {
	t.maxBytes = maxBytes
	t.current.Store(newSymbolTable(t, 1))
}

func newSymbolTable(tables *symbolTables, epoch uint32) *SymbolTable {
	return &SymbolTable{epoch: epoch, tables: tables, numbers: make(map[string]uint32)}
}

const (
	// symbolBytes is about what a text takes in memory without its bytes.
	symbolBytes = 64
	// symbolSpace is how much memory is allocated at once for texts.
	symbolSpace = 16 << 10
)

// Symbols returns the symbol table of the current epoch.
func (c *Cache) Symbols() *SymbolTable { return c.symbols.current.Load() }

// Epoch returns the number of the epoch.
func (s *SymbolTable) Epoch() uint32 {
	if s == nil {
		return 0
	}
	return s.epoch
}

// Find puts the numbers of texts into numbers, which is as long, and 0 for those
// that have none. It is fast where they come in the order in which they were added.
func (s *SymbolTable) Find(numbers []uint32, texts []string) {
	clear(numbers)
	if s == nil {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	next := 0 // the index of the text after the last one that was found
	for i, text := range texts {
		if next < len(s.texts) && s.texts[next] == text {
			next++
			numbers[i] = uint32(next)
		} else if n := s.numbers[text]; n > 0 {
			numbers[i], next = n, int(n)
		}
	}
}

// Add returns the number of text, which gets one if it has none. It keeps a copy. If
// it returns 0, text is longer than MaxText, or the table is full: then there is
// another one.
func (s *SymbolTable) Add(text string) uint32 {
	if s == nil || len(text) > MaxText {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.numbers[text]; n > 0 {
		return n
	}
	if s.bytes >= s.tables.maxBytes {
		if s.tables.current.Load() == s {
			s.tables.current.CompareAndSwap(s, newSymbolTable(s.tables, s.epoch+1))
		}
		return 0
	}
	text = s.copyText(text)
	s.texts = append(s.texts, text)
	s.numbers[text] = uint32(len(s.texts))
	s.bytes += symbolBytes + len(text)
	return uint32(len(s.texts))
}

// copyText returns a copy of text in space.
func (s *SymbolTable) copyText(text string) string {
	if len(text) > s.space.Cap()-s.space.Len() {
		s.space = strings.Builder{}
		s.space.Grow(max(symbolSpace, len(text)))
	}
	first := s.space.Len()
	s.space.WriteString(text)
	return s.space.String()[first:]
}

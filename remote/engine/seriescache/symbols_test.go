package seriescache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/series"
)

// symbolTexts are different texts, the empty one among them.
func symbolTexts(n int) (texts []string) {
	for i := range n {
		texts = append(texts, strings.Repeat("x", i%40)+fmt.Sprint(i / 40)[min(1, i%3):])
	}
	texts = append(texts, "", "\x00", strings.Repeat("y", 2*series.MaxSeriesKey))
	slices.Sort(texts)
	return slices.Compact(texts)
}

// numbersOf returns the numbers of texts, 0 for those that have none.
func numbersOf(s *seriescache.SymbolTable, texts ...string) []uint32 {
	numbers := make([]uint32, len(texts))
	for i := range numbers {
		numbers[i] = 42 // whatever is there
	}
	s.Find(numbers, texts)
	return numbers
}

// newTables returns a cache for its symbol tables of so many bytes, or the default.
func newTables(maxBytes int) *seriescache.Cache {
	return seriescache.New(seriescache.Config{MaxSymbolBytes: maxBytes})
}

// A text has one number, which no other has.
func TestSymbols(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	symbols := newTables(0).Symbols()
	texts := symbolTexts(2000)
	r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	want := make([]uint32, len(texts))
	textOf := make(map[uint32]string)
	for i, text := range texts {
		if got := numbersOf(symbols, text); got[0] != 0 {
			t.Fatalf("%q has the number %d before it was added", text, got[0])
		}
		shared := []byte(text)
		want[i] = symbols.Add(string(shared))
		if other, ok := textOf[want[i]]; ok || want[i] == 0 {
			t.Fatalf("%q and %q have the number %d", text, other, want[i])
		}
		textOf[want[i]] = text
	}
	for range 3 { // in several orders, some of them twice
		if got := numbersOf(symbols, texts...); !slices.Equal(got, want) {
			t.Fatalf("found other numbers\n%v\nthan were given\n%v", got, want)
		}
		for range len(texts) {
			i, j := r.IntN(len(texts)), r.IntN(len(texts))
			texts[i], want[i] = texts[j], want[j]
		}
	}
	for i, text := range texts {
		if got := symbols.Add(text); got != want[i] {
			t.Fatalf("%q has the number %d when it is added again, and had %d", text, got, want[i])
		}
	}
}

// There is no number for a text of any size, and none without a table.
func TestSymbolsWithout(t *testing.T) {
	for name, test := range map[string]struct {
		symbols *seriescache.SymbolTable
		text    string
	}{
		"a text of any size": {newTables(0).Symbols(), strings.Repeat("x", seriescache.MaxText+1)},
		"no table":           {nil, "up"},
	} {
		t.Run(name, func(t *testing.T) {
			if n := test.symbols.Add(test.text); n != 0 {
				t.Errorf("added as %d", n)
			}
			if n := numbersOf(test.symbols, test.text); n[0] != 0 {
				t.Errorf("found as %d", n[0])
			}
		})
	}
}

// When there is no room, others begin. Numbers that were given stay what they
// are.
func TestSymbolsEnd(t *testing.T) {
	f := newTables(10_000)
	texts := symbolTexts(2000)
	old := f.Symbols()
	var given []uint32
	for _, text := range texts {
		n := old.Add(text)
		if n == 0 {
			break
		}
		given = append(given, n)
	}
	if len(given) < 20 || len(given) > 200 {
		t.Fatalf("%d texts in 10,000 bytes", len(given))
	}
	if again := old.Add(texts[0]); again != given[0] {
		t.Errorf("a text that is there has become %d, was %d", again, given[0])
	}
	if n := old.Add(texts[len(texts)-1]); n != 0 {
		t.Errorf("a text for which there is no room is %d", n)
	}
	if got := numbersOf(old, texts[:len(given)]...); !slices.Equal(got, given) {
		t.Errorf("found %v of those that end, want %v", got, given)
	}
	others := f.Symbols()
	if others == old || others.Epoch() == old.Epoch() {
		t.Fatal("no others have begun")
	}
	if got := numbersOf(others, texts...); slices.Max(got) != 0 {
		t.Errorf("others begin with numbers: %v", got)
	}
	if n := others.Add(texts[0]); n == 0 {
		t.Error("others have no room")
	}
	if f.Symbols() != others {
		t.Error("others have ended as well")
	}
}

// Concurrent callers agree, and find what they have added themselves.
func TestSymbolsConcurrently(t *testing.T) {
	const writers = 4
	symbols := newTables(0).Symbols()
	texts := symbolTexts(3000)
	all := make([]map[string]uint32, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			mine := make(map[string]uint32)
			for i, at := range rand.New(rand.NewPCG(seed, uint64(w))).Perm(len(texts)) {
				text := texts[at]
				n := symbols.Add(text)
				mine[text] = n
				if i%50 != 0 {
					continue
				}
				for at, found := range numbersOf(symbols, texts...) {
					if n, ok := mine[texts[at]]; ok && n != found {
						t.Errorf("%q was %d and is %d", texts[at], n, found)
					}
				}
			}
			all[w] = mine
		})
	}
	group.Wait()
	for i, found := range numbersOf(symbols, texts...) {
		for w := range writers {
			if n := all[w][texts[i]]; n != found || n == 0 {
				t.Errorf("%q is %d, writer %d was given %d", texts[i], found, w, n)
			}
		}
	}
}

// BenchmarkSymbols finds 6,000 texts in the order in which they were added, and
// in another.
func BenchmarkSymbols(b *testing.B) {
	f := newTables(0)
	var texts []string
	for i := range 6000 {
		texts = append(texts, fmt.Sprintf("/kubepods/burstable/pod%08x", i))
		f.Symbols().Add(texts[i])
	}
	other := slices.Clone(texts)
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	for name, texts := range map[string][]string{"in order": texts, "shuffled": other} {
		b.Run(name, func(b *testing.B) {
			numbers := make([]uint32, len(texts))
			for b.Loop() {
				f.Symbols().Find(numbers, texts)
			}
			if slices.Min(numbers) == 0 {
				b.Fatal("not all were found")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(texts)), "ns/text")
		})
	}
}

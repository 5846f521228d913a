package seriescache

import (
	"fmt"
	"testing"

	"github.com/promtable/promtable/remote/ingest"
)

// number is the state of the entries of these tests.
type number struct {
	ingest.Cached
	n int
}

func numberOf(e *Entry) int { return e.State.(number).n }

func textOf(n int) ingest.WireText { return ingest.WireText{Form: 1, Text: fmt.Append(nil, n)} }

func addNumber(c *Cache, n int) *Entry {
	e := &Entry{State: number{n: n}}
	c.Init(e, textOf(n), 8)
	c.Add(e)
	return e
}

// An entry is found by its form and text, whatever its hash is.
func TestFind(t *testing.T) {
	for name, hash := range map[string]func(ingest.WireText) uint64{
		"seeded":    nil,
		"all equal": func(ingest.WireText) uint64 { return 0 },
		"all high":  func(ingest.WireText) uint64 { return 1<<64 - 1 },
		"by length": func(t ingest.WireText) uint64 { return uint64(len(t.Text)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{})
			if hash != nil {
				c.hash = hash
			}
			for n := range 200 {
				if c.Find(textOf(n)) != nil {
					t.Fatalf("%d is found before it was added", n)
				}
				e := addNumber(c, n)
				switch {
				case c.Find(textOf(n)) != e:
					t.Fatalf("%d is not found", n)
				case c.Find(ingest.WireText{Form: 2, Text: textOf(n).Text}) != nil:
					t.Fatalf("%d is found in another form", n)
				}
			}
			for n := range 200 {
				if e := c.Find(textOf(n)); e != nil && numberOf(e) != n || e == nil && hash == nil {
					t.Errorf("%d is found as %v", n, e)
				}
			}
		})
	}
}

// The first entry of a text stays.
func TestAddTwice(t *testing.T) {
	c := New(Config{})
	first := addNumber(c, 1)
	addNumber(c, 1)
	if c.Find(textOf(1)) != first || c.Len() != 1 {
		t.Errorf("%d entries, and another one is found", c.Len())
	}
}

// What came after a series is found until it is dropped.
func TestNext(t *testing.T) {
	c := New(Config{MaxSeries: 4})
	a, b := addNumber(c, 0), addNumber(c, 1)
	if next := a.Next(); next != nil {
		t.Errorf("%d comes after the only one", numberOf(next))
	}
	a.SetNext(a)
	a.SetNext(b)
	for i := range 6 { // b is asked for often enough
		if next := a.Next(); next != b {
			t.Fatalf("after %d others: %v, want the second", i, next)
		}
		if c.Find(textOf(0)) != a {
			t.Fatalf("after %d others the first is dropped", i)
		}
		addNumber(c, 2+i%4)
	}
	if c.Find(textOf(1)) != b {
		t.Error("what was asked for is dropped")
	}
	for i := range 6 {
		addNumber(c, 2+i)
		if c.Find(textOf(1)) != b {
			t.Fatalf("after %d others the second is dropped", i)
		}
	}
	if next := a.Next(); next != nil {
		t.Error("what is dropped keeps what came next")
	}
	b.SetNext(addNumber(c, 2))
	for i := range 5 {
		addNumber(c, 3+i)
		c.Find(textOf(1))
	}
	if next := b.Next(); next != nil {
		t.Error("what is dropped still comes next")
	}
}

// A cache of few series has one shard, so that its bound holds.
func TestBounds(t *testing.T) {
	for _, tt := range []struct{ max, shards int }{{1, 1}, {20, 1}, {minShardSeries, 1}, {4 * minShardSeries, 4}, {0, maxShards}} {
		c := New(Config{MaxSeries: tt.max})
		if len(c.shards) != tt.shards {
			t.Errorf("%d shards for %d series, want %d", len(c.shards), tt.max, tt.shards)
		}
		for n := range 5 * tt.max {
			addNumber(c, n)
		}
		if n := c.Len(); n > tt.max+tt.shards {
			t.Errorf("%d series, want %d", n, tt.max)
		}
	}
}

// A text too long to be cached does no harm, nor does none.
func TestNoEntry(t *testing.T) {
	c := New(Config{})
	for _, text := range []ingest.WireText{{}, {Form: 1, Text: make([]byte, MaxText+1)}} {
		if c.Init(new(Entry), text, 0) || c.Find(text) != nil {
			t.Errorf("%d bytes of form %d have an entry", len(text.Text), text.Form)
		}
	}
}

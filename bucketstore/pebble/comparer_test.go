package pebble_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore/pebble"
)

// TestComparer checks the laws that Pebble states for a Split, on all short
// keys of awkward bytes, whether we store such keys or not.
func TestComparer(t *testing.T) {
	c := pebble.EngineOptions(vfs.NewMem()).Comparer
	keys := append(awkward(5), inDays(awkward(4))...)
	for _, a := range keys {
		prefix := a[:c.Split(a)]
		if c.Split(prefix) != len(prefix) {
			t.Fatalf("the prefix %x of %x is not its own", prefix, a)
		}
		if len(prefix) < len(a) && c.Compare(prefix, a) >= 0 {
			t.Fatalf("the prefix of %x does not sort before it", a)
		}
		next := c.ImmediateSuccessor(nil, prefix)
		if c.Compare(prefix, next) >= 0 || c.Split(next) != len(next) || c.Compare(a, next) >= 0 {
			t.Fatalf("%x is no successor of the prefix %x of %x", next, prefix, a)
		}
	}
	few := append(awkward(4), inDays(awkward(3))...)
	for _, a := range few {
		for _, b := range few {
			pa, pb := a[:c.Split(a)], b[:c.Split(b)]
			prefixes := c.Compare(pa, pb)
			switch {
			case prefixes == 0 && c.Compare(a, b) != c.ComparePointSuffixes(a[len(pa):], b[len(pb):]):
				t.Fatalf("%x and %x are not in the order of their suffixes", a, b)
			case prefixes < 0 && c.Compare(a, b) >= 0, prefixes > 0 && c.Compare(a, b) <= 0:
				t.Fatalf("%x and %x are not in the order of their prefixes", a, b)
			}
		}
	}
}

// inDays puts keys into days of METRIC that look like parts of a row.
func inDays(keys [][]byte) (in [][]byte) {
	for _, day := range []string{"\x00\x00\x00\x01", "\x00\x01\x00\x01", "\x00\x00\x01\x00", "\xff\xff\xff\xff"} {
		for _, key := range keys {
			in = append(in, slices.Concat([]byte{1}, []byte(day), key))
		}
	}
	return in
}

// awkward returns all keys of 1 to n awkward bytes.
func awkward(n int) [][]byte {
	keys := [][]byte{nil}
	for from := 0; ; {
		to := len(keys)
		for _, key := range keys[from:to] {
			if len(key) == n {
				return keys[1:]
			}
			for _, c := range []byte{0x00, 0x01, 0x02, 'a', 0xff} {
				keys = append(keys, append(bytes.Clone(key), c))
			}
		}
		from = to
	}
}

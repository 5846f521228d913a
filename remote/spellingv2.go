package remote

import (
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// maxSpelling bounds the labels of a series that may be known, in bytes. Many of
// them can stand in few bytes of references.
const maxSpelling = 2 * series.MaxSeriesKey

// findV2 returns the series that the references stand for, if it is known. Else
// its spelling, if it has one, is in d.spelling.
func (d *decoder) findV2() *engine.Known {
	known, text, shared := d.guess(formV2)
	if text == "" || !d.spells(text, shared) {
		d.spell()
		known = d.find(formV2, d.spelling)
	} else {
		d.last = known
	}
	if known != nil {
		d.refs, d.lastRefs = d.lastRefs, d.refs
	}
	return known
}

// spell puts the labels that the references stand for into d.spelling, as formV2
// has it: how many symbols, where each of them ends, and the symbols, with
// numbers of two bytes, little-endian. If there is something strange about them
// it puts nothing there.
func (d *decoder) spell() {
	d.spelling = d.spelling[:0]
	n := len(d.refs)
	if n == 0 || n%2 != 0 || n > maxSpelling/2 {
		return
	}
	head := 2 + 2*n
	text := append(d.spelling, make([]byte, head)...)
	put16(text, n)
	for i, ref := range d.refs {
		if ref >= uint64(len(d.symbols)) || len(text)+len(d.symbols[ref]) > maxSpelling {
			return
		}
		text = append(text, d.symbols[ref]...)
		put16(text[2+2*i:], len(text)-head)
	}
	d.spelling = text
}

func put16(b []byte, n int) { b[0], b[1] = byte(n), byte(n>>8) }

func get16(text string, at int) int { return int(text[at]) | int(text[at+1])<<8 }

// symbolV2 returns the ith symbol of a text of formV2 that has n of them.
func symbolV2(text string, n, i int) string {
	head := 2 + 2*n
	start := head
	if i > 0 {
		start += get16(text, 2*i)
	}
	return text[start : head+get16(text, 2+2*i)]
}

// sharedV2 says where two texts of formV2 have the same symbol: bit i is for the
// ith. Of those after the 64th it says nothing.
func sharedV2(a, b string) (shared uint64) {
	if a == "" || b == "" || get16(a, 0) != get16(b, 0) {
		return 0
	}
	n := get16(a, 0)
	for i := range min(n, 64) {
		if symbolV2(a, n, i) == symbolV2(b, n, i) {
			shared |= 1 << i
		}
	}
	return shared
}

// spells says whether the references stand for text, of formV2. Where text has
// the same symbol as the last series, and the references are the same, there is
// nothing to compare.
func (d *decoder) spells(text string, shared uint64) bool {
	n := len(d.refs)
	if get16(text, 0) != n {
		return false
	}
	for i, ref := range d.refs {
		if shared>>i&1 == 1 && ref == d.lastRefs[i] {
			continue
		}
		if ref >= uint64(len(d.symbols)) || d.symbols[ref] != symbolV2(text, n, i) {
			return false
		}
	}
	return true
}

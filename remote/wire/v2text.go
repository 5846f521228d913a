package wire

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// A spelling of formV2 is the epoch of the numbers, and a number for each
// reference, four bytes each.

// maxSpelling bounds the labels of a series that may be known, in bytes. Many of
// them can stand in few bytes of references.
const maxSpelling = 2 * series.MaxSeriesKey

// numberSymbols finds the numbers of the symbols.
func (d *Decoder) numberSymbols() {
	d.interned = d.finder.Symbols()
	d.numbers = slices.Grow(d.numbers[:0], len(d.symbols))[:len(d.symbols)]
	d.interned.Find(d.numbers, d.symbols)
}

// labelRefs takes a labels_refs field that stands elsewhere.
func (d *Decoder) labelRefs(f field) (err error) {
	if err = d.unpack(); err == nil {
		d.refs, err = appendRefs(d.refs, f)
	}
	return err
}

// unpack moves what is in d.packed to d.refs.
func (d *Decoder) unpack() (err error) {
	if d.packed != nil {
		d.refs, err = appendRefs(d.refs[:0], field{wire: BytesType, bytes: d.packed})
		d.packed = nil
	}
	return err
}

// spell spells references that are packed, unless there is something strange
// about them. A symbol without a number has 0 there: then nothing is found.
func (d *Decoder) spell(packed []byte) bool {
	if len(packed) > maxSpelling {
		return false
	}
	words, numbers := d.spellingWords(len(packed)), d.numbers
	n := 0
	for i := 0; i < len(packed); n++ {
		ref := uint64(packed[i])
		if i++; ref >= 0x80 {
			if i < len(packed) && packed[i] < 0x80 {
				ref = ref&0x7f | uint64(packed[i])<<7
				i++
			} else {
				var size int
				if ref, size = binary.Uvarint(packed[i-1:]); size <= 0 {
					return false
				}
				i += size - 1
			}
		}
		if ref >= uint64(len(numbers)) || n >= len(words) {
			return false
		}
		words[n] = numbers[ref]
	}
	d.setSpelling(n)
	return true
}

// spellingWords returns where to put the numbers of a spelling of up to n.
func (d *Decoder) spellingWords(n int) []uint32 {
	if len(d.words) <= n {
		d.words = make([]uint32, 1+max(n, 127))
	}
	return d.words[1:]
}

// setSpelling makes a spelling of the first n numbers.
func (d *Decoder) setSpelling(n int) {
	d.words[0] = d.interned.Epoch()
	d.spelling = unsafe.Slice((*byte)(unsafe.Pointer(&d.words[0])), 4*(1+n))
}

// findV2 returns the series that the references stand for, if it is known.
func (d *Decoder) findV2() *engine.CachedSeries {
	if d.packed == nil {
		d.spellRefs()
	}
	if known, text := d.guess(formV2); text != "" && string(d.spelling) == text {
		d.last = known
		return known
	}
	return d.find(formV2, d.spelling)
}

// spellRefs spells the references in d.refs, if they have a spelling.
func (d *Decoder) spellRefs() {
	d.spelling = nil
	if len(d.refs) > maxSpelling {
		return
	}
	words := d.spellingWords(len(d.refs))
	for i, ref := range d.refs {
		if ref >= uint64(len(d.numbers)) {
			return
		}
		words[i] = d.numbers[ref]
	}
	d.setSpelling(len(d.refs))
}

// spellNew spells the references in d.refs, all of which are good, for a series
// that is to be known: symbols that have no number get one.
func (d *Decoder) spellNew() engine.WireText {
	size := 0
	for _, ref := range d.refs {
		if size += len(d.symbols[ref]); size > maxSpelling {
			return engine.WireText{}
		}
	}
	if len(d.refs) == 0 || len(d.refs) > maxSpelling/4 {
		return engine.WireText{}
	}
	for _, ref := range d.refs {
		if d.numbers[ref] == 0 {
			if d.numbers[ref] = d.interned.Add(d.symbols[ref]); d.numbers[ref] == 0 {
				return engine.WireText{}
			}
		}
	}
	d.spellRefs()
	return d.keep(formV2, d.spelling)
}

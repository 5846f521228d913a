package wire

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// The wire text of a 2.0 series is the epoch of the symbol table and a number for each
// reference, four bytes each. A reference means another symbol in each request. The
// number of a symbol stays the same.

// maxTextBytes bounds the labels of a series that may be cached, in bytes: a few bytes
// of references can stand for many bytes of labels.
const maxTextBytes = 2 * series.MaxSeriesKey

// maxTextRefs bounds the references of such a series.
const maxTextRefs = maxTextBytes

// numberSymbols finds the numbers of the symbols of the request.
func (d *V2) numberSymbols() {
	d.table = d.cache.Symbols()
	d.numbers = slices.Grow(d.numbers[:0], len(d.symbols))[:len(d.symbols)]
	d.table.Find(d.numbers, d.symbols)
}

// addRefs adds a labels_refs field that fastRefs has not taken.
func (d *V2) addRefs(f field) (err error) {
	if err = d.unpackRefs(); err == nil {
		d.refs, err = appendRefs(d.refs, f)
	}
	return err
}

// unpackRefs moves what is in d.packed to d.refs.
func (d *V2) unpackRefs() (err error) {
	if d.packed != nil {
		d.refs, err = appendRefs(d.refs[:0], field{wire: protowire.BytesType, bytes: d.packed})
		d.packed = nil
	}
	return err
}

// beginText begins a text with room for n numbers of symbols.
func (d *V2) beginText(n int) []byte {
	d.textSpace = slices.Grow(d.textSpace[:0], 4*(1+n))
	return binary.LittleEndian.AppendUint32(d.textSpace, d.table.Epoch())
}

// findCached returns the series that the references stand for, if it is cached.
func (d *V2) findCached() ingest.Cached {
	if d.packed == nil {
		d.setRefsText()
	}
	if cached, want := d.predict(formV2); want != "" && string(d.text) == want {
		d.last = cached
		return cached.State
	}
	return d.lookup(formV2, d.text)
}

// setRefsText makes the text of d.refs. It is empty if they are no labels of this
// request, or very many.
func (d *V2) setRefsText() {
	d.text = nil
	if len(d.refs) > maxTextRefs {
		return
	}
	text := d.beginText(len(d.refs))
	for _, ref := range d.refs {
		if ref >= uint64(len(d.numbers)) {
			return
		}
		text = binary.LittleEndian.AppendUint32(text, d.numbers[ref])
	}
	d.text = text
}

// newText makes the text of d.refs, all of which are good, for a series that is
// to be cached: symbols that have no number get one.
func (d *V2) newText() ingest.WireText {
	size := 0
	for _, ref := range d.refs {
		if size += len(d.symbols[ref]); size > maxTextBytes {
			return ingest.WireText{}
		}
	}
	if len(d.refs) == 0 || len(d.refs) > maxTextRefs/4 {
		return ingest.WireText{}
	}
	for _, ref := range d.refs {
		if d.numbers[ref] == 0 {
			if d.numbers[ref] = d.table.Add(d.symbols[ref]); d.numbers[ref] == 0 {
				return ingest.WireText{}
			}
		}
	}
	d.setRefsText()
	return d.keepText(formV2, d.text)
}

package dense

import (
	"encoding/binary"
	"fmt"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cursor"
)

// AppendInts appends a column of integers, whose number is known elsewhere: the first one as a
// varint, and the distances of all from it as a sequence. Of none it appends nothing. It overwrites ints.
func AppendInts(dst []byte, ints []int64) []byte {
	if len(ints) == 0 {
		return dst
	}
	first := ints[0]
	dst = binary.AppendVarint(dst, first)
	for i := range ints {
		ints[i] -= first
	}
	return appendInts(dst, ints, false)
}

// DecodeInts appends the n integers of data, which is what AppendInts has appended, to dst. On bad
// input, which is a series.ErrCorrupt, dst comes back as it was. n is not more than MaxSamples.
func DecodeInts(data []byte, n int, dst []int64) ([]int64, error) {
	d := decoder{Cursor: cursor.Cursor{Rest: data}}
	old := len(dst)
	if n > 0 {
		first := d.Varint()
		d.open(n, first)
		for block := d.next(); len(block) > 0; block = d.next() {
			dst = append(dst, block...)
		}
	}
	if d.Failed || len(d.Rest) > 0 || len(dst)-old != n {
		return dst[:old], fmt.Errorf("%w: column of %d integers in %d bytes", series.ErrCorrupt, n, len(data))
	}
	return dst, nil
}

// AppendFloats appends a column of floats, at most MaxSamples, as a chunk has them: from the kind
// on. Of none it appends nothing.
func AppendFloats(dst []byte, vs []float64) []byte {
	if len(vs) == 0 {
		return dst
	}
	var stack [stackSamples]int64
	scratch := stack[:]
	if len(vs) > stackSamples {
		scratch = make([]int64, len(vs))
	}
	return appendFloats(dst, vs, scratch[:len(vs)])
}

// DecodeFloats appends the n floats of data, which is what AppendFloats has appended, to dst. On bad
// input, which is a series.ErrCorrupt, dst comes back as it was. n is not more than MaxSamples.
func DecodeFloats(data []byte, n int, dst []float64) ([]float64, error) {
	d := decoder{Cursor: cursor.Cursor{Rest: data}}
	old := len(dst)
	ok := true
	if n > 0 {
		dst, ok = d.appendFloats(dst, n)
	}
	if !ok || d.Failed || len(d.Rest) > 0 || len(dst)-old != n {
		return dst[:old], fmt.Errorf("%w: column of %d floats in %d bytes", series.ErrCorrupt, n, len(data))
	}
	return dst, nil
}

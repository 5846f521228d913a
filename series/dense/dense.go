package dense

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cursor"
	"github.com/promtable/promtable/series/xor"
)

// MaxSamples is how many samples a chunk can have. It is part of the stored format.
const MaxSamples = xor.MaxSamples

// Kinds of the values of a dense chunk. They are part of the stored format.
const (
	// The kinds 0 to maxExponent are decimals: each value is an integer, as a
	// float64, divided by ten to the power of the kind, as a float64.
	maxExponent = 15

	// kindBits are the bits of the floats as integers in the order of the
	// floats, see orderedBits.
	kindBits = 16

	// kindXOR are the first value and the bits that an XOR chunk has for the
	// others.
	kindXOR = 17

	// kindOdd is set in the kind if a list of odd values follows it.
	kindOdd = 0x80
)

const (
	// stackSamples is up to how many samples a chunk is encoded without
	// allocation.
	stackSamples = 640

	// smallInts is up to how many bytes a value decimals without odd ones are not
	// compared with XOR.
	smallInts = 3

	oddSize = 8
)

// Append appends a chunk of samples as the bytes that the package comment draws: ts are
// their times in milliseconds, not negative and each later than the one before, vs their
// values, of which each bit is kept. There are 1 to [MaxSamples] of both. The same
// samples have the same bytes. Anything else panics.
//
// Up to 640 samples it allocates nothing but room in dst.
func Append(dst []byte, ts []int64, vs []float64) []byte {
	if n := len(ts); n == 0 || n > MaxSamples || n != len(vs) || ts[0] < 0 {
		panic(fmt.Sprintf("dense: chunk of %d times and %d values", n, len(vs)))
	}
	var stack [stackSamples]int64
	scratch := stack[:]
	if len(ts) > stackSamples {
		scratch = make([]int64, len(ts))
	}
	scratch = scratch[:len(ts)]
	dst = binary.AppendUvarint(dst, uint64(len(ts)))
	dst = appendTimes(dst, ts, scratch)
	return appendFloats(dst, vs, scratch)
}

// Decode is the inverse of Append: it appends to ts and vs. On bad
// input, which is a series.ErrCorrupt, both come back with the length that they had.
// It allocates nothing but room in ts and vs, and never for more than MaxSamples
// samples.
func Decode(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	d := decoder{Cursor: cursor.Cursor{Rest: data}}
	n := d.Uvarint()
	if d.Failed || n == 0 || n > MaxSamples {
		return ts, vs, fmt.Errorf("%w: dense chunk of %d bytes has no count of samples", series.ErrCorrupt, len(data))
	}
	allTimes, ok := d.appendTimes(ts, int(n))
	if !ok {
		return ts, vs, fmt.Errorf("%w: times of a dense chunk of %d samples in %d bytes", series.ErrCorrupt, n, len(data))
	}
	allValues, ok := d.appendFloats(vs, int(n))
	if !ok || len(d.Rest) > 0 {
		return ts, vs, fmt.Errorf("%w: values of a dense chunk of %d samples in %d bytes", series.ErrCorrupt, n, len(data))
	}
	return allTimes, allValues, nil
}

// DecodeRegular is Decode of a chunk of two samples or more whose times are all
// step apart. It is not ok if the chunk is another, or bad input.
func DecodeRegular(data []byte, vs []float64) (first, step int64, values []float64, ok bool) {
	d := decoder{Cursor: cursor.Cursor{Rest: data}}
	n := d.Uvarint()
	if d.Failed || n < 2 || n > MaxSamples {
		return 0, 0, vs, false
	}
	first = int64(d.Uvarint())
	d.open(int(n), first)
	step = d.slope()
	if d.Failed || d.mode != orderLine || !ascends(first, step, int64(n)) {
		return 0, 0, vs, false
	}
	values, ok = d.appendFloats(vs, int(n))
	if !ok || len(d.Rest) > 0 {
		return 0, 0, vs, false
	}
	return first, step, values, true
}

// appendTimes appends the first of ts and the distances of all from it.
func appendTimes(dst []byte, ts, scratch []int64) []byte {
	first := ts[0]
	dst = binary.AppendUvarint(dst, uint64(first))
	if step, ok := RegularStep(ts); ok {
		return appendLine(dst, step)
	}
	last := first - 1
	for i, t := range ts {
		if t <= last {
			panic(fmt.Sprintf("dense: chunk has time %d after %d", t, last))
		}
		scratch[i] = t - first
		last = t
	}
	return appendInts(dst, scratch, true)
}

// RegularStep returns the distance of each time from the one before, if there is
// one, it is positive and everywhere the same.
func RegularStep(ts []int64) (step int64, ok bool) {
	if len(ts) < 2 || ts[1] <= ts[0] {
		return 0, false
	}
	step = ts[1] - ts[0]
	last := ts[0]
	for _, t := range ts[1:] {
		if t-last != step || t < 0 {
			return 0, false
		}
		last = t
	}
	return step, true
}

// appendTimes appends n times to ts, or says that they are not there, are
// negative or do not ascend.
func (d *decoder) appendTimes(ts []int64, n int) ([]int64, bool) {
	first := int64(d.Uvarint())
	d.open(n, first)
	if d.Failed || first < 0 {
		return nil, false
	}
	old := len(ts)
	ts = slices.Grow(ts, n)[:old+n]
	if d.mode == orderLine {
		return ts, fillTimes(ts[old:], first, d.slope())
	}
	out, last := ts[old:], int64(-1)
	for block := d.next(); len(block) > 0; block = d.next() {
		for i, t := range block {
			if t <= last {
				return nil, false
			}
			out[i], last = t, t
		}
		out = out[len(block):]
	}
	return ts, len(out) == 0
}

// fillTimes makes ts the times from first on that are step apart, or says that they
// do not ascend.
func fillTimes(ts []int64, first, step int64) bool {
	if !ascends(first, step, int64(len(ts))) {
		return false
	}
	for i := range ts {
		ts[i] = first
		first += step
	}
	return true
}

// ascends says whether n times, two or more, from first on that are step apart
// ascend, and are not negative.
func ascends(first, step, n int64) bool {
	return first >= 0 && step > 0 && step <= (math.MaxInt64-first)/(n-1)
}

// appendFloats appends vs as integers, or as XOR where that is smaller.
func appendFloats(dst []byte, vs []float64, scratch []int64) []byte {
	old := len(dst)
	kind, odd, ok := toDecimals(scratch, vs)
	if !ok {
		odd = toBits(scratch, vs)
		kind = kindBits
	}
	dst = appendKind(dst, vs, scratch, kind, odd)
	first := scratch[0]
	for i := range scratch {
		scratch[i] -= first
	}
	dst = appendInts(dst, scratch, false)
	size := len(dst) - old
	if (size > smallInts*len(vs) || kind == kindBits || odd > 0) && 1+8+xor.ValuesSize(vs) < size {
		dst = binary.BigEndian.AppendUint64(append(dst[:old], kindXOR), math.Float64bits(vs[0]))
		return xor.AppendValues(dst, vs)
	}
	return dst
}

// appendKind appends the kind of the integers, the odd ones of vs, and the first
// integer.
func appendKind(dst []byte, vs []float64, ints []int64, kind, odd int) []byte {
	if odd > 0 {
		dst = appendOdd(append(dst, byte(kind|kindOdd)), vs, ints, kind, odd)
	} else {
		dst = append(dst, byte(kind))
	}
	if kind == kindBits {
		return binary.BigEndian.AppendUint64(dst, uint64(ints[0]))
	}
	return binary.AppendVarint(dst, ints[0])
}

// appendFloats appends n values to vs, or says that they are not there.
func (d *decoder) appendFloats(vs []float64, n int) ([]float64, bool) {
	kind := d.Byte()
	if kind == kindXOR {
		return d.appendXOR(vs, n)
	}
	var odd []byte
	if kind&kindOdd != 0 {
		odd = d.odd(n)
	}
	kind &^= kindOdd
	var first int64
	switch {
	case kind < kindBits:
		first = d.Varint()
	case kind == kindBits:
		first = int64(binary.BigEndian.Uint64(d.Bytes(8)))
	default:
		return nil, false
	}
	d.open(n, first)
	if d.Failed {
		return nil, false
	}
	old := len(vs)
	vs = slices.Grow(vs, n)[:old+n]
	out := vs[old:]
	if d.mode == orderLine && d.slope() == 0 {
		fillFloats(out, first, kind)
		return vs, putOdd(out, odd)
	}
	for block := d.next(); len(block) > 0; block = d.next() {
		fromInts(out[:len(block)], block, kind)
		out = out[len(block):]
	}
	return vs, len(out) == 0 && putOdd(vs[old:], odd)
}

// appendXOR is appendFloats of the kind kindXOR.
func (d *decoder) appendXOR(vs []float64, n int) ([]float64, bool) {
	first := binary.BigEndian.Uint64(d.Bytes(8))
	if d.Failed || 8*len(d.Rest) < n-1 {
		return nil, false
	}
	old := len(vs)
	vs = slices.Grow(vs, n)[:old+n]
	vs[old] = math.Float64frombits(first)
	size, ok := xor.DecodeValues(d.Rest, vs[old:])
	if !ok {
		return nil, false
	}
	d.Rest = d.Rest[size:]
	return vs, true
}

// appendOdd appends those of vs that their integer does not bring back.
func appendOdd(dst []byte, vs []float64, ints []int64, kind, odd int) []byte {
	dst = binary.AppendUvarint(dst, uint64(odd))
	var back [blockLen]float64
	next := 0
	for start := 0; start < len(vs); start += blockLen {
		block := ints[start:min(start+blockLen, len(ints))]
		fromInts(back[:len(block)], block, byte(kind))
		for i, v := range vs[start : start+len(block)] {
			if math.Float64bits(back[i]) != math.Float64bits(v) {
				dst = binary.AppendUvarint(dst, uint64(start+i-next))
				dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
				next = start + i + 1
			}
		}
	}
	return dst
}

// odd skips the list of odd values among n and returns its bytes, checked but for
// the positions.
func (d *decoder) odd(n int) []byte {
	count := d.Uvarint()
	if count == 0 || count > uint64(min(n, len(d.Rest)/(1+oddSize))) {
		d.Fail()
		return nil
	}
	start := d.Rest
	for range count {
		d.Uvarint()
		d.Bytes(oddSize)
	}
	return start[:len(start)-len(d.Rest)]
}

// putOdd puts the values of a list that odd has checked into vs.
func putOdd(vs []float64, list []byte) bool {
	d := decoder{Cursor: cursor.Cursor{Rest: list}}
	for next := uint64(0); len(d.Rest) > 0; next++ {
		gap := d.Uvarint()
		if gap >= uint64(len(vs))-next {
			return false
		}
		next += gap
		vs[next] = math.Float64frombits(binary.BigEndian.Uint64(d.Bytes(oddSize)))
	}
	return true
}

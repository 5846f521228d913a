package xor

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/promtable/promtable/series"
)

// MaxSamples is how many samples a chunk can have: Prometheus counts them in 16
// bits. It is part of the stored format.
const MaxSamples = math.MaxUint16

// Append appends the bytes of Prometheus' chunk of encoding XOR with these
// samples: ts are their times in milliseconds, any int64 in any order, vs their
// values, of which each bit is kept. There are as many of both, and not more than
// [MaxSamples]. It panics if that is not so, and allocates nothing but room in dst.
func Append(dst []byte, ts []int64, vs []float64) []byte {
	if n := len(ts); n > MaxSamples || n != len(vs) {
		panic(fmt.Sprintf("xor: XOR chunk of %d times and %d values", n, len(vs)))
	}
	if len(ts) == 0 {
		return append(dst, 0, 0)
	}
	if len(ts) == 1 {
		return appendStart(dst, 1, ts[0], vs[0])
	}
	delta := ts[1] - ts[0]
	w := newBitWriter(binary.AppendUvarint(appendStart(dst, len(ts), ts[0], vs[0]), uint64(delta)))
	w.putValues(0, vs[:2])
	for i := 2; i < len(ts); {
		if n := regularTimes(ts[i-1:], delta); n > 0 {
			w.putValues(1, vs[i-1:i+n]) // a 0 says that the distance is the one before
			i += n
			continue
		}
		d := ts[i] - ts[i-1]
		w.putIrregular(d-delta, math.Float64bits(vs[i])^math.Float64bits(vs[i-1]))
		delta = d
		i++
	}
	return w.bytes()
}

// AppendRegular is Append of values at times from t on that are step apart. They
// are at least one.
func AppendRegular(dst []byte, t, step int64, vs []float64) []byte {
	dst = appendStart(dst, len(vs), t, vs[0])
	if len(vs) == 1 {
		return dst
	}
	w := newBitWriter(binary.AppendUvarint(dst, uint64(step)))
	w.putValues(0, vs[:2])
	w.putValues(1, vs[1:])
	return w.bytes()
}

// appendStart appends the number of samples, and the first.
func appendStart(dst []byte, n int, t int64, v float64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	return binary.BigEndian.AppendUint64(binary.AppendVarint(dst, t), math.Float64bits(v))
}

// regularTimes returns how many of ts from the second on are so far from the one
// before, up to the first that is not.
func regularTimes(ts []int64, delta int64) int {
	last := ts[0]
	for i, t := range ts[1:] {
		if t-last != delta {
			return i
		}
		last = t
	}
	return len(ts) - 1
}

// AppendValues appends vs but for the first as an XOR chunk has them, without
// the times.
func AppendValues(dst []byte, vs []float64) []byte {
	w := newBitWriter(dst)
	w.putValues(0, vs)
	return w.bytes()
}

// DecodeValues is the inverse of AppendValues: it fills vs from the front of data and
// returns how many bytes that took. The first of vs is there already. It is not ok if
// the data are too short, or are no such bits.
func DecodeValues(data []byte, vs []float64) (size int, ok bool) {
	r := newBitReader(data, 0)
	return r.values(vs)
}

// ValuesSize is how many bytes AppendValues appends.
func ValuesSize(vs []float64) int {
	size := 0
	leading, trailing := 64, 64
	for i := 1; i < len(vs); i++ {
		x := math.Float64bits(vs[i]) ^ math.Float64bits(vs[i-1])
		size++
		if x == 0 {
			continue
		}
		lead, trail := min(bits.LeadingZeros64(x), 31), bits.TrailingZeros64(x)
		if size++; lead < leading || trail < trailing {
			leading, trailing = lead, trail
			size += 11
		}
		size += 64 - leading - trailing
	}
	return (size + 7) / 8
}

// Decode is the inverse of Append: it appends to ts and vs. On bad input,
// which is a series.ErrCorrupt, both come back with the length that they had. Bytes
// behind the last sample, and more than 64 significant bits, are bad, too: Prometheus
// reads them but never writes them. It allocates nothing but room in ts and vs.
func Decode(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	if len(data) < 2 {
		return ts, vs, fmt.Errorf("%w: XOR chunk of %d bytes has no count of samples", series.ErrCorrupt, len(data))
	}
	n := int(binary.BigEndian.Uint16(data))
	if n == 0 && len(data) == 2 {
		return ts, vs, nil
	}
	oldT, oldV := len(ts), len(vs)
	if r := newBitReader(data, 16); r.holds(n) {
		ts, vs = slices.Grow(ts, n)[:oldT+n], slices.Grow(vs, n)[:oldV+n]
		if r.samples(ts[oldT:], vs[oldV:]) {
			return ts, vs, nil
		}
	}
	return ts[:oldT], vs[:oldV], fmt.Errorf("%w: XOR chunk of %d samples in %d bytes", series.ErrCorrupt, n, len(data))
}

// bitReader reads bits of data, the highest of a byte first. Behind the end there
// are zeros.
type bitReader struct {
	data   []byte
	bit    int  // the next one
	failed bool // significant bits did not fit into 64

	// The last significant bits: how many, and how many bits below them are 0.
	sigBits, trailing int
}

func newBitReader(data []byte, bit int) bitReader {
	return bitReader{data: data, bit: bit, sigBits: 64}
}

// holds says whether the data can have n samples: nothing is smaller than a first
// one of 72 bits, a second of nine and others of two.
func (r *bitReader) holds(n int) bool {
	need := 16 + 72
	if n > 1 {
		need += 9 + 2*(n-2)
	}
	return n > 0 && 8*len(r.data) >= need
}

// samples fills ts and vs, which are not empty, and says whether that was all.
func (r *bitReader) samples(ts []int64, vs []float64) bool {
	t, ok := r.firstTime()
	if !ok {
		return false
	}
	v := r.take(64)
	ts[0], vs[0] = t, math.Float64frombits(v)
	if len(ts) > 1 && !r.others(ts, vs) {
		return false
	}
	return (r.bit+7)/8 == len(r.data)
}

// others fills all but the first of ts and vs, or returns false if significant bits do
// not fit into 64. It does not notice that the data end too early.
func (r *bitReader) others(ts []int64, vs []float64) bool {
	delta, size := binary.Uvarint(r.data[min(r.bit/8, len(r.data)):])
	if size <= 0 {
		return false
	}
	r.bit += 8 * size
	t, v := ts[0], math.Float64bits(vs[0])
	for i := 1; i < len(ts); i++ {
		next := r.peek()
		if i > 1 {
			if next>>63 == 0 {
				r.bit++
				next <<= 1
			} else {
				delta += r.takeDelta(next)
				next = r.peek()
			}
		}
		t += int64(delta)
		v ^= r.takeXOR(next)
		ts[i], vs[i] = t, math.Float64frombits(v)
	}
	return !r.failed
}

// values fills all but the first of vs with what AppendValues has written, and
// returns how many bytes that was.
func (r *bitReader) values(vs []float64) (size int, ok bool) {
	v := math.Float64bits(vs[0])
	for i := 1; i < len(vs); i++ {
		v ^= r.takeXOR(r.peek())
		vs[i] = math.Float64frombits(v)
	}
	size = (r.bit + 7) / 8
	return size, !r.failed && size <= len(r.data)
}

// takeXOR reads the difference of a value from the one before; next are the bits
// of it that peek has.
func (r *bitReader) takeXOR(next uint64) uint64 {
	switch {
	case next>>63 == 0:
		r.bit++
		return 0
	case next>>62 == 0b10:
		r.bit += 2
	default:
		r.bit += 13
		leading, size := int(next>>57&31), int(next>>51&63)
		if size == 0 {
			size = 64
		}
		r.sigBits, r.trailing = size, 64-leading-size
		if r.trailing < 0 {
			r.failed = true
		}
	}
	return r.take(r.sigBits) << (r.trailing & 63)
}

// firstTime reads a varint, at the start of a byte.
func (r *bitReader) firstTime() (int64, bool) {
	t, size := binary.Varint(r.data[r.bit/8:])
	r.bit += 8 * size
	return t, size > 0
}

// peek returns the next bits, from the highest on: at least 57.
func (r *bitReader) peek() uint64 {
	at := r.bit >> 3
	if at+8 <= len(r.data) {
		return binary.BigEndian.Uint64(r.data[at:]) << (r.bit & 7)
	}
	return r.peekEnd()
}

func (r *bitReader) peekEnd() uint64 {
	var tail [8]byte
	copy(tail[:], r.data[min(r.bit>>3, len(r.data)):])
	return binary.BigEndian.Uint64(tail[:]) << (r.bit & 7)
}

// take reads n bits, 1 to 64.
func (r *bitReader) take(n int) uint64 {
	if n > 57 {
		high := r.take(n - 32)
		return high<<32 | r.take(32)
	}
	u := r.peek() >> (-n & 63)
	r.bit += n
	return u
}

// takeDelta reads a difference of distances of times that is not 0; next are the
// bits of it that peek has.
func (r *bitReader) takeDelta(next uint64) uint64 {
	var n int
	switch ones := bits.LeadingZeros64(^next); ones {
	case 1:
		n = 14
	case 2:
		n = 17
	case 3:
		n = 20
	default:
		r.bit += 4
		return r.take(64)
	}
	size := n - 14 // 0, 3, 6: the prefix has 2, 3, 4 bits
	r.bit += 2 + size/3
	u := r.take(n)
	if u > 1<<(n-1) {
		u -= 1 << n
	}
	return u
}

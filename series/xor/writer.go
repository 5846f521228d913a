package xor

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

const (
	// fewValues are written at once, and roomBytes is more bytes than they take, with
	// what the last write touches behind them.
	fewValues = 8
	roomBytes = 96
)

// bitWriter writes bits behind the first bytes of buf, the highest first.
type bitWriter struct {
	buf []byte
	end bitEnd

	sig sigBits
}

// sigBits are the significant bits of the last difference of values whose size was
// written. At first no difference fits.
type sigBits struct {
	outside        uint64 // all other bits
	size, trailing int    // how many bits are significant, and how many are below them
}

// sigBitsOf returns the significant bits of a difference, and the prefix that tells
// their size.
func sigBitsOf(x uint64) (prefix uint64, sig sigBits) {
	leading, trailing := min(bits.LeadingZeros64(x), 31), bits.TrailingZeros64(x)
	size := 64 - leading - trailing
	sig = sigBits{outside: ^(math.MaxUint64 >> leading >> trailing << trailing), size: size, trailing: trailing}
	return 0b11<<11 | uint64(leading)<<6 | uint64(size)&63, sig
}

// bitEnd is where a bitWriter stands. Loops have a copy of it, which stays in
// registers.
type bitEnd struct {
	pos  int    // how many bytes are written
	acc  uint64 // the bits behind them, from the highest on; the others are 0
	free int    // how many bits of acc are free, 1 to 64
}

func newBitWriter(dst []byte) bitWriter {
	return bitWriter{buf: dst, end: bitEnd{pos: len(dst), free: 64}, sig: sigBits{outside: math.MaxUint64}}
}

// put writes the n lowest bits of u, 1 to 64, to buf. The others are 0. There must
// be room.
func (e bitEnd) put(buf []byte, u uint64, n int) bitEnd {
	if n < e.free {
		e.free -= n
		e.acc |= u << (e.free & 63)
		return e
	}
	n -= e.free // bits that do not fit, less than 64
	binary.BigEndian.PutUint64(buf[e.pos:], e.acc|u>>(n&63))
	return bitEnd{pos: e.pos + 8, free: 64 - n, acc: u << uint(64-n)}
}

// room makes room for fewValues values, or a distance.
func (w *bitWriter) room() {
	if len(w.buf)-w.end.pos < roomBytes {
		w.buf = slices.Grow(w.buf[:w.end.pos], roomBytes)
		w.buf = w.buf[:cap(w.buf)]
	}
}

// putValues writes the differences of all values but the first from the one
// before, each behind as many zeros, 0 or 1.
func (w *bitWriter) putValues(zeros int, vs []float64) {
	for len(vs) > 1 {
		n := equalValues(vs)
		if n >= fewValues {
			w.putZeros(n * (zeros + 1))
		} else {
			n = min(fewValues, len(vs)-1)
			w.putFew(zeros, vs[:n+1])
		}
		vs = vs[n:]
	}
}

// equalValues returns how many of vs from the second on have the bits of the
// first, up to the first that has not.
func equalValues(vs []float64) int {
	first := math.Float64bits(vs[0])
	for i, v := range vs[1:] {
		if math.Float64bits(v) != first {
			return i
		}
	}
	return len(vs) - 1
}

// putFew is putValues of up to fewValues, and the first. Its loop calls nothing, so
// that what it works with stays in registers.
func (w *bitWriter) putFew(zeros int, vs []float64) {
	w.room()
	buf, end, sig := w.buf[w.end.pos:], bitEnd{acc: w.end.acc, free: w.end.free}, w.sig
	last := math.Float64bits(vs[0])
	for _, v := range vs[1:] {
		x := math.Float64bits(v) ^ last
		if x == 0 {
			end = end.put(buf, 0, zeros+1)
			continue
		}
		last ^= x
		prefix, size := uint64(0b10), zeros+2
		if x&sig.outside != 0 {
			prefix, sig = sigBitsOf(x)
			size += 11
		}
		x >>= sig.trailing & 63
		// One write is faster than two.
		if size+sig.size <= 64 {
			end = end.put(buf, prefix<<(sig.size&63)|x, size+sig.size)
			continue
		}
		end = end.put(buf, prefix, size)
		end = end.put(buf, x, sig.size)
	}
	w.sig = sig
	w.end = bitEnd{pos: w.end.pos + end.pos, acc: end.acc, free: end.free}
}

// putZeros writes n zeros.
func (w *bitWriter) putZeros(n int) {
	for ; n > 0; n -= 64 {
		w.room()
		w.put(0, min(n, 64))
	}
}

// putIrregular writes a distance that is other by d than the one before, and the
// difference x of the value.
func (w *bitWriter) putIrregular(d int64, x uint64) {
	w.room()
	w.putDelta(d)
	if x == 0 {
		w.put(0, 1)
		return
	}
	prefix, size := uint64(0b10), 2
	if x&w.sig.outside != 0 {
		prefix, w.sig = sigBitsOf(x)
		size = 13
	}
	w.put(prefix, size)
	w.put(x>>(w.sig.trailing&63), w.sig.size)
}

// putDelta writes a difference of distances of times that is not 0. There must be
// room.
func (w *bitWriter) putDelta(d int64) {
	switch {
	case fits(d, 14):
		w.put(0b10<<14|uint64(d)&(1<<14-1), 2+14)
	case fits(d, 17):
		w.put(0b110<<17|uint64(d)&(1<<17-1), 3+17)
	case fits(d, 20):
		w.put(0b1110<<20|uint64(d)&(1<<20-1), 4+20)
	default:
		w.put(0b1111, 4)
		w.put(uint64(d), 64)
	}
}

// put is that of the end.
func (w *bitWriter) put(u uint64, n int) { w.end = w.end.put(w.buf, u, n) }

// fits says whether d is written in n bits: of the two numbers of the greatest
// magnitude it is the positive one that is.
func fits(d int64, n int) bool { return -(1<<(n-1)) < d && d <= 1<<(n-1) }

// bytes returns all that was written; the last byte is filled with zeros.
func (w *bitWriter) bytes() []byte {
	var last [8]byte
	binary.BigEndian.PutUint64(last[:], w.end.acc)
	return append(w.buf[:w.end.pos], last[:(64-w.end.free+7)/8]...)
}

package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/promtable/promtable/series"
)

const (
	// openStartSize is what stands in front of the samples of an open chunk.
	openStartSize = 8
	// minOpenSample is the smallest sample, maxOpenSample is more than the largest.
	minOpenSample = 2
	maxOpenSample = binary.MaxVarintLen64 + 1 + 8
)

// AppendOpen appends floats at these times, in milliseconds, as the data of a chunk
// of EncodingOpen: a time to count from, in eight bytes, big-endian, and then the
// samples. Each is a varint, by how much its distance from the sample before is
// other than that of the one before, and the bytes in which the bits of its value
// differ from those of the one before; before the first all of that is 0. The byte
// in front of those says in its lowest three bits how many bytes below them are
// the same, and in the others how many they are; they are little-endian. There are
// as many times as values.
func AppendOpen(dst []byte, ts []int64, vs []float64) []byte {
	if len(ts) == 0 {
		return dst
	}
	t, step, last := ts[0], int64(0), uint64(0)
	dst = AppendOpenStart(dst, t)
	for i, v := range vs {
		next := ts[i] - t
		dst = binary.AppendVarint(dst, next-step)
		dst = appendDifference(dst, last^math.Float64bits(v))
		t, step, last = ts[i], next, math.Float64bits(v)
	}
	return dst
}

// AppendOpenStart appends the time from which the first sample of an open chunk
// counts.
func AppendOpenStart(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t))
}

// appendDifference appends the bytes of x that are not 0.
func appendDifference(dst []byte, x uint64) []byte {
	if x == 0 {
		return append(dst, 0)
	}
	low := bits.TrailingZeros64(x) / 8
	size := 8 - low - bits.LeadingZeros64(x)/8
	dst = append(dst, byte(size<<3|low))
	end := len(dst) + size
	return binary.LittleEndian.AppendUint64(dst, x>>(8*low))[:end]
}

// DecodeOpen is the inverse of AppendOpen: it appends to ts and vs. An error is an
// series.ErrCorrupt. What it says of the times is for the caller to check.
func DecodeOpen(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	if len(data) < openStartSize {
		return ts, vs, fmt.Errorf("%w: %d bytes are no open chunk", series.ErrCorrupt, len(data))
	}
	oldTs, oldVs := len(ts), len(vs)
	room := min((len(data)-openStartSize)/minOpenSample, MaxSamples)
	ts, vs = slices.Grow(ts, room)[:oldTs+room], slices.Grow(vs, room)[:oldVs+room]
	n, ok := decodeOpen(data, ts[oldTs:], vs[oldVs:])
	if !ok {
		return ts[:oldTs], vs[:oldVs], fmt.Errorf("%w: open chunk of %d bytes is broken behind %d samples", series.ErrCorrupt, len(data), n)
	}
	return ts[:oldTs+n], vs[:oldVs+n], nil
}

// decodeOpen fills ts and vs and returns how many there were. It is not ok if they
// did not suffice, or the data are broken.
func decodeOpen(data []byte, ts []int64, vs []float64) (n int, ok bool) {
	t, step, last := int64(binary.BigEndian.Uint64(data)), int64(0), uint64(0)
	var tail [2 * maxOpenSample]byte // the last samples, with room to read eight bytes at once
	rest, left := data[openStartSize:], 0
	for vs = vs[:len(ts)]; ; n++ {
		if len(rest) < maxOpenSample && left == 0 {
			left = maxOpenSample
			copied := copy(tail[:], rest)
			rest = tail[:copied+left]
		}
		if len(rest) <= left {
			return n, len(rest) == left
		}
		if n == len(ts) {
			return n, false
		}
		change, size := int64(rest[0]>>1)^-int64(rest[0]&1), 1
		if rest[0] >= 0x80 {
			if change, size = binary.Varint(rest); size <= 0 {
				return n, false
			}
		}
		rest = rest[size:]
		head := rest[0]
		width, low := uint(head>>3), uint(head&7)
		if width+low > 8 || len(rest) < 9 {
			return n, false
		}
		step += change
		t += step
		last ^= binary.LittleEndian.Uint64(rest[1:]) & (1<<(8*width) - 1) << (8 * low)
		rest = rest[1+width:]
		ts[n], vs[n] = t, math.Float64frombits(last)
	}
}

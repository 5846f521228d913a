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
	// OpenStartSize is the size in bytes of what stands in front of the samples of an
	// open chunk.
	OpenStartSize = 8

	// openOther stands in front of a value that is no float.
	openOther = 0xff
	// minOpenSample is the smallest sample, maxOpenSample is more than the largest.
	minOpenSample = 2
	maxOpenSample = binary.MaxVarintLen64 + 1 + 8
)

// AppendOpenStart appends the time from which the first sample of an open chunk
// counts, in milliseconds.
func AppendOpenStart(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t))
}

// AppendOpenSample appends a sample to an open chunk. Change is by how much its
// distance from the sample before, in milliseconds, is other than that of the sample
// before. The value is as AppendOpenValue takes it.
func AppendOpenSample(dst []byte, change int64, before, floatBits uint64, value []byte) []byte {
	return AppendOpenValue(binary.AppendVarint(dst, change), before, floatBits, value)
}

// AppendOpenValue appends the float of these bits, of which before are those of the
// float before it; or value, if that is not nil.
func AppendOpenValue(dst []byte, before, floatBits uint64, value []byte) []byte {
	if value != nil {
		dst = binary.AppendUvarint(append(dst, openOther), uint64(len(value)))
		return append(dst, value...)
	}
	x := before ^ floatBits
	if x == 0 {
		return append(dst, 0)
	}
	low := bits.TrailingZeros64(x) / 8
	size := 8 - low - bits.LeadingZeros64(x)/8
	dst = append(dst, byte(size<<3|low))
	end := len(dst) + size
	return binary.LittleEndian.AppendUint64(dst, x>>(8*low))[:end] // eight bytes at once are the fastest
}

// CutOpenValue is the inverse of AppendOpenValue: it takes a value, which refers to
// src, off the front of src. It is not ok if there is none.
func CutOpenValue(src []byte, before uint64) (floatBits uint64, value, rest []byte, ok bool) {
	if len(src) == 0 {
		return 0, nil, nil, false
	}
	head := src[0]
	src = src[1:]
	if head == openOther {
		size, n := binary.Uvarint(src)
		if n <= 0 || size > uint64(len(src)-n) {
			return 0, nil, nil, false
		}
		src = src[n:]
		return 0, src[:size:size], src[size:], true
	}
	size, low := int(head>>3), int(head&7)
	if size+low > 8 || size > len(src) {
		return 0, nil, nil, false
	}
	var x uint64
	if len(src) >= 8 {
		x = binary.LittleEndian.Uint64(src) & (1<<(8*size) - 1) // a shift by 64 leaves nothing: all bits
	} else {
		var raw [8]byte
		copy(raw[:], src[:size])
		x = binary.LittleEndian.Uint64(raw[:])
	}
	return before ^ x<<(8*low), nil, src[size:], true
}

// EachOpen calls fn with each sample of an open chunk, in the order in which they
// were appended: its time in milliseconds and the bits of its float, or its value,
// which refers to data. An error is a series.ErrCorrupt.
func EachOpen(data []byte, fn func(t int64, floatBits uint64, value []byte)) error {
	if len(data) < OpenStartSize {
		return fmt.Errorf("%w: %d bytes are no open chunk", series.ErrCorrupt, len(data))
	}
	t, step, last := int64(binary.BigEndian.Uint64(data)), int64(0), uint64(0)
	for rest := data[OpenStartSize:]; len(rest) > 0; {
		change, n := binary.Varint(rest)
		step += change
		t += step
		next, value, after, ok := CutOpenValue(rest[max(n, 0):], last)
		if n <= 0 || !ok {
			return fmt.Errorf("%w: open chunk of %d bytes is broken %d bytes before its end", series.ErrCorrupt, len(data), len(rest))
		}
		fn(t, next, value)
		if value == nil {
			last = next
		}
		rest = after
	}
	return nil
}

// DecodeOpen is the inverse of AppendOpen: it appends to ts and vs. An error is an
// series.ErrCorrupt. What it says of the times is for the caller to check.
func DecodeOpen(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	if len(data) < OpenStartSize {
		return ts, vs, fmt.Errorf("%w: %d bytes are no open chunk", series.ErrCorrupt, len(data))
	}
	oldTs, oldVs := len(ts), len(vs)
	room := min((len(data)-OpenStartSize)/minOpenSample, MaxSamples)
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
	rest, left := data[OpenStartSize:], 0
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

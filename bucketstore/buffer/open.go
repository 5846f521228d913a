package buffer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// A ref is a series. It implements bucketstore.Ref. All but its key, and what
// only who commits uses, is guarded by Buffer.mu.
type ref struct {
	// What comes first is what a sample needs, which lies together in memory.

	key string
	// request is the stamp of the last request with a sample of r, and seen when it
	// came by the clock, which stamps may be ahead of.
	request, seen int64
	// newer and older are the open chunks of the two newest windows of the data.
	// Most of the time the older one holds nothing and is nil.
	newer       openChunk
	older       *openChunk
	olderWindow int64
	// sealed is the newest chunk on its way to the store; it leads to the others.
	sealed *sealedChunk

	// segment is the segment of the log in which r has the number id and the last
	// value bits, for the next value to differ from. Only who commits uses them.
	segment uint64
	bits    uint64
	id      uint32
	// gone says that the buffer no longer knows r: another ref may stand for the
	// series.
	gone bool
	// jitter spreads over the series what they would else do all at once.
	jitter uint8
}

// open yields the open chunks of r.
func (r *ref) open(yield func(*openChunk) bool) {
	if yield(&r.newer) && r.older != nil {
		yield(r.older)
	}
}

// SeriesKey implements bucketstore.Ref.
func (r *ref) SeriesKey() []byte { return view(r.key) }

// isIdle says whether r holds nothing.
func (r *ref) isIdle() bool {
	return r.newer.n == 0 && (r.older == nil || r.older.n == 0) && r.sealed == nil
}

// noWindow is before all windows.
const noWindow = -series.Window

// An openChunk holds samples of one window in the order in which they came: those
// that came first in parts, see parts.go, the others raw. The last one always is.
type openChunk struct {
	// window is the start of the window in milliseconds. All other times are
	// distances from it.
	window int64
	// raw holds a time to count from, which is window, and a sample after the other:
	// by how much its distance from the one before, in time, is other than that of
	// the one before, which for most is not at all; then its value, see appendValue.
	// Floats alone are just what chunk.AppendOpen writes, which readers get as it
	// is. Nobody may look at it who does not hold Buffer.mu: it is used again.
	raw []byte
	// parts are the samples before those in raw.
	parts string
	// bits is the value of the newest float.
	bits uint64
	// stamp is that of the newest sample, segment the oldest that it needs.
	stamp   int64
	segment uint64
	// n counts all samples, and rawCount those in raw. There is nothing to do about
	// c, see Buffer.review, until there are due of them.
	n, rawCount, due uint32
	// last is the greatest time, t that of the newest sample, step its distance from
	// the one before, and rawFirst the time of the first sample in raw.
	last, t, rawFirst uint32
	step              int32
	// unsorted says that times do not ascend strictly, and rawUnsorted that those in
	// raw do not.
	unsorted, rawUnsorted bool
	// mixed says that raw has values other than floats.
	mixed bool
}

// maxRawSample is the size of a sample in raw, but for the value if it is no
// float: times differ by less than 2²⁴, so that a varint has up to four bytes, and
// a head of one byte and eight bytes more are written at once.
const maxRawSample = 4 + 1 + binary.MaxVarintLen64

// append adds a sample, the value of which is value, or the float of these bits
// if that is nil. Memory comes from buffers, which may be nil.
func (c *openChunk) append(buffers *rawBuffers, t int64, floatBits uint64, value []byte) {
	at, raw := uint32(t-c.window), c.raw
	t0, step0 := c.t, c.step
	if size := maxRawSample + len(value); c.rawCount == 0 {
		t0, step0, c.bits = 0, 0, 0
		raw = chunk.AppendOpenStart(buffers.get(rawStartSize+size), c.window)
		c.rawFirst = at
	} else {
		c.rawUnsorted = c.rawUnsorted || at <= t0
		if cap(raw)-len(raw) < size {
			raw = buffers.grow(raw, size)
		}
	}
	c.unsorted = c.unsorted || c.n > 0 && at <= c.last
	c.last = max(c.last, at)
	step := int32(at - t0)
	raw = binary.AppendVarint(raw, int64(step-step0))
	c.raw = appendValue(raw, c.bits, floatBits, value)
	c.t, c.step = at, step
	if c.mixed = c.mixed || value != nil; value == nil {
		c.bits = floatBits
	}
	c.n++
	c.rawCount++
}

// rawStartSize is what stands in front of raw samples.
const rawStartSize = 8

// size is how much memory c holds.
func (c *openChunk) size() int { return cap(c.raw) + len(c.parts) }

// end is the greatest time in milliseconds.
func (c *openChunk) end() int64 { return c.window + int64(c.last) }

// Kinds of a value that is no float, in the byte that stands first.
const otherValue = 0xff

// appendValue appends a value: for a float the bytes in which its bits differ
// from those of the float before, which are often few; a byte in front says how
// many zero bytes they have on both sides. Another value has its length in front.
func appendValue(dst []byte, before, floatBits uint64, value []byte) []byte {
	if value != nil {
		dst = binary.AppendUvarint(append(dst, otherValue), uint64(len(value)))
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

// cutValue is the inverse of appendValue. ok is false if src is none.
func cutValue(src []byte, before uint64) (floatBits uint64, value, rest []byte, ok bool) {
	if len(src) == 0 {
		return 0, nil, nil, false
	}
	head := src[0]
	src = src[1:]
	if head == otherValue {
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

// A point is a sample of an open chunk.
type point struct {
	t     int64
	bits  uint64
	value []byte // refers to the chunk
}

// each calls fn with each raw sample of c in the order in which they came. value
// refers to c.
func (c *openChunk) each(fn func(t int64, floatBits uint64, value []byte)) {
	t, step, floatBits := c.window, int64(0), uint64(0)
	for rest := c.raw[rawStartSize:]; len(rest) > 0; {
		change, n := binary.Varint(rest)
		step += change
		t += step
		next, value, after, ok := cutValue(rest[max(n, 0):], floatBits)
		if n <= 0 || !ok {
			panic("buffer: an open chunk is broken") // it is made by append
		}
		fn(t, next, value)
		if value == nil {
			floatBits = next
		}
		rest = after
	}
}

// points appends the raw samples of c in the order in which they came.
func (c *openChunk) points(dst []point) []point {
	c.each(func(t int64, floatBits uint64, value []byte) {
		dst = append(dst, point{t, floatBits, value})
	})
	return dst
}

// floats appends the samples of c, all of which are floats, in the order in which
// they came.
func (c *openChunk) floats(ts []int64, vs []float64) ([]int64, []float64) {
	return c.rawFloats(c.partFloats(ts, vs))
}

// rawFloats is floats of those that are raw.
func (c *openChunk) rawFloats(ts []int64, vs []float64) ([]int64, []float64) {
	if c.rawCount > chunk.MaxSamples { // DecodeOpen takes no more
		c.each(func(t int64, floatBits uint64, _ []byte) {
			ts, vs = append(ts, t), append(vs, math.Float64frombits(floatBits))
		})
		return ts, vs
	}
	return mustDecode(chunk.DecodeOpen(c.raw, ts, vs))
}

// mustDecode returns what was decoded of what this process has encoded.
func mustDecode(ts []int64, vs []float64, err error) ([]int64, []float64) {
	if err != nil {
		panic(fmt.Sprintf("buffer: an open chunk is broken: %v", err))
	}
	return ts, vs
}

// allPoints appends the samples of c in order of time, of equal times the one that
// came last.
func (c *openChunk) allPoints(dst []point) []point {
	ts, vs := c.partFloats(nil, nil)
	for i, t := range ts {
		dst = append(dst, point{t: t, bits: math.Float64bits(vs[i])})
	}
	dst = c.points(dst)
	if c.unsorted {
		dst = sorted(dst)
	}
	return dst
}

// newest returns the sample of c with the greatest time.
func (c *openChunk) newest() point {
	if !c.unsorted && !c.mixed {
		return point{t: c.end(), bits: c.bits}
	}
	points := c.allPoints(nil)
	return points[len(points)-1]
}

// sorted sorts points by time and keeps the last of equal times.
func sorted(points []point) []point {
	slices.SortStableFunc(points, func(a, b point) int {
		switch {
		case a.t < b.t:
			return -1
		case a.t > b.t:
			return 1
		}
		return 0
	})
	kept := points[:0]
	for i, p := range points {
		if i+1 < len(points) && points[i+1].t == p.t {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// windowOf returns the start of the window of t.
func windowOf(t int64) int64 { return t &^ (series.Window - 1) }

// float returns the value of p, which is one.
func (p point) float() float64 { return math.Float64frombits(p.bits) }

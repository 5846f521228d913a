package buffer

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/promtable/promtable/series"
)

// A ref is a series. It implements bucketstore.Ref. All but its key, and what
// only who commits uses, is guarded by Buffer.mu.
type ref struct {
	// What comes first is what a sample needs, which lies together in memory.

	key string
	// gone says that the buffer no longer knows r: another ref may stand for the
	// series.
	gone bool
	// jitter spreads over the series what they would else do all at once.
	jitter uint8
	// request is the stamp of the last request with a sample of r.
	request int64
	// open are the chunks of the two newest windows of the data, the newer first.
	// A window that holds nothing is empty.
	open [2]openChunk
	// sealed are chunks on their way to the store.
	sealed []*sealedChunk

	// segment is the segment of the log in which r has the number id and the last
	// value bits, for the next value to differ from. Only who commits uses them.
	segment uint64
	id      uint64
	bits    uint64
}

// SeriesKey implements bucketstore.Ref.
func (r *ref) SeriesKey() []byte { return view(r.key) }

// isIdle says whether r holds nothing.
func (r *ref) isIdle() bool {
	return r.open[0].n == 0 && r.open[1].n == 0 && len(r.sealed) == 0
}

// noWindow is before all windows.
const noWindow = -series.Window

// An openChunk holds samples of one window in the order in which they came.
type openChunk struct {
	// window is the start of the window in milliseconds.
	window int64
	// buf holds a sample after the other: by how much its distance from the one
	// before, in time, is other than that of the one before, which for most is not
	// at all; then its value, see appendValue. Floats alone are just what
	// series.AppendOpen writes, which readers get as it is.
	buf []byte
	n   int
	// first and last are the smallest and the greatest time.
	first, last int64
	// t and bits are the time and value of the newest sample, step the distance of
	// its time from the one before.
	t, step int64
	bits    uint64
	// unsorted says that times do not ascend strictly.
	unsorted bool
	// mixed says that there are values other than floats.
	mixed bool
	// stamp is that of the newest sample, segment the oldest that it needs.
	stamp   int64
	segment uint64
}

// append adds a sample, the value of which is value, or the float of these bits
// if that is nil.
func (c *openChunk) append(t int64, floatBits uint64, value []byte) {
	if c.n == 0 {
		c.first, c.last, c.t, c.step, c.bits = t, t, c.window, 0, 0
	} else {
		c.unsorted = c.unsorted || t <= c.t
		c.first, c.last = min(c.first, t), max(c.last, t)
	}
	c.reserve(2*binary.MaxVarintLen64 + 1 + len(value)) // the longest time, and a length or eight bytes after its head
	step := t - c.t
	c.buf = binary.AppendVarint(c.buf, step-c.step)
	c.buf = appendValue(c.buf, c.bits, floatBits, value)
	c.t, c.step = t, step
	if c.mixed = c.mixed || value != nil; value == nil {
		c.bits = floatBits
	}
	c.n++
}

// reserve makes room for size bytes. What is open is most of what the process
// holds, so that it grows by half and not to the double.
func (c *openChunk) reserve(size int) {
	if cap(c.buf)-len(c.buf) >= size {
		return
	}
	grown := make([]byte, len(c.buf), max(64, len(c.buf)+len(c.buf)/2+size))
	copy(grown, c.buf)
	c.buf = grown
}

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

// each calls fn with each sample of c in the order in which they came. value
// refers to c.
func (c *openChunk) each(fn func(t int64, floatBits uint64, value []byte)) {
	t, step, floatBits := c.window, int64(0), uint64(0)
	for rest := c.buf; len(rest) > 0; {
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

// points appends the samples of c in order of time, of equal times the one that
// came last.
func (c *openChunk) points(dst []point) []point {
	c.each(func(t int64, floatBits uint64, value []byte) {
		dst = append(dst, point{t, floatBits, value})
	})
	if c.unsorted {
		dst = sorted(dst)
	}
	return dst
}

// newest returns the sample of c with the greatest time.
func (c *openChunk) newest() point {
	if !c.unsorted && !c.mixed {
		return point{t: c.t, bits: c.bits}
	}
	points := c.points(nil)
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

package buffer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// A ref is the series reference of a Buffer. Its key does not change, and some fields are
// owned by the committer; all others are guarded by Buffer.mu.
type ref struct {
	// The fields that each sample needs come first, so that they share cache lines.

	key string
	// request is the stamp of the last request with a sample of r. seen is the clock at
	// that request, in milliseconds; stamps may be ahead of the clock.
	request, seen int64
	// newer and older are the open chunks of the two latest windows with samples. The older
	// one is mostly empty and nil.
	newer       openChunk
	older       *openChunk
	olderWindow int64
	// late are the late chunks by window. It is nil if there are none.
	late map[int64]*openChunk
	// sealed is the last sealed chunk that is not in the store yet; the others follow it.
	sealed *sealedChunk

	// numbering is that of the log in which r has the number id. bits is the last
	// value in it, which the next value is encoded against. They are owned by the
	// committer.
	numbering uint64
	bits      uint64
	id        uint32
	// forgotten says that r was forgotten: another ref may stand for the series.
	forgotten bool
	// jitter spreads the work of the series over time.
	jitter uint8
}

// open yields the open chunks of r.
func (r *ref) open(yield func(*openChunk) bool) {
	if !yield(&r.newer) || r.older != nil && !yield(r.older) {
		return
	}
	for _, c := range r.late {
		if !yield(c) {
			return
		}
	}
}

// SeriesKey implements bucketstore.Ref.
func (r *ref) SeriesKey() []byte { return viewString(r.key) }

// isIdle says whether r holds no samples.
func (r *ref) isIdle() bool {
	return r.newer.n == 0 && (r.older == nil || r.older.n == 0) && len(r.late) == 0 && r.sealed == nil
}

// oldest returns the start of the first window of which r holds samples, or MaxInt64. Buffer.mu is held for reading.
func (r *ref) oldest() int64 {
	oldest := int64(math.MaxInt64)
	for c := range r.open {
		if c.n > 0 {
			oldest = min(oldest, c.window)
		}
	}
	for s := range r.allSealed {
		oldest = min(oldest, s.window)
	}
	return oldest
}

// noWindow is before all windows.
const noWindow = -series.Window

// An openChunk holds samples of one window in order of arrival: the first ones in parts,
// see parts.go, the last ones raw. The last sample is always raw.
type openChunk struct {
	// window is the start of the window in milliseconds. All other times are
	// distances from it.
	window int64
	// raw is an open chunk of package chunk; its times count from window. If all values are
	// floats, readers get it as it is. It is read with Buffer.mu held.
	raw []byte
	// parts are the samples before those in raw.
	parts string
	// bits is the value of the last float.
	bits uint64
	// stamp is the stamp of the last sample, segment the oldest segment that the samples
	// need.
	stamp   int64
	segment uint64
	// n counts all samples, and rawCount those in raw. Buffer.review is called when n
	// reaches due.
	n, rawCount, due uint32
	// last is the greatest time, t the time of the last sample, step its distance from the
	// sample before, and rawFirst the time of the first sample in raw.
	last, t, rawFirst uint32
	step              int32
	// unsorted says that times are not strictly ascending, rawUnsorted that those in raw
	// are not.
	unsorted, rawUnsorted bool
	// mixed says that raw has values other than floats.
	mixed bool
	// late says that it is in ref.late.
	late bool
}

// maxRawSample is the largest size of a sample in raw, without a Value: times differ by
// less than 2²⁴, so that their varint has up to four bytes. AppendOpenSample writes a head
// of one byte and eight more bytes at once.
const maxRawSample = 4 + 1 + binary.MaxVarintLen64

// append adds a sample with this value, or if that is nil, with the float of these bits.
// Memory comes from buffers, which may be nil.
func (c *openChunk) append(buffers *rawBuffers, t int64, floatBits uint64, value []byte) {
	at, raw := uint32(t-c.window), c.raw
	t0, step0 := c.t, c.step
	if size := maxRawSample + len(value); c.rawCount == 0 {
		t0, step0, c.bits = 0, 0, 0
		raw = chunk.AppendOpenStart(buffers.get(chunk.OpenStartSize+size), c.window)
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
	c.raw = chunk.AppendOpenSample(raw, int64(step-step0), c.bits, floatBits, value)
	c.t, c.step = at, step
	if c.mixed = c.mixed || value != nil; value == nil {
		c.bits = floatBits
	}
	c.n++
	c.rawCount++
}

// size is the memory of c in bytes.
func (c *openChunk) size() int {
	size := cap(c.raw) + len(c.parts)
	if c.late {
		size += lateBytes
	}
	return size
}

// end is the greatest time, in milliseconds.
func (c *openChunk) end() int64 { return c.window + int64(c.last) }

// A point is a sample of an open chunk.
type point struct {
	t     int64
	bits  uint64
	value []byte // refers to the chunk
}

// each calls fn with each raw sample of c in order of arrival. value refers to c.
func (c *openChunk) each(fn func(t int64, floatBits uint64, value []byte)) {
	if err := chunk.EachOpen(c.raw, fn); err != nil {
		panic(fmt.Sprintf("buffer: an open chunk is broken: %v", err)) // it is made by append
	}
}

// points appends the raw samples of c in order of arrival.
func (c *openChunk) points(dst []point) []point {
	c.each(func(t int64, floatBits uint64, value []byte) {
		dst = append(dst, point{t, floatBits, value})
	})
	return dst
}

// floats appends the samples of c, all of which are floats, in order of arrival.
func (c *openChunk) floats(ts []int64, vs []float64) ([]int64, []float64) {
	return c.rawFloats(c.partFloats(ts, vs))
}

// rawFloats is floats for the raw samples.
func (c *openChunk) rawFloats(ts []int64, vs []float64) ([]int64, []float64) {
	if c.rawCount > chunk.MaxSamples { // DecodeOpen takes no more
		c.each(func(t int64, floatBits uint64, _ []byte) {
			ts, vs = append(ts, t), append(vs, math.Float64frombits(floatBits))
		})
		return ts, vs
	}
	return mustDecode(chunk.DecodeOpen(c.raw, ts, vs))
}

// mustDecode is for data that this process has encoded.
func mustDecode(ts []int64, vs []float64, err error) ([]int64, []float64) {
	if err != nil {
		panic(fmt.Sprintf("buffer: an open chunk is broken: %v", err))
	}
	return ts, vs
}

// allPoints appends the samples of c in order of time, without overwritten ones.
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

// latest returns the sample of c with the greatest time.
func (c *openChunk) latest() point {
	if !c.unsorted && !c.mixed {
		return point{t: c.end(), bits: c.bits}
	}
	points := c.allPoints(nil)
	return points[len(points)-1]
}

// sorted sorts points by time and keeps the last of equal times.
func sorted(points []point) []point {
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.t, b.t) })
	kept := points[:0]
	for i, p := range points {
		if i+1 < len(points) && points[i+1].t == p.t {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// float returns the value of p, which is one.
func (p point) float() float64 { return math.Float64frombits(p.bits) }

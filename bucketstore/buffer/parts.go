package buffer

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// Most samples of an open chunk are in parts: a raw sample takes four or five bytes, one in
// a part less than two. A part is the cell that readers get, behind its size: a dense chunk
// with the stamp of its last sample.
//
//	part = size of value uvarint | qualifier | value
//
// In a part times ascend. Parts may overlap: then the part with the higher stamp, which is
// the later one, has the last write. Parts never change, so readers may refer to them.

// partCells yields the parts of c as cells, which refer to it.
func (c *openChunk) partCells(yield func(bucketstore.Cell) bool) {
	base, _ := series.Split(c.window)
	for parts := viewString(c.parts); len(parts) > 0; {
		size, n := binary.Uvarint(parts)
		at := n + chunk.QualifierSize
		if n <= 0 || at > len(parts) || uint64(len(parts)-at) < size {
			panic("buffer: a part of an open chunk is broken") // it is made by encodePart
		}
		end := at + int(size)
		last := binary.BigEndian.Uint32(parts[n+series.QualifierSize:])
		if !yield(bucketstore.Cell{Family: series.FamilyChunk, Qualifier: parts[n:at], Time: base + int64(last), Value: parts[at:end]}) {
			return
		}
		parts = parts[end:]
	}
}

// partFloats appends the samples of the parts of c, in the order of the parts.
func (c *openChunk) partFloats(ts []int64, vs []float64) ([]int64, []float64) {
	for part := range c.partCells {
		sealed, err := chunk.Parse(part.Qualifier, part.Value)
		ts, vs = mustDecode(ts, vs, err)
		ts, vs = mustDecode(dense.Decode(sealed.Data, ts, vs))
	}
	return ts, vs
}

// encodePart moves the raw samples of c, which are floats, to a part, or to more if a chunk
// cannot count them. The raw memory goes to buffers. The caller then appends a sample.
func (e *chunkEncoder) encodePart(c *openChunk, buffers *rawBuffers) {
	e.Reuse = true // the parts are a copy
	cells, err := e.encodeRaw(c)
	if err != nil {
		panic(fmt.Sprintf("buffer: floats make no part: %v", err))
	}
	e.space = e.space[:0]
	for _, cell := range cells {
		e.space = binary.AppendUvarint(e.space, uint64(len(cell.Value)))
		e.space = append(append(e.space, cell.Qualifier...), cell.Value...)
	}
	c.parts += string(e.space)
	buffers.put(c.raw)
	c.raw, c.rawCount, c.rawUnsorted = nil, 0, false
}

// rawBuffers recycles the memory of raw samples, by size. It is most of what the process
// holds, so buffers grow by a half and do not double. A nil *rawBuffers keeps none. It is
// not safe for concurrent use. With the allocator in its place e2e/bench takes 4 % more CPU
// time for each sample.
type rawBuffers struct {
	free [len(rawSizes)][][]byte
	size int // of all free buffers
}

// rawSizes are the sizes of the buffers of each kind. The Go allocator has the same size classes.
var rawSizes = [...]int{64, 96, 144, 224, 352, 512, 768}

// maxFreeRaw bounds the memory of free buffers.
const maxFreeRaw = 1 << 20

// kindOf returns the smallest kind of buffer with room for size bytes, or len(rawSizes).
func kindOf(size int) int {
	kind, _ := slices.BinarySearch(rawSizes[:], size)
	return kind
}

// get returns an empty buffer with room for size bytes.
func (b *rawBuffers) get(size int) []byte {
	kind := kindOf(size)
	if kind == len(rawSizes) {
		return make([]byte, 0, size+size/2)
	}
	if b == nil || len(b.free[kind]) == 0 {
		return make([]byte, 0, rawSizes[kind])
	}
	end := len(b.free[kind]) - 1
	buf := b.free[kind][end]
	b.free[kind] = b.free[kind][:end]
	b.size -= cap(buf)
	return buf
}

// grow returns a buffer with the content of buf and room for size bytes more. It frees buf.
func (b *rawBuffers) grow(buf []byte, size int) []byte {
	grown := append(b.get(len(buf)+size), buf...)
	b.put(buf)
	return grown
}

// put frees a buffer.
func (b *rawBuffers) put(buf []byte) {
	kind := kindOf(cap(buf))
	if b == nil || kind == len(rawSizes) || rawSizes[kind] != cap(buf) || b.size >= maxFreeRaw {
		return
	}
	b.free[kind] = append(b.free[kind], buf[:0])
	b.size += cap(buf)
}

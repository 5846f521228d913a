package buffer

import (
	"encoding/binary"

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

// cutPart returns the qualifier and the value of the first part, and the parts after it.
func cutPart(parts string) (qualifier, value []byte, rest string) {
	size, n := binary.Uvarint(viewString(parts))
	at := n + chunk.QualifierSize
	if n <= 0 || at > len(parts) || uint64(len(parts)-at) < size {
		panic("buffer: a part of an open chunk is broken") // it is made by encodePart
	}
	end := at + int(size)
	return viewString(parts[n:at]), viewString(parts[at:end]), parts[end:]
}

// partFloats appends the samples of the parts of c, in the order of the parts.
func (c *openChunk) partFloats(ts []int64, vs []float64) ([]int64, []float64) {
	for parts := c.parts; len(parts) > 0; {
		qualifier, value, rest := cutPart(parts)
		sealed, err := chunk.Parse(qualifier, value)
		ts, vs = mustDecode(ts, vs, err)
		ts, vs = mustDecode(dense.Decode(sealed.Data, ts, vs))
		parts = rest
	}
	return ts, vs
}

// appendPartCells appends the parts of c as cells. They refer to it.
func (c *openChunk) appendPartCells(cells []bucketstore.Cell) []bucketstore.Cell {
	for parts := c.parts; len(parts) > 0; {
		qualifier, value, rest := cutPart(parts)
		last := binary.BigEndian.Uint32(qualifier[series.QualifierSize:])
		base, _ := series.Split(c.window)
		cells = append(cells, bucketstore.Cell{
			Family: series.FamilyChunk, Qualifier: qualifier, Time: base + int64(last), Value: value,
		})
		parts = rest
	}
	return cells
}

// A partEncoder turns raw samples into parts.
type partEncoder struct {
	encoder chunkEncoder
	part    []byte
}

// encodePart moves the raw samples of c, which are floats, to a part, or to more if a chunk
// cannot count them. The raw memory goes to buffers. The caller then appends a sample.
func (d *partEncoder) encodePart(c *openChunk, buffers *rawBuffers) {
	e := &d.encoder
	if c.rawUnsorted {
		e.takePoints(sorted(c.points(e.points[:0])))
	} else {
		e.times, e.floats = c.rawFloats(e.times[:0], e.floats[:0])
	}
	d.part = d.part[:0]
	for ts, vs := e.times, e.floats; len(ts) > 0; {
		n := min(len(ts), chunk.MaxSamples)
		d.appendPart(c.stamp, ts[:n], vs[:n])
		ts, vs = ts[n:], vs[n:]
	}
	c.parts += string(d.part)
	buffers.put(c.raw)
	c.raw, c.rawCount, c.rawUnsorted = nil, 0, false
}

// appendPart appends a part.
func (d *partEncoder) appendPart(stamp int64, ts []int64, vs []float64) {
	e := &d.encoder
	e.data = dense.Append(e.data[:0], ts, vs)
	var cell bucketstore.Cell
	cell, e.space = bucketstore.AppendChunkCell(e.space[:0], chunk.EncodingDense, stamp, ts[0], ts[len(ts)-1], e.data)
	d.part = binary.AppendUvarint(d.part, uint64(len(cell.Value)))
	d.part = append(append(d.part, cell.Qualifier...), cell.Value...)
}

// rawBuffers recycles the memory of raw samples, by size. It is most of what the process
// holds, so buffers grow by a half and do not double. A nil *rawBuffers keeps none. It is
// not safe for concurrent use. With the allocator in its place e2e/bench takes 4 % more CPU
// time for each sample.
type rawBuffers struct {
	free [rawSizes][][]byte
	size int // of all free buffers
}

const (
	rawSizes = 7
	// maxFreeRaw bounds the memory of free buffers.
	maxFreeRaw = 1 << 20
)

// rawSize returns the size of the buffers of a kind. The Go allocator has the same size
// classes.
func rawSize(kind int) int { return [rawSizes]int{64, 96, 144, 224, 352, 512, 768}[kind] }

// kindOf returns the smallest kind of buffer with room for size bytes, or rawSizes.
func kindOf(size int) int {
	kind := 0
	for kind < rawSizes && rawSize(kind) < size {
		kind++
	}
	return kind
}

// get returns an empty buffer with room for size bytes.
func (b *rawBuffers) get(size int) []byte {
	kind := kindOf(size)
	if kind == rawSizes {
		return make([]byte, 0, size+size/2)
	}
	if b == nil || len(b.free[kind]) == 0 {
		return make([]byte, 0, rawSize(kind))
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
	if b == nil || kind == rawSizes || rawSize(kind) != cap(buf) || b.size >= maxFreeRaw {
		return
	}
	b.free[kind] = append(b.free[kind], buf[:0])
	b.size += cap(buf)
}

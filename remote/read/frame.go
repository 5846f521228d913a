package read

import (
	"encoding/binary"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// maxFrameHead bounds the bytes in front of a frame: its size as a varint, and its
// checksum.
const maxFrameHead = binary.MaxVarintLen64 + crc32.Size

// Tags of a prometheus.ChunkedReadResponse: number<<3 | wire type.
const (
	tagChunkedSeries = byte(1<<3 | protowire.BytesType)  // ChunkedReadResponse.chunked_series
	tagQueryIndex    = byte(2<<3 | protowire.VarintType) // ChunkedReadResponse.query_index
	tagChunk         = byte(2<<3 | protowire.BytesType)  // ChunkedSeries.chunks
	tagMinTime       = byte(1<<3 | protowire.VarintType) // Chunk.min_time_ms
	tagMaxTime       = byte(2<<3 | protowire.VarintType) // Chunk.max_time_ms
	tagEncoding      = byte(3<<3 | protowire.VarintType) // Chunk.type
	tagData          = byte(4<<3 | protowire.BytesType)  // Chunk.data
)

// A frame is a part of a streamed answer: a prometheus.ChunkedReadResponse with
// one series, behind its size and its checksum.
type frame struct {
	query  int64
	labels labels.Labels
	chunks []chunks.Meta

	// size is that of the message, series that of the series in it, in bytes.
	size, series int
}

// measure sets the sizes.
func (f *frame) measure() {
	f.series = labelsSize(f.labels)
	for i := range f.chunks {
		n := chunkSize(&f.chunks[i])
		f.series += 1 + varintSize(n) + n
	}
	f.size = 1 + varintSize(f.series) + f.series + numberSize(f.query)
}

// append appends the frame, which has been measured, in the bytes that upstream's
// writer and the generated encoder make of it.
func (f *frame) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(f.size))
	dst = append(dst, make([]byte, crc32.Size)...)
	start := len(dst)
	dst = binary.AppendUvarint(append(dst, tagChunkedSeries), uint64(f.series))
	dst = appendLabels(dst, f.labels)
	for i := range f.chunks {
		dst = appendChunk(dst, &f.chunks[i])
	}
	dst = appendNumber(dst, tagQueryIndex, f.query)
	sum := crc32.Checksum(dst[start:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(dst[start-crc32.Size:], sum)
	return dst
}

// chunkSize returns the size of a Chunk.
func chunkSize(c *chunks.Meta) int {
	data := len(c.Chunk.Bytes())
	return numberSize(c.MinTime) + numberSize(c.MaxTime) + numberSize(int64(c.Chunk.Encoding())) + 1 + varintSize(data) + data
}

// appendChunk appends a Chunk with its tag. The encodings have the same numbers
// there.
func appendChunk(dst []byte, c *chunks.Meta) []byte {
	dst = binary.AppendUvarint(append(dst, tagChunk), uint64(chunkSize(c)))
	dst = appendNumber(dst, tagMinTime, c.MinTime)
	dst = appendNumber(dst, tagMaxTime, c.MaxTime)
	dst = appendNumber(dst, tagEncoding, int64(c.Chunk.Encoding()))
	data := c.Chunk.Bytes()
	dst = binary.AppendUvarint(append(dst, tagData), uint64(len(data)))
	return append(dst, data...)
}

// numberSize is what appendNumber appends.
func numberSize(n int64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(n))
}

// appendNumber appends a field, unless it is 0.
func appendNumber(dst []byte, tag byte, n int64) []byte {
	if n == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, tag), uint64(n))
}

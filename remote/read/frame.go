package read

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/remote/wire"
)

// maxFrameHead is what stands in front of a frame at most: its size as a uvarint,
// and its checksum.
const maxFrameHead = binary.MaxVarintLen64 + crc32.Size

// Tags of a prometheus.ChunkedReadResponse: number<<3 | wire type.
const (
	tagChunkedSeries = 1<<3 | wire.BytesType  // ChunkedReadResponse.chunked_series
	tagQueryIndex    = 2<<3 | wire.VarintType // ChunkedReadResponse.query_index
	tagChunk         = 2<<3 | wire.BytesType  // ChunkedSeries.chunks
	tagMinTime       = 1<<3 | wire.VarintType // Chunk.min_time_ms
	tagMaxTime       = 2<<3 | wire.VarintType // Chunk.max_time_ms
	tagEncoding      = 3<<3 | wire.VarintType // Chunk.type
	tagData          = 4<<3 | wire.BytesType  // Chunk.data
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
		f.series += 1 + uvarintSize(n) + n
	}
	f.size = 1 + uvarintSize(f.series) + f.series + numberSize(f.query)
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
	return numberSize(c.MinTime) + numberSize(c.MaxTime) + numberSize(int64(c.Chunk.Encoding())) + 1 + uvarintSize(data) + data
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
	return 1 + uvarintSize64(uint64(n))
}

// appendNumber appends a field, unless it is 0.
func appendNumber(dst []byte, tag byte, n int64) []byte {
	if n == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, tag), uint64(n))
}

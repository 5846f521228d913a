package series

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const (
	// ChunkQualifierSize is the size in bytes of a qualifier in the family of
	// sealed chunks: two deltas and a checksum.
	ChunkQualifierSize = 2*QualifierSize + 4

	// MaxChunkSamples is how many samples a chunk holds at most: upstream counts
	// them in 16 bits.
	MaxChunkSamples = 1<<16 - 1

	// EncodingDense is the encoding of a chunk of floats whose data are as
	// AppendDense writes them. Encodings below 128 are those of package chunkenc
	// of Prometheus. It is part of the stored format.
	EncodingDense = 128

	// EncodingOpen is that of a chunk of floats whose data are as AppendOpen writes
	// them: one that is handed on in memory while samples are still added. No
	// writer stores it.
	EncodingOpen = 129

	// chunkHeaderSize is what stands before the data: encoding and stamp.
	chunkHeaderSize = 1 + stampSize
	stampSize       = 6
)

// A Chunk is a sealed chunk: a run of samples of one series inside one window,
// as a cell of FamilyChunk holds it.
type Chunk struct {
	// Encoding says what Data are: EncodingDense, EncodingOpen or a number of
	// package chunkenc.
	Encoding byte
	// Stamp orders chunks: of two values of one time the one in the chunk with
	// the higher stamp is right. In milliseconds, in [0, MaxTime].
	Stamp int64
	// First and Last are the deltas of the first and the last sample, inclusive.
	First, Last uint32
	// Data hold at least one and at most MaxChunkSamples samples. ParseChunk does
	// not look into them.
	Data []byte
}

// AppendChunk appends the value of the cell of c. It panics if the stamp or the
// encoding could not be parsed again.
func AppendChunk(dst []byte, c Chunk) []byte {
	if !isEncoding(c.Encoding) || c.Stamp < 0 || c.Stamp > MaxTime {
		panic(fmt.Sprintf("series: chunk of encoding %d with stamp %d", c.Encoding, c.Stamp))
	}
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(c.Stamp))
	dst = append(dst, c.Encoding)
	dst = append(dst, stamp[8-stampSize:]...)
	return append(dst, c.Data...)
}

// AppendChunkQualifier appends the qualifier of the cell with this value, made
// by AppendChunk, whose first and last samples have these deltas: the deltas and
// the CRC-32C (Castagnoli) of the value, each of four bytes, big-endian. So the
// same chunk sealed twice is one cell, and different chunks are never one.
func AppendChunkQualifier(dst []byte, first, last uint32, value []byte) []byte {
	dst = AppendQualifier(AppendQualifier(dst, first), last)
	return binary.BigEndian.AppendUint32(dst, chunkChecksum(value))
}

// ParseChunk is the inverse of AppendChunkQualifier and AppendChunk. Data refers
// to value. Sizes, checksum, encoding and stamp are checked, and that first and
// last lie in this order in one window; what is wrong with the data shows when a
// RowSamples reads them.
func ParseChunk(qual, value []byte) (c Chunk, err error) {
	if len(qual) != ChunkQualifierSize || len(value) < chunkHeaderSize {
		return c, fmt.Errorf("%w: chunk with a qualifier of %d and a value of %d bytes", ErrCorrupt, len(qual), len(value))
	}
	c.First, c.Last = binary.BigEndian.Uint32(qual), binary.BigEndian.Uint32(qual[QualifierSize:])
	if err := c.checkDeltas(); err != nil {
		return c, err
	}
	if chunkChecksum(value) != binary.BigEndian.Uint32(qual[2*QualifierSize:]) {
		return c, fmt.Errorf("%w: chunk from delta %d to %d has another checksum than its qualifier %x", ErrCorrupt, c.First, c.Last, qual)
	}
	stamp := uint64(binary.BigEndian.Uint32(value[1:]))<<16 | uint64(binary.BigEndian.Uint16(value[5:]))
	c.Encoding, c.Stamp = value[0], int64(stamp)
	c.Data = value[chunkHeaderSize:]
	if !isEncoding(c.Encoding) || c.Stamp > MaxTime {
		return c, fmt.Errorf("%w: chunk from delta %d to %d has encoding %d and stamp %d", ErrCorrupt, c.First, c.Last, c.Encoding, c.Stamp)
	}
	return c, nil
}

// checkDeltas checks that the chunk lies inside one window.
func (c Chunk) checkDeltas() error {
	if c.First > c.Last || c.First>>windowBits != c.Last>>windowBits {
		return fmt.Errorf("%w: chunk from delta %d to %d is no part of a window", ErrCorrupt, c.First, c.Last)
	}
	return nil
}

// AppendChunkStart appends the qualifier from which on a read that begins at
// delta must ask for chunks: the start of its window, because a chunk that
// begins before delta may hold later samples. The end of a read is that of the
// raw families: no chunk whose qualifier is at or past it has an earlier sample.
func AppendChunkStart(dst []byte, delta uint32) []byte {
	return AppendQualifier(dst, delta&^uint32(Window-1))
}

func isEncoding(e byte) bool {
	return e == EncodingDense || e == EncodingOpen || chunkenc.IsValidEncoding(chunkenc.Encoding(e))
}

func chunkChecksum(value []byte) uint32 {
	return crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
}

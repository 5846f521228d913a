package chunk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
)

const (
	// QualifierSize is the size in bytes of a qualifier in the family of
	// sealed chunks: two deltas and a checksum.
	QualifierSize = 2*series.QualifierSize + 4

	// MaxSamples is how many samples a chunk holds at most: upstream counts
	// them in 16 bits.
	MaxSamples = 1<<16 - 1

	// EncodingDense is the encoding of a chunk of floats whose data are as
	// dense.Append writes them. Encodings below 128 are those of package chunkenc
	// of Prometheus. It is part of the stored format.
	EncodingDense = 128

	// EncodingOpen is the encoding of an open chunk of floats: readers get it
	// from memory while samples are still added. No writer stores it.
	EncodingOpen = 129

	// headerSize is what stands before the data: encoding and stamp.
	headerSize = 1 + stampSize
	stampSize  = 6
)

// A Sealed is a sealed chunk: a run of samples of one series inside one window,
// as a cell of series.FamilyChunk holds it.
type Sealed struct {
	// Encoding says what Data are: EncodingDense, EncodingOpen or a number of
	// package chunkenc.
	Encoding byte
	// Stamp orders chunks: of two values of one time the one in the chunk with
	// the higher stamp is right. In milliseconds, in [0, series.MaxTime].
	Stamp int64
	// First and Last are the deltas of the first and the last sample, inclusive.
	First, Last uint32
	// Data hold at least one and at most MaxSamples samples. Parse does
	// not look into them.
	Data []byte
}

// Append appends the value of the cell of c. It panics if the stamp or the
// encoding could not be parsed again.
func Append(dst []byte, c Sealed) []byte {
	if !isEncoding(c.Encoding) || c.Stamp < 0 || c.Stamp > series.MaxTime {
		panic(fmt.Sprintf("chunk: encoding %d with stamp %d", c.Encoding, c.Stamp))
	}
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(c.Stamp))
	dst = append(dst, c.Encoding)
	dst = append(dst, stamp[8-stampSize:]...)
	return append(dst, c.Data...)
}

// AppendQualifier appends the qualifier of the cell with this value, made
// by Append, whose first and last samples have these deltas: the deltas and
// the CRC-32C (Castagnoli) of the value, each of four bytes, big-endian. So the
// same chunk sealed twice is one cell, and different chunks are never one.
func AppendQualifier(dst []byte, first, last uint32, value []byte) []byte {
	dst = series.AppendQualifier(series.AppendQualifier(dst, first), last)
	return binary.BigEndian.AppendUint32(dst, checksum(value))
}

// Parse is the inverse of AppendQualifier and Append. Data refers
// to value. Sizes, checksum, encoding and stamp are checked, and that first and
// last lie in this order in one window; what is wrong with the data shows when a
// merge.Row reads them.
func Parse(qual, value []byte) (c Sealed, err error) {
	if len(qual) != QualifierSize || len(value) < headerSize {
		return c, fmt.Errorf("%w: chunk with a qualifier of %d and a value of %d bytes", series.ErrCorrupt, len(qual), len(value))
	}
	c.First, c.Last = binary.BigEndian.Uint32(qual), binary.BigEndian.Uint32(qual[series.QualifierSize:])
	if err := c.CheckDeltas(); err != nil {
		return c, err
	}
	if checksum(value) != binary.BigEndian.Uint32(qual[2*series.QualifierSize:]) {
		return c, fmt.Errorf("%w: chunk from delta %d to %d has another checksum than its qualifier %x", series.ErrCorrupt, c.First, c.Last, qual)
	}
	stamp := uint64(binary.BigEndian.Uint32(value[1:]))<<16 | uint64(binary.BigEndian.Uint16(value[5:]))
	c.Encoding, c.Stamp = value[0], int64(stamp)
	c.Data = value[headerSize:]
	if !isEncoding(c.Encoding) || c.Stamp > series.MaxTime {
		return c, fmt.Errorf("%w: chunk from delta %d to %d has encoding %d and stamp %d", series.ErrCorrupt, c.First, c.Last, c.Encoding, c.Stamp)
	}
	return c, nil
}

// CheckDeltas checks that the chunk lies inside one window.
func (c Sealed) CheckDeltas() error {
	if c.First > c.Last || c.First/uint32(series.Window) != c.Last/uint32(series.Window) {
		return fmt.Errorf("%w: chunk from delta %d to %d is no part of a window", series.ErrCorrupt, c.First, c.Last)
	}
	return nil
}

// AppendStart appends the qualifier from which on a read that begins at
// delta must ask for chunks: the start of its window, because a chunk that
// begins before delta may hold later samples. The end of a read is that of the
// raw families: no chunk whose qualifier is at or past it has an earlier sample.
func AppendStart(dst []byte, delta uint32) []byte {
	return series.AppendQualifier(dst, delta&^uint32(series.Window-1))
}

func isEncoding(e byte) bool {
	return e == EncodingDense || e == EncodingOpen || chunkenc.IsValidEncoding(chunkenc.Encoding(e))
}

func checksum(value []byte) uint32 {
	return crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
}

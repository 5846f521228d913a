package series

import (
	"encoding/binary"
	"fmt"
	"math"
)

// plainSampleSize is what a sample takes in a plain chunk: time and value.
const plainSampleSize = 16

// AppendPlain appends floats at these times, in milliseconds, as the data of a
// chunk of EncodingPlain: time and IEEE-754 bits of each sample, eight bytes
// each, big-endian. Nothing costs less to write and to read, and nothing takes
// more room: it is for chunks that are handed on in memory.
func AppendPlain(dst []byte, ts []int64, vs []float64) []byte {
	for i, t := range ts {
		dst = binary.BigEndian.AppendUint64(dst, uint64(t))
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(vs[i]))
	}
	return dst
}

// DecodePlain is the inverse of AppendPlain. It appends to ts and vs; an error
// is an ErrCorrupt. What it says of the times is for the caller to check.
func DecodePlain(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	if len(data)%plainSampleSize != 0 || len(data) > MaxChunkSamples*plainSampleSize {
		return ts, vs, fmt.Errorf("%w: %d bytes are no plain chunk", ErrCorrupt, len(data))
	}
	for ; len(data) > 0; data = data[plainSampleSize:] {
		ts = append(ts, int64(binary.BigEndian.Uint64(data)))
		vs = append(vs, math.Float64frombits(binary.BigEndian.Uint64(data[8:])))
	}
	return ts, vs, nil
}

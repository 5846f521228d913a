package series

import (
	"encoding/binary"
	"fmt"
	"math"
)

// QualifierSize is the size in bytes of a delta at the front of each METRIC
// qualifier.
const QualifierSize = 4

// AppendQualifier appends delta big-endian, so that byte order is time order.
func AppendQualifier(dst []byte, delta uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, delta)
}

// ParseQualifier is the inverse of AppendQualifier.
func ParseQualifier(qual []byte) (delta uint32, err error) {
	if len(qual) != QualifierSize {
		return 0, fmt.Errorf("%w: qualifier %.32x has not %d bytes", ErrCorrupt, qual, QualifierSize)
	}
	return binary.BigEndian.Uint32(qual), nil
}

// AppendFloat appends the bits of v, big-endian: NaN payloads and the sign of
// zero are kept.
func AppendFloat(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
}

// ParseFloat is the inverse of AppendFloat. A value of another size is of a
// kind that this version does not know.
func ParseFloat(value []byte) (float64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: value %.32x of %d bytes is no float", ErrCorrupt, value, len(value))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(value)), nil
}

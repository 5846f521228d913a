package series

import (
	"encoding/binary"
	"fmt"
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

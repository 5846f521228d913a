package bucketstore

import (
	"encoding/binary"
	"fmt"
)

// AppendSum appends n as it stands in Op.Value of an Add, and in the value of a cell of a sum
// family: 8 bytes, big-endian.
func AppendSum(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

// ParseSum is the inverse of AppendSum.
func ParseSum(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("a sum of %d bytes, want 8", len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

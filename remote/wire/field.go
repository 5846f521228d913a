package wire

import (
	"encoding/binary"
	"errors"
)

// errWire marks bytes that are no protobuf message, or not the one expected.
var errWire = errors.New("malformed protobuf message")

// Wire types of protobuf. The others, groups, have never been in these
// messages.
const (
	VarintType  = 0
	Fixed64Type = 1
	BytesType   = 2
	Fixed32Type = 5
)

// A field is one field of a protobuf message.
type field struct {
	num  uint64
	wire byte
	// value is the number of a varint or of a fixed64.
	value uint64
	// bytes is the content of a wireBytes field, a part of the message.
	bytes []byte
}

// cutField takes the first field off msg, which is not empty.
func cutField(msg []byte) (f field, rest []byte, err error) {
	tag, n := binary.Uvarint(msg)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f, nil, errWire
	}
	f.num, f.wire, msg = tag>>3, byte(tag&7), msg[n:]
	switch f.wire {
	case VarintType:
		if f.value, n = binary.Uvarint(msg); n <= 0 {
			return f, nil, errWire
		}
		return f, msg[n:], nil
	case Fixed64Type:
		if len(msg) < 8 {
			return f, nil, errWire
		}
		f.value = binary.LittleEndian.Uint64(msg)
		return f, msg[8:], nil
	case Fixed32Type:
		if len(msg) < 4 {
			return f, nil, errWire
		}
		return f, msg[4:], nil
	case BytesType:
		size, n := binary.Uvarint(msg)
		if n <= 0 || size > uint64(len(msg)-n) {
			return f, nil, errWire
		}
		end := n + int(size)
		f.bytes = msg[n:end:end]
		return f, msg[end:], nil
	}
	return f, nil, errWire
}

// want returns errWire unless f is of this wire type.
func (f field) want(wire byte) error {
	if f.wire != wire {
		return errWire
	}
	return nil
}

package buffer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/promtable/promtable/series"
)

// A segment begins with a head, which says which store its samples belong to, and the size of the
// segment before, which gets no more bytes: one that is cut short is damaged, even between two frames.
//
//	head = magic, 16 bytes | identity of the store, 32 bytes, zeros at its end |
//	       digest of the schema, 16 bytes | size of the segment before, or 0 if this process did not write it, uint64 |
//	       CRC-32C of all that, 4 bytes, both little-endian
//
// The last byte of magic is the version. The head of version 1 is magic alone, that of version 2 has no size.
const (
	magicPrefix = "promtable log\x00\x00"
	magicSize   = len(magicPrefix) + 1
	// headVersion is the version that is written.
	headVersion = 3
	// sizelessVersion is the version without the size of the segment before, which is still read.
	sizelessVersion = 2
	// unboundVersion is the version without a binding, which is still read.
	unboundVersion = 1

	identityBytes = 32
	digestBytes   = 16
	headSize      = sizelessHead + 8
	sizelessHead  = magicSize + identityBytes + digestBytes + 4
)

// A segmentHead is the parsed head of a segment.
type segmentHead struct {
	segment uint64
	// size is the size of the segment in bytes, previous that of the segment before, 0 if that is not known.
	size, previous int64
	version        byte
	Binding
	// blank says that the segment ends inside its head, or is all zeros: it never had a
	// frame. empty says that it has no frame.
	blank, empty bool
}

// appendHead appends the head of a segment to dst, behind one of this size.
func appendHead(dst []byte, b Binding, previous int64) ([]byte, error) {
	start := len(dst)
	dst, err := appendBinding(dst, headVersion, b)
	if err != nil {
		return nil, err
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(previous))
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:])), nil
}

// appendSizelessHead appends a head of sizelessVersion to dst.
func appendSizelessHead(dst []byte, b Binding) ([]byte, error) {
	start := len(dst)
	dst, err := appendBinding(dst, sizelessVersion, b)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:])), err
}

// appendBinding appends a head up to the binding.
func appendBinding(dst []byte, version byte, b Binding) ([]byte, error) {
	digest, err := hex.DecodeString(b.Schema)
	if err != nil || len(digest) > digestBytes || len(b.Store) > identityBytes {
		return nil, fmt.Errorf("a log cannot be bound to store %q with schema %q", b.Store, b.Schema)
	}
	dst = append(append(dst, magicPrefix...), version)
	dst = append(append(dst, b.Store...), make([]byte, identityBytes-len(b.Store))...)
	return append(append(dst, digest...), make([]byte, digestBytes-len(digest))...), nil
}

// parseHead parses the head at the front of src and returns its size.
func parseHead(src []byte) (head segmentHead, size int, err error) {
	if len(src) < magicSize || string(src[:len(magicPrefix)]) != magicPrefix {
		return head, 0, fmt.Errorf("%w: it does not begin like a log", series.ErrCorrupt)
	}
	switch head.version = src[len(magicPrefix)]; head.version {
	case unboundVersion:
		return head, magicSize, nil
	case sizelessVersion:
		size = sizelessHead
	case headVersion:
		size = headSize
	default:
		return head, 0, fmt.Errorf("%w: a log of version %d, this adapter reads versions %d to %d; use the version that wrote it",
			series.ErrCorrupt, head.version, unboundVersion, headVersion)
	}
	if len(src) < size || checksum(src[:size-4]) != binary.LittleEndian.Uint32(src[size-4:]) {
		return head, 0, fmt.Errorf("%w: its head has another checksum", series.ErrCorrupt)
	}
	store, digest := src[magicSize:][:identityBytes], src[magicSize+identityBytes:][:digestBytes]
	if head.Store = strings.TrimRight(string(store), "\x00"); len(bytes.Trim(digest, "\x00")) > 0 {
		head.Schema = hex.EncodeToString(digest)
	}
	if size == headSize {
		head.previous = int64(binary.LittleEndian.Uint64(src[sizelessHead-4:]))
	}
	return head, size, nil
}

// readHead reads the head of a segment.
func readHead(dir directory, segment uint64) (head segmentHead, err error) {
	file, err := openSegment(dir, segment)
	if err != nil {
		return head, err
	}
	head, err = file.start()
	return head, errors.Join(err, file.close())
}

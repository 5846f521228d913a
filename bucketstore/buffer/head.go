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

// A segment begins with a head, which says which store its samples belong to:
//
//	head = magic, 16 bytes | identity of the store, 32 bytes, zeros at its end |
//	       digest of the schema, 16 bytes | CRC-32C of all that, 4 bytes little-endian
//
// The last byte of magic is the version. The head of version 1 is magic alone.
const (
	magicPrefix = "promtable log\x00\x00"
	magicSize   = len(magicPrefix) + 1
	// headVersion is the version that is written.
	headVersion = 2
	// unboundVersion is the version without a binding, which is still read.
	unboundVersion = 1

	identityBytes = 32
	digestBytes   = 16
	headSize      = magicSize + identityBytes + digestBytes + 4
)

// A segmentHead is the parsed head of a segment.
type segmentHead struct {
	segment uint64
	// size is the size of the segment in bytes.
	size    int64
	version byte
	Binding
	// blank says that the segment ends inside its head, or is all zeros: it never had a
	// frame. empty says that it has no frame.
	blank, empty bool
}

// appendHead appends the head of a segment to dst.
func appendHead(dst []byte, b Binding) ([]byte, error) {
	digest, err := hex.DecodeString(b.Schema)
	if err != nil || len(digest) > digestBytes || len(b.Store) > identityBytes {
		return nil, fmt.Errorf("a log cannot be bound to store %q with schema %q", b.Store, b.Schema)
	}
	start := len(dst)
	dst = append(append(dst, magicPrefix...), headVersion)
	dst = append(append(dst, b.Store...), make([]byte, identityBytes-len(b.Store))...)
	dst = append(append(dst, digest...), make([]byte, digestBytes-len(digest))...)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:])), nil
}

// parseHead parses the head at the front of src and returns its size.
func parseHead(src []byte) (head segmentHead, size int, err error) {
	if len(src) < magicSize || string(src[:len(magicPrefix)]) != magicPrefix {
		return head, 0, fmt.Errorf("%w: it does not begin like a log", series.ErrCorrupt)
	}
	switch head.version = src[len(magicPrefix)]; head.version {
	case unboundVersion:
		return head, magicSize, nil
	case headVersion:
	default:
		return head, 0, fmt.Errorf("%w: a log of version %d, this adapter reads version %d and %d; use the version that wrote it",
			series.ErrCorrupt, head.version, unboundVersion, headVersion)
	}
	if len(src) < headSize || checksum(src[:headSize-4]) != binary.LittleEndian.Uint32(src[headSize-4:]) {
		return head, 0, fmt.Errorf("%w: its head has another checksum", series.ErrCorrupt)
	}
	store, digest := src[magicSize:][:identityBytes], src[magicSize+identityBytes:][:digestBytes]
	if head.Store = strings.TrimRight(string(store), "\x00"); len(bytes.Trim(digest, "\x00")) > 0 {
		head.Schema = hex.EncodeToString(digest)
	}
	return head, headSize, nil
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

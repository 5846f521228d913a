package buffer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// A segment begins with a head, which says which store its samples belong to, and the size of the
// segment before, which gets no more bytes: one that is cut short is damaged, even between two frames.
//
//	head = magic, 16 bytes | identity of the store, 32 bytes, zeros at its end |
//	       digest of the schema, 16 bytes | size of the segment before, or 0 if this process did not write it, uint64 |
//	       CRC-32C of all that, 4 bytes, both little-endian
//
// The last byte of magic is the version.
const (
	magicPrefix = "promtable log\x00\x00"
	magicSize   = len(magicPrefix) + 1
	// headVersion is the version that is written. Others are refused.
	headVersion = 3

	identityBytes = 32
	digestBytes   = 16
	// previousAt is where the size of the segment before begins.
	previousAt = magicSize + identityBytes + digestBytes
	headSize   = previousAt + 8 + 4
)

// A segmentHead is the parsed head of a segment.
type segmentHead struct {
	segment uint64
	// name is that of the file.
	name string
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
	digest, err := hex.DecodeString(b.Schema)
	if err != nil || len(digest) > digestBytes || len(b.Store) > identityBytes {
		return nil, fmt.Errorf("a log cannot be bound to store %q with schema %q", b.Store, b.Schema)
	}
	dst = append(append(dst, magicPrefix...), headVersion)
	dst = append(append(dst, b.Store...), make([]byte, identityBytes-len(b.Store))...)
	dst = append(append(dst, digest...), make([]byte, digestBytes-len(digest))...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(previous))
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:])), nil
}

// parseHead parses the head at the front of src.
func parseHead(src []byte) (head segmentHead, err error) {
	if len(src) < magicSize || string(src[:len(magicPrefix)]) != magicPrefix {
		return head, fmt.Errorf("%w: it does not begin like a log", series.ErrCorrupt)
	}
	if head.version = src[len(magicPrefix)]; head.version != headVersion {
		return head, fmt.Errorf("%w: a log of version %d, this adapter reads version %d; use the version that wrote it", series.ErrCorrupt, head.version, headVersion)
	}
	if len(src) < headSize || checksum(src[:headSize-4]) != binary.LittleEndian.Uint32(src[headSize-4:]) {
		return head, fmt.Errorf("%w: its head has another checksum", series.ErrCorrupt)
	}
	store, digest := src[magicSize:][:identityBytes], src[magicSize+identityBytes:][:digestBytes]
	if head.Store = strings.TrimRight(string(store), "\x00"); len(bytes.Trim(digest, "\x00")) > 0 {
		head.Schema = hex.EncodeToString(digest)
	}
	head.previous = int64(binary.LittleEndian.Uint64(src[previousAt:]))
	return head, nil
}

// readHead reads the head of a segment.
func readHead(dir durable.Dir, segment uint64) (head segmentHead, err error) {
	file, err := openSegment(dir, segment)
	if err != nil {
		return head, err
	}
	head, err = file.start()
	return head, errors.Join(err, file.close())
}

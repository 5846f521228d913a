package buffer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/promtable/promtable/bucketstore/durable"
)

// The file synced says how far the log was synced: the bytes before are all there, or the log is damaged.
// With an interval between fsyncs it is written after each; those after are left out from the first
// damage on, as a loss of power leaves it. With an fsync before each answer it is written each second, beside
// the requests: of what comes after, only an unfinished last write may be left out. The file has two slots, in two sectors of a disk. They are written in turn, so
// that one is whole at any time, and in place, so that this works on a full disk.
//
//	slot = magic, 16 bytes | segment uint64 | size of it that is synced uint64 | CRC-32C of all that
//	       all three little-endian
//
// The last byte of magic is the version: 1 with an interval, 2 with an fsync before each answer.
const (
	syncedName    = "synced"
	syncedPrefix  = "promtable sync\x00"
	syncedVersion = 1
	alwaysVersion = 2
	syncedSize    = magicSize + 8 + 8 + 4
	syncedSlots   = 2
	// slotDistance is the distance between the starts of two slots.
	slotDistance = 512
)

// A position is a size of a segment in bytes, up to which it is synced. always says that so is each request
// after it that was answered.
type position struct {
	segment uint64
	size    int64
	always  bool
}

// after says whether p is after q in the log.
func (p position) after(q position) bool {
	return p.segment > q.segment || p.segment == q.segment && p.size > q.size
}

// appendSynced appends a slot to dst.
func appendSynced(dst []byte, p position) []byte {
	start := len(dst)
	version := byte(syncedVersion)
	if p.always {
		version = alwaysVersion
	}
	dst = append(append(dst, syncedPrefix...), version)
	dst = binary.LittleEndian.AppendUint64(dst, p.segment)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.size))
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

// parseSynced parses a slot. One that was not finished is the zero position.
func parseSynced(src []byte) (p position, err error) {
	if len(src) < magicSize || string(src[:len(syncedPrefix)]) != syncedPrefix {
		return p, nil
	}
	version := src[len(syncedPrefix)]
	if version != syncedVersion && version != alwaysVersion {
		return p, fmt.Errorf("%s has version %d, this adapter reads versions %d and %d; use the version that wrote it", syncedName, version, syncedVersion, alwaysVersion)
	}
	if len(src) < syncedSize || checksum(src[:syncedSize-4]) != binary.LittleEndian.Uint32(src[syncedSize-4:]) {
		return p, nil
	}
	src = src[magicSize:]
	return position{binary.LittleEndian.Uint64(src), int64(binary.LittleEndian.Uint64(src[8:])), version == alwaysVersion}, nil
}

// readSynced returns how far the log in dir is known to be synced. Without the file it is the
// zero position.
func readSynced(dir durable.Dir) (last position, err error) {
	f, err := dir.Open(syncedName, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for slot := range int64(syncedSlots) {
		src := make([]byte, syncedSize)
		n, err := f.ReadAt(src, slot*slotDistance)
		if err != nil && !errors.Is(err, io.EOF) {
			return last, err
		}
		p, err := parseSynced(src[:n])
		if err != nil {
			return last, err
		}
		if p.after(last) {
			last = p
		}
	}
	return last, nil
}

// A syncedFile writes the file synced. It is safe for concurrent use.
type syncedFile struct {
	dir    durable.Dir
	always bool

	mu sync.Mutex
	// file is nil before it is opened.
	file durable.File
	last position
	slot int64
}

// open makes an empty file, durably, once.
func (s *syncedFile) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

func (s *syncedFile) openLocked() error {
	if s.file != nil {
		return nil
	}
	file, err := s.dir.Open(syncedName, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return refuseIfFull(err)
	}
	s.file = file
	return s.dir.Sync()
}

// put makes durable that the log is synced up to p. After a refusal the file says what it
// said before.
func (s *syncedFile) put(p position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.always = s.always
	if !p.after(s.last) { // the committer has begun a segment meanwhile
		return nil
	}
	if err := s.openLocked(); err != nil { // the disk may have had no room for it when the log began
		return err
	}
	if _, err := s.file.WriteAt(appendSynced(nil, p), s.slot*slotDistance); err != nil {
		return refuseIfFull(err)
	}
	if err := s.file.Sync(); err != nil {
		return refuseIfAway(err)
	}
	s.last, s.slot = p, (s.slot+1)%syncedSlots
	return nil
}

func (s *syncedFile) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

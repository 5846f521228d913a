package buffer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// A segmentFile is a segment that is read from the front, in blocks: it may have gigabytes.
type segmentFile struct {
	segment uint64
	file    durable.File
	size    int64
	// block holds bytes that were read but not used yet. It begins at at.
	block []byte
	at    int64
}

// readAtOnce is the size of a block.
const readAtOnce = 16 << 20

func openSegment(dir durable.Dir, segment uint64) (*segmentFile, error) {
	file, err := dir.Open(segmentName(segment), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &segmentFile{segment: segment, file: file, size: info.Size()}, nil
}

func (s *segmentFile) close() error { return s.file.Close() }

// start reads the head.
func (s *segmentFile) start() (head segmentHead, err error) {
	blank, err := s.isBlank()
	if err != nil {
		return head, err
	}
	if blank {
		return segmentHead{segment: s.segment, size: s.size, blank: true, empty: true}, nil
	}
	src, err := s.peek(int64(headSize))
	if err != nil {
		return head, err
	}
	if head, err = parseHead(src); err != nil {
		return head, err
	}
	s.skip(headSize)
	head.segment, head.name, head.size, head.empty = s.segment, segmentName(s.segment), s.size, s.atEnd()
	return head, nil
}

// atEnd says whether all bytes are used.
func (s *segmentFile) atEnd() bool { return s.at == s.size }

// cutOff removes the bytes from the position on, durably.
func (s *segmentFile) cutOff(dir durable.Dir) error {
	f, err := dir.Open(segmentName(s.segment), os.O_WRONLY)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(s.at), f.Sync(), f.Close())
}

// frame returns the body of the next frame, which stays valid. If there is no valid frame
// the error is series.ErrCorrupt, and the position does not change.
func (s *segmentFile) frame() (body []byte, err error) {
	src, err := s.peek(frameHead)
	if err != nil {
		return nil, err
	}
	if size, ok := bodySize(src); ok {
		if src, err = s.peek(frameHead + size); err != nil {
			return nil, err
		}
	}
	if body, err = cutFrame(src); err == nil {
		s.skip(frameHead + len(body))
	}
	return body, err
}

// peek returns the next n bytes, or fewer at the end.
func (s *segmentFile) peek(n int64) ([]byte, error) {
	n = min(n, s.size-s.at)
	if have := int64(len(s.block)); have < n {
		block := make([]byte, min(max(n, readAtOnce), s.size-s.at)) // frames refer to the block before
		copy(block, s.block)
		if _, err := s.file.ReadAt(block[have:], s.at+have); err != nil {
			return nil, err
		}
		s.block = block
	}
	return s.block[:n:n], nil
}

// skipTo moves to a position.
func (s *segmentFile) skipTo(at int64) { s.block, s.at = nil, at }

func (s *segmentFile) skip(n int) { s.block, s.at = s.block[n:], s.at+int64(n) }

// isBlank says whether the segment ends inside its head, or is all zeros.
func (s *segmentFile) isBlank() (bool, error) {
	if s.size < int64(magicSize) {
		return true, nil
	}
	if s.size < int64(headSize) {
		src, err := s.peek(s.size)
		if err != nil || strings.HasPrefix(string(src), magicPrefix+string(rune(headVersion))) {
			return err == nil, err
		}
	}
	block := make([]byte, 64<<10)
	for at := int64(0); at < s.size; at += int64(len(block)) {
		block = block[:min(int64(len(block)), s.size-at)]
		if _, err := s.file.ReadAt(block, at); err != nil {
			return false, err
		}
		if len(bytes.Trim(block, "\x00")) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// hasFrame says whether a valid frame begins anywhere after the next byte. If so the bytes
// here are not a torn last write.
func (s *segmentFile) hasFrame() (bool, error) {
	block := make([]byte, readAtOnce+frameHead)
	for at := s.at + 1; s.size-at > frameHead; at += readAtOnce {
		block = block[:min(int64(len(block)), s.size-at)]
		if _, err := s.file.ReadAt(block, at); err != nil {
			return false, err
		}
		for i := range min(readAtOnce, len(block)-frameHead) {
			size, ok := bodySize(block[i:])
			if !ok || size == 0 {
				continue
			}
			if ok, err := s.isFrame(block[i:][:frameHead], at+int64(i), size); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// isFrame says whether size bytes follow the head at at, and match its checksum.
func (s *segmentFile) isFrame(head []byte, at, size int64) (bool, error) {
	if size > s.size-at-frameHead {
		return false, nil
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(sum, io.NewSectionReader(s.file, at+frameHead, size)); err != nil {
		return false, err
	}
	return sum.Sum32() == binary.LittleEndian.Uint32(head[4:]), nil
}

// bodySize returns the size of the body, if src begins with the head of a frame.
func bodySize(src []byte) (size int64, ok bool) {
	if len(src) < frameHead || checksum(src[:8]) != binary.LittleEndian.Uint32(src[8:]) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint32(src)), true
}

// cutFrame returns the body of the frame at the front of src.
func cutFrame(src []byte) (body []byte, err error) {
	if len(src) < frameHead {
		return nil, fmt.Errorf("%w: %d bytes are no frame", series.ErrCorrupt, len(src))
	}
	size, ok := bodySize(src)
	if !ok {
		return nil, fmt.Errorf("%w: the head of a frame has another checksum", series.ErrCorrupt)
	}
	if size > int64(len(src)-frameHead) {
		return nil, fmt.Errorf("%w: a frame of %d bytes has only %d", series.ErrCorrupt, size, len(src)-frameHead)
	}
	body = src[frameHead:][:size]
	if checksum(body) != binary.LittleEndian.Uint32(src[4:]) {
		return nil, fmt.Errorf("%w: a frame has another checksum", series.ErrCorrupt)
	}
	return body, nil
}

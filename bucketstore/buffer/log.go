package buffer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// segmentName returns the name of the file of a segment.
func segmentName(segment uint64) string { return fmt.Sprintf("%016d.log", segment) }

// segmentsIn returns the segments in dir, ascending.
func segmentsIn(dir string) (segments []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".log")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || segmentName(n) != e.Name() {
			return nil, fmt.Errorf("%s is not the name of a segment", e.Name())
		}
		segments = append(segments, n)
	}
	slices.Sort(segments)
	return segments, nil
}

// A wal is the log. Its segments hold what is acknowledged and not in the store.
type wal struct {
	dir          string
	head         []byte // of each segment
	always       bool   // fsync before write returns
	segmentBytes int
	// mostBytes is the size of a segment that would be mostly keys at segmentBytes.
	mostBytes int
	metrics   *metrics

	// What follows belongs to the goroutine that writes.
	frame []byte
	size  int
	known numbered

	segments *segments
	current  uint64

	mu sync.Mutex
	// file is that of the current segment; dirty says that it was written to since
	// it was last synced.
	file  *os.File
	dirty bool
}

// checksum is CRC-32C.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// createLog begins a log with the segment after the last one.
func createLog(dir dirState, cfg Config, m *metrics, segments *segments) (*wal, error) {
	head, err := appendHead(nil, dir.Binding)
	if err != nil {
		return nil, err
	}
	l := &wal{
		dir: dir.path, head: head, always: cfg.FsyncInterval == 0, metrics: m,
		segmentBytes: cfg.SegmentBytes, mostBytes: max(cfg.SegmentBytes, cfg.MaxLogBytes/2),
		segments: segments, current: segments.last(),
	}
	if err := l.rotate(); err != nil {
		return nil, err
	}
	l.segments.begin(l.current)
	return l, nil
}

// rotate ends the segment and begins the next, the file of which is durable, as
// an empty one, when rotate returns.
func (l *wal) rotate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if err := errors.Join(l.syncLocked(), l.file.Close()); err != nil {
			return err
		}
	}
	path := filepath.Join(l.dir, segmentName(l.current+1))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if _, err := file.Write(l.head); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := errors.Join(file.Sync(), syncDir(l.dir)); err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size, l.known = file, len(l.head), numbered{}
	l.current++
	l.segments.grow(l.current, int64(len(l.head)))
	return nil
}

// write appends requests and returns the segment in which they are. If the log
// is synced always, they are durable then.
func (l *wal) write(group []*request) (segment uint64, err error) {
	if l.isFull() {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	l.frame = append(l.frame[:0], make([]byte, frameHead)...)
	for _, req := range group {
		for part := range slices.Chunk(req.samples, maxPart) {
			if len(l.frame) > enoughFrame {
				if err := l.writeFrame(true); err != nil { // only the last frame may be torn
					return 0, err
				}
				l.frame = l.frame[:frameHead]
			}
			l.frame, l.known = appendRequest(l.frame, part, req.stamp, l.current, l.known)
		}
	}
	err = l.writeFrame(l.always)
	if cap(l.frame) > maxFrameBuffer {
		l.frame = nil
	}
	l.segments.begin(l.current) // those before are needed until it holds a stamp
	return l.current, err
}

// isFull says whether the segment should end. Each one has the keys of its series
// again, and of a million they are 150 MB: a segment has more of other things, if it
// may become that large.
func (l *wal) isFull() bool {
	return l.size >= l.mostBytes || l.size >= l.segmentBytes && l.size >= keyShare*l.known.bytes
}

const (
	// keyShare is what of a segment may be keys, one to that.
	keyShare = 4
	// maxPart is how many samples of a request stand in the log in one piece.
	maxPart = 4096
	// enoughFrame is after how many bytes of requests a frame ends.
	enoughFrame = 64 << 20
	// maxFrameBuffer is how much memory is kept for the next frame.
	maxFrameBuffer = 8 << 20
)

// writeFrame writes the frame, and makes it durable if sync is set.
func (l *wal) writeFrame(sync bool) error {
	body := l.frame[frameHead:]
	if uint64(len(body)) > math.MaxUint32 {
		return fmt.Errorf("a frame of %d bytes", len(body))
	}
	binary.LittleEndian.PutUint32(l.frame, uint32(len(body)))
	binary.LittleEndian.PutUint32(l.frame[4:], checksum(body))
	binary.LittleEndian.PutUint32(l.frame[8:], checksum(l.frame[:8]))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(l.frame); err != nil {
		return err
	}
	l.size += len(l.frame)
	l.segments.grow(l.current, int64(len(l.frame)))
	l.dirty = true
	l.metrics.logBytes.Add(float64(len(l.frame)))
	if sync {
		return l.syncLocked()
	}
	return nil
}

// sync makes durable what is written.
func (l *wal) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.syncLocked()
}

func (l *wal) syncLocked() error {
	if !l.dirty {
		return nil
	}
	l.dirty = false
	l.metrics.syncs.Inc()
	return l.file.Sync()
}

// runFsync makes the log durable at an interval, until ctx ends.
func (b *Buffer) runFsync(ctx context.Context) {
	ticker := time.NewTicker(b.cfg.FsyncInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := b.log.sync(); err != nil {
			b.cfg.Die(err)
		}
	}
}

// close closes the log, which stays.
func (l *wal) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.syncLocked(), l.file.Close())
}

// remove closes the log and removes its files, of which nothing is needed any
// more but stamp, the newest one.
func (l *wal) remove(stamp int64) error {
	if err := errors.Join(l.close(), writeStamp(l.dir, stamp)); err != nil {
		return fmt.Errorf("remove the log: %w", err)
	}
	return l.segments.removeBefore(l.current + 1)
}

// segments are the files of the log, which go when no chunk needs them. It is safe
// for concurrent use.
type segments struct {
	dir     string
	metrics *metrics

	mu sync.Mutex
	// oldest is the first of the files that there are, and current the last.
	oldest, current uint64
	// sizes are those of the files.
	sizes map[uint64]int64
	// pins counts, by segment, the chunks that need it and all that follow.
	pins map[uint64]int
}

// begin says which segment is the last one.
func (s *segments) begin(segment uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == segment {
		return
	}
	if s.current = segment; s.oldest == 0 {
		s.oldest = segment
	}
	s.metrics.segments.Set(float64(s.current - s.oldest + 1))
}

// grow says that a segment has become larger.
func (s *segments) grow(segment uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[segment] += bytes
}

// within returns the first of the last segments, one or more, that have so many
// bytes at most.
func (s *segments) within(bytes int64) (first uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first = s.current; first > s.oldest; first-- {
		if bytes -= s.sizes[first]; bytes < s.sizes[first-1] {
			break
		}
	}
	return first
}

// size returns the bytes of all segments.
func (s *segments) size() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, size := range s.sizes {
		bytes += size
	}
	return bytes
}

// last returns the number of the last segment, or 0.
func (s *segments) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// newSegments returns those of a log without any.
func newSegments(dir string, m *metrics) *segments {
	return &segments{dir: dir, metrics: m, sizes: make(map[uint64]int64), pins: make(map[uint64]int)}
}

// pin says that one more chunk needs a segment.
func (s *segments) pin(segment uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[segment]++
}

// unpin says that the chunks that needed these segments are in the store, and
// removes the segments that no chunk needs, but not the last one.
func (s *segments) unpin(stored []*sealedChunk) error {
	s.mu.Lock()
	for _, c := range stored {
		if s.pins[c.segment]--; s.pins[c.segment] == 0 {
			delete(s.pins, c.segment)
		}
	}
	first := s.oldest
	for first < s.current && s.pins[first] == 0 {
		first++
	}
	s.mu.Unlock()
	return s.removeBefore(first)
}

// removeBefore removes the segments before first. It is not called twice at a
// time.
func (s *segments) removeBefore(first uint64) error {
	s.mu.Lock()
	oldest := s.oldest
	s.mu.Unlock()
	for ; oldest > 0 && oldest < first; oldest++ { // this takes long, and writers want mu
		err := os.Remove(filepath.Join(s.dir, segmentName(oldest)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a segment of the log: %w", err)
		}
		if err := syncDir(s.dir); err != nil { // none may be missing before another
			return fmt.Errorf("remove a segment of the log: %w", err)
		}
		s.mu.Lock()
		s.oldest = oldest + 1
		delete(s.sizes, oldest)
		s.metrics.segments.Set(float64(s.current + 1 - s.oldest))
		s.mu.Unlock()
	}
	return nil
}

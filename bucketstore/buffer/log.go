package buffer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/promtable/promtable/bucketstore/durable"
)

// segmentName returns the name of the file of a segment.
func segmentName(segment uint64) string { return numberedName(segment, ".log") }

// segmentsIn returns the segments in dir, ascending.
func segmentsIn(dir durable.Dir) (segments []uint64, err error) {
	return numbersIn(dir, ".log", "a segment")
}

func numberedName(n uint64, suffix string) string { return fmt.Sprintf("%016d%s", n, suffix) }

// numbersIn returns the numbers of the files in dir that have this suffix, ascending. what they
// are is for the error about another name.
func numbersIn(dir durable.Dir, suffix, what string) (numbers []uint64, err error) {
	names, err := dir.Names()
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || numberedName(n, suffix) != name {
			return nil, fmt.Errorf("%s is not the name of %s: move this file out of the directory of the log", name, what)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, err
}

// A wal is the log. Its segments hold the acknowledged samples that are not in the store.
type wal struct {
	dir          durable.Dir
	binding      Binding // of each segment
	always       bool    // fsync before write returns
	segmentBytes int
	// mostBytes bounds a segment that would consist mostly of keys at segmentBytes.
	mostBytes int
	metrics   *metrics

	segments *segments
	synced   *syncedFile

	mu sync.Mutex
	// file is the segment current. It is nil if the disk had no room for one yet. dirty says
	// that it was written to since the last fsync.
	file    durable.File
	current uint64
	dirty   bool
	size    int
	frame   []byte
	// next is a segment whose head may be durable or not: what keeps the files was away. It is the next one.
	next durable.File
	// written is the stamp of the first request of the last commit, durable that of the last one that is synced.
	written, durable int64
	// numbered counts the series that have a number in the segment. numbering is another one once
	// no series has: in each segment, and after a write that was cut off.
	numbered  numbered
	numbering uint64
}

// checksum is CRC-32C.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// newLog returns a log without a current segment.
func newLog(dir dirState, cfg Config, m *metrics, segments *segments) *wal {
	l := &wal{
		dir: dir.Dir, binding: dir.Binding, always: cfg.FsyncInterval == 0, metrics: m,
		segmentBytes: cfg.SegmentBytes, mostBytes: max(cfg.SegmentBytes, cfg.MaxLogBytes/2),
		segments: segments,
	}
	if n := len(dir.heads); n > 0 {
		l.current = dir.heads[n-1].segment
	}
	l.synced = &syncedFile{dir: dir.Dir, always: l.always}
	return l
}

// start creates a segment, after the last one, whose stamp must be durable elsewhere.
func (l *wal) start() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.rotate(); err != nil {
		return err
	}
	l.segments.setCurrent(l.current)
	return nil
}

// rotate ends the segment and starts the next, with mu held. The new file is durable, with
// its head alone, when rotate returns. After a refusal the segment may go on.
func (l *wal) rotate() error {
	if err := l.syncLocked(); err != nil {
		return err
	}
	next, err := l.create(l.current + 1)
	if err != nil {
		return err
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return errors.Join(err, next.Close())
		}
	}
	l.file, l.size, l.numbered = next, headSize, numbered{}
	l.current++
	l.numbering++
	l.segments.grow(l.current, int64(headSize))
	return nil
}

// create makes a segment with its head, durably. After a refusal there is no file: behind
// it the segment before could not go on.
func (l *wal) create(segment uint64) (durable.File, error) {
	if l.next != nil {
		return l.finishNext(l.next)
	}
	name := segmentName(segment)
	var previous int64
	if l.file != nil { // else a start has all of it in the store, and its end may not be synced
		previous = int64(l.size)
	}
	head, err := appendHead(nil, l.binding, previous)
	if err != nil {
		return nil, err
	}
	file, err := l.dir.Open(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND)
	if errors.Is(err, os.ErrNotExist) { // the directory was removed
		return nil, refusal{err}
	}
	if err != nil {
		return nil, refuseIfFull(err)
	}
	if _, err = file.Write(head); err == nil {
		err = l.synced.open()
		if l.always && isRefusal(err) { // put tries again
			err = nil
		}
		if err == nil {
			err = errors.Join(file.Sync(), l.dir.Sync())
		}
		if err == nil && !l.always {
			err = l.synced.put(position{segment: segment, size: int64(headSize)})
		}
	} else {
		err = refuseIfFull(err)
	}
	if err == nil {
		return file, nil
	}
	if errors.Is(err, durable.ErrAway) {
		l.next = file
		return nil, refuseIfAway(err)
	}
	closed := file.Close()
	if !isRefusal(err) {
		return nil, err
	}
	if removed := errors.Join(closed, durable.Remove(l.dir, name)); removed != nil {
		return nil, fmt.Errorf("remove a segment that was not finished: %w, after: %v", removed, err)
	}
	return nil, err
}

// finishNext makes the head of the next segment durable.
func (l *wal) finishNext(next durable.File) (durable.File, error) {
	if err := next.Sync(); err != nil {
		return nil, refuseIfAway(err)
	}
	l.next = nil
	return next, nil
}

// write appends requests and returns their segment. With always they are durable when it
// returns. After a refusal none of them is in the log, unless what keeps the files was away: then they may be, or come into it before the
// next ones.
func (l *wal) write(group []*request) (segment uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.always { // what was written before may not be durable, if what keeps the files was away
		if err := l.syncLocked(); err != nil {
			return 0, err
		}
	}
	if l.file == nil || l.next != nil || l.isFull() {
		if err := l.rotate(); err != nil && (l.file == nil || l.next != nil || !isRefusal(err) || errors.Is(err, os.ErrNotExist)) {
			return 0, err
		}
	}
	size, numbered := l.size, l.numbered
	err = l.writeFrames(group)
	if isRefusal(err) && !errors.Is(err, durable.ErrAway) { // the series have numbers and last values of requests that are not in the log
		l.numbered = numbered
		l.numbering++
		if cut := l.cut(size); cut != nil {
			return 0, fmt.Errorf("cut off a write that was not finished: %w, after: %v", cut, err)
		}
	}
	if cap(l.frame) > maxFrameBuffer {
		l.frame = nil
	}
	if err != nil {
		return 0, err
	}
	l.written = group[0].stamp
	if !l.dirty {
		l.durable = l.written
	}
	l.segments.setCurrent(l.current) // the segments before are needed until this one holds a stamp
	return l.current, nil
}

// writeFrames writes requests to the segment.
func (l *wal) writeFrames(group []*request) error {
	l.frame = append(l.frame[:0], make([]byte, frameHead)...)
	for _, req := range group {
		for part := range slices.Chunk(req.samples, maxPart) {
			if len(l.frame) > enoughFrame {
				if err := l.writeFrame(true); err != nil { // only the last frame may be torn
					return err
				}
				l.frame = l.frame[:frameHead]
			}
			l.frame, l.numbered = appendRequest(l.frame, part, req.stamp, l.numbering, l.numbered)
		}
	}
	return l.writeFrame(l.always)
}

// cut cuts the segment back to a size that it had between two requests. The cut is durable
// before anything is written behind it, and so never comes back.
func (l *wal) cut(size int) error {
	if err := errors.Join(l.file.Truncate(int64(size)), l.file.Sync()); err != nil {
		return err
	}
	l.segments.grow(l.current, int64(size-l.size))
	l.size = size
	return nil
}

// isFull says whether the segment should end. Each segment repeats the keys of its series,
// 150 MB for a million. So a segment with many keys may grow larger.
func (l *wal) isFull() bool {
	return l.size >= l.mostBytes || l.size >= l.segmentBytes && l.size >= keyShare*l.numbered.bytes
}

const (
	// keyShare is the wanted ratio of a segment to its keys.
	keyShare = 4
	// maxPart is how many samples of a request form one part.
	maxPart = 4096
	// enoughFrame is the size in bytes at which a frame ends.
	enoughFrame = 64 << 20
	// maxFrameBuffer is the size up to which the buffer of a frame is reused.
	maxFrameBuffer = 8 << 20
)

// putFrameHead fills the head of a frame, which its body follows.
func putFrameHead(frame []byte) {
	body := frame[frameHead:]
	binary.LittleEndian.PutUint32(frame, uint32(len(body)))
	binary.LittleEndian.PutUint32(frame[4:], checksum(body))
	binary.LittleEndian.PutUint32(frame[8:], checksum(frame[:8]))
}

// writeFrame writes the frame, and makes it durable if sync is set. After a refusal a part of
// it may be in the segment.
func (l *wal) writeFrame(sync bool) error {
	body := l.frame[frameHead:]
	if uint64(len(body)) > math.MaxUint32 {
		return fmt.Errorf("a frame of %d bytes", len(body))
	}
	putFrameHead(l.frame)
	if _, err := l.file.Write(l.frame); err != nil {
		return refuseIfFull(err)
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

// sync makes the written frames durable, and then what the file synced says of them.
func (l *wal) sync() error {
	l.mu.Lock()
	hasFile, to := l.file != nil, position{segment: l.current, size: int64(l.size)}
	err := l.syncLocked()
	if err == nil {
		l.durable = l.written
	}
	l.mu.Unlock()
	if err != nil || !hasFile {
		return err
	}
	if err := l.synced.put(to); !isRefusal(err) {
		return err
	}
	return nil // what it says is less, and true
}

// durableStamp returns the stamp of a request that is durable, the latest that is known, or 0.
func (l *wal) durableStamp() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

func (l *wal) syncLocked() error {
	if !l.dirty {
		return nil
	}
	l.metrics.syncs.Inc()
	err := refuseIfAway(l.file.Sync())
	l.dirty = isRefusal(err)
	return err
}

// syncLog syncs the log once. After an error nothing is known of what was written.
func (b *Buffer) syncLog() {
	if err := b.log.sync(); err != nil && !isRefusal(err) {
		b.cfg.Die(fmt.Errorf("sync the log: %w", err))
	}
}

// close closes the log and keeps its files.
func (l *wal) close() error {
	err := errors.Join(l.sync(), l.synced.close())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return err
	}
	return errors.Join(err, l.file.Close())
}

// remove removes the files of the log, which is closed. Only the stamp is kept.
func (l *wal) remove() error {
	if err := durable.Remove(l.dir, syncedName); err != nil { // before the segment that it names: later ones have the same names
		return fmt.Errorf("remove the log: %w", err)
	}
	return l.segments.removeBefore(l.current + 1)
}

// segments are the files of the log. A file is removed when no chunk needs it. It is safe
// for concurrent use.
type segments struct {
	dir     durable.Dir
	metrics *metrics
	// removing is held while files are removed, before mu.
	removing sync.Mutex

	mu sync.Mutex
	// oldest and current are the numbers of the first and the last file.
	oldest, current uint64
	// sizes are in bytes.
	sizes map[uint64]int64
	// pins counts the chunks that need a segment and all after it.
	pins map[uint64]int
}

// setCurrent makes segment the current one: it holds a stamp, or the one before is durable
// elsewhere.
func (s *segments) setCurrent(segment uint64) {
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

// grow adds to the size of a segment.
func (s *segments) grow(segment uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[segment] += bytes
	s.metrics.logSize.Add(float64(bytes))
}

// within returns the first of the last segments that together have at most this size. There
// is at least one.
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

// first returns the number of the first segment. It is 0 if there is no file.
func (s *segments) first() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// last returns the number of the current segment. It is 0 if there is no file.
func (s *segments) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// newSegments returns the segments of an empty log.
func newSegments(dir durable.Dir, m *metrics) *segments {
	return &segments{dir: dir, metrics: m, sizes: make(map[uint64]int64), pins: make(map[uint64]int)}
}

// pin counts one more chunk that needs a segment.
func (s *segments) pin(segment uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[segment]++
}

// unpin releases the segments of stored chunks, and removes the segments that no chunk
// needs, but never the current one.
func (s *segments) unpin(stored []*sealedChunk) error {
	s.removing.Lock()
	defer s.removing.Unlock()
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

// removeBefore removes the segments before first. Only one call may run at a time, that of unpin
// included.
func (s *segments) removeBefore(first uint64) error {
	s.mu.Lock()
	oldest := s.oldest
	s.mu.Unlock()
	for ; oldest > 0 && oldest < first; oldest++ { // without mu: this takes long, and the writer wants it
		if err := durable.Remove(s.dir, segmentName(oldest)); err != nil { // one at a time: a crash must not leave a gap
			return fmt.Errorf("remove a segment of the log: %w", err)
		}
		s.mu.Lock()
		s.oldest = oldest + 1
		s.metrics.logSize.Sub(float64(s.sizes[oldest]))
		delete(s.sizes, oldest)
		s.metrics.segments.Set(float64(s.current + 1 - s.oldest))
		s.mu.Unlock()
	}
	return nil
}

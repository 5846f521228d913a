package index

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"github.com/promtable/promtable/series"
)

// writer remembers what is written. It is safe for concurrent use.
type writer struct {
	hash hasher

	// refilling holds a token while a call reads commit marks.
	refilling chan struct{}

	mu sync.Mutex
	// written holds series in periods whose commit mark is durable.
	written idSet
	// texts holds v and n rows that are durable.
	texts idSet
	// marksRead holds metric names in periods whose commit marks are in written,
	// as far as it can hold them.
	marksRead idSet
	// reserved holds series in periods that a call of Write is writing. The
	// channel is that of the call, closed when it has ended, well or not.
	reserved map[id]chan struct{}
	// ahead are those that are due in the next period.
	ahead aheadQueue
}

func newWriter(max int) writer {
	return writer{
		hash:      newHasher(),
		refilling: make(chan struct{}, 1),
		written:   newIDSet(max),
		texts:     newIDSet(max),
		marksRead: newIDSet(max),
		reserved:  make(map[id]chan struct{}),
		ahead:     aheadQueue{queued: make(map[id]struct{})},
	}
}

// missing returns the entries that are not remembered as written, and queues those to
// be written ahead. In the steady state that is nothing.
func (w *writer) missing(entries []Entry) []need {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []need
	for i := range entries {
		e := &entries[i]
		text := w.hash.of(e.Key)
		period := series.PeriodOf(e.T)
		if i := w.hash.inPeriod(text, period); !w.written.has(i) {
			missing = append(missing, need{id: i, entry: e, period: period})
		}
		if !writesAhead(e) {
			continue
		}
		next := need{id: w.hash.inPeriod(text, period+series.IndexPeriod), entry: e, period: period + series.IndexPeriod}
		if !w.written.has(next.id) && !w.ahead.enqueue(next) {
			missing = append(missing, next)
		}
	}
	return missing
}

// reserve divides missing into the needs that the call with this channel writes, and
// those that other calls are writing. A need that occurs twice is reserved once.
func (w *writer) reserve(missing []need, done chan struct{}) (mine, others []need) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range missing {
		switch busy, ok := w.reserved[n.id]; {
		case w.written.has(n.id):
		case !ok:
			w.reserved[n.id] = done
			n.done = nil
			mine = append(mine, n)
		case busy != done:
			n.done = busy
			others = append(others, n)
		}
	}
	return mine, others
}

// numWritten returns how many series in periods are remembered as written.
func (w *writer) numWritten() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.written.young) + len(w.written.old)
}

// release ends the reservations of a call, whose writes are remembered already.
func (w *writer) release(mine []need, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range mine {
		delete(w.reserved, n.id)
	}
	close(done)
}

// remember notes what has become durable.
func (w *writer) remember(needs []need, texts map[id]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range texts {
		w.texts.add(i)
	}
	for _, n := range needs {
		w.written.add(n.id)
	}
}

// addText adds the v or n row with b.key to rows, unless the batch has it or it is
// remembered as durable.
func (w *writer) addText(b *batch, rows []Row, text string, time int64) []Row {
	i := w.hash.of(b.key)
	if _, ok := b.texts[i]; ok || w.hasText(i) {
		return rows
	}
	b.texts[i] = struct{}{}
	return append(rows, Row{Key: bytes.Clone(b.key), Value: []byte(text), Time: time})
}

func (w *writer) hasText(i id) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.texts.has(i)
}

// id is a 128-bit hash, seeded by the process: a sender cannot make two texts collide,
// and by chance they do not.
type id [2]uint64

// hasher makes ids.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) of(text []byte) id {
	return id{maphash.Bytes(h.a, text), maphash.Bytes(h.b, text)}
}

// inPeriod makes the id of a text in an index period.
func (h hasher) inPeriod(text id, period int64) id {
	var buf [24]byte
	binary.LittleEndian.PutUint64(buf[0:], text[0])
	binary.LittleEndian.PutUint64(buf[8:], text[1])
	binary.LittleEndian.PutUint64(buf[16:], uint64(period))
	return h.of(buf[:])
}

// idSet remembers about max ids and forgets the least recently used. It has two
// halves: when young is full, old is dropped and young becomes old.
// Not safe for concurrent use.
type idSet struct {
	max        int
	young, old map[id]struct{}
}

func newIDSet(max int) idSet {
	return idSet{max: max, young: make(map[id]struct{})}
}

func (s *idSet) has(i id) bool {
	if _, ok := s.young[i]; ok {
		return true
	}
	_, ok := s.old[i]
	if ok {
		s.add(i)
	}
	return ok
}

func (s *idSet) add(i id) {
	if _, ok := s.young[i]; ok {
		return
	}
	if len(s.young) >= (s.max+1)/2 {
		s.old, s.young = s.young, make(map[id]struct{})
	}
	s.young[i] = struct{}{}
}

package index

import (
	"bytes"
	"math"
	"sync"

	"github.com/promtable/promtable/series"
)

// writer remembers what is written. It is safe for concurrent use.
type writer struct {
	hash hasher

	mu sync.Mutex
	// marks holds series in periods whose commit mark is durable.
	marks rowSet
	// texts holds v and n rows that are durable. What it does not hold is written once
	// more with the next new series.
	texts rowSet
	// reserved holds series in periods that a call of Write looks up and writes. The
	// channel is that of the call, closed when it has ended, well or not.
	reserved map[rowID]chan struct{}
	// lookups counts the series of a period that were looked up, up to manyLookups: then
	// all marks of the period are read, by one call at a time.
	lookups map[int64]int
	reading sync.Mutex
	// prewrites are those that are due in the next period.
	prewrites prewriteQueue
}

// newWriter returns a writer that remembers so many series, each in two periods.
func newWriter(writtenSeries int, m metrics) writer {
	return writer{
		hash:      newHasher(),
		marks:     rowSet{max: 2 * min(writtenSeries, math.MaxInt/2), evicted: m.evictedMarks, whole: make(map[int64]bool)},
		texts:     rowSet{max: max(1, writtenSeries/2), evicted: m.evictedTexts},
		reserved:  make(map[rowID]chan struct{}),
		lookups:   make(map[int64]int),
		prewrites: prewriteQueue{queued: make(map[rowID]struct{})},
	}
}

// missing returns the entries that are not remembered as written, and queues those to
// be prewritten. In the steady state that is nothing.
func (w *writer) missing(entries []Entry) []need {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []need
	for i := range entries {
		e := &entries[i]
		n := need{rowID: rowID{series.PeriodOf(e.T), w.hash.of(e.Key)}, entry: e}
		if !w.marks.has(n.rowID) {
			missing = append(missing, n)
		}
		if !prewrites(e) {
			continue
		}
		next := n
		next.period += series.IndexPeriod
		if !w.marks.has(next.rowID) && !w.prewrites.enqueue(next) {
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
		switch busy, ok := w.reserved[n.rowID]; {
		case w.marks.has(n.rowID):
		case !ok:
			w.reserved[n.rowID] = done
			n.done = nil
			mine = append(mine, n)
		case busy != done:
			n.done = busy
			others = append(others, n)
		}
	}
	return mine, others
}

// manyLookups is how many series of a period are looked up before all its marks are read.
const manyLookups = 10_000

// beginReading counts needs, which are to be looked up and in order of periods, and
// returns the periods whose marks are to be read.
func (w *writer) beginReading(needs []need) (periods []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range needs {
		if w.lookups[n.period]++; w.lookups[n.period] == manyLookups {
			periods = append(periods, n.period)
			w.marks.whole[n.period] = false
		}
	}
	return periods
}

// addMark remembers a mark that was read, and says whether there was room for all of its
// period so far.
func (w *writer) addMark(r rowID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks.add(r)
	_, ok := w.marks.whole[r.period]
	return ok
}

// endReading says how the reading of the marks of a period ended.
func (w *writer) endReading(period int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch _, ok := w.marks.whole[period]; {
	case ok && err == nil:
		w.marks.whole[period] = true
	case ok:
		delete(w.marks.whole, period)
		w.lookups[period] = 0 // to be tried again
	}
}

// divide returns the needs that may have a mark in the table, and those that have none.
// It leaves out those whose mark is remembered by now.
func (w *writer) divide(needs []need) (unknown, absent []need) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range needs {
		switch {
		case w.marks.has(n.rowID):
		case w.marks.whole[n.period]:
			absent = append(absent, n)
		default:
			unknown = append(unknown, n)
		}
	}
	return unknown, absent
}

// numWritten returns how many series in periods are remembered as written.
func (w *writer) numWritten() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.marks.len
}

// release ends the reservations of a call, whose writes are remembered already.
func (w *writer) release(mine []need, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range mine {
		delete(w.reserved, n.rowID)
	}
	close(done)
}

// remember notes what has become durable.
func (w *writer) remember(needs []need, texts map[rowID]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range texts {
		w.texts.add(i)
	}
	for _, n := range needs {
		w.marks.add(n.rowID)
	}
}

// addText adds the v or n row of n's period with b.key to rows, unless the batch has it
// or it is remembered as durable.
func (w *writer) addText(b *batch, rows []Row, text string, n need) []Row {
	r := rowID{n.period, w.hash.of(b.key)}
	if _, ok := b.texts[r]; ok || w.hasText(r) {
		return rows
	}
	b.texts[r] = struct{}{}
	return append(rows, Row{Key: bytes.Clone(b.key), Value: []byte(text), Time: n.periodEnd()})
}

func (w *writer) hasText(r rowID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.texts.has(r)
}

package seriescache

import (
	"sync/atomic"

	"github.com/promtable/promtable/remote/ingest"
)

// An Entry is a series that was stored before, found by the bytes in which a sender
// writes its labels: they need not be decoded and checked again. It is safe for
// concurrent use.
//
// The owner of the cache embeds it in what it keeps of the series, its State. The fields that are read for each sample come
// last, next to that.
type Entry struct {
	hash uint64
	// bytes is about what the entry takes in memory.
	bytes int

	shard *shard
	next  atomic.Pointer[Entry]
	text  string
	// age is that of the young generation that the entry was last added to.
	age  atomic.Uint32
	form byte

	// State is what the owner of the cache keeps of the series.
	State ingest.Cached
}

// Next returns the entry that a sender sent after e the last time, or nil. Senders
// keep to an order: if its text is what comes next in a request, no Find is needed.
func (e *Entry) Next() *Entry {
	next := e.next.Load()
	if next == nil || !next.shard.keep(next) {
		return nil
	}
	return next
}

// SetNext notes that a sender sent next after e.
func (e *Entry) SetNext(next *Entry) { e.next.Store(next) }

// Text returns the text of this form that e is found by, or nothing if it has
// another form.
func (e *Entry) Text(form byte) string {
	if e.form != form {
		return ""
	}
	return e.text
}

// matches says whether e is what a sender writes so.
func (e *Entry) matches(t ingest.WireText) bool {
	return e.text == string(t.Text) && e.form == t.Form
}

// equals says whether e and other are found by the same text.
func (e *Entry) equals(other *Entry) bool {
	return e.text == other.text && e.form == other.form
}

package seriescache

import "sync/atomic"

// WireText is the bytes in which a sender writes a label set, mostly the same in
// every request. Equal texts of one form always stand for the same labels.
type WireText struct {
	// Form says how to read Text. It is for the caller to choose; 0 is no text at
	// all.
	Form byte
	Text []byte
}

// An Entry is a series that was stored before, found by the bytes in which a sender
// writes its labels: they need not be decoded and checked again. It is safe for
// concurrent use.
//
// The fields that are read for each sample come first, with the beginning of State, in
// one or two cache lines.
type Entry[S any] struct {
	text  string
	next  atomic.Pointer[Entry[S]]
	shard *shard[S]
	// age is that of the young generation that the entry was last added to.
	age  atomic.Uint32
	form byte

	// State is what the owner of the cache keeps of the series.
	State S

	hash uint64
	// bytes is about what the entry takes in memory.
	bytes int
}

// Next returns the entry that a sender sent after e the last time, or nil. Senders
// keep to an order: if its text is what comes next in a request, no Find is needed.
func (e *Entry[S]) Next() *Entry[S] {
	next := e.next.Load()
	if next == nil || !next.shard.keep(next) {
		return nil
	}
	return next
}

// SetNext notes that a sender sent next after e.
func (e *Entry[S]) SetNext(next *Entry[S]) { e.next.Store(next) }

// Text returns the text of this form that e is found by, or nothing if it has
// another form.
func (e *Entry[S]) Text(form byte) string {
	if e.form != form {
		return ""
	}
	return e.text
}

// matches says whether e is what a sender writes so.
func (e *Entry[S]) matches(t WireText) bool {
	return e.text == string(t.Text) && e.form == t.Form
}

// equals says whether e and other are found by the same text.
func (e *Entry[S]) equals(other *Entry[S]) bool {
	return e.text == other.text && e.form == other.form
}

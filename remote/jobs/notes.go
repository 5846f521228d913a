package jobs

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// NoteInterval is how often notes are written: each once at most.
const NoteInterval = time.Minute

// MetaTimeout bounds a request to META.
const MetaTimeout = 30 * time.Second

// Notes are rows of META that say at which times a job has to look again, such as days that
// were written to late. They are written some time after Add, so a crash may lose them. It is
// safe for concurrent use.
type Notes struct {
	// Store holds META. Key returns the key of the note of a time, Value what it holds.
	Store bucketstore.Store
	Now   func() time.Time
	Key   func(t int64) (string, error)
	// Value returns what a note written now holds: never twice the same, so that none is
	// removed that was written again.
	Value func(now int64) []byte

	mu sync.Mutex
	// times have no note yet.
	times map[int64]bool
}

// Add notes a time, in milliseconds, in the next Write.
func (n *Notes) Add(t int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.times == nil {
		n.times = make(map[int64]bool)
	}
	n.times[t] = true
}

// Write writes the notes of all times since the last one. After an error they stay for the next.
func (n *Notes) Write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, MetaTimeout)
	defer cancel()
	n.mu.Lock()
	times := n.times
	n.times = nil
	n.mu.Unlock()
	now := n.Now().UnixMilli() // after all that was added
	for t := range times {
		key, err := n.Key(t)
		if err == nil {
			err = meta.Overwrite(ctx, n.Store, key, n.Value(now), now)
		}
		if err != nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.times == nil {
				n.times = times
			}
			maps.Copy(n.times, times)
			return fmt.Errorf("note %s: %w", time.UnixMilli(t).UTC().Format(time.RFC3339), err)
		}
	}
	return nil
}

// A Note says at which time a job has to look again.
type Note struct {
	T    int64
	Key  string
	Cell meta.Cell
}

// ReadNotes returns the notes in a range of META. parse returns the time of a key; its error ends the read.
func ReadNotes(ctx context.Context, store bucketstore.Store, rows series.RowRange, parse func(key []byte) (t int64, err error)) (found []Note, err error) {
	ctx, cancel := context.WithTimeout(ctx, MetaTimeout)
	defer cancel()
	err = meta.ScanCells(ctx, store, rows, func(key []byte, c meta.Cell) error {
		t, err := parse(key)
		if err == nil {
			found = append(found, Note{t, string(key), c})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	return found, nil
}

// Remove removes a note, unless it was written again.
func (n Note) Remove(ctx context.Context, store bucketstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, MetaTimeout)
	defer cancel()
	if _, err := meta.CompareAndDelete(ctx, store, n.Key, n.Cell); err != nil {
		return fmt.Errorf("remove the note %s: %w", n.Key, err)
	}
	return nil
}

package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/series"
)

// A daySet is the days of a layer: all with cells, and perhaps some that had or will have
// cells. A writer adds its days before its batch becomes visible. So a reader that opens
// its iterator first, and loads the set after, misses nothing.
type daySet struct {
	sorted atomic.Pointer[[]uint32] // replaced, never changed

	mu sync.Mutex
	// watched is the day that is being swept, touched says whether a batch wrote to it
	// since.
	watched uint32
	touched bool
	// lives maps swept days to the limit, see expiryLimits, until which their last cell lives.
	// A write to a day removes it.
	lives map[uint32]int64
}

// load finds the days of a layer with cells. It costs a seek for each. Where stored tables
// are damaged it takes all days for existing ones that they may hold.
func (s *daySet) load(db *pebble.DB, first byte) error {
	days, err := findDays(db, first)
	s.lives = make(map[uint32]int64)
	s.sorted.Store(&days)
	return err
}

func findDays(db *pebble.DB, layer byte) (days []uint32, err error) {
	iter, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	days, err = appendDaysIn(nil, iter, layer, []byte{layer}, []byte{layer + 1})
	_ = iter.Close() // its error is that of the last seek
	return days, err
}

// appendDaysIn appends the days of stored keys in [lower, upper).
func appendDaysIn(days []uint32, iter *pebble.Iterator, layer byte, lower, upper []byte) (_ []uint32, err error) {
	iter.SetBounds(lower, upper)
	for valid := iter.First(); valid; valid = iter.SeekGE(lower) {
		key := iter.Key()
		if len(key) < headSize(layer) {
			return nil, fmt.Errorf("%w: stored key %q has no day", series.ErrCorrupt, key)
		}
		day := binary.BigEndian.Uint32(key[1:])
		days = append(days, day)
		lower = appendHeadLimit(nil, layer, day)
	}
	info := pebble.ExtractDataCorruptionInfo(iter.Error())
	if info == nil {
		return days, iter.Error()
	}
	first, last := dayOf(lower, layer), dayOf(info.Bounds.End.Key, layer)
	if start := dayOf(info.Bounds.Start, layer); start > first { // other layers may have earlier days
		first = start
		if days, err = appendDaysIn(days, iter, layer, lower, appendHead(nil, layer, first)); err != nil {
			return nil, err
		}
	}
	days = calendarOf(layer).appendRealDays(days, first, max(first, last))
	if lower = appendHeadLimit(nil, layer, max(first, last)); bytes.Compare(lower, upper) >= 0 {
		return days, nil
	}
	return appendDaysIn(days, iter, layer, lower, upper)
}

// dayOf returns the day of a stored key, of a prefix of one, or of one of another layer.
func dayOf(key []byte, layer byte) uint32 {
	switch {
	case len(key) > 0 && key[0] > layer:
		return noDay
	case len(key) < headSize(layer) || key[0] < layer:
		return 0
	}
	return binary.BigEndian.Uint32(key[1:])
}

// appendRealDays appends the days from first to last that cells can have.
func (c *calendar) appendRealDays(days []uint32, first, last uint32) []uint32 {
	for day := first; day <= min(last, c.last()); day++ {
		days = append(days, day)
	}
	if last == noDay {
		days = append(days, noDay)
	}
	return days
}

// all returns the days, in order. The caller must not change them.
func (s *daySet) all() []uint32 { return *s.sorted.Load() }

// addWritten adds the days of a batch before it becomes visible.
func (s *daySet) addWritten(days []uint32) {
	if len(days) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, day := range days {
		if _, found := slices.BinarySearch(s.all(), day); !found {
			sorted := insertDay(slices.Clone(s.all()), day)
			s.sorted.Store(&sorted)
		}
		s.touched = s.touched || day == s.watched
		delete(s.lives, day)
	}
}

// watch makes day the watched one.
func (s *daySet) watch(day uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched, s.touched = day, false
}

// isTouched says whether a batch wrote to the watched day.
func (s *daySet) isTouched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched
}

// keep records that the watched day lives until this limit.
func (s *daySet) keep(until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.touched {
		s.lives[s.watched] = until
	}
}

// livesAt says whether an earlier sweep found that a cell in day lives with this limit. It had
// deleted those that did not.
func (s *daySet) livesAt(day uint32, limit int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.lives[day]
	return ok && limit <= until
}

// remove removes a day without cells.
func (s *daySet) remove(day uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sorted := slices.Clone(s.all())
	if at, found := slices.BinarySearch(sorted, day); found {
		sorted = slices.Delete(sorted, at, at+1)
	}
	delete(s.lives, day)
	s.sorted.Store(&sorted)
}

// insertDay adds day to sorted, if it is not there.
func insertDay(sorted []uint32, day uint32) []uint32 {
	if n := len(sorted); n > 0 && sorted[n-1] == day {
		return sorted
	}
	at, found := slices.BinarySearch(sorted, day)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, day)
}

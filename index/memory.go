package index

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// DefaultMemory is how many bytes of lists an Index keeps.
const DefaultMemory = 1 << 30

// An Identity is what names a series. Many lists and results share one, and
// only memory writes to lists.
type Identity struct {
	// Key is the series key.
	Key    string
	Labels labels.Labels
	// lists counts where it is in lists in memory. The lock of memory guards it.
	lists int32
}

func compareIdentities(a, b *Identity) int { return labels.Compare(a.Labels, b.Labels) }

// size is about what an Identity takes in memory, in bytes, with its slot in
// memory.series.
func (s *Identity) size() int { return 112 + len(s.Key) + int(s.Labels.ByteSize()) }

// A listKind says what a memList holds.
type listKind byte

const (
	// postingsList has the series with name=text in a period.
	postingsList listKind = iota
	// wideList has the series whose label name the matcher text matches: where that
	// label has too many values for a list of each. Text is empty for all series.
	wideList
	// valuesList has the values of the label name that begin with text, namesList the
	// label names of a period.
	valuesList
	namesList
	// countsList has the counts of Cardinality.
	countsList
	// longList says of the list of the matcher text only how long it is at least.
	longList
)

type listKey struct {
	kind       listKind
	period     int64
	name, text string
}

// A memList is a list in memory. It is complete: what it does not hold is not there.
type memList struct {
	listKey
	// matcher is that of a wideList, nil for all series.
	matcher *labels.Matcher
	// series are sorted. The slice is replaced and never changed. added are those that this
	// process has written since, in any order.
	series, added []*Identity
	// merges counts how often what was added became a part of series.
	merges int
	// textsOf are texts of the series of a postingsList, sorted: the values of a label,
	// or all label names.
	textsOf map[textKind][]string
	// texts and addedTexts are the same for values and names.
	texts      []string
	addedTexts map[string]struct{}
	counts     *counts
	atLeast    int
	// readAt is when the reading of its rows began.
	readAt time.Time
	// used is the memory.uses of its last use.
	used, bytes int
}

// A textKind is the values of the label name, or the label names.
type textKind struct {
	kind listKind
	name string
}

// memory holds lists of the index that were read before, up to a number of bytes. It is
// safe for concurrent use.
//
// A list is read once. Every series that this process writes then goes to the lists that
// it belongs to, before Write returns, also to those that are being read: their load
// notes it. So without other writers a list is exact for ever. With other writers a list
// is used up to an age, and then it is read again.
type memory struct {
	max int
	// exclusive says that no other process writes. refresh is how old a list may be otherwise;
	// if it is 0 nothing is kept.
	exclusive bool
	refresh   time.Duration
	now       func() time.Time
	metrics   memoryMetrics
	// told is what Config.Told has said last.
	told atomic.Bool

	mu    sync.Mutex
	lists map[listKey]*memList
	// wide are the lists of that kind by period and name, and inPeriod counts the lists
	// of a period.
	wide     map[listKey][]*memList
	inPeriod map[int64]int
	// prefixes counts the lists of values by the length of their prefix.
	prefixes map[int]int
	// series are those of all lists, by their keys.
	series map[string]*Identity
	loads  map[*load]struct{}
	// periods are those that have rows, as far as they are known, ascending. They are
	// all if they were read, at periodsAt.
	periods     []int64
	periodsRead bool
	periodsAt   time.Time
	bytes, uses int
}

// A load is one reading of rows that become lists.
type load struct {
	at time.Time
	// added are the series that this process has written since.
	added []addedSeries
	// lost says that this process may have written others.
	lost bool
}

type addedSeries struct {
	*Identity
	period int64
}

func newMemory(cfg Config) *memory {
	m := &memory{
		max: cfg.MaxMemory, exclusive: cfg.Exclusive, refresh: cfg.Refresh, now: cfg.Now,
		lists: make(map[listKey]*memList), wide: make(map[listKey][]*memList), inPeriod: make(map[int64]int), prefixes: make(map[int]int),
		series: make(map[string]*Identity), loads: make(map[*load]struct{}),
	}
	if m.max == 0 {
		m.max = DefaultMemory
	}
	if m.now == nil {
		m.now = time.Now
	}
	m.metrics = newMemoryMetrics(cfg.Registerer, m)
	return m
}

// keeps says whether lists are kept at all.
func (m *memory) keeps() bool { return m.exclusive || m.refresh > 0 }

// toldRefreshes is how many times as old lists may be if other processes tell what they write.
const toldRefreshes = 20

func (m *memory) isOld(readAt time.Time) bool {
	refresh := m.refresh
	if m.told.Load() {
		refresh *= toldRefreshes
	}
	return !m.exclusive && m.now().Sub(readAt) >= refresh
}

// find returns a list, or nil if it is not in memory or too old. The lock is held.
func (m *memory) find(k listKey) *memList {
	l := m.lists[k]
	switch {
	case l == nil:
		m.metrics.misses.Inc()
		return nil
	case m.isOld(l.readAt):
		m.metrics.rereads.Inc()
		return nil
	}
	m.metrics.hits.Inc()
	m.use(l)
	return l
}

// use notes that l is used, and puts what was added to it in its place.
func (m *memory) use(l *memList) {
	m.uses++
	l.used = m.uses
	for len(l.added) > 0 && !m.mergeSeries(l) {
		continue
	}
	if len(l.addedTexts) > 0 {
		l.texts = insertSorted(l.texts, slices.Sorted(maps.Keys(l.addedTexts)), strings.Compare, func(string) {})
		l.addedTexts = nil
	}
}

// mergeAtOnce is how many series are merged while the lock is held.
const mergeAtOnce = 1000

// mergeSeries puts what was added in its place. To sort many series takes seconds, so it
// releases the lock for that; it returns false if l has changed meanwhile.
func (m *memory) mergeSeries(l *memList) bool {
	added, sorted := slices.Clone(l.added), l.series
	var twice []*Identity
	merge := func() []*Identity {
		slices.SortFunc(added, compareIdentities)
		return insertSorted(sorted, added, compareIdentities, func(s *Identity) { twice = append(twice, s) })
	}
	if len(added) <= mergeAtOnce {
		sorted = merge()
	} else {
		merges := l.merges
		m.mu.Unlock()
		sorted = merge()
		m.mu.Lock()
		if l.merges != merges {
			return false
		}
	}
	l.series, l.added = sorted, l.added[len(added):]
	l.merges++
	if m.lists[l.listKey] == l { // else all its series are released
		for _, s := range twice {
			m.release(l, s)
		}
	}
	return true
}

// insertSorted returns both slices as one, in order and without duplicates. It writes to
// neither: queries use them. It calls twice with what it has left out of added.
func insertSorted[T comparable](sorted, added []T, compare func(a, b T) int, twice func(T)) []T {
	merged := make([]T, 0, len(sorted)+len(added))
	for _, v := range added {
		at, found := slices.BinarySearchFunc(sorted, v, compare)
		merged, sorted = append(merged, sorted[:at]...), sorted[at:]
		if found || len(merged) > 0 && merged[len(merged)-1] == v {
			twice(v)
			continue
		}
		merged = append(merged, v)
	}
	return append(merged, sorted...)
}

// postings returns the series of a postingsList, sorted.
func (m *memory) postings(k listKey) (found []*Identity, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(k)
	if l == nil {
		return nil, false
	}
	return l.series, true
}

// textsOf returns texts of the series of a postingsList, if they are in memory.
func (m *memory) textsOf(k listKey, kind textKind) (texts []string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.lists[k]; l != nil && !m.isOld(l.readAt) {
		texts, ok = l.textsOf[kind]
	}
	return texts, ok
}

// setTextsOf keeps texts of the series of a postingsList, unless it has others by now.
func (m *memory) setTextsOf(k listKey, kind textKind, series []*Identity, texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lists[k]
	if l == nil || len(l.added) > 0 || len(l.series) != len(series) || len(series) == 0 || &l.series[0] != &series[0] || l.textsOf[kind] != nil {
		return
	}
	if l.textsOf == nil {
		l.textsOf = make(map[textKind][]string)
	}
	l.textsOf[kind] = texts
	m.grow(l, textsBytes(texts))
	m.evict()
}

func textsBytes(texts []string) (size int) {
	for _, text := range texts {
		size += textBytes + len(text)
	}
	return size
}

// matched returns the list of a matcher, if it is a wide one in memory.
func (m *memory) matched(name string, matcher *labels.Matcher, period int64) (found []*Identity, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.wide[listKey{wideList, period, name, ""}] {
		if sameMatcher(l.matcher, matcher) {
			if l = m.find(l.listKey); l != nil {
				return l.series, true
			}
			break
		}
	}
	return nil, false
}

func sameMatcher(a, b *labels.Matcher) bool {
	return a == b || a != nil && b != nil && a.Type == b.Type && a.Value == b.Value
}

// texts returns values or names that begin with prefix, sorted.
func (m *memory) texts(k listKey) (found []string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.text != "" && m.lists[k] == nil {
		prefix := k.text
		k.text = ""
		if l := m.find(k); l != nil {
			from, _ := slices.BinarySearch(l.texts, prefix)
			n := slices.IndexFunc(l.texts[from:], func(text string) bool { return !strings.HasPrefix(text, prefix) })
			if n < 0 {
				n = len(l.texts) - from
			}
			return l.texts[from : from+n], true
		}
		return nil, false
	}
	if l := m.find(k); l != nil {
		return l.texts, true
	}
	return nil, false
}

// periodsFrom returns the periods with rows from first to last, if all are known.
func (m *memory) periodsFrom(first, last int64) (periods []int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.periodsRead || m.isOld(m.periodsAt) {
		return nil, false
	}
	from, _ := slices.BinarySearch(m.periods, first)
	to, _ := slices.BinarySearch(m.periods, last+1)
	return slices.Clone(m.periods[from:to]), true
}

// setPeriods adds the periods with rows, all that were there at a time, and returns those
// from first to last.
func (m *memory) setPeriods(periods []int64, at time.Time, first, last int64) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, period := range periods {
		m.addPeriod(period)
	}
	m.periodsRead, m.periodsAt = m.keeps(), at
	from, _ := slices.BinarySearch(m.periods, first)
	to, _ := slices.BinarySearch(m.periods, last+1)
	return slices.Clone(m.periods[from:to])
}

func (m *memory) addPeriod(period int64) {
	if at, ok := slices.BinarySearch(m.periods, period); !ok {
		m.periods = slices.Insert(m.periods, at, period)
	}
}

// identity returns the series with this key, or nil if it is in no list.
func (m *memory) identity(key []byte) *Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.series[string(key)]
}

// longAtLeast returns how long the list of a matcher is at least, and sets it if that is
// more.
func (m *memory) longAtLeast(matcher *labels.Matcher, period int64, rows int) int {
	k := listKey{kind: longList, period: period, text: matcher.String()}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lists[k]
	if l == nil || m.isOld(l.readAt) {
		if rows == 0 || !m.keeps() {
			return 0
		}
		m.put(&memList{listKey: k, readAt: m.now()})
		l = m.lists[k]
	}
	m.use(l)
	l.atLeast = max(l.atLeast, rows)
	return l.atLeast
}

// begin begins a load, before the first row is read. The caller ends it.
func (m *memory) begin() *load {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &load{at: m.now()}
	m.loads[l] = struct{}{}
	return l
}

func (m *memory) end(l *load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.loads, l)
}

// internChunk is how many series are interned under one lock.
const internChunk = 1000

// install keeps lists whose rows a load has read, sorted, but for those that are too large.
// It adds what this process has written since.
func (m *memory) install(from *load, lists []*memList) {
	if !m.keeps() {
		return
	}
	lists = slices.DeleteFunc(lists, func(l *memList) bool { return l.size() > m.max/2 })
	for _, l := range lists {
		for some := range slices.Chunk(l.series, internChunk) {
			m.intern(some)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	to := adding{m: m, only: make(map[*memList]bool), lists: make(map[label]*memList)}
	for _, l := range lists {
		l.readAt = from.at
		m.put(l)
		to.only[l] = true
	}
	for _, s := range from.added {
		if have := m.series[s.Key]; have != nil {
			s.Identity = have
		}
		to.addSeries(&newSeries{m: m, Entry: &Entry{Labels: s.Labels}, made: s.Identity}, s.period)
	}
	if from.lost {
		for _, l := range lists {
			m.remove(l)
		}
	}
	m.evict()
}

// intern replaces series by those that are in lists already.
func (m *memory) intern(some []*Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range some {
		if have := m.series[s.Key]; have != nil {
			some[i] = have
		}
		m.retain(some[i])
	}
}

func (m *memory) retain(s *Identity) {
	if s.lists++; s.lists == 1 {
		m.series[s.Key] = s
		m.bytes += s.size()
	}
}

// listBytes is about what an empty list takes, postingBytes a series in one and textBytes
// a text without its bytes.
const (
	listBytes    = 400
	postingBytes = 8
	textBytes    = 24
)

// put adds l, whose series are retained.
func (m *memory) put(l *memList) {
	if old := m.lists[l.listKey]; old != nil {
		m.remove(old)
	}
	l.bytes = l.size()
	m.uses++
	l.used = m.uses
	m.lists[l.listKey] = l
	m.bytes += l.bytes
	m.inPeriod[l.period]++
	switch k := (listKey{wideList, l.period, l.name, ""}); l.kind {
	case wideList:
		m.wide[k] = append(m.wide[k], l)
	case valuesList:
		m.prefixes[len(l.text)]++
	}
}

// size is about what l takes without its series themselves, before anything is added.
func (l *memList) size() int {
	size := listBytes + len(l.name) + len(l.text) + postingBytes*len(l.series) + textsBytes(l.texts)
	if l.counts != nil {
		size += l.counts.bytes
	}
	return size
}

// remove drops l, and the series that are in no other list.
func (m *memory) remove(l *memList) {
	if m.lists[l.listKey] != l {
		return
	}
	delete(m.lists, l.listKey)
	if m.inPeriod[l.period]--; m.inPeriod[l.period] == 0 {
		delete(m.inPeriod, l.period)
	}
	switch k := (listKey{wideList, l.period, l.name, ""}); l.kind {
	case wideList:
		m.wide[k] = slices.DeleteFunc(m.wide[k], func(w *memList) bool { return w == l })
		if len(m.wide[k]) == 0 {
			delete(m.wide, k)
		}
	case valuesList:
		if m.prefixes[len(l.text)]--; m.prefixes[len(l.text)] == 0 {
			delete(m.prefixes, len(l.text))
		}
	}
	for _, some := range [][]*Identity{l.series, l.added} {
		for _, s := range some {
			m.release(l, s)
		}
	}
	m.bytes -= l.bytes
}

// release takes a series out of l.
func (m *memory) release(l *memList, s *Identity) {
	m.grow(l, -postingBytes)
	if s.lists--; s.lists == 0 {
		delete(m.series, s.Key)
		m.bytes -= s.size()
	}
}

// evict drops the lists that were not used for longest, until a tenth of the memory is
// free.
func (m *memory) evict() {
	if m.bytes <= m.max {
		return
	}
	byUse := slices.SortedFunc(maps.Values(m.lists), func(a, b *memList) int { return cmp.Compare(a.used, b.used) })
	for _, l := range byUse {
		if m.bytes <= m.max-m.max/10 {
			break
		}
		m.remove(l)
		m.metrics.evicted.Inc()
	}
}

// forget drops all lists after a write that has failed, because rows of it may be there.
// With other writers that is found when lists are read again.
func (m *memory) forget() {
	if !m.exclusive {
		return
	}
	m.drop()
}

// drop drops all lists, also those that are being read.
func (m *memory) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lists {
		m.remove(l)
	}
	for l := range m.loads {
		l.lost = true
	}
	m.periodsRead = false
}

package index

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// addFound adds series that others have written: those that were in the table when this process was to write them, and those that are learnt.
func (m *memory) addFound(needs []need) {
	if !m.exclusive { // else every load has met them
		m.addNeeds(needs, false)
	}
}

// add adds series that this process has written. Their rows are durable.
func (m *memory) add(needs []need) { m.addNeeds(needs, true) }

func (m *memory) addNeeds(needs []need, written bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := adding{m: m, written: written, lists: make(map[label]*memList)}
	for i := range needs {
		to.add(&needs[i])
	}
	m.evict()
}

// adding is one call of memory.add.
type adding struct {
	m       *memory
	written bool
	// only are the lists to add to, nil for all.
	only map[*memList]bool
	// lists are those of the labels that have come up so far, or nil.
	lists map[label]*memList
}

func (a *adding) add(n *need) {
	m := a.m
	m.addPeriod(n.period)
	if m.inPeriod[n.period] == 0 && len(m.loads) == 0 {
		return
	}
	s := newSeries{m: m, Entry: n.entry}
	for l := range m.loads {
		l.added = append(l.added, addedSeries{s.identity(), n.period})
	}
	if m.inPeriod[n.period] == 0 {
		return
	}
	a.addSeries(&s, n.period)
	if c := m.lists[listKey{kind: countsList, period: n.period}]; c != nil && a.written {
		m.grow(c, c.counts.add(s.Labels))
	}
}

// A newSeries is one that goes to lists. Its Identity is made when the first list wants it.
type newSeries struct {
	m *memory
	*Entry
	made *Identity
}

func (s *newSeries) identity() *Identity {
	if s.made == nil {
		s.made = s.m.series[string(s.Key)]
	}
	if s.made == nil {
		s.made = &Identity{Key: string(s.Key), Labels: s.Labels.Copy()}
	}
	return s.made
}

// addSeries adds a series to the lists of its labels.
func (a *adding) addSeries(s *newSeries, period int64) {
	rangeLabels(s.Labels, func(l labels.Label) {
		at := label{l.Name, l.Value, period}
		list, ok := a.lists[at]
		if !ok {
			list = a.m.lists[listKey{postingsList, period, at.name, at.value}]
			a.lists[at] = list
			a.addTexts(at)
		}
		a.addTo(list, s)
		for _, list := range a.m.wide[listKey{wideList, period, at.name, ""}] {
			if list.matcher == nil || list.matcher.Matches(at.value) {
				a.addTo(list, s)
			}
		}
	})
}

// addTo adds a series to l, which may be nil.
func (a *adding) addTo(l *memList, s *newSeries) {
	if l == nil || a.only != nil && !a.only[l] {
		return
	}
	a.m.retain(s.identity())
	l.added = append(l.added, s.identity())
	a.m.grow(l, postingBytes)
	for kind, texts := range l.textsOf {
		kind.of(s.Labels, func(text string) {
			if _, ok := slices.BinarySearch(texts, text); !ok {
				a.m.grow(l, -textsBytes(texts))
				delete(l.textsOf, kind) // it is made again when it is asked for
				texts = nil
			}
		})
	}
}

// addTexts adds the name and the value of a label to the lists of texts.
func (a *adding) addTexts(at label) {
	if at.value == "" {
		return // no series has it
	}
	a.addText(a.m.lists[listKey{kind: namesList, period: at.period}], at.name)
	for n := range a.m.prefixes {
		if n <= len(at.value) {
			a.addText(a.m.lists[listKey{valuesList, at.period, at.name, at.value[:n]}], at.value)
		}
	}
}

// addText adds a text to l, which may be nil.
func (a *adding) addText(l *memList, text string) {
	if l == nil || a.only != nil && !a.only[l] {
		return
	}
	if _, ok := l.addedTexts[text]; ok {
		return
	}
	if _, ok := slices.BinarySearch(l.texts, text); ok {
		return
	}
	if l.addedTexts == nil {
		l.addedTexts = make(map[string]struct{})
	}
	text = strings.Clone(text)
	l.addedTexts[text] = struct{}{}
	a.m.grow(l, textBytes+len(text))
}

// grow counts bytes that l takes more.
func (m *memory) grow(l *memList, size int) {
	l.bytes += size
	m.bytes += size
}

// rangeLabels calls fn with the labels of a series, and with an empty metric name if it
// has none: that has postings, too.
func rangeLabels(ls labels.Labels, fn func(labels.Label)) {
	if !ls.Has(labels.MetricName) {
		fn(labels.Label{Name: labels.MetricName})
	}
	ls.Range(fn)
}

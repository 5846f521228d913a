package index

import (
	"bytes"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// batch is the rows of new series. Series share most of their labels, so the prefix of
// the postings of a label is made once. Its postings need no sort: lists are sorted by
// prefix, and the series of a list come in order. Index.batches recycles its memory.
type batch struct {
	// rows are postings, values and names. marks are the postings of metric names: they
	// say that all other rows are written. Both are in order of keys. If the index is
	// atomic the marks are among the rows.
	rows, marks []Row
	// texts are the values and names among rows.
	texts map[rowID]struct{}

	// lists are those that the series go to, in the order in which they came up.
	lists   []postingList
	numbers map[label]int32
	members []member
	// names and values are rows that go to rows.
	names, values []Row

	// order is space for the order of lists, key for one key, prefixes and keys for
	// those that stay. keySize is the size of all keys of postings.
	order               []int32
	key, prefixes, keys []byte
	keySize             int
}

// A label is one of some series in an index period.
type label struct {
	name, value string
	period      int64
}

// A postingList is the postings of a label.
type postingList struct {
	// batch.prefixes[from:to] is what its keys begin with.
	from, to int
	isMark   bool
	// size counts its series, next is where the row of the next one goes.
	size, next int
}

// A member says that a need belongs to a list, both by number.
type member struct{ need, list int32 }

func newBatch() *batch {
	return &batch{texts: make(map[rowID]struct{}), numbers: make(map[label]int32)}
}

// reset empties b, which keeps its memory and refers to nothing else.
func (b *batch) reset() {
	for _, rows := range []*[]Row{&b.rows, &b.marks, &b.names, &b.values} {
		clear(*rows)
		*rows = (*rows)[:0]
	}
	clear(b.texts)
	clear(b.numbers)
	b.lists, b.members, b.prefixes, b.keys, b.keySize = b.lists[:0], b.members[:0], b.prefixes[:0], b.keys[:0], 0
}

// fillBatch adds the rows of needs, which in each period are in order of keys,
// without those values and names that are remembered as written.
func (x *Index) fillBatch(b *batch, needs []need) {
	for i, n := range needs {
		named := false
		n.entry.Labels.Range(func(l labels.Label) {
			named = named || l.Name == labels.MetricName
			x.addLabel(b, n, int32(i), l)
		})
		if !named {
			x.addPosting(b, n, int32(i), labels.Label{Name: labels.MetricName})
		}
	}
	b.makeRows(needs)
}

// addLabel adds the rows of a label of n, which is the need with number i.
func (x *Index) addLabel(b *batch, n need, i int32, l labels.Label) {
	if !x.addPosting(b, n, i, l) {
		return
	}
	b.key = x.schema.AppendValueKey(b.key[:0], l.Name, l.Value, n.period)
	b.values = x.writer.addText(b, b.values, l.Value, n)
	b.key = x.schema.AppendNameKey(b.key[:0], l.Name, n.period)
	b.names = x.writer.addText(b, b.names, l.Name, n)
}

// addPosting adds n to the list of a label, and says whether the list was empty.
func (x *Index) addPosting(b *batch, n need, i int32, l labels.Label) (isNew bool) {
	at := label{l.Name, l.Value, n.period}
	number, ok := b.numbers[at]
	if !ok {
		from := len(b.prefixes)
		b.prefixes = x.schema.AppendPostingPrefix(b.prefixes, l.Name, l.Value, n.period)
		number = int32(len(b.lists))
		b.numbers[at] = number
		b.lists = append(b.lists, postingList{from: from, to: len(b.prefixes), isMark: l.Name == labels.MetricName && !x.atomic})
	}
	to := &b.lists[number]
	to.size++
	b.members = append(b.members, member{i, number})
	b.keySize += to.to - to.from + len(n.entry.Key)
	return !ok
}

// makeRows makes rows and marks of what was added. No prefix of postings begins
// with another one, so that all keys of a list come before all of the next.
func (b *batch) makeRows(needs []need) {
	b.sortLists()
	posted, marked := len(b.names), 0
	for _, number := range b.order {
		l := &b.lists[number]
		next := &posted
		if l.isMark {
			next = &marked
		}
		l.next = *next
		*next += l.size
	}
	slices.SortFunc(b.names, compareRows)
	slices.SortFunc(b.values, compareRows)
	b.rows = append(slices.Grow(b.rows, posted+len(b.values)), b.names...)
	b.rows = append(b.rows[:posted], b.values...)
	b.marks = slices.Grow(b.marks, marked)[:marked]
	b.keys = slices.Grow(b.keys, b.keySize)
	for _, m := range b.members {
		l, n := &b.lists[m.list], &needs[m.need]
		from := len(b.keys)
		b.keys = append(append(b.keys, b.prefixes[l.from:l.to]...), n.entry.Key...)
		row := Row{Key: b.keys[from:len(b.keys):len(b.keys)], Time: n.periodEnd()}
		if l.isMark {
			b.marks[l.next] = row
		} else {
			b.rows[l.next] = row
		}
		l.next++
	}
}

// sortLists puts the numbers of lists in b.order by their prefixes.
func (b *batch) sortLists() {
	b.order = slices.Grow(b.order[:0], len(b.lists))
	for i := range b.lists {
		b.order = append(b.order, int32(i))
	}
	slices.SortFunc(b.order, func(i, j int32) int {
		l, m := &b.lists[i], &b.lists[j]
		return bytes.Compare(b.prefixes[l.from:l.to], b.prefixes[m.from:m.to])
	})
}

func compareRows(a, b Row) int { return bytes.Compare(a.Key, b.Key) }

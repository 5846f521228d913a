package index

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/series"
)

const (
	firstPage = 512
	maxPage   = 16384
)

// ErrTooManySeries marks a query that more series match than it allows.
var ErrTooManySeries = errors.New("too many series")

// errEnough ends a scan that has found as many series as are asked for.
var errEnough = errors.New("enough series")

// A Result is what a query found.
type Result struct {
	// Series are sorted by labels.Compare.
	Series []Series
	// Lists say what was read to find them.
	Lists []ListRead
}

// A Series is one that all matchers match.
type Series struct {
	// Key is the series key.
	Key    string
	Labels labels.Labels
	// Bases are the starts of the buckets, ascending, in which the index has the
	// series at some time of the query.
	Bases []int64
}

// A ListRead says what was read of one list.
type ListRead struct {
	// Matcher is the one that the list belongs to, nil for that of all series.
	Matcher *labels.Matcher
	// Complete is true for the list that gave the answer; it was read to its end
	// unless a part was enough.
	Complete bool
	// Ranges are its row ranges, and Rows how many rows were read of each.
	Ranges []series.RowRange
	Rows   []int
}

// Select finds the series that match. It reads the lists of all matchers side
// by side, a page of each in turn. The list that ends first is the answer. So Select
// needs no statistics, and reads at most the shortest list times the number of
// matchers, rounded up to pages of at least 512 rows. Every row read is checked
// against all matchers at once.
func (x *Index) Select(ctx context.Context, q Query) (*Result, error) {
	if q.Limit <= q.Start {
		return &Result{}, nil
	}
	lists := x.plan(q)
	readers := make([]listReader, len(lists))
	for i, l := range lists {
		readers[i] = listReader{x: x, q: q, list: l, found: newCandidates(x.schema, q)}
	}
	for size := firstPage; ; size = min(2*size, maxPage) {
		if len(lists) == 1 {
			size = 0 // no other list to take turns with
		}
		for some := range slices.Chunk(readers, x.lists) {
			ended, err := readPages(ctx, some, size)
			if err != nil {
				return nil, err
			}
			if ended != nil {
				return &Result{Series: ended.found.sorted(), Lists: listsRead(lists, ended.list)}, nil
			}
		}
	}
}

// A listReader reads one list for a query.
type listReader struct {
	x     *Index
	q     Query
	list  *list
	found candidates
	// ended is set when found is the answer.
	ended bool
}

// readPages reads the next page of each of some lists, all at the same time. It
// returns the first list that has ended, or nil. A list that ends does not stop the
// others: so neither the answer nor the rows read depend on chance. An error does.
func readPages(ctx context.Context, some []listReader, size int) (ended *listReader, err error) {
	if len(some) == 1 {
		err = some[0].readPage(ctx, size)
	} else {
		group, ctx := errgroup.WithContext(ctx)
		for i := range some {
			group.Go(func() error { return repanic.Catch(func() error { return some[i].readPage(ctx, size) }) })
		}
		err = repanic.Rethrow(group.Wait())
	}
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(some, func(r listReader) bool { return r.ended }); i >= 0 {
		return &some[i], nil
	}
	return nil, nil
}

// readPage reads up to size rows, all that are there if size is 0.
func (r *listReader) readPage(ctx context.Context, size int) error {
	err := r.x.readPage(ctx, r.q, r.list, size, &r.found)
	if errors.Is(err, errEnough) {
		r.ended = true
		return nil
	}
	r.ended = err == nil && r.list.next == len(r.list.ranges)
	return err
}

// readPage reads up to size rows of l, all of its present ranges if size is 0.
func (x *Index) readPage(ctx context.Context, q Query, l *list, size int, c *candidates) error {
	if l.values {
		ended, err := x.scan(ctx, l, size, func(_, value []byte) error { return l.addValue(value) })
		switch tooMany := errors.Is(err, errTooManyValues); {
		case err != nil && !tooMany:
			return err
		case ended || tooMany:
			x.endValues(q, l, tooMany)
		}
		return nil
	}
	_, err := x.scan(ctx, l, size, func(key, _ []byte) error { return c.add(key) })
	return err
}

// scan reads the next rows of l and says whether they were the last of its
// present ranges.
func (x *Index) scan(ctx context.Context, l *list, size int, fn func(key, value []byte) error) (ended bool, err error) {
	read, last := 0, []byte(nil)
	at := l.next
	err = x.rows.ScanRows(ctx, l.rest(), size, func(key, value []byte) error {
		for !l.ranges[at].Contains(key) {
			at++
		}
		l.counts[at]++
		read++
		last = append(last[:0], key...)
		return fn(key, value)
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("read index: %w", err)
	case size == 0 || read < size:
		l.next, l.after = len(l.ranges), nil
		return true, nil
	}
	l.next, l.after = at, append(last, 0)
	return false, nil
}

// rest returns the ranges that are still to be read.
func (l *list) rest() []series.RowRange {
	if l.after == nil {
		return l.ranges[l.next:]
	}
	rest := slices.Clone(l.ranges[l.next:])
	rest[0].Start = l.after // never empty: all ranges are those of prefixes
	return rest
}

var errTooManyValues = errors.New("too many values")

// addValue takes one value of the label of l.
func (l *list) addValue(value []byte) error {
	if l.found[string(value)] || !l.matcher.Matches(string(value)) {
		return nil
	}
	if len(l.found) == maxUnion {
		return errTooManyValues
	}
	l.found[string(value)] = true
	return nil
}

// endValues turns the values found into posting ranges, or, where there are
// too many, into one range over all postings of the label.
func (x *Index) endValues(q Query, l *list, tooMany bool) {
	l.values = false
	l.next, l.after = len(l.ranges), nil
	if tooMany {
		x.allPostings(l, l.matcher.Name)
		return
	}
	values := make([]string, 0, len(l.found))
	for value := range l.found {
		values = append(values, value)
	}
	x.postingsOf(q, l, values)
}

// candidates gathers the series of one list that all matchers match.
type candidates struct {
	schema series.Schema
	q      Query
	// series are in the order of their first postings, slots says where. That order
	// is nearly the one asked for in the end, and sorting what is nearly sorted
	// costs little.
	series  []Series
	slots   map[string]int
	builder labels.ScratchBuilder
}

func newCandidates(schema series.Schema, q Query) candidates {
	return candidates{schema: schema, q: q, slots: make(map[string]int), builder: labels.NewScratchBuilder(16)}
}

// add takes one posting.
func (c *candidates) add(key []byte) error {
	period, seriesKey, err := c.schema.ParsePosting(key)
	if err != nil {
		return err
	}
	if period < c.q.firstPeriod() || period > c.q.lastPeriod() {
		return nil
	}
	base, _ := series.Split(period)
	if slot, ok := c.slots[string(seriesKey)]; ok {
		c.series[slot].addBase(base)
		return nil
	}
	ls, err := c.schema.ParseSeriesKey(seriesKey, &c.builder)
	if err != nil {
		return fmt.Errorf("posting %q: %w", key, err)
	}
	for _, m := range c.q.Matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return nil
		}
	}
	if c.q.MaxSeries > 0 && len(c.series) == c.q.MaxSeries {
		return fmt.Errorf("%w: more than %d match", ErrTooManySeries, c.q.MaxSeries)
	}
	s := Series{Key: string(seriesKey), Labels: ls, Bases: []int64{base}}
	c.slots[s.Key] = len(c.series)
	c.series = append(c.series, s)
	if len(c.series) == c.q.Enough {
		return errEnough
	}
	return nil
}

// addBase keeps Bases ascending and unique.
func (s *Series) addBase(base int64) {
	if i, ok := slices.BinarySearch(s.Bases, base); !ok {
		s.Bases = slices.Insert(s.Bases, i, base)
	}
}

// sorted returns the series; nothing may be added any more.
func (c *candidates) sorted() []Series {
	slices.SortFunc(c.series, func(a, b Series) int { return labels.Compare(a.Labels, b.Labels) })
	return c.series
}

func listsRead(lists []*list, complete *list) []ListRead {
	read := make([]ListRead, len(lists))
	for i, l := range lists {
		read[i] = ListRead{Matcher: l.matcher, Complete: l == complete, Ranges: l.ranges, Rows: l.counts}
	}
	return read
}

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

	// smallList is how long a list in memory may be that is filtered although a shorter
	// one may be in the table. For a longer one up to a rowShare of its length is read of
	// the others: that costs about as much as to filter it.
	smallList = 1024
	rowShare  = 16
)

// ErrTooManySeries marks a query that more series match than it allows.
var ErrTooManySeries = errors.New("too many series")

func tooManySeries(limit int) error {
	return fmt.Errorf("%w: more than %d match", ErrTooManySeries, limit)
}

// A Result is what a query found.
type Result struct {
	// Series are sorted by labels.Compare.
	Series []Series
	// Lists say what was read to find them.
	Lists []ListRead
}

// A Series is one that all matchers match.
type Series struct {
	*Identity
	// Bases are the starts of the buckets, ascending, in which the index has the
	// series at some time of the query. Series share the slice, which does not change.
	Bases []int64
}

// A ListRead says what was read of one list.
type ListRead struct {
	// Matcher is the one that the list belongs to, nil for that of all series.
	Matcher *labels.Matcher
	// Complete is true for the list that gave the answer; it was read to its end
	// unless a part was enough.
	Complete bool
	// InMemory is how many of the lists that it is made of were in memory: of values, and
	// of series for each value and period.
	InMemory int
	// Series is how many series it had in all index periods, as far as it was in memory or read to
	// its end. Other matchers may not match them.
	Series int
	// Ranges are the row ranges that were read, and Rows how many rows of each. Of a
	// label with very many values one range stands for those of many.
	Ranges []series.RowRange
	Rows   []int
}

// Select finds the series that match. The answer is in the list of each matcher, so the
// shortest one is enough: every series in it is checked against the other matchers. If a
// list in memory is not short, or none is there, the others are read side by side, a page
// of each in turn, until one ends, which is then kept in memory. So Select needs no
// statistics, and reads at most the shortest list times the number of matchers, rounded
// up to pages of at least 512 rows.
func (x *Index) Select(ctx context.Context, q Query) (*Result, error) {
	if q.Limit <= q.Start {
		return &Result{}, nil
	}
	if err := x.synced(ctx, q.Limit); err != nil {
		return nil, err
	}
	if q.Enough > 0 {
		q.enough = func(*list) func(*Identity, int64) bool {
			found := make(map[int64]int)
			return func(_ *Identity, period int64) bool {
				found[period]++
				return found[period] >= q.Enough
			}
		}
	}
	l, lists, err := x.find(ctx, &q)
	if err != nil {
		return nil, err
	}
	found, err := l.answer()
	return &Result{Series: found, Lists: lists}, err
}

// find finds the list that holds the answer, and says what was read of all lists.
func (x *Index) find(ctx context.Context, q *Query) (*list, []ListRead, error) {
	periods, periodRows, err := x.periodsOf(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	lists := x.plan(q, periods)
	best, rest := recall(lists)
	if best == nil && lists[0].matcher != nil {
		everything := x.newList(q, nil, periods)
		everything.memoryOnly = true
		if everything.recall() {
			best, lists = everything, append(lists, everything)
		}
	}
	var readers []*listReader
	if best == nil || best.size > smallList {
		for _, l := range rest {
			if best == nil || x.memory.longAtLeast(l.matcher, q.firstPeriod(), 0) < best.size/rowShare {
				readers = append(readers, newListReader(l))
			}
		}
	}
	chosen, err := x.race(ctx, readers, best)
	if err != nil {
		return nil, nil, err
	}
	return chosen, listsRead(lists, readers, chosen, periodRows), nil
}

// recall returns the shortest of the lists that are in memory, nil if none is, and those
// that are not. When it has met a short one it looks for no others.
func recall(lists []*list) (best *list, rest []*list) {
	for _, literal := range []bool{true, false} { // others cost more
		for _, l := range lists {
			switch {
			case literal != (l.literals != nil), best != nil && best.size <= smallList/rowShare:
			case !l.recall():
				rest = append(rest, l)
			case best == nil || l.size < best.size:
				best = l
			}
		}
	}
	return best, rest
}

// race reads lists side by side, and returns the first that ends; best, if that is not
// nil and the others are not much shorter.
func (x *Index) race(ctx context.Context, readers []*listReader, best *list) (*list, error) {
	if len(readers) == 0 {
		return best, nil
	}
	for _, r := range readers {
		r.load = x.memory.begin()
		defer x.memory.end(r.load)
	}
	for size, read := firstPage, 0; ; size = min(2*size, maxPage) {
		switch {
		case best != nil:
			if size = min(size, best.size/rowShare-read); size <= 0 {
				for _, r := range readers {
					x.memory.longAtLeast(r.matcher, r.q.firstPeriod(), read)
				}
				return best, nil
			}
		case len(readers) == 1:
			size = 0 // no other list to take turns with
		}
		for some := range slices.Chunk(readers, x.lists) {
			if err := readPages(ctx, some, size); err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(some, func(r *listReader) bool { return r.ended }); i >= 0 {
				some[i].finish()
				return some[i].list, nil
			}
		}
		read += size
	}
}

// readPages reads the next page of each of some lists, all at the same time. A list that
// ends does not stop the others: so neither the answer nor the rows read depend on
// chance. An error does.
func readPages(ctx context.Context, some []*listReader, size int) error {
	if len(some) == 1 {
		return some[0].readPage(ctx, size)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range some {
		group.Go(func() error { return repanic.Catch(func() error { return r.readPage(ctx, size) }) })
	}
	return repanic.Rethrow(group.Wait())
}

// answer returns the series of l that all matchers match, sorted.
func (l *list) answer() ([]Series, error) {
	slices.SortFunc(l.runs, func(a, b run) int { return int((a.period - b.period) / series.IndexPeriod) })
	rest := l.otherMatchers()
	var found results
	for runs := l.runs; len(runs) > 0; {
		base, _ := series.Split(runs[0].period)
		var ofBase [][]*Identity
		for ; len(runs) > 0 && runs[0].period < base+series.Period; runs = runs[1:] {
			some, err := l.filter(runs[0].series, rest)
			if err != nil {
				return nil, err
			}
			ofBase = append(ofBase, some)
		}
		united := unite(ofBase)
		if err := l.q.hold(len(united)); err != nil {
			return nil, err
		}
		found.add(united, base)
	}
	if n := l.q.Enough; n > 0 {
		return found.series[:min(n, len(found.series))], nil
	}
	return found.series, l.q.hold(len(found.series))
}

// otherMatchers returns the matchers that series of l need not match.
func (l *list) otherMatchers() (others []*labels.Matcher) {
	for _, m := range l.q.Matchers {
		if m != l.matcher {
			others = append(others, m)
		}
	}
	return others
}

// filter returns the series that all matchers match. It leaves all as it is.
func (l *list) filter(all []*Identity, ms []*labels.Matcher) (matching []*Identity, err error) {
	limit := len(all)
	if l.q.Enough > 0 {
		limit = min(limit, l.q.Enough)
	}
	if len(ms) == 0 {
		return all[:limit], nil
	}
	for i := 0; i < len(all) && len(matching) < limit; i++ {
		if !labels.Selector(ms).Matches(all[i].Labels) {
			continue
		}
		matching = append(matching, all[i])
		if err := l.q.grow(len(matching)); err != nil {
			return nil, err
		}
	}
	return matching, nil
}

// unite merges sorted lists, a series that is in several of them once. It may return one
// of them.
func unite(lists [][]*Identity) []*Identity {
	lists = slices.DeleteFunc(lists, func(l []*Identity) bool { return len(l) == 0 })
	// Those of different metrics then follow each other.
	slices.SortFunc(lists, func(a, b []*Identity) int { return compareIdentities(a[0], b[0]) })
	for len(lists) > 1 {
		united := lists[:0]
		for pair := range slices.Chunk(lists, 2) {
			if len(pair) == 2 {
				pair[0] = unitePair(pair[0], pair[1])
			}
			united = append(united, pair[0])
		}
		lists = united
	}
	if len(lists) == 0 {
		return nil
	}
	return lists[0]
}

func unitePair(a, b []*Identity) []*Identity {
	united := make([]*Identity, 0, len(a)+len(b))
	if compareIdentities(a[len(a)-1], b[0]) < 0 {
		return append(append(united, a...), b...)
	}
	for len(a) > 0 && len(b) > 0 {
		c := 0
		if a[0] != b[0] {
			c = compareIdentities(a[0], b[0])
		}
		if c <= 0 {
			united, a = append(united, a[0]), a[1:]
		} else {
			united = append(united, b[0])
		}
		if c >= 0 {
			b = b[1:]
		}
	}
	return append(append(united, a...), b...)
}

// results gathers the series of an answer, base by base.
type results struct {
	series []Series
	// longer has for each slice of bases, by its first element, the slice that also has
	// the base that is added.
	longer map[*int64][]int64
}

// add adds the series that are there in a bucket after all buckets before.
func (r *results) add(found []*Identity, base int64) {
	if len(found) == 0 {
		return
	}
	only := []int64{base}
	if len(r.series) == 0 {
		r.series = make([]Series, len(found))
		for i, s := range found {
			r.series[i] = Series{s, only}
		}
		return
	}
	r.longer = make(map[*int64][]int64)
	have := r.series
	r.series = make([]Series, 0, max(len(have), len(found)))
	for len(have) > 0 && len(found) > 0 {
		c := 0
		if have[0].Identity != found[0] {
			c = compareIdentities(have[0].Identity, found[0])
		}
		switch {
		case c < 0:
			r.series, have = append(r.series, have[0]), have[1:]
		case c > 0:
			r.series, found = append(r.series, Series{found[0], only}), found[1:]
		default:
			r.series = append(r.series, Series{found[0], r.extended(have[0].Bases, base)})
			have, found = have[1:], found[1:]
		}
	}
	r.series = append(r.series, have...)
	for _, s := range found {
		r.series = append(r.series, Series{s, only})
	}
}

// extended returns bases with another one.
func (r *results) extended(bases []int64, base int64) []int64 {
	longer, ok := r.longer[&bases[0]]
	if !ok {
		longer = append(slices.Clone(bases), base)
		r.longer[&bases[0]] = longer
	}
	return longer
}

// listsRead says what was read of lists. The one that is chosen gets the rows in which
// the periods were found.
func listsRead(lists []*list, readers []*listReader, chosen *list, periods ListRead) []ListRead {
	read := make([]ListRead, len(lists))
	for i, l := range lists {
		read[i].Matcher, read[i].InMemory, read[i].Series = l.matcher, l.inMemory, l.size
		if l == chosen {
			read[i].Complete = true
			read[i].Ranges, read[i].Rows = periods.Ranges, periods.Rows
		}
		for _, r := range readers {
			if r.list == l {
				read[i].Ranges, read[i].Rows = append(read[i].Ranges, r.explained...), append(read[i].Rows, r.rows...)
			}
		}
	}
	return read
}

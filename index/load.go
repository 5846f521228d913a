package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

const (
	// maxRanges is how many ranges one scan names at most.
	maxRanges = 1000
	// maxTexts is how many values of a label in a period are held to find out how many
	// of them match. Further ones are read maxRanges at a time, with their postings.
	maxTexts = 50_000
)

var (
	// errEnough ends a scan that has found as many series as are asked for.
	errEnough = errors.New("enough series")
	// errNextRange ends a scan of which the rest of the range is not wanted.
	errNextRange = errors.New("next range")
)

// A listReader reads what is missing of a list: first values, then the postings of those
// that match, then what belongs to periods with too many values.
type listReader struct {
	*list
	load *load
	// ranges are read now, from the one with number next on, and from after on if that
	// is not nil. row is called with each row and the number of its range, then with
	// the next range. When all are read, then sets the ranges that follow, if any do.
	ranges []series.RowRange
	next   int
	after  []byte
	row    func(at int, key, value []byte) error
	then   func() error
	// ended is set when the list is complete, or holds enough.
	ended, partial bool

	// read are the postings that were read, manyRead the runs of periods with too many
	// values, and texts the lists of values.
	read     map[posting]*run
	manyRead []*run
	texts    []*memList

	// enough is that of the query. matched counts the series that match in a period.
	enough  func(s *Identity, period int64) bool
	matched map[int64]int
	// bytes is about what the runs take. matching is set when that was too much to be
	// kept: since then they hold only what matches, the series that it has by their keys.
	bytes    int
	matching map[string]*Identity
	builder  labels.ScratchBuilder

	// explained are the ranges that were read, rows how many rows of each. The range with
	// number at is explained[first+at], or explained[first] if joined is set.
	explained []series.RowRange
	rows      []int
	first     int
	joined    bool
}

func newListReader(l *list) *listReader {
	r := &listReader{list: l, read: make(map[posting]*run), matched: make(map[int64]int), builder: labels.NewScratchBuilder(16)}
	r.enough = func(*Identity, int64) bool { return false }
	if l.q.enough != nil {
		r.enough = l.q.enough(l)
	}
	r.then = r.readValues
	return r
}

// readPage reads up to size rows, all that are there if size is 0.
func (r *listReader) readPage(ctx context.Context, size int) error {
	for left := size; !r.ended && (size == 0 || left > 0); {
		if r.next == len(r.ranges) {
			if err := r.follow(); err != nil {
				return err
			}
			continue
		}
		read, err := r.scan(ctx, left)
		if size > 0 {
			left -= read
		}
		if errors.Is(err, errEnough) {
			r.ended, r.partial = true, true
		} else if err != nil {
			return err
		}
	}
	return nil
}

// follow goes on to the ranges that follow, or ends the list.
func (r *listReader) follow() error {
	if r.then == nil {
		r.ended = true
		return nil
	}
	then := r.then
	r.then = nil
	return then()
}

// setRanges sets what is read next. If joined is set, the ranges are explained as one.
func (r *listReader) setRanges(ranges []series.RowRange, joined bool, row func(at int, key, value []byte) error) {
	r.ranges, r.next, r.after, r.row = ranges, 0, nil, row
	r.first, r.joined = len(r.explained), joined
	switch {
	case len(ranges) == 0:
		return
	case joined:
		ranges = []series.RowRange{{Start: ranges[0].Start, Limit: ranges[len(ranges)-1].Limit}}
	}
	r.explained = append(r.explained, ranges...)
	r.rows = append(r.rows, make([]int, len(ranges))...)
}

// scan reads the next rows of the ranges, up to limit unless that is 0.
func (r *listReader) scan(ctx context.Context, limit int) (read int, err error) {
	end := min(r.next+maxRanges, len(r.ranges))
	ranges := r.ranges[r.next:end]
	if r.after != nil {
		ranges = slices.Clone(ranges)
		ranges[0].Start = r.after // never empty: all ranges are those of prefixes
	}
	at, last := r.next, []byte(nil)
	err = r.x.rows.ScanRows(ctx, ranges, limit, func(key, value []byte) error {
		for !r.ranges[at].Contains(key) {
			at++
		}
		read++
		if r.joined {
			r.rows[r.first]++
		} else {
			r.rows[r.first+at]++
		}
		last = append(last[:0], key...)
		return r.row(at, key, value)
	})
	switch {
	case errors.Is(err, errNextRange):
		r.next, r.after = at+1, nil
		return read, nil
	case err != nil:
		return read, fmt.Errorf("read index: %w", err)
	case limit == 0 || read < limit:
		r.next, r.after = end, nil
	default:
		r.next, r.after = at, append(last, 0)
	}
	return read, nil
}

// readValues reads the values of the label.
func (r *listReader) readValues() error {
	ranges := make([]series.RowRange, len(r.unread))
	for i, period := range r.unread {
		ranges[i] = r.x.schema.ValueRange(r.name, r.prefix, period)
		r.texts = append(r.texts, &memList{listKey: listKey{valuesList, period, r.name, r.prefix}})
	}
	r.setRanges(ranges, false, func(at int, _, value []byte) error {
		if l := r.texts[at]; len(l.texts) < maxTexts {
			l.texts = append(l.texts, string(value))
			return nil
		}
		r.texts[at] = nil
		return errNextRange
	})
	r.then = r.endValues
	return nil
}

// endValues keeps the values, and goes on to the postings of those that match.
func (r *listReader) endValues() error {
	for i, l := range r.texts {
		if l == nil {
			r.wide = append(r.wide, wideValues{period: r.unread[i]})
			continue
		}
		slices.Sort(l.texts)
		r.addValues(l.period, l.texts)
	}
	r.x.memory.install(r.load, slices.DeleteFunc(r.texts, func(l *memList) bool { return l == nil }))
	return r.readPostings()
}

// readPostings reads the postings that are missing.
func (r *listReader) readPostings() error {
	slices.SortFunc(r.missing, func(a, b posting) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.period, b.period)) })
	type valueRange struct {
		series.RowRange
		value string
	}
	var ranges []valueRange
	for from := 0; from < len(r.missing); {
		first, to := r.missing[from], from
		for ; to < len(r.missing) && r.missing[to].value == first.value; to++ {
			p := r.missing[to]
			r.read[p] = &run{period: p.period, from: listKey{postingsList, p.period, r.name, p.value}}
		}
		ranges = append(ranges, valueRange{r.postingRange(first.value, first.period, r.missing[to-1].period), first.value})
		from = to
	}
	slices.SortFunc(ranges, func(a, b valueRange) int { return bytes.Compare(a.Start, b.Start) })
	rows := make([]series.RowRange, len(ranges))
	for i := range ranges {
		rows[i] = ranges[i].RowRange
	}
	var current *run
	var of posting
	r.setRanges(rows, false, func(at int, key, _ []byte) error {
		period, seriesKey, err := r.x.schema.ParsePosting(key)
		if err != nil {
			return err
		}
		if p := (posting{ranges[at].value, period}); current == nil || p != of {
			current, of = r.read[p], p
		}
		if current == nil {
			return nil // in memory, or not asked for
		}
		return r.addSeries(current, seriesKey)
	})
	r.then = r.readWide
	return nil
}

// readWide reads postings of the next values in the periods with too many.
func (r *listReader) readWide() error {
	if len(r.wide) == 0 {
		return nil
	}
	w := &r.wide[0]
	if n := len(r.manyRead); n == 0 || r.manyRead[n-1].period != w.period {
		r.manyRead = append(r.manyRead, &run{period: w.period})
		if r.matcher == nil {
			return r.readPostingsOf(w, []string{""}) // series without a metric name
		}
	}
	if w.texts == nil {
		return r.readWideValues(w)
	}
	n := min(maxRanges, len(w.texts))
	some := w.texts[:n]
	w.texts = w.texts[n:]
	return r.readPostingsOf(w, some)
}

// readWideValues reads the next values of a period, then their postings.
func (r *listReader) readWideValues(w *wideValues) error {
	values := r.x.schema.ValueRange(r.name, r.prefix, w.period)
	if w.after != nil {
		values.Start = w.after
	}
	var some []string
	w.after = nil
	r.setRanges([]series.RowRange{values}, false, func(_ int, key, value []byte) error {
		if some = append(some, string(value)); len(some) < maxRanges {
			return nil
		}
		w.after = append(bytes.Clone(key), 0)
		return errNextRange
	})
	r.then = func() error {
		if w.after == nil {
			w.texts = []string{}
		}
		return r.readPostingsOf(w, some)
	}
	return nil
}

// readPostingsOf reads the postings of those values that match, then what follows them.
func (r *listReader) readPostingsOf(w *wideValues, values []string) error {
	into := r.manyRead[len(r.manyRead)-1]
	var ranges []series.RowRange
	for _, value := range values {
		if r.matches(value) {
			ranges = append(ranges, r.postingRange(value, w.period, w.period))
		}
	}
	sortRanges(ranges)
	r.setRanges(ranges, true, func(_ int, key, _ []byte) error {
		_, seriesKey, err := r.x.schema.ParsePosting(key)
		if err != nil {
			return err
		}
		return r.addSeries(into, seriesKey)
	})
	if w.texts != nil && len(w.texts) == 0 {
		r.wide = r.wide[1:]
	}
	r.then = r.readWide
	return nil
}

// addSeries adds the series of a posting.
func (r *listReader) addSeries(to *run, key []byte) error {
	s, err := r.parse(key)
	if err != nil {
		return err
	}
	matches := r.q.matches(s.Labels)
	switch {
	case r.matching == nil:
		to.series = append(to.series, s)
		if r.bytes += postingBytes; r.bytes > r.x.memory.max/2 {
			r.keepMatching()
		}
	case matches && r.found == nil:
		to.series = append(to.series, s)
		r.matching[s.Key] = s
	}
	if !matches {
		return nil
	}
	r.matched[to.period]++
	if err := r.q.grow(max(r.matched[to.period], len(r.matching))); err != nil {
		return err
	}
	if r.enough(s, to.period) {
		return errEnough
	}
	return nil
}

// parse returns the series with a key.
func (r *listReader) parse(key []byte) (*Identity, error) {
	if s := r.matching[string(key)]; s != nil {
		return s, nil
	}
	if s := r.x.memory.identity(key); s != nil {
		return s, nil
	}
	ls, err := r.x.schema.ParseSeriesKey(key, &r.builder)
	if err != nil {
		return nil, fmt.Errorf("posting of %q: %w", key, err)
	}
	s := &Identity{Key: string(key), Labels: ls}
	r.bytes += s.size()
	return s, nil
}

// keepMatching drops what does not match, because the list is too large for the memory.
// If texts are wanted it drops all.
func (r *listReader) keepMatching() {
	r.matching = make(map[string]*Identity)
	for _, run := range r.runsRead() {
		run.series = slices.DeleteFunc(run.series, func(s *Identity) bool { return r.found != nil || !r.q.matches(s.Labels) })
		for i, s := range run.series {
			if have := r.matching[s.Key]; have != nil {
				run.series[i] = have
			}
			r.matching[s.Key] = run.series[i]
		}
	}
}

func (r *listReader) runsRead() []*run {
	runs := slices.Clone(r.manyRead)
	for _, run := range r.read {
		runs = append(runs, run)
	}
	return runs
}

// finish adds what was read to the runs of the list, and keeps it in memory.
func (r *listReader) finish() {
	for _, run := range r.runsRead() {
		if !slices.IsSortedFunc(run.series, compareIdentities) {
			slices.SortFunc(run.series, compareIdentities)
		}
		if len(run.series) > 0 {
			r.runs = append(r.runs, *run)
			r.size += len(run.series)
		}
	}
	if r.partial || r.matching != nil {
		return
	}
	var lists []*memList
	for _, run := range r.read {
		lists = append(lists, &memList{listKey: run.from, series: run.series})
	}
	for _, run := range r.manyRead {
		k := listKey{wideList, run.period, r.name, ""}
		if r.matcher != nil {
			k.text = r.matcher.String()
		}
		lists = append(lists, &memList{listKey: k, matcher: r.matcher, series: run.series})
	}
	r.x.memory.install(r.load, lists)
}

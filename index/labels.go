package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// Names returns the label names of all series that match q in the index periods that it
// touches, sorted, up to q.Enough if that is not 0.
func (x *Index) Names(ctx context.Context, q Query) ([]string, error) {
	return x.labelTexts(ctx, q, textKind{kind: namesList})
}

// Values returns the values of a label of all series that match q in the index periods
// that it touches, sorted, up to q.Enough if that is not 0.
func (x *Index) Values(ctx context.Context, name string, q Query) ([]string, error) {
	return x.labelTexts(ctx, q, textKind{valuesList, name})
}

// of calls fn with the texts of a series.
func (k textKind) of(ls labels.Labels, fn func(string)) {
	if k.kind == namesList {
		ls.Range(func(l labels.Label) { fn(l.Name) })
	} else if value := ls.Get(k.name); value != "" {
		fn(value)
	}
}

func (x *Index) labelTexts(ctx context.Context, q Query, kind textKind) ([]string, error) {
	if q.Limit <= q.Start {
		return nil, nil
	}
	if err := x.synced(ctx, q.Limit); err != nil {
		return nil, err
	}
	if len(q.Matchers) == 0 {
		return x.texts(ctx, &q, kind, q.Enough)
	}
	q.MaxSeries = 0
	q.enough = func(l *list) func(*Identity, int64) bool {
		l.found = make(map[string]struct{})
		return func(s *Identity, _ int64) bool {
			kind.of(s.Labels, func(text string) { l.found[text] = struct{}{} })
			return q.Enough > 0 && len(l.found) >= q.Enough
		}
	}
	l, _, err := x.find(ctx, &q)
	if err != nil {
		return nil, err
	}
	found := foundTexts{x: x, list: l, kind: kind, rest: l.otherMatchers(), texts: l.found, enough: q.Enough}
	if found.texts == nil {
		found.texts = make(map[string]struct{})
	}
	for _, run := range l.runs {
		if err := found.addRun(ctx, run); err != nil {
			return nil, err
		}
	}
	return firstTexts(found.texts, q.Enough), nil
}

// manySeries is how many series foundTexts looks at before it asks how many texts there
// are at all: when it has found them it looks at no further series.
const manySeries = 4096

// foundTexts are the texts of the series of a list that match.
type foundTexts struct {
	x    *Index
	list *list
	kind textKind
	// rest are the matchers that a series of the list need not match.
	rest  []*labels.Matcher
	texts map[string]struct{}
	// enough is how many texts are enough, unless it is 0, and seen counts series.
	enough, seen int
}

// addRun adds the texts of a run. Those of a long list are kept beside it.
func (f *foundTexts) addRun(ctx context.Context, r run) error {
	if len(f.rest) > 0 || len(r.series) < manySeries || r.from == (listKey{}) {
		_, err := f.addSeries(ctx, r.series)
		return err
	}
	kept, ok := f.x.memory.textsOf(r.from, f.kind)
	if !ok {
		of := *f
		of.texts = make(map[string]struct{})
		complete, err := of.addSeries(ctx, r.series)
		if err != nil {
			return err
		}
		kept = firstTexts(of.texts, 0)
		if complete {
			f.x.memory.setTextsOf(r.from, f.kind, r.series, kept)
		}
	}
	for _, text := range kept {
		f.texts[text] = struct{}{}
	}
	return nil
}

// addSeries adds the texts of series until there are enough, and says whether those are
// all.
func (f *foundTexts) addSeries(ctx context.Context, series []*Identity) (complete bool, err error) {
	limit := f.list.q.Enough
	add := func(text string) { f.texts[text] = struct{}{} }
	for _, s := range series {
		if f.seen++; f.seen == manySeries {
			all, err := f.x.texts(ctx, f.list.q, f.kind, limit)
			if err != nil {
				return false, err
			}
			f.enough = len(all)
		}
		if labels.Selector(f.rest).Matches(s.Labels) {
			f.kind.of(s.Labels, add)
		}
		if f.enough > 0 && len(f.texts) >= f.enough {
			return limit == 0 || f.enough < limit, nil
		}
	}
	return true, nil
}

// firstTexts returns up to limit texts, sorted. 0 is for all.
func firstTexts(texts map[string]struct{}, limit int) []string {
	sorted := slices.AppendSeq(make([]string, 0, len(texts)), maps.Keys(texts))
	slices.Sort(sorted)
	if limit > 0 && len(sorted) > limit {
		return sorted[:limit]
	}
	return sorted
}

// texts returns the texts of all series in the periods of q, sorted, up to limit if that
// is not 0.
func (x *Index) texts(ctx context.Context, q *Query, kind textKind, limit int) ([]string, error) {
	k := listKey{kind: kind.kind, name: kind.name}
	periods, _, err := x.periodsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	found := make(map[string]struct{})
	var missing []*memList
	for _, k.period = range periods {
		texts, ok := x.memory.texts(k)
		if !ok {
			missing = append(missing, &memList{listKey: k})
		}
		if len(periods) == 1 && ok {
			return slices.Clone(texts[:min(len(texts), cmp.Or(limit, len(texts)))]), nil
		}
		for _, text := range texts {
			if found[text] = struct{}{}; len(found) == limit {
				return firstTexts(found, 0), nil
			}
		}
	}
	load := x.memory.begin()
	defer x.memory.end(load)
	for some := range slices.Chunk(missing, maxRanges) {
		if err := x.readTexts(ctx, some, found, limit); errors.Is(err, errEnough) {
			return firstTexts(found, 0), nil
		} else if err != nil {
			return nil, err
		}
		x.memory.install(load, some)
	}
	return firstTexts(found, 0), nil
}

// readTexts reads lists of texts, and adds what it reads to found. It ends with errEnough
// when that has limit texts, unless limit is 0.
func (x *Index) readTexts(ctx context.Context, lists []*memList, found map[string]struct{}, limit int) error {
	ranges := make([]series.RowRange, len(lists))
	for i, l := range lists {
		if ranges[i] = x.schema.NameRange(l.period); l.kind == valuesList {
			ranges[i] = x.schema.ValueRange(l.name, "", l.period)
		}
	}
	at := 0
	err := x.rows.ScanRows(ctx, ranges, 0, func(key, value []byte) error {
		for !ranges[at].Contains(key) {
			at++
		}
		lists[at].texts = append(lists[at].texts, string(value))
		if _, ok := found[string(value)]; ok {
			return nil
		}
		if found[string(value)] = struct{}{}; len(found) == limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		err = fmt.Errorf("read index: %w", err)
	}
	for _, l := range lists {
		slices.Sort(l.texts) // keys are in the order of escaped texts
	}
	return err
}

// maxPeriods is how many periods a query may touch without asking which ones there are.
const maxPeriods = 8

// periodsPage is how many rows are read to find the next period.
const periodsPage = 512

// periodsOf returns the periods that q touches, ascending, and if there are many of them
// only those that have rows. read says what it has read to find them.
func (x *Index) periodsOf(ctx context.Context, q *Query) (periods []int64, read ListRead, err error) {
	first, last := q.firstPeriod(), q.lastPeriod()
	if (last-first)/series.IndexPeriod < maxPeriods {
		for p := first; p <= last; p += series.IndexPeriod {
			periods = append(periods, p)
		}
		return periods, read, nil
	}
	return x.periodsWithRows(ctx, first, last)
}

// periodsWithRows returns the periods from first to last that have rows, ascending, and says
// what it has read to find them: some rows of each period that there is.
func (x *Index) periodsWithRows(ctx context.Context, first, last int64) (periods []int64, read ListRead, err error) {
	if periods, ok := x.memory.periodsFrom(first, last); ok {
		return periods, read, nil
	}
	began, end := x.memory.now(), x.schema.NameRange(series.PeriodOf(series.MaxTime))
	for next, more := int64(0), true; more; next += series.IndexPeriod {
		rest, n := series.RowRange{Start: x.schema.NameRange(next).Start, Limit: end.Limit}, 0
		err := x.rows.ScanRows(ctx, []series.RowRange{rest}, periodsPage, func(key, _ []byte) (err error) {
			n++
			if next, err = x.schema.ParseNameKey(key); err == nil && (len(periods) == 0 || periods[len(periods)-1] != next) {
				periods = append(periods, next)
			}
			return err
		})
		if err != nil {
			return nil, read, fmt.Errorf("read index: %w", err)
		}
		read.Ranges, read.Rows = append(read.Ranges, rest), append(read.Rows, n)
		more = n == periodsPage && next < series.PeriodOf(series.MaxTime)
	}
	return x.memory.setPeriods(periods, began, first, last), read, nil
}

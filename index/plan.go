package index

import (
	"bytes"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

const (
	// maxUnion is the largest number of label values that are looked up one by
	// one; for more, all postings of the label are read.
	maxUnion = 1000

	// maxPrefixPeriods is the largest number of periods for which the values
	// with a prefix are ranges of their own; for more, all values of these
	// periods are read.
	maxPrefixPeriods = 128
)

// Query asks for the series that all matchers match, in [Start, Limit), in
// milliseconds, within [0, series.MaxTime+1).
type Query struct {
	Matchers     []*labels.Matcher
	Start, Limit int64
	// MaxSeries bounds the answer. 0 is no bound.
	MaxSeries int
	// Enough is how many series are enough, any of those that match: nothing is read
	// to find more, and their bases may not be all. 0 is for all.
	Enough int
}

// A list is where the series that one matcher matches are found: posting
// ranges, which may first have to be found among the values of the label. It
// holds every series of the answer, and others.
type list struct {
	// matcher is nil for the list of all series.
	matcher *labels.Matcher
	// values is true while ranges are v rows, whose matching values become the
	// posting ranges.
	values bool
	found  map[string]bool

	// ranges are what is read, and counts how many rows each range had so far.
	// Those before next are read to their end.
	ranges []series.RowRange
	counts []int
	next   int
	// after is where range next goes on, nil for its start.
	after []byte
}

// plan turns matchers into lists, one for each matcher that does not match the
// empty string. With no such matcher it is one list of all series. The answer
// is in every one of them.
func (x *Index) plan(q Query) []*list {
	var lists []*list
	for _, m := range q.Matchers {
		if !m.Matches("") {
			lists = append(lists, x.planMatcher(q, m))
		}
	}
	if len(lists) == 0 {
		all := &list{}
		x.allPostings(all, labels.MetricName)
		lists = append(lists, all)
	}
	return lists
}

// planMatcher makes the list of one matcher.
func (x *Index) planMatcher(q Query, m *labels.Matcher) *list {
	l := &list{matcher: m}
	switch set := literals(m); {
	case m.Type == labels.MatchEqual:
		x.postingsOf(q, l, []string{m.Value})
	case m.Type == labels.MatchNotEqual, m.Type == labels.MatchRegexp && m.Value == ".+", len(set) > maxUnion:
		x.allPostings(l, m.Name)
	case len(set) > 0:
		x.postingsOf(q, l, set)
	default:
		x.valuesOf(q, l)
	}
	return l
}

// literals returns the values that m matches if it is a regular expression that
// names all of them, else nil.
func literals(m *labels.Matcher) []string {
	if m.Type != labels.MatchRegexp {
		return nil
	}
	if set := m.SetMatches(); len(set) > 0 {
		return set
	}
	// SetMatches returns nothing for 256 values and more.
	if strings.ContainsAny(m.Value, `\.+*?()[]{}^$`) {
		return nil
	}
	return strings.Split(m.Value, "|")
}

// allPostings makes l read every posting of a label.
func (x *Index) allPostings(l *list, name string) {
	l.setRanges([]series.RowRange{x.schema.PostingRange(name)})
}

// postingsOf makes l read the postings of these values, in the periods of q.
func (x *Index) postingsOf(q Query, l *list, values []string) {
	ranges := make([]series.RowRange, 0, len(values))
	for _, value := range values {
		first := x.schema.AppendPostingPrefix(nil, l.matcher.Name, value, q.firstPeriod())
		last := x.schema.AppendPostingPrefix(nil, l.matcher.Name, value, q.lastPeriod())
		ranges = append(ranges, series.RowRange{Start: first, Limit: series.PrefixRange(last).Limit})
	}
	sortRanges(ranges)
	l.setRanges(slices.CompactFunc(ranges, func(a, b series.RowRange) bool { return bytes.Equal(a.Start, b.Start) }))
}

// valuesOf makes l read the values of its label, to find those that match.
func (x *Index) valuesOf(q Query, l *list) {
	l.values = true
	l.found = make(map[string]bool)
	name, prefix := l.matcher.Name, ""
	if l.matcher.Type == labels.MatchRegexp {
		prefix = l.matcher.Prefix()
	}
	if prefix == "" || (q.lastPeriod()-q.firstPeriod())/series.IndexPeriod >= maxPrefixPeriods {
		l.setRanges([]series.RowRange{x.valueRange(q, name)})
		return
	}
	var ranges []series.RowRange
	for p := q.firstPeriod(); p <= q.lastPeriod(); p += series.IndexPeriod {
		ranges = append(ranges, x.schema.ValueRange(name, prefix, p))
	}
	l.setRanges(ranges)
}

// valueRange is the range of all values of a label in the periods of q.
func (x *Index) valueRange(q Query, name string) series.RowRange {
	first, last := x.schema.ValueRange(name, "", q.firstPeriod()), x.schema.ValueRange(name, "", q.lastPeriod())
	return series.RowRange{Start: first.Start, Limit: last.Limit}
}

// firstPeriod and lastPeriod are the starts of the periods that q touches.
func (q Query) firstPeriod() int64 { return series.PeriodOf(q.Start) }
func (q Query) lastPeriod() int64  { return series.PeriodOf(q.Limit - 1) }

func (l *list) setRanges(ranges []series.RowRange) {
	l.ranges = append(l.ranges, ranges...)
	l.counts = append(l.counts, make([]int, len(ranges))...)
}

func sortRanges(ranges []series.RowRange) {
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
}

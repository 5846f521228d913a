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
	Tenant       string
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
func (x *Index) plan(q Query) ([]*list, error) {
	var lists []*list
	for _, m := range q.Matchers {
		if m.Matches("") {
			continue
		}
		l, err := x.planMatcher(q, m)
		if err != nil {
			return nil, err
		}
		lists = append(lists, l)
	}
	if len(lists) > 0 {
		return lists, nil
	}
	all := &list{}
	return []*list{all}, x.allPostings(q, all, labels.MetricName)
}

// planMatcher makes the list of one matcher.
func (x *Index) planMatcher(q Query, m *labels.Matcher) (*list, error) {
	l := &list{matcher: m}
	switch set := literals(m); {
	case m.Type == labels.MatchEqual:
		return l, x.postingsOf(q, l, []string{m.Value})
	case m.Type == labels.MatchNotEqual, m.Type == labels.MatchRegexp && m.Value == ".+", len(set) > maxUnion:
		return l, x.allPostings(q, l, m.Name)
	case len(set) > 0:
		return l, x.postingsOf(q, l, set)
	}
	return l, x.valuesOf(q, l)
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
func (x *Index) allPostings(q Query, l *list, name string) error {
	r, err := x.schema.PostingRange(q.Tenant, name)
	l.setRanges([]series.RowRange{r})
	return err
}

// postingsOf makes l read the postings of these values, in the periods of q.
func (x *Index) postingsOf(q Query, l *list, values []string) error {
	ranges := make([]series.RowRange, 0, len(values))
	for _, value := range values {
		first, err := x.schema.AppendPostingPrefix(nil, q.Tenant, l.matcher.Name, value, q.firstPeriod())
		if err != nil {
			return err
		}
		last, err := x.schema.AppendPostingPrefix(nil, q.Tenant, l.matcher.Name, value, q.lastPeriod())
		if err != nil {
			return err
		}
		ranges = append(ranges, series.RowRange{Start: first, Limit: series.PrefixRange(last).Limit})
	}
	sortRanges(ranges)
	l.setRanges(slices.CompactFunc(ranges, func(a, b series.RowRange) bool { return bytes.Equal(a.Start, b.Start) }))
	return nil
}

// valuesOf makes l read the values of its label, to find those that match.
func (x *Index) valuesOf(q Query, l *list) error {
	l.values = true
	l.found = make(map[string]bool)
	name, prefix := l.matcher.Name, ""
	if l.matcher.Type == labels.MatchRegexp {
		prefix = l.matcher.Prefix()
	}
	if prefix == "" || (q.lastPeriod()-q.firstPeriod())/series.IndexPeriod >= maxPrefixPeriods {
		r, err := x.valueRange(q, name)
		l.setRanges([]series.RowRange{r})
		return err
	}
	var ranges []series.RowRange
	for p := q.firstPeriod(); p <= q.lastPeriod(); p += series.IndexPeriod {
		r, err := x.schema.ValueRange(q.Tenant, name, prefix, p)
		if err != nil {
			return err
		}
		ranges = append(ranges, r)
	}
	l.setRanges(ranges)
	return nil
}

// valueRange is the range of all values of a label in the periods of q.
func (x *Index) valueRange(q Query, name string) (series.RowRange, error) {
	first, err := x.schema.ValueRange(q.Tenant, name, "", q.firstPeriod())
	if err != nil {
		return series.RowRange{}, err
	}
	last, err := x.schema.ValueRange(q.Tenant, name, "", q.lastPeriod())
	return series.RowRange{Start: first.Start, Limit: last.Limit}, err
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

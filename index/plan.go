package index

import (
	"bytes"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// maxUnion is the largest number of values of a label in a period whose postings are
// lists of their own. If a matcher matches more, its series in the period are one list.
// Literal values are never too many.
const maxUnion = 1000

// Query asks for the series that all matchers match, in [Start, Limit), in
// milliseconds, within [0, series.MaxTime+1).
type Query struct {
	Matchers     []*labels.Matcher
	Start, Limit int64
	// MaxSeries bounds the answer. 0 is no bound.
	MaxSeries int
	// Hold, if set, is called when the answer has so many series, now and then while it
	// grows. Each takes FoundBytes. Its error ends the query and is returned unchanged.
	Hold func(series int) error
	// Enough is how many series, or texts, are enough, any of those that match: nothing
	// is read to find more, and the bases of series may not be all. 0 is for all.
	Enough int

	// enough, if set, returns for a list what is called with each series that is read and
	// matches, and says whether that is enough.
	enough func(l *list) func(s *Identity, period int64) bool
}

// FoundBytes is about what a series takes in an answer, in bytes, without its Identity.
const FoundBytes = 40

// holdSteps is after how many series Hold is called.
const holdSteps = 1024

// grow notes that n series of the answer are found, one more than before. The error is
// ErrTooManySeries, or that of Hold.
func (q *Query) grow(n int) error {
	if q.MaxSeries > 0 && q.Enough == 0 && n > q.MaxSeries {
		return tooManySeries(q.MaxSeries)
	}
	if q.Hold != nil && n%holdSteps == 0 {
		return q.Hold(n)
	}
	return nil
}

// hold is grow for any number of series.
func (q *Query) hold(n int) error {
	if err := q.grow(n); err != nil || q.Hold == nil {
		return err
	}
	return q.Hold(n)
}

// matches says whether all matchers match.
func (q *Query) matches(ls labels.Labels) bool { return labels.Selector(q.Matchers).Matches(ls) }

// A run is the series of a list in a period, sorted when the list is complete.
type run struct {
	period int64
	series []*Identity
	// from is the postingsList that it is, zero for others.
	from listKey
}

// A posting names the postings of a value of a list in a period.
type posting struct {
	value  string
	period int64
}

// A list is where the series that one matcher matches are found. It holds every series
// of the answer, and others.
type list struct {
	x *Index
	q *Query
	// matcher is nil for the list of all series: those of all metric names.
	matcher *labels.Matcher
	name    string
	// literals are the values that match, if the matcher names them, else nil.
	literals []string
	// prefix is what all matching values begin with.
	prefix string
	// periods are those that the query asks for and that may have series.
	periods []int64
	// memoryOnly says that the list is of no use unless all of it is in memory.
	memoryOnly bool

	// runs are what is found so far, in size series.
	runs []run
	size int
	// found, if set, are the texts of all series that were read and match: the series
	// themselves are only wanted for the memory.
	found map[string]struct{}
	// inMemory counts the lists that were.
	inMemory int
	// unread are the periods whose values must be read, missing the postings, and wide
	// the periods with too many values.
	unread  []int64
	missing []posting
	wide    []wideValues
}

// wideValues are the values of the label in a period in which too many match.
type wideValues struct {
	period int64
	// texts are all values, nil if they are not in memory.
	texts []string
	// after is the key after which the values go on that are still to be read.
	after []byte
}

// plan turns matchers into lists, one for each matcher that does not match the
// empty string. With no such matcher it is one list of all series. The answer
// is in every one of them.
func (x *Index) plan(q *Query, periods []int64) []*list {
	var lists []*list
	for _, m := range q.Matchers {
		if !m.Matches("") {
			lists = append(lists, x.newList(q, m, periods))
		}
	}
	if len(lists) == 0 {
		lists = append(lists, x.newList(q, nil, periods))
	}
	return lists
}

// newList returns the list of a matcher.
func (x *Index) newList(q *Query, m *labels.Matcher, periods []int64) *list {
	l := &list{x: x, q: q, matcher: m, name: labels.MetricName, periods: periods}
	if m == nil {
		return l
	}
	l.name = m.Name
	switch m.Type {
	case labels.MatchEqual:
		l.literals = []string{m.Value}
	case labels.MatchRegexp:
		if l.literals = literals(m); l.literals == nil {
			l.prefix = m.Prefix()
		}
	}
	return l
}

// literals returns the values that m matches if it is a regular expression that
// names all of them, sorted, else nil.
func literals(m *labels.Matcher) []string {
	set := m.SetMatches()
	// SetMatches returns nothing for 256 values and more.
	if len(set) == 0 && m.Value != "" && !strings.ContainsAny(m.Value, `\.+*?()[]{}^$`) {
		set = strings.Split(m.Value, "|")
	}
	set = slices.Sorted(slices.Values(set))
	return slices.Compact(set)
}

// recall takes what is in memory of l, and says whether that is all.
func (l *list) recall() bool {
	for _, period := range l.periods {
		if l.literals != nil {
			l.addPostings(period, l.literals)
		} else if !l.addWide(period) {
			texts, ok := l.x.memory.texts(listKey{valuesList, period, l.name, l.prefix})
			if !ok {
				l.unread = append(l.unread, period)
				continue
			}
			l.inMemory++
			l.addValues(period, texts)
		}
	}
	return len(l.unread) == 0 && len(l.missing) == 0 && len(l.wide) == 0
}

// addWide takes the list of the matcher from memory, if it is there.
func (l *list) addWide(period int64) bool {
	found, ok := l.x.memory.matched(l.name, l.matcher, period)
	if ok {
		l.addRun(period, found, listKey{})
	}
	return ok
}

// addRun adds a list from memory.
func (l *list) addRun(period int64, found []*Identity, from listKey) {
	l.inMemory++
	if len(found) > 0 {
		l.runs = append(l.runs, run{period, found, from})
		l.size += len(found)
	}
}

// addValues adds what belongs to these values of the label, which are all that there are
// in a period.
func (l *list) addValues(period int64, texts []string) {
	var matching []string
	for _, text := range texts {
		if !l.matches(text) {
			continue
		}
		if len(matching) == maxUnion {
			if !l.addWide(period) {
				l.wide = append(l.wide, wideValues{period: period, texts: texts})
			}
			return
		}
		matching = append(matching, text)
	}
	if l.matcher == nil {
		matching = append(matching, "") // series without a metric name
	}
	l.addPostings(period, matching)
}

// addPostings adds the lists of these values.
func (l *list) addPostings(period int64, values []string) {
	for _, value := range values {
		if l.memoryOnly && len(l.missing) > 0 {
			return
		}
		k := listKey{postingsList, period, l.name, value}
		if found, ok := l.x.memory.postings(k); ok {
			l.addRun(period, found, k)
		} else {
			l.missing = append(l.missing, posting{value, period})
		}
	}
}

func (l *list) matches(value string) bool { return l.matcher == nil || l.matcher.Matches(value) }

// postingRange is the range of the postings of a value in the periods from first to last.
func (l *list) postingRange(value string, first, last int64) series.RowRange {
	start := l.x.schema.AppendPostingPrefix(nil, l.name, value, first)
	end := start
	if last != first {
		end = l.x.schema.AppendPostingPrefix(nil, l.name, value, last)
	}
	return series.RowRange{Start: start, Limit: series.PrefixRange(end).Limit}
}

// firstPeriod and lastPeriod are the starts of the periods that q touches.
func (q *Query) firstPeriod() int64 { return series.PeriodOf(q.Start) }
func (q *Query) lastPeriod() int64  { return series.PeriodOf(q.Limit - 1) }

func sortRanges(ranges []series.RowRange) {
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
}

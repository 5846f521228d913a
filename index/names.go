package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// A MetricQuery asks for the metric names of an index period: those that begin with Prefix,
// as a tree of one level, or those that contain Search, as a list.
type MetricQuery struct {
	// Time is one in the period, in milliseconds.
	Time           int64
	Prefix, Search string
	// Limit is how many names and groups are wanted.
	Limit int
}

// Metrics are metric names of an index period.
type Metrics struct {
	// Mint and Maxt are the times of the period in milliseconds, inclusive.
	Mint, Maxt int64
	// Counted says that the series are counted: that is when the counts of Cardinality are in
	// memory. Else all numbers of series are 0.
	Counted bool
	// Total is how many names the period has, and Found how many of them are asked for. The
	// groups and names may be fewer than that, see Left.
	Total, Found int
	// Groups are prefixes that names have in common, sorted. A search has none.
	Groups []MetricGroup
	// Names are single names with the numbers of their series: sorted, or those first that a
	// search fits best.
	Names []Count
	// Left is how many groups and names are left out, because they are more than the limit.
	Left int
}

// A MetricGroup is metric names with a common prefix, which ends behind a separator.
type MetricGroup struct {
	Prefix string `json:"prefix"`
	Names  int    `json:"names"`
	Series uint64 `json:"series"`
}

// smallGroup is how many names a group has at least: fewer are named one by one.
const smallGroup = 4

// Metrics returns metric names. It reads a row for each name of the period, unless those or
// the counts are in memory, and costs time that follows the number of names.
func (x *Index) Metrics(ctx context.Context, q MetricQuery) (*Metrics, error) {
	period := series.PeriodOf(q.Time)
	found := &Metrics{Mint: period, Maxt: period + series.IndexPeriod - 1}
	var names []string
	bySeries := func(string) uint64 { return 0 }
	if err := x.synced(ctx, found.Maxt+1); err != nil {
		return nil, err
	}
	if c := x.memory.countsOf(period); c != nil {
		found.Counted = true
		names, bySeries = c.metricNames()
	} else {
		var err error
		if names, err = x.Values(ctx, labels.MetricName, Query{Start: period, Limit: period + series.IndexPeriod}); err != nil {
			return nil, err
		}
	}
	found.Total = len(names)
	if q.Search != "" {
		found.search(names, q, bySeries)
	} else {
		found.tree(names, q, bySeries)
	}
	return found, nil
}

// metricNames returns the metric names, sorted, and the number of series of each.
func (c *counts) metricNames() ([]string, func(string) uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.byLabel[labels.MetricName]
	if of == nil {
		return nil, func(string) uint64 { return 0 }
	}
	if len(c.names) != len(of.values) {
		c.names = slices.Sorted(maps.Keys(of.values))
	}
	return c.names, func(name string) uint64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return of.values[name]
	}
}

// search finds the names that contain a text, whatever the case.
func (m *Metrics) search(names []string, q MetricQuery, bySeries func(string) uint64) {
	text := strings.ToLower(q.Search)
	type match struct {
		name string
		rank int
	}
	var matches []match
	for _, name := range names {
		lower := strings.ToLower(name)
		at := strings.Index(lower, text)
		if at < 0 || !strings.HasPrefix(name, q.Prefix) {
			continue
		}
		rank := 4
		switch {
		case name == q.Search:
			rank = 0
		case lower == text:
			rank = 1
		case at == 0:
			rank = 2
		case isSeparator(lower[at-1]):
			rank = 3
		}
		matches = append(matches, match{name, rank})
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(a.rank, b.rank) })
	m.Found = len(matches)
	for _, found := range matches[:min(len(matches), q.Limit)] {
		m.Names = append(m.Names, Count{found.name, bySeries(found.name)})
	}
	m.Left = m.Found - len(m.Names)
}

func isSeparator(b byte) bool { return b == '_' || b == ':' || b == '.' }

// tree finds the names with a prefix, and groups them by what follows up to a separator, or by
// what follows the longest prefix that all of them have.
func (m *Metrics) tree(names []string, q MetricQuery, bySeries func(string) uint64) {
	from, _ := slices.BinarySearch(names, q.Prefix)
	names = names[from:]
	end := sort.Search(len(names), func(i int) bool { return !strings.HasPrefix(names[i], q.Prefix) })
	if names = names[:end]; end == 0 {
		return
	}
	after := max(len(q.Prefix), len(commonPrefix(names[0], names[end-1])))
	for len(names) > 0 {
		group := names[:sameStart(names, after)]
		names = names[len(group):]
		m.Found += len(group)
		switch {
		case len(m.Groups)+len(m.Names) >= q.Limit && len(group) < smallGroup:
			m.Left += len(group)
		case len(m.Groups)+len(m.Names) >= q.Limit:
			m.Left++
		case len(group) < smallGroup:
			for _, name := range group {
				m.Names = append(m.Names, Count{name, bySeries(name)})
			}
		default:
			of := MetricGroup{Prefix: commonPrefix(group[0], group[len(group)-1]), Names: len(group)}
			for _, name := range group {
				of.Series += bySeries(name)
			}
			m.Groups = append(m.Groups, of)
		}
	}
}

// sameStart returns how many of sorted names begin as the first one does, up to and with the
// next separator after some bytes. A name without one is alone.
func sameStart(names []string, after int) int {
	first := names[0]
	at := after
	for at < len(first) && !isSeparator(first[at]) {
		at++
	}
	for at < len(first) && isSeparator(first[at]) {
		at++
	}
	if at == len(first) {
		return 1
	}
	start, n := first[:at], 1
	for n < len(names) && strings.HasPrefix(names[n], start) {
		n++
	}
	return n
}

// commonPrefix returns the longest prefix that two names have in common, up to a separator.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && !isSeparator(a[n-1]) {
		n--
	}
	return a[:n]
}

// An Extent says what the index holds, as far as that is cheap to know.
type Extent struct {
	// Mint and Maxt are the times of the running index period in milliseconds, inclusive.
	Mint, Maxt int64
	// First and Last are the starts, in milliseconds, of the first and the last index period
	// with series, up to the running one. They are -1 if there are none.
	First, Last int64
	// Series is how many series the running period has. If Exact is false it is a bound, and
	// there are more.
	Series int
	Exact  bool
}

// Extent returns what there is from one time to another, both in milliseconds, of which the
// latter is now. Unless the series are counted in memory it counts up to so many of them.
func (x *Index) Extent(ctx context.Context, from, now int64, most int) (Extent, error) {
	running := series.PeriodOf(now)
	found := Extent{Mint: running, Maxt: running + series.IndexPeriod - 1, First: -1, Last: -1}
	periods, _, err := x.periodsWithRows(ctx, series.PeriodOf(from), running)
	if err != nil {
		return found, err
	}
	if len(periods) > 0 {
		found.First, found.Last = periods[0], periods[len(periods)-1]
	}
	if c := x.memory.countsOf(running); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		found.Series, found.Exact = c.series, true
		return found, nil
	}
	found.Series, found.Exact, err = x.countUpTo(ctx, running, most)
	return found, err
}

// countUpTo counts the series of a period, and says whether those are all.
func (x *Index) countUpTo(ctx context.Context, period int64, most int) (n int, all bool, err error) {
	err = x.eachMark(ctx, period, most+1, func([]byte) error {
		if n == most {
			return errEnough
		}
		n++
		return nil
	})
	if errors.Is(err, errEnough) {
		return n, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("count series: %w", err)
	}
	return n, true, nil
}

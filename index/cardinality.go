package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// A Count is how many there are of something with a name.
type Count struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Cardinality says how many series an index period has, and what makes them so
// many. The lists are the largest counts, largest first.
type Cardinality struct {
	// Mint and Maxt are the times of the period in milliseconds, inclusive.
	Mint, Maxt int64
	Series     int
	// Pairs is how many different pairs of a label and a value there are.
	Pairs int
	// Metrics counts the series of each metric, Labels the values of each label,
	// LabelBytes the bytes of these values, SeriesByLabel the series that have a label,
	// SeriesByPair the series of each name=value, and Focus the series of each value of
	// CountQuery.Focus.
	Metrics, Labels, LabelBytes, SeriesByLabel, SeriesByPair, Focus []Count
}

// A CountQuery asks for counts of the series of an index period.
type CountQuery struct {
	// Time is one in the period, in milliseconds.
	Time int64
	// Top is how many counts of each kind are wanted.
	Top int
	// Focus is the label of Cardinality.Focus, or empty.
	Focus string
	// Selectors are matchers: only the series that all matchers of one of them match are
	// counted. Without selectors all series are.
	Selectors [][]*labels.Matcher
	// MaxSeries bounds how many series a selector matches. 0 is no bound.
	MaxSeries int
	// Hold, if set, is called when the series of a selector, and the counts, take so many
	// bytes by now. Its error ends the query and is returned unchanged.
	Hold func(bytes int) error
}

// countsAge is how long counts are good for if other processes write: to count again costs
// a row for each series.
const countsAge = time.Minute

// Cardinality counts the series of a period. Without selectors, the first call for a
// period reads a row of each of its series. After that the counts are in memory, and get
// what this process writes. If other processes write, too, they are counted again after a
// minute. With selectors the series are found as by Select.
func (x *Index) Cardinality(ctx context.Context, q CountQuery) (*Cardinality, error) {
	c, err := x.counted(ctx, &q)
	if err != nil {
		return nil, err
	}
	return c.cardinality(series.PeriodOf(q.Time), q.Top, q.Focus), nil
}

// counted returns the counts of a query.
func (x *Index) counted(ctx context.Context, q *CountQuery) (*counts, error) {
	if len(q.Selectors) > 0 {
		return x.countSelected(ctx, q)
	}
	select {
	case x.counting <- struct{}{}: // others wait for the counts instead of counting, too
		defer func() { <-x.counting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the index: %w", ctx.Err())
	}
	period := series.PeriodOf(q.Time)
	if err := x.synced(ctx, period+series.IndexPeriod); err != nil {
		return nil, err
	}
	if c := x.memory.countsOf(period); c != nil {
		return c, nil
	}
	return x.count(ctx, period)
}

// countSelected counts the series that selectors match, one that several match once.
func (x *Index) countSelected(ctx context.Context, q *CountQuery) (*counts, error) {
	c := &counts{byLabel: make(map[string]*labelCounts)}
	var counted map[string]struct{}
	if len(q.Selectors) > 1 {
		counted = make(map[string]struct{})
	}
	period := series.PeriodOf(q.Time)
	for _, ms := range q.Selectors {
		in := Query{Matchers: ms, Start: period, Limit: period + series.IndexPeriod, MaxSeries: q.MaxSeries}
		if q.Hold != nil {
			in.Hold = func(series int) error { return q.Hold(series*FoundBytes + c.bytes) }
		}
		found, err := x.Select(ctx, in)
		if err != nil {
			return nil, err
		}
		for i, s := range found.Series {
			if counted != nil {
				if _, ok := counted[s.Key]; ok {
					continue
				}
				counted[s.Key] = struct{}{}
			}
			c.add(s.Labels)
			if i%holdSteps == 0 && q.Hold != nil {
				if err := q.Hold(len(found.Series)*FoundBytes + c.bytes); err != nil {
					return nil, err
				}
			}
		}
	}
	return c, nil
}

// countsOf returns the counts of a period, or nil if they are not in memory.
func (m *memory) countsOf(period int64) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lists[listKey{kind: countsList, period: period}]
	if l == nil || !m.exclusive && m.now().Sub(l.readAt) >= countsAge {
		return nil
	}
	m.use(l)
	return l.counts
}

// count counts the series of a period.
func (x *Index) count(ctx context.Context, period int64) (*counts, error) {
	load := x.memory.begin()
	defer x.memory.end(load)
	c := &counts{byLabel: make(map[string]*labelCounts)}
	var counted hashTable
	builder := labels.NewScratchBuilder(16)
	err := x.eachMark(ctx, period, 0, func(seriesKey []byte) error {
		ls, err := x.schema.ParseSeriesKey(seriesKey, &builder)
		if err != nil {
			return fmt.Errorf("posting of %q: %w", seriesKey, err)
		}
		counted.add(x.writer.hash.of(seriesKey))
		c.add(ls)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count series: %w", err)
	}
	x.memory.installCounts(load, period, c, func(s *Identity) bool {
		h := x.writer.hash.of([]byte(s.Key))
		if counted.has(h) {
			return false
		}
		counted.add(h)
		return true
	})
	return c, nil
}

// eachMark calls fn with the key of each series in a period, of up to so many metrics unless
// that is 0. An error of fn ends it and is returned unchanged.
func (x *Index) eachMark(ctx context.Context, period int64, maxMetrics int, fn func(seriesKey []byte) error) error {
	metrics := []string{""} // that of series without a metric name
	values := x.schema.ValueRange(labels.MetricName, "", period)
	err := x.rows.ScanRows(ctx, []series.RowRange{values}, maxMetrics, func(_, value []byte) error {
		metrics = append(metrics, string(value))
		return nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(metrics, maxRanges) {
		ranges := make([]series.RowRange, len(some))
		for i, metric := range some {
			ranges[i] = series.PrefixRange(x.schema.AppendPostingPrefix(nil, labels.MetricName, metric, period))
		}
		sortRanges(ranges)
		err := x.rows.ScanRows(ctx, ranges, 0, func(key, _ []byte) error {
			_, seriesKey, err := x.schema.ParsePosting(key)
			if err != nil {
				return err
			}
			return fn(seriesKey)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// installCounts keeps counts. It adds the series that this process has written while they
// were counted, unless they are counted already.
func (m *memory) installCounts(from *load, period int64, c *counts, isNew func(*Identity) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range from.added {
		if s.period == period && isNew(s.Identity) {
			c.add(s.Labels)
		}
	}
	if !from.lost {
		m.put(&memList{listKey: listKey{kind: countsList, period: period}, counts: c, readAt: from.at})
		m.evict()
	}
}

// counts counts the series of a period. It is safe for concurrent use.
type counts struct {
	mu      sync.Mutex
	byLabel map[string]*labelCounts
	series  int
	// names are the metric names, sorted, unless there are others by now.
	names []string
	// bytes is about what all of it takes.
	bytes int
	// last is the last answer, with up to lastTop counts of each kind and those of the label
	// lastFocus, nil after a change.
	last      *Cardinality
	lastTop   int
	lastFocus string
}

// labelCounts counts the series with each value of a label.
type labelCounts struct {
	values map[string]uint64
	bytes  uint64
}

// countBytes is about what a count takes without the bytes of its value.
const countBytes = 48

// add adds a series, and returns how many bytes that takes.
func (c *counts) add(ls labels.Labels) (size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = nil
	c.series++
	ls.Range(func(l labels.Label) {
		of := c.byLabel[l.Name]
		if of == nil {
			of = &labelCounts{values: make(map[string]uint64)}
			c.byLabel[strings.Clone(l.Name)] = of
		}
		if n, ok := of.values[l.Value]; ok {
			of.values[l.Value] = n + 1
			return
		}
		of.values[strings.Clone(l.Value)] = 1
		of.bytes += uint64(len(l.Value))
		size += countBytes + len(l.Value)
	})
	c.bytes += size
	return size
}

// cardinality returns the largest counts.
func (c *counts) cardinality(period int64, top int, focus string) *Cardinality {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.lastTop == top && c.lastFocus == focus {
		return c.last
	}
	found := &Cardinality{Mint: period, Maxt: period + series.IndexPeriod - 1, Series: c.series}
	byLabel, bySeries, size, pairs := topCounts{limit: top}, topCounts{limit: top}, topCounts{limit: top}, topCounts{limit: top}
	for name, of := range c.byLabel {
		found.Pairs += len(of.values)
		byLabel.add(uint64(len(of.values)), name)
		size.add(of.bytes, name)
		var all uint64
		for value, n := range of.values {
			pairs.add(n, name, "=", value)
			all += n
		}
		bySeries.add(all, name)
	}
	found.Labels, found.SeriesByLabel, found.LabelBytes, found.SeriesByPair = byLabel.sorted(), bySeries.sorted(), size.sorted(), pairs.sorted()
	found.Metrics, found.Focus = c.topValues(labels.MetricName, top), c.topValues(focus, top)
	c.last, c.lastTop, c.lastFocus = found, top, focus
	return found
}

// topValues returns the values of a label that have the most series. The lock is held.
func (c *counts) topValues(label string, top int) []Count {
	found := topCounts{limit: top}
	if of := c.byLabel[label]; of != nil {
		for value, n := range of.values {
			found.add(n, value)
		}
	}
	return found.sorted()
}

// topCounts keeps the largest counts.
type topCounts struct {
	limit int
	kept  []Count
	// least is the last of limit counts that are kept: what is less is not among them.
	least Count
	name  []byte
}

// add adds a count, whose name is in parts.
func (t *topCounts) add(n uint64, name ...string) {
	if n == 0 || n < t.least.Value {
		return
	}
	t.name = t.name[:0]
	for _, part := range name {
		t.name = append(t.name, part...)
	}
	if n == t.least.Value && string(t.name) >= t.least.Name { // which copies nothing
		return
	}
	if t.kept = append(t.kept, Count{string(t.name), n}); t.limit > 0 && len(t.kept) >= 2*t.limit+100 {
		t.kept = t.sorted()
		t.least = t.kept[len(t.kept)-1]
	}
}

// sorted returns the largest counts, largest first, by name where they are
// equal.
func (t *topCounts) sorted() []Count {
	slices.SortFunc(t.kept, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Name, b.Name)) })
	return t.kept[:min(len(t.kept), t.limit)]
}

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
	// LabelBytes the bytes of these values, and SeriesByPair the series of each
	// name=value.
	Metrics, Labels, LabelBytes, SeriesByPair []Count
}

// countsAge is how long counts are good for if other processes write: to count again costs
// a row for each series.
const countsAge = time.Minute

// Cardinality returns what the index knows of the period that holds t, in milliseconds,
// with up to top counts of each kind. The first call for a period reads a row of each of
// its series. After that the counts are in memory, and get what this process writes. If
// other processes write, too, they are counted again after a minute.
func (x *Index) Cardinality(ctx context.Context, t int64, top int) (*Cardinality, error) {
	select {
	case x.counting <- struct{}{}: // others wait for the counts instead of counting, too
		defer func() { <-x.counting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the index: %w", ctx.Err())
	}
	period := series.PeriodOf(t)
	c := x.memory.countsOf(period)
	if c == nil {
		var err error
		if c, err = x.count(ctx, period); err != nil {
			return nil, err
		}
	}
	return c.cardinality(period, top), nil
}

// countsOf returns the counts of a period, or nil if they are not in memory.
func (m *memory) countsOf(period int64) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lists[listKey{kind: countsList, period: period}]
	if l == nil || !m.sole && m.now().Sub(l.readAt) >= countsAge {
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
	err := x.eachMark(ctx, period, func(seriesKey []byte) error {
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

// eachMark calls fn with the key of each series in a period. An error of fn ends it and is
// returned unchanged.
func (x *Index) eachMark(ctx context.Context, period int64, fn func(seriesKey []byte) error) error {
	metrics := []string{""} // that of series without a metric name
	values := x.schema.ValueRange(labels.MetricName, "", period)
	err := x.rows.ScanRows(ctx, []series.RowRange{values}, 0, func(_, value []byte) error {
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
	// bytes is about what all of it takes.
	bytes int
	// last is the last answer, with up to lastTop counts of each kind, nil after a change.
	last    *Cardinality
	lastTop int
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
func (c *counts) cardinality(period int64, top int) *Cardinality {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.lastTop == top {
		return c.last
	}
	found := &Cardinality{Mint: period, Maxt: period + series.IndexPeriod - 1, Series: c.series}
	metrics, byLabel, size, pairs := topCounts{limit: top}, topCounts{limit: top}, topCounts{limit: top}, topCounts{limit: top}
	for name, of := range c.byLabel {
		found.Pairs += len(of.values)
		byLabel.add(uint64(len(of.values)), name)
		size.add(of.bytes, name)
		for value, n := range of.values {
			pairs.add(n, name, "=", value)
			if name == labels.MetricName {
				metrics.add(n, value)
			}
		}
	}
	found.Metrics, found.Labels, found.LabelBytes, found.SeriesByPair = metrics.sorted(), byLabel.sorted(), size.sorted(), pairs.sorted()
	c.last, c.lastTop = found, top
	return found
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

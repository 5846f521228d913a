package index

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

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

// pairsAtOnce is how many pairs are counted by one scan.
const pairsAtOnce = 1000

// Cardinality reads what the index knows of the period that holds t, in
// milliseconds, and returns up to top counts of each kind. It reads every
// posting of the period, one for each label of each series, but holds no more
// than the counts that it returns and the values of pairsAtOnce pairs.
func (x *Index) Cardinality(ctx context.Context, t int64, top int) (*Cardinality, error) {
	period := series.PeriodOf(t)
	names, err := x.Names(ctx, period, period+series.IndexPeriod)
	if err != nil {
		return nil, err
	}
	c := counting{x: x, period: period, found: Cardinality{Mint: period, Maxt: period + series.IndexPeriod - 1}}
	for _, list := range []*topCounts{&c.metrics, &c.labels, &c.labelBytes, &c.pairs} {
		list.limit = top
	}
	for _, name := range names {
		if err := c.label(ctx, name); err != nil {
			return nil, fmt.Errorf("count series with label %q: %w", name, err)
		}
	}
	c.found.Metrics, c.found.Labels = c.metrics.sorted(), c.labels.sorted()
	c.found.LabelBytes, c.found.SeriesByPair = c.labelBytes.sorted(), c.pairs.sorted()
	return &c.found, nil
}

// counting is the state of one pass.
type counting struct {
	x      *Index
	period int64
	found  Cardinality

	metrics, labels, labelBytes, pairs topCounts
}

// label counts the values of a label, and the series that have each of them.
func (c *counting) label(ctx context.Context, name string) error {
	values := c.x.schema.ValueRange(name, "", c.period)
	var batch []string
	var count, size uint64
	// The values are read page by page: a scan within a scan would hold two
	// snapshots of the store.
	for {
		batch = batch[:0]
		var last []byte
		err := c.x.rows.ScanRows(ctx, []series.RowRange{values}, pairsAtOnce, func(key, value []byte) error {
			batch = append(batch, string(value))
			size += uint64(len(value))
			last = append(last[:0], key...)
			return nil
		})
		if err != nil {
			return err
		}
		if err := c.values(ctx, name, batch); err != nil {
			return err
		}
		count += uint64(len(batch))
		if len(batch) < pairsAtOnce {
			break
		}
		values.Start = append(last, 0)
	}
	c.found.Pairs += int(count)
	c.labels.add(name, count)
	c.labelBytes.add(name, size)
	return nil
}

// pairRange is the postings of a value.
type pairRange struct {
	value string
	rows  series.RowRange
	count uint64
}

// values counts the series that have these values of a label.
func (c *counting) values(ctx context.Context, name string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	pairs := make([]pairRange, len(values))
	for i, value := range values {
		pairs[i] = pairRange{value: value, rows: series.PrefixRange(c.x.schema.AppendPostingPrefix(nil, name, value, c.period))}
	}
	slices.SortFunc(pairs, func(a, b pairRange) int { return bytes.Compare(a.rows.Start, b.rows.Start) })
	ranges := make([]series.RowRange, len(pairs))
	for i := range pairs {
		ranges[i] = pairs[i].rows
	}
	at := 0
	err := c.x.rows.ScanRows(ctx, ranges, 0, func(key, _ []byte) error {
		for at < len(pairs)-1 && !pairs[at].rows.Contains(key) {
			at++
		}
		pairs[at].count++
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range pairs {
		c.pairs.add(name+"="+p.value, p.count)
		if name == labels.MetricName {
			c.metrics.add(p.value, p.count)
			c.found.Series += int(p.count)
		}
	}
	return nil
}

// topCounts keeps the largest counts.
type topCounts struct {
	limit int
	kept  []Count
}

func (t *topCounts) add(name string, n uint64) {
	if n == 0 {
		return
	}
	if t.kept = append(t.kept, Count{name, n}); len(t.kept) >= 2*t.limit+100 {
		t.kept = t.sorted()
	}
}

// sorted returns the largest counts, largest first, by name where they are
// equal.
func (t *topCounts) sorted() []Count {
	slices.SortFunc(t.kept, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Name, b.Name)) })
	return t.kept[:min(len(t.kept), t.limit)]
}

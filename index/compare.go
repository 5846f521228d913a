package index

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// A Change is a count in two periods. 0 is that there was nothing of the name.
type Change struct {
	Name   string `json:"name"`
	Before uint64 `json:"before"`
	Value  uint64 `json:"value"`
}

// by returns how much the count has changed.
func (c Change) by() uint64 { return max(c.Before, c.Value) - min(c.Before, c.Value) }

// Changes say how the counts of one kind differ.
type Changes struct {
	// New, Gone, Grown and Shrunk are how many names have changed so.
	New    int `json:"new"`
	Gone   int `json:"gone"`
	Grown  int `json:"grown"`
	Shrunk int `json:"shrunk"`
	// Largest are the largest differences, largest first.
	Largest []Change `json:"largest"`
}

// A Comparison says how the series of a period differ from those of another, before.
type Comparison struct {
	// Mint and Maxt are the times of the other period in milliseconds, inclusive.
	Mint, Maxt int64
	// Series and Pairs are those of the other period.
	Series, Pairs int
	// The kinds are those of Cardinality.
	Metrics, Labels, SeriesByLabel, SeriesByPair, Focus Changes
}

// ErrSamePeriod marks a comparison of a period with itself.
var ErrSamePeriod = errors.New("both times are in the same index period")

// Compare returns the counts of q, and how they differ from those of the period that holds
// another time, in milliseconds. It costs two calls of Cardinality.
func (x *Index) Compare(ctx context.Context, q CountQuery, other int64) (*Cardinality, *Comparison, error) {
	period, before := series.PeriodOf(q.Time), series.PeriodOf(other)
	if period == before {
		return nil, nil, ErrSamePeriod
	}
	now, err := x.counted(ctx, &q)
	if err != nil {
		return nil, nil, err
	}
	found := now.cardinality(period, q.Top, q.Focus)
	q.Time = other
	then, err := x.counted(ctx, &q)
	if err != nil {
		return nil, nil, err
	}
	compared := compare(then, now, period < before, q.Top, q.Focus)
	compared.Mint, compared.Maxt = before, before+series.IndexPeriod-1
	return found, compared, nil
}

// compare compares counts. nowFirst says which lock is taken first: that of the earlier
// period.
func compare(then, now *counts, nowFirst bool, top int, focus string) *Comparison {
	first, second := then, now
	if nowFirst {
		first, second = now, then
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	c := &Comparison{Series: then.series}
	byLabel, bySeries, pairs := changes{limit: top}, changes{limit: top}, changes{limit: top}
	each(then.byLabel, now.byLabel, func(name string, a, b *labelCounts) {
		values := changes{limit: top}
		var ofSeries Change
		each(a.all(), b.all(), func(value string, m, n uint64) {
			pairs.add(Change{Before: m, Value: n}, name, "=", value)
			if name == labels.MetricName || name == focus {
				values.add(Change{Before: m, Value: n}, value)
			}
			ofSeries.Before, ofSeries.Value = ofSeries.Before+m, ofSeries.Value+n
		})
		c.Pairs += len(a.all())
		byLabel.add(Change{Before: uint64(len(a.all())), Value: uint64(len(b.all()))}, name)
		bySeries.add(ofSeries, name)
		if name == labels.MetricName {
			c.Metrics = values.sorted()
		}
		if name == focus {
			c.Focus = values.sorted()
		}
	})
	c.Labels, c.SeriesByLabel, c.SeriesByPair = byLabel.sorted(), bySeries.sorted(), pairs.sorted()
	return c
}

// all returns the counts by value, nil if there are none.
func (l *labelCounts) all() map[string]uint64 {
	if l == nil {
		return nil
	}
	return l.values
}

// each calls fn with what either map has of each key.
func each[V any](before, after map[string]V, fn func(key string, before, after V)) {
	for key, v := range after {
		fn(key, before[key], v)
	}
	var none V
	for key, v := range before {
		if _, ok := after[key]; !ok {
			fn(key, v, none)
		}
	}
}

// changes counts changes, and keeps the largest.
type changes struct {
	Changes
	limit int
	// least is the last of limit changes that are kept: what is less is not among them.
	least Change
}

// add adds a change, whose name is in parts.
func (c *changes) add(change Change, name ...string) {
	switch {
	case change.Before == change.Value:
		return
	case change.Before == 0:
		c.New++
	case change.Value == 0:
		c.Gone++
	case change.Value > change.Before:
		c.Grown++
	default:
		c.Shrunk++
	}
	if change.by() < c.least.by() {
		return
	}
	change.Name = ""
	for _, part := range name {
		change.Name += part
	}
	if c.Largest = append(c.Largest, change); c.limit > 0 && len(c.Largest) >= 2*c.limit+100 {
		c.Largest = c.sorted().Largest
		c.least = c.Largest[len(c.Largest)-1]
	}
}

// sorted returns the changes, the largest first, by name where they are equal.
func (c *changes) sorted() Changes {
	slices.SortFunc(c.Largest, func(a, b Change) int { return cmp.Or(cmp.Compare(b.by(), a.by()), cmp.Compare(a.Name, b.Name)) })
	c.Largest = c.Largest[:min(len(c.Largest), c.limit)]
	return c.Changes
}

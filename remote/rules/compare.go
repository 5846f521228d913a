package rules

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// A Difference says how what is stored of rules differs from what they have now.
type Difference struct {
	// Steps were evaluated, by rule, of which Failed fail now: these are left as they are. Error is the first one.
	Steps  int    `json:"steps"`
	Failed int    `json:"failed"`
	Error  string `json:"error,omitempty"`
	// Equal samples are stored as they are, Missing ones are not, Changed ones have another value, and Extra ones are stored where a rule has nothing.
	Equal   int `json:"equal"`
	Missing int `json:"missing"`
	Changed int `json:"changed"`
	Extra   int `json:"extra"`
}

// Samples is how many differ.
func (d Difference) Samples() int { return d.Missing + d.Changed + d.Extra }

// Add adds another one.
func (d *Difference) Add(o Difference) {
	d.Steps, d.Failed = d.Steps+o.Steps, d.Failed+o.Failed
	d.Equal, d.Missing, d.Changed, d.Extra = d.Equal+o.Equal, d.Missing+o.Missing, d.Changed+o.Changed, d.Extra+o.Extra
	if d.Error == "" {
		d.Error = o.Error
	}
}

// count counts a sample, and says whether it differs from what is stored.
func (d *Difference) count(have, want stepValue) bool {
	switch {
	case !have.isSet:
		d.Missing++
	case have.equals(want):
		d.Equal++
		return false
	default:
		d.Changed++
	}
	return true
}

// correct evaluates rules anew at the steps from start to end, in milliseconds, as far as they are recorded, and stores what differs, unless isDry. It has
// found what it stored when it returns without an error.
func (g *group) correct(ctx context.Context, recordings []recording, start, end int64, isDry bool) (all Difference, err error) {
	steps := g.querySteps()
	for from := start; from <= end; from += steps * g.step {
		for i := range recordings {
			rule := &recordings[i]
			first, last := max(from, rule.since+g.step), min(end, from+(steps-1)*g.step, rule.done)
			if first > last {
				continue
			}
			d, err := g.correctRule(ctx, *rule, first, last, isDry)
			if all.Add(d); err != nil {
				return all, fmt.Errorf("rule %s: %w", rule.name, err)
			}
		}
	}
	return all, nil
}

// correctRule is correct for the steps of one query, which the rule has recorded.
func (g *group) correctRule(ctx context.Context, rule recording, start, end int64, isDry bool) (d Difference, err error) {
	rule.ok, rule.previous = start-g.step, nil
	e, _, err := g.evaluation(ctx, &rule, start, end)
	if err != nil {
		return d, err
	}
	stored, err := e.stored(ctx)
	if err != nil {
		return d, err
	}
	d.Steps = e.n
	for _, failed := range e.failed {
		if failed != nil {
			d.Add(Difference{Failed: 1, Error: failed.Error()})
		}
	}
	differs := e.series(stored, &d)
	if isDry || len(differs) == 0 {
		return d, nil
	}
	for some := range slices.Chunk(differs, appendSeries) {
		if err := appendAll(ctx, g.runner.cfg, some); err != nil {
			return d, err
		}
	}
	if stored, err = e.stored(ctx); err != nil {
		return d, err
	}
	var after Difference
	if e.series(stored, &after); after.Samples() > 0 {
		return d, fmt.Errorf("of %d samples from %s to %s that were stored %d are not found", d.Samples(), timeText(start), timeText(end), after.Samples())
	}
	return d, nil
}

// stored returns what is stored at the steps of the series that the rule has, by the bytes of their labels and by time. Others may be of other rules.
func (e *evaluation) stored(ctx context.Context) (map[string]map[int64]stepValue, error) {
	first, last := e.start, e.time(e.n-1)
	q, err := e.group.runner.cfg.Queryable.Querier(first, last)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, e.rule.name)}
	e.rule.labels.Range(func(l labels.Label) { ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value)) })
	set := q.Select(ctx, false, &storage.SelectHints{Start: first, End: last}, ms...)
	all := make(map[string]map[int64]stepValue)
	var it chunkenc.Iterator
	for set.Next() {
		key := string(set.At().Labels().Bytes(nil))
		if _, ok := e.position[key]; !ok {
			continue
		}
		found := make(map[int64]stepValue)
		it = set.At().Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			t := it.AtT()
			if t < first || t > last || (t-first)%e.group.step != 0 {
				continue
			}
			v := stepValue{isSet: true}
			if kind == chunkenc.ValFloat {
				_, v.f = it.At()
			} else {
				_, v.h = it.AtFloatHistogram(nil)
			}
			found[t] = v
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		all[key] = found
	}
	return all, set.Err()
}

package current

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// Sample is the current sample of a series: V, unless one of the histograms is set.
type Sample struct {
	Labels labels.Labels
	T      int64
	V      float64
	H      *histogram.Histogram
	FH     *histogram.FloatHistogram
}

// decodeSample decodes a sample, unless it is a staleness marker.
func decodeSample(ls labels.Labels, s sample) (sample Sample, ok bool, err error) {
	if s.Value == nil {
		return Sample{Labels: ls, T: s.T, V: s.V}, !value.IsStaleNaN(s.V), nil
	}
	v, err := cell.Parse(s.Value)
	return Sample{ls, s.T, v.Float, v.Histogram, v.FloatHistogram}, err == nil && !isStale(v), err
}

// Read returns the current samples of these series, by key, whose time is at least
// mint, sorted by metric name, then by labels.Compare. Series whose current sample
// is a staleness marker are left out.
func (t *Table) Read(ctx context.Context, found map[string]labels.Labels, mint int64) ([]Sample, error) {
	samples, err := t.readSamples(ctx, found)
	if err != nil {
		return nil, err
	}
	current := make([]Sample, 0, len(samples))
	for key, s := range samples {
		if s.T < mint {
			continue
		}
		sample, ok, err := decodeSample(found[key], s)
		if err != nil {
			return nil, fmt.Errorf("row %q of CURRENT: %w", key, err)
		}
		if ok {
			current = append(current, sample)
		}
	}
	slices.SortFunc(current, func(a, b Sample) int {
		byName := cmp.Compare(a.Labels.Get(labels.MetricName), b.Labels.Get(labels.MetricName))
		return cmp.Or(byName, labels.Compare(a.Labels, b.Labels))
	})
	return current, nil
}

// Pending returns the rows that are not in CURRENT yet, in order of keys. The ranges are ascending and do not overlap.
func (t *Table) Pending(ranges []series.RowRange) (rows []bucketstore.Row) {
	add := func(key string, s sample) {
		value, _ := s.appendValue(nil)
		rows = append(rows, bucketstore.Row{Key: []byte(key), Cells: []bucketstore.Cell{
			{Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent), Time: s.T, Value: value},
		}})
	}
	var wide []series.RowRange
	for _, r := range ranges {
		if n := len(r.Limit) - 1; n < 0 || r.Limit[n] != 0 || !bytes.Equal(r.Limit[:n], r.Start) {
			wide = append(wide, r)
		} else if s, ok := t.get(string(r.Start)); ok {
			add(string(r.Start), s)
		}
	}
	if len(wide) == 0 {
		return rows
	}
	for _, s := range t.all() {
		if slices.ContainsFunc(wide, func(r series.RowRange) bool { return r.Contains([]byte(s.key)) }) {
			add(s.key, s.sample)
		}
	}
	slices.SortFunc(rows, func(a, b bucketstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

// readSamples returns the current samples of these series: the pending ones, copied
// first, over those in CURRENT.
func (t *Table) readSamples(ctx context.Context, found map[string]labels.Labels) (map[string]sample, error) {
	samples := make(map[string]sample, len(found))
	rows := make([]series.RowRange, 0, len(found))
	for key := range found {
		if s, ok := t.get(key); ok {
			samples[key] = s
		}
		rows = append(rows, series.SingleRow([]byte(key)))
	}
	slices.SortFunc(rows, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	err := t.store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Current,
		Rows:     rows,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, func(row bucketstore.Row) error {
		c := row.Cells[0]
		if have, ok := samples[string(row.Key)]; !ok || have.T < c.Time {
			samples[string(row.Key)] = sample{T: c.Time, Value: bytes.Clone(c.Value)}
		}
		return nil
	})
	return samples, err
}

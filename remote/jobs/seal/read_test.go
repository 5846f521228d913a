package seal_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// allFamilies are the families with samples.
func allFamilies() (all []bucketstore.FamilyRange) {
	for _, name := range []string{series.FamilyChunk, series.FamilyLate, series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3} {
		all = append(all, bucketstore.FamilyRange{Family: name})
	}
	return all
}

// cellsOf returns all cells of a row.
func cellsOf(store bucketstore.Store, key []byte) (cells []bucketstore.Cell, err error) {
	err = store.Scan(context.Background(), bucketstore.ScanRequest{
		Table:    bucketstore.Metric,
		Rows:     []series.RowRange{series.SingleRow(key)},
		Families: allFamilies(),
	}, func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
			cells = append(cells, c)
		}
		return nil
	})
	return cells, err
}

// samplesOf reads a row as readers do: values by time.
func samplesOf(store bucketstore.Store, key []byte, base int64) (map[int64]string, error) {
	cells, err := cellsOf(store, key)
	if err != nil {
		return nil, err
	}
	var rs merge.Row
	rs.Reset(base, base, base+series.Period, merge.Options{})
	for _, c := range cells {
		if c.Family != series.FamilyChunk {
			if err := rs.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return nil, err
			}
			continue
		}
		chunk, err := chunk.Parse(c.Qualifier, c.Value)
		if err != nil {
			return nil, err
		}
		rs.AddChunk(chunk)
	}
	found := make(map[int64]string)
	samples, _, err := seriestest.ReadRow(&rs)
	for _, s := range samples {
		found[s.T] = canonical(s.V)
	}
	return found, err
}

// canonical returns the bytes of a value. Histograms are compact, and of resets keep only
// whether they are gauges: chunks may have empty buckets, and have more resets than single
// values.
func canonical(v cell.Value) string {
	hint := func(h histogram.CounterResetHint) histogram.CounterResetHint {
		if h == histogram.GaugeType {
			return h
		}
		return histogram.UnknownCounterReset
	}
	if v.Histogram != nil {
		v.Histogram = v.Histogram.Copy().Compact(0)
		v.Histogram.CounterResetHint = hint(v.Histogram.CounterResetHint)
	}
	if v.FloatHistogram != nil {
		v.FloatHistogram = v.FloatHistogram.Copy().Compact(0)
		v.FloatHistogram.CounterResetHint = hint(v.FloatHistogram.CounterResetHint)
	}
	return string(cell.Append(nil, v))
}

// A testSeries is a series with its key.
type testSeries struct {
	name string
	key  []byte
}

func newTestSeries(tb testing.TB, schema series.Schema, ls labels.Labels) testSeries {
	tb.Helper()
	key, err := schema.AppendSeriesKey(nil, ls)
	if err != nil {
		tb.Fatal(err)
	}
	return testSeries{ls.Get(labels.MetricName), key}
}

// index makes a series findable in the index period of t.
func (s testSeries) index(store bucketstore.Store, schema series.Schema, t int64) error {
	period := series.PeriodOf(t)
	posting := append(schema.AppendPostingPrefix(nil, labels.MetricName, s.name, period), s.key...)
	value := schema.AppendValueKey(nil, labels.MetricName, s.name, period)
	name := schema.AppendNameKey(nil, labels.MetricName, period)
	set := func(key []byte, text string) bucketstore.Mutation {
		return bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyIndex, Qualifier: []byte(series.QualifierIndex),
			Time: period + series.IndexPeriod, Value: []byte(text),
		}}}
	}
	muts := []bucketstore.Mutation{set(name, labels.MetricName), set(posting, "")}
	if s.name != "" {
		muts = append(muts, set(value, s.name))
	}
	return store.Apply(context.Background(), bucketstore.Index, muts)
}

// differ returns the difference of two sets of samples, or nothing.
func differ(got, want map[int64]string) string {
	for t, v := range want {
		if g, ok := got[t]; !ok {
			return fmt.Sprintf("sample at %d is lost", t)
		} else if g != v {
			return fmt.Sprintf("sample at %d is %x, want %x", t, g, v)
		}
	}
	for t := range got {
		if _, ok := want[t]; !ok {
			return fmt.Sprintf("sample at %d was never written", t)
		}
	}
	return ""
}

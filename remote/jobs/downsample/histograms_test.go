package downsample_test

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// writeValues writes samples of a series, and makes it findable.
func (f *fixture) writeValues(name string, values map[int64]cell.Value) {
	f.Helper()
	for t, v := range values {
		f.apply(bucketstore.Index, indexRows(f.schema, f.key(name), name, series.PeriodOf(t))...)
		base, delta := series.Split(t)
		f.apply(bucketstore.Metric, bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key(name), base), Ops: []bucketstore.Op{{
			Family: series.FamilyLate, Qualifier: series.AppendQualifier(nil, delta), Time: t, Value: cell.Append(nil, v),
		}}})
	}
}

// histogramRollup returns the rollup of values of a day.
func (f *fixture) histogramRollup(r rollup.Resolution, day int64, values map[int64]cell.Value) []byte {
	f.Helper()
	var e rollup.HistogramEncoder
	e.Begin(r, day)
	for _, t := range slices.Sorted(maps.Keys(values)) {
		if t > day && t <= day+rollup.Day {
			if err := e.Add(t, values[t]); err != nil {
				f.Fatal(err)
			}
		}
	}
	data, err := e.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

// wantHistograms wants the rollups of values, of as many days.
func (f *fixture) wantHistograms(name string, days int, values map[int64]cell.Value) {
	f.Helper()
	found := f.rollups(name)
	for _, m := range found {
		if want := f.histogramRollup(m.resolution, m.day, values); !bytes.Equal(m.value, want) {
			f.Errorf("series %s, %s of day %d: %x, want %x", name, m.resolution, (m.day-day0)/rollup.Day, m.value, want)
		}
	}
	if len(found) != 2*days {
		f.Errorf("series %s has %d rollups, want %d", name, len(found), 2*days)
	}
}

func histogramOf(n int64) cell.Value {
	return cell.Value{Histogram: tsdbutil.GenerateTestHistogram(n)}
}

// TestMakerHistograms: days of histograms have buckets, also with staleness markers that were written as floats. Days with other
// samples beside have none.
func TestMakerHistograms(t *testing.T) {
	f := newFixture(t, new(storetest.Memory), true)
	stale := cell.Value{Float: math.Float64frombits(value.StaleNaN)}
	started := histogramOf(3)
	started.Start = day0
	all := map[string]map[int64]cell.Value{
		"integers": {day0 + 1: histogramOf(1), day0 + minute: histogramOf(2), day0 + hour: histogramOf(1), day0 + hour + 1: histogramOf(1)},
		"floats":   {day0 + 1: {FloatHistogram: tsdbutil.GenerateTestFloatHistogram(1)}, day0 + rollup.Day: {FloatHistogram: tsdbutil.GenerateTestFloatHistogram(5)}},
		"markers":  {day0 + 1: stale, day0 + 2: histogramOf(1), day0 + 3: stale, day0 + 4: histogramOf(2), day0 + hour: stale},
		"mixed":    {day0 + 1: histogramOf(1), day0 + hour: {Float: 1}},
		"before":   {day0 + 1: {Float: 1}, day0 + hour: histogramOf(1)},
		"started":  {day0 + 1: histogramOf(1), day0 + hour: started},
	}
	for name, values := range all {
		f.writeValues(name, values)
	}
	f.once()
	for _, name := range []string{"integers", "floats", "markers"} {
		f.wantHistograms(name, 1, all[name])
	}
	for _, name := range []string{"mixed", "before", "started"} {
		found := f.rollups(name)
		if len(found) != 2 || rollup.HasBuckets(found[0].value) || rollup.HasBuckets(found[1].value) {
			t.Errorf("%s has %v", name, found)
		}
	}
}

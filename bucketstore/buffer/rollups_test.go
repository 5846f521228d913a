package buffer_test

import (
	"context"
	"slices"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// TestRollups: a read leaves out the rollups of days of which samples are in memory, and no others, also where a window meets two
// days.
func TestRollups(t *testing.T) {
	midnight := rollup.DayOf(someTime)
	if series.WindowOf(midnight-minute) != series.WindowOf(midnight+minute) {
		t.Fatal("no window meets both days")
	}
	first, last := midnight-rollup.Day, midnight
	for _, tt := range []struct {
		name  string
		times []int64
		value []byte
		want  []int64
	}{
		{"nothing", nil, nil, []int64{first, last}},
		{"the first day", []int64{midnight - minute}, nil, []int64{last}},
		{"its end", []int64{midnight}, nil, []int64{last}},
		{"after its end", []int64{midnight + 1}, nil, []int64{first}},
		{"after its end, two samples", []int64{midnight + 1, midnight + minute}, nil, []int64{first}},
		{"both days", []int64{midnight, midnight + 1}, nil, nil},
		{"both days, backwards", []int64{midnight + 1, midnight}, nil, nil},
		{"a histogram of the last day", []int64{midnight + 1}, histogramValue(1), []int64{first}},
		{"another day", []int64{midnight + rollup.Day + 1}, nil, []int64{first, last}},
		{"many samples of the last day", slices.Collect(func(yield func(int64) bool) {
			for i := range int64(100) {
				if !yield(midnight + 1 + i) {
					return
				}
			}
		}), nil, []int64{first}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := openPebble(t)
			f := open(t, store, func(c *config) { c.PartSamples = 10 })
			base, _ := series.Split(midnight)
			row := series.Schema{}.AppendRowKey(nil, key(1), base)
			var ops []bucketstore.Op
			for _, day := range []int64{first, last} {
				ops = append(ops, bucketstore.Op{Family: rollup.OneHour.Family(), Qualifier: series.AppendQualifier(nil, rollup.Qualifier(day, base)), Time: day + rollup.Day})
			}
			if err := store.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: row, Ops: ops}}); err != nil {
				t.Fatal(err)
			}
			var samples []bucketstore.Sample
			for i, at := range tt.times {
				s := f.sample(1, at, float64(i))
				s.Value = tt.value
				samples = append(samples, s)
			}
			if err := f.Append(t.Context(), samples); err != nil {
				t.Fatal(err)
			}
			if got := rollupDays(t, f, row, base); !slices.Equal(got, tt.want) {
				t.Errorf("rollups of days %v, want %v", got, tt.want)
			}
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := rollupDays(t, f, row, base); !slices.Equal(got, []int64{first, last}) {
				t.Errorf("after a flush rollups of days %v", got)
			}
		})
	}
}

const minute = 60_000

// rollupDays returns of which days a row has rollups.
func rollupDays(t *testing.T, store bucketstore.Store, row []byte, base int64) (days []int64) {
	t.Helper()
	err := store.Scan(context.Background(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(row)}, Families: []bucketstore.FamilyRange{{Family: rollup.OneHour.Family()}},
	}, func(r bucketstore.Row) error {
		for _, c := range r.Cells {
			days = append(days, rollup.DayOfCell(base, c.Qualifier))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return days
}

package backfill_test

import (
	"bytes"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// TestRollups: the rollups that are written directly are those that a maker makes of the samples, also where a base begins in a day. They
// are found in the index, and later ones of the same days are left out.
func TestRollups(t *testing.T) {
	const start = 31*series.Period - 3*rollup.Day/2
	r := rand.New(rand.NewPCG(1, 2))
	made := make(samples)
	for at, v := int64(start), 0.0; at < start+4*rollup.Day; at += 60_000 + r.Int64N(1000) {
		if v += r.Float64(); r.IntN(500) == 0 {
			v = 0
		}
		made[at] = v
	}
	raw := newFixture(t)
	w := raw.writer(raw.spy, 0)
	add(t, w, up, made)
	flush(t, w)
	now := func() time.Time { return time.UnixMilli(start + 30*rollup.Day) }
	days, err := downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(raw.spy, false), Schema: raw.schema, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	maker := downsample.NewMaker(days, downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: math.MaxInt32, Timeline: timelinetest.Bounds{}})
	if err := maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}

	direct := newFixture(t)
	write := func(made samples, from [rollup.NumResolutions]int64) backfill.Counts {
		t.Helper()
		cfg := direct.config(direct.spy, 0)
		cfg.Rollups = &backfill.Rollups{From: from}
		w := backfill.New(cfg)
		add(t, w, up, made)
		flush(t, w)
		return w.Counts()
	}
	c := write(made, [rollup.NumResolutions]int64{})
	if c.Samples != int64(len(made)) || c.Rolled != c.Samples || c.Kept != 0 || c.Old != 0 {
		t.Errorf("counts %+v", c)
	}
	want := make(map[string]map[string][]byte)
	for _, family := range []string{rollup.FiveMinutes.Family(), rollup.OneHour.Family()} {
		want[family] = raw.cells(family)
		maps.DeleteFunc(want[family], func(_ string, v []byte) bool { return len(v) == 0 }) // a maker says that there are none
		if got := direct.cells(family); !maps.EqualFunc(got, want[family], bytes.Equal) || len(got) < 5 {
			t.Errorf("%d cells of %s, want %d", len(got), family, len(want[family]))
		}
	}
	if got := direct.cells(series.FamilyChunk); len(got) > 0 {
		t.Errorf("%d chunks", len(got))
	}

	other := every(start, 60_000, 1000, 5)
	if c := write(other, [rollup.NumResolutions]int64{}); c.Kept == 0 || c.Mutations != 0 {
		t.Errorf("counts of days that are there: %+v", c)
	}
	for family, cells := range want {
		if got := direct.cells(family); !maps.EqualFunc(got, cells, bytes.Equal) {
			t.Errorf("cells of %s are others", family)
		}
	}
	// What is not kept at any resolution is left out.
	late := every(start+10*rollup.Day, 60_000, 10, 5)
	if c := write(late, [rollup.NumResolutions]int64{rollup.FiveMinutes: math.MaxInt64, rollup.OneHour: start + 20*rollup.Day}); c.Old != 10 || c.Samples != 0 || c.Rolled != 0 {
		t.Errorf("counts of what is not kept: %+v", c)
	}
	if c := write(late, [rollup.NumResolutions]int64{rollup.FiveMinutes: math.MaxInt64, rollup.OneHour: start}); c.Rolled != 10 || c.Mutations == 0 {
		t.Errorf("counts of what is kept at an hour: %+v", c)
	}
	if got := direct.cells(rollup.FiveMinutes.Family()); len(got) != len(want[rollup.FiveMinutes.Family()]) {
		t.Errorf("%d cells of 5m", len(got))
	}
}

// TestRollupsOfHistograms: rollups of histograms, and of days with floats, too, are those that a maker makes.
func TestRollupsOfHistograms(t *testing.T) {
	day := rollup.DayOf(someTime)
	write := func(f *fixture, rollups *backfill.Rollups) backfill.Counts {
		t.Helper()
		cfg := f.config(f.spy, 0)
		cfg.Rollups = rollups
		w := backfill.New(cfg)
		s, err := w.Series(up)
		for i := int64(0); i < 3*24*60 && err == nil; i++ {
			at := day + 1 + i*60_000
			switch {
			case i == 100:
				err = s.Append(t.Context(), []int64{at}, []float64{math.Float64frombits(value.StaleNaN)})
			case i == 3000: // its day has floats and histograms
				err = s.Append(t.Context(), []int64{at}, []float64{1})
			default:
				err = s.AppendValue(t.Context(), at, cell.Value{Histogram: tsdbutil.GenerateTestHistogram(i % 500)})
			}
		}
		if err == nil {
			err = s.Close(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		flush(t, w)
		return w.Counts()
	}
	raw, direct := newFixture(t), newFixture(t)
	write(raw, nil)
	now := func() time.Time { return time.UnixMilli(day + 10*rollup.Day) }
	days, err := downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(raw.spy, false), Schema: raw.schema, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	maker := downsample.NewMaker(days, downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: math.MaxInt32, Timeline: timelinetest.Bounds{}})
	if err := maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := write(direct, &backfill.Rollups{})
	if c.Rolled != 2*24*60 || c.Old != 24*60 || c.Samples != c.Rolled || c.Histograms != c.Rolled-1 {
		t.Errorf("counts %+v", c)
	}
	for _, family := range []string{rollup.FiveMinutes.Family(), rollup.OneHour.Family()} {
		want := raw.cells(family)
		maps.DeleteFunc(want, func(_ string, v []byte) bool { return len(v) == 0 })
		if got := direct.cells(family); !maps.EqualFunc(got, want, bytes.Equal) || len(got) < 3 {
			t.Errorf("%d cells of %s, want %d", len(got), family, len(want))
		}
	}
}

// TestRollupsBesideOthers: a day without samples has an empty rollup, which is replaced, whatever its time. Of samples with start timestamps
// there is only a cell that says so.
func TestRollupsBesideOthers(t *testing.T) {
	f := newFixture(t)
	day := rollup.DayOf(someTime)
	key, err := f.schema.AppendSeriesKey(nil, temp)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := series.Split(someTime)
	qualifier := series.AppendQualifier(nil, rollup.Qualifier(day, base))
	empty := bucketstore.Op{Kind: bucketstore.SetCell, Family: rollup.OneHour.Family(), Qualifier: qualifier, Time: day + rollup.Day + 7}
	if err := f.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: f.schema.AppendRowKey(nil, key, base), Ops: []bucketstore.Op{empty}}}); err != nil {
		t.Fatal(err)
	}
	cfg := f.config(f.spy, 0)
	cfg.Rollups = &backfill.Rollups{}
	w := backfill.New(cfg)
	add(t, w, temp, samples{someTime: 1})
	s, err := w.Series(up)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AppendValue(t.Context(), someTime, cell.Value{Float: 1, Start: someTime - 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	if c := w.Counts(); c.Rolled != 1 || c.Old != 1 || c.Kept != 0 || c.Series != 2 {
		t.Errorf("counts %+v", c)
	}
	for family, want := range map[string]int64{rollup.OneHour.Family(): day + rollup.Day + 7, rollup.FiveMinutes.Family(): day + rollup.Day} {
		f.wantCell(f.schema.AppendRowKey(nil, key, base), family, want)
	}
}

// wantCell wants one cell of a family in a row, which is not empty, at a time.
func (f *fixture) wantCell(row []byte, family string, at int64) {
	f.t.Helper()
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(row)}, Families: []bucketstore.FamilyRange{{Family: family}}}
	n := 0
	err := f.Scan(f.t.Context(), req, func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			if n++; len(c.Value) == 0 || c.Time != at {
				f.t.Errorf("%s: cell of %d bytes at %d, want %d", family, len(c.Value), c.Time, at)
			}
		}
		return nil
	})
	if err != nil || n != 1 {
		f.t.Errorf("%s: %d cells, %v", family, n, err)
	}
}

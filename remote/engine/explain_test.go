package engine_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// explained is an engine with a few series around a base.
func explained(t *testing.T, change ...func(*engine.Config)) *fixture {
	f := openFixture(t, change...)
	base, _ := series.Split(someTime)
	f.append(t,
		one(labels.FromStrings("__name__", "up", "job", "a", "n", "1"), base-1, base, base+1),
		one(labels.FromStrings("__name__", "up", "job", "a", "n", "2"), base),
		one(labels.FromStrings("__name__", "up", "job", "b"), base),
		one(labels.FromStrings("__name__", "other", "job", "a"), base-1),
	)
	f.store.reset()
	return f
}

func TestExplainGolden(t *testing.T) {
	base, _ := series.Split(someTime)
	tests := []struct {
		name string
		q    reader.Query
	}{
		{"two matchers", reader.Query{Mint: base - 10, Maxt: base, Matchers: []*labels.Matcher{
			match("__name__", "up"), labels.MustNewMatcher(labels.MatchRegexp, "job", "a|c"),
		}}},
		{"nothing usable", reader.Query{Mint: math.MinInt64, Maxt: math.MaxInt64, Matchers: []*labels.Matcher{match("n", "")}}},
		{"series only", reader.Query{Mint: base, Maxt: base, SeriesOnly: true, Matchers: []*labels.Matcher{match("job", "b")}}},
		{"no time", reader.Query{Mint: base, Maxt: base - 1, Matchers: []*labels.Matcher{match("job", "b")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, err := explained(t).Explain(t.Context(), tt.q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(x, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", "explain "+tt.name+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// An explanation says what the store was asked and what it returned, and Select
// asks the same.
func TestExplainCounts(t *testing.T) {
	queries := map[string]reader.Query{
		"everything":   everything(),
		"a name":       {Maxt: series.MaxTime, Matchers: []*labels.Matcher{match("__name__", "up")}},
		"two matchers": {Maxt: series.MaxTime, Matchers: []*labels.Matcher{match("__name__", "up"), match("job", "a")}},
		"values":       {Maxt: series.MaxTime, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "job", ".*[ab]")}},
		"three":        {Mint: someTime - series.Period, Maxt: someTime, Matchers: []*labels.Matcher{match("job", "a"), match("n", "1"), labels.MustNewMatcher(labels.MatchNotEqual, "__name__", "")}},
		"no match":     {Maxt: series.MaxTime, Matchers: []*labels.Matcher{match("job", "nobody")}},
	}
	for name, q := range queries {
		t.Run(name, func(t *testing.T) {
			f := explained(t, parallel(4))
			f.SetMinScanSeries(1) // several scans
			x, err := f.Explain(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			chosen, indexRows := 0, 0
			for _, l := range x.Lists {
				if l.Chosen {
					chosen++
				}
				indexRows += l.RowsRead
			}
			if chosen != 1 {
				t.Errorf("%d lists are chosen", chosen)
			}
			rows, cells, size := 0, 0, 0
			for _, r := range x.Rows {
				rows, cells, size = rows+r.Rows, cells+r.Cells, size+r.Bytes
			}
			checkCounts(t, "explanation", f, indexRows, rows, cells, len(x.Rows))
			total := reader.Counts{Series: int64(x.Series), IndexRows: int64(indexRows), Rows: int64(rows), Cells: int64(cells), Bytes: int64(size), Raw: rows > 0}
			if x.Total != total || rows > 0 && size == 0 {
				t.Errorf("explained are %+v, and ranges with %+v", x.Total, total)
			}
			f.store.reset()
			if got := len(f.collect(t, q)); got != x.Series {
				t.Errorf("%d series are explained, %d found", x.Series, got)
			}
			checkCounts(t, "selection", f, indexRows, rows, cells, len(x.Rows))

			measured, err := f.Measure(t.Context(), q, nil)
			if err != nil || measured.Total != total || measured.Rows != nil {
				t.Errorf("measured are %+v, %v, want %+v", measured, err, total)
			}
			var usage reader.Usage
			set, err := f.Select(reader.WithUsage(t.Context(), &usage), q)
			if err != nil {
				t.Fatal(err)
			}
			for set.Next() {
			}
			if got := usage.Counts(); got != total {
				t.Errorf("a selection used %+v, want %+v", got, total)
			}
		})
	}
}

// What the index has in memory is not read, and has what was written since.
func TestExplainInMemory(t *testing.T) {
	f := explained(t, func(c *engine.Config) { c.Store = storetest.Shared(c.Store, false) })
	base, _ := series.Split(someTime)
	q := reader.Query{Mint: base - 1, Maxt: base, Matchers: []*labels.Matcher{match("__name__", "up"), match("job", "a")}}
	for i, want := range []struct{ series, rows int }{{2, 4}, {2, 0}, {3, 0}} {
		if i == 2 {
			f.append(t, one(labels.FromStrings("__name__", "up", "job", "a", "n", "3"), base))
		}
		f.store.reset()
		x, err := f.Explain(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		rows, inMemory := 0, 0
		for _, l := range x.Lists {
			rows += l.RowsRead
			inMemory += l.InMemory
		}
		if x.Series != want.series || rows != want.rows || rows != len(f.store.scans(bucketstore.Index)) && rows == 0 || (inMemory > 0) != (want.rows == 0) {
			t.Errorf("call %d: %d series, %d rows, %d lists in memory, %d scans of the index", i, x.Series, rows, inMemory, len(f.store.scans(bucketstore.Index)))
		}
	}
}

// checkCounts compares counts with what the store has seen since reset.
func checkCounts(t *testing.T, what string, f *fixture, indexRows, rows, cells, ranges int) {
	t.Helper()
	var inIndex, inMetric, metricCells, metricRanges int
	for _, sc := range f.store.scans(bucketstore.Index) {
		inIndex += len(sc.keys)
	}
	for _, sc := range f.store.scans(bucketstore.Metric) {
		inMetric += len(sc.keys)
		metricCells += sc.cells
		metricRanges += len(sc.req.Rows)
	}
	if inIndex != indexRows || inMetric != rows || metricCells != cells || metricRanges != ranges {
		t.Errorf("%s: the store has seen %d index rows, %d rows with %d cells in %d ranges; explained are %d, %d, %d and %d",
			what, inIndex, inMetric, metricCells, metricRanges, indexRows, rows, cells, ranges)
	}
}

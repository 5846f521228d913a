//go:build !race

package engine_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestEveryResolution: rollups of each resolution are made, stored and read, on each store, and answer as samples do, while those are there and when
// they are gone.
func TestEveryResolution(t *testing.T) {
	for name, open := range map[string]func(t testing.TB) bucketstore.Store{
		"embedded": remotetest.OpenPebble,
		"bigtable": func(t testing.TB) bucketstore.Store { return bigtabletest.Open(t) },
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			s := newRolledOn(t, seriestest.NewRand(t), store)
			steady, saw := make(map[int64]float64), make(map[int64]float64)
			v := 0.0
			for at := int64(rollupStart + 1); at < rollupStart+rollupDays*rollup.Day; at += 60_000 + s.r.Int64N(2) {
				if v += float64(s.r.IntN(10)); s.r.IntN(5000) == 0 {
					v = 0
				}
				steady[at], saw[at] = v, float64(at/60_000%3)
			}
			s.append(t, labels.FromStrings("__name__", "x_total"), steady)
			s.append(t, labels.FromStrings("__name__", "saw_total"), saw)
			if err := s.maker.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, r := range rollup.Downsampled {
				t.Run(r.String(), func(t *testing.T) {
					if n := countCells(t, store, r); n < 2*rollupDays {
						t.Errorf("%d cells are stored", n)
					}
					s.checkResolution(t, r)
					s.checkFiner(t, r)
				})
			}
		})
	}
}

// countCells returns how many cells there are of a resolution.
func countCells(t *testing.T, store bucketstore.Store, r rollup.Resolution) (n int) {
	t.Helper()
	err := store.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: r.Family()}},
	}, func(row bucketstore.Row) error {
		n += len(row.Cells)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkResolution compares answers from rollups of a resolution alone with those from samples.
func (s *rolled) checkResolution(t *testing.T, r rollup.Resolution) {
	t.Helper()
	span := time.Duration(r.Span()) * time.Millisecond
	from, to := time.UnixMilli(rollupStart+2*rollup.Day), time.UnixMilli(rollupStart+(rollupDays-1)*rollup.Day)
	s.sources = rollup.Sources{}
	for _, other := range rollup.Downsampled {
		if other != r {
			s.sources.From[other] = math.MaxInt64
		}
	}
	for _, fn := range []string{"increase", "resets", "changes", "max_over_time", "min_over_time", "sum_over_time", "count_over_time", "last_over_time"} {
		expr := fmt.Sprintf("%s(x_total[%dms])", fn, 2*r.Span())
		want := s.ask(t, s.raw, expr, from, to, span)
		for _, rawFrom := range []int64{0, rollupStart + rollupDays*rollup.Day} {
			s.sources.From[rollup.Raw] = rawFrom
			var usage reader.Usage
			got, _ := runQuery(t, reader.WithUsage(t.Context(), &usage), eval.New(queryOptions(), eval.NewMemory(0, 0)), s.engine, expr, from, to, span)
			if fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 1 {
				t.Errorf("%s, samples from %d on:\n%v, from samples\n%v", expr, rawFrom, got, want)
			}
			if read := usage.Resolutions(); read != r.String() {
				t.Errorf("%s, samples from %d on, is read from %q", expr, rawFrom, read)
			}
		}
	}
}

// checkFiner checks that a counter, which has more resets than any but the finest resolution keeps, is told by finer ones.
func (s *rolled) checkFiner(t *testing.T, r rollup.Resolution) {
	t.Helper()
	s.sources = rollup.Sources{}
	s.sources.From[rollup.Raw] = rollupStart + rollupDays*rollup.Day
	from, to := time.UnixMilli(rollupStart+2*rollup.Day), time.UnixMilli(rollupStart+(rollupDays-1)*rollup.Day)
	expr := fmt.Sprintf("increase(saw_total[%dms])", 2*r.Span())
	span := time.Duration(r.Span()) * time.Millisecond
	got, want := s.ask(t, s.engine, expr, from, to, span), s.ask(t, s.raw, expr, from, to, span)
	if fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 1 {
		t.Errorf("%s:\n%v, from samples\n%v", expr, got, want)
	}
}

package engine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
)

// TestWritten: when Config.Written is called, reads find the samples, whatever their time.
func TestWritten(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			var f *fixture
			var times []int64
			c := newClock(someTime)
			f = openOn(t, b.open(t, c), c, func(cfg *engine.Config) {
				cfg.Written = func(samples []bucketstore.Sample) {
					for _, s := range samples {
						times = append(times, s.T)
						if len(f.collect(t, reader.Query{Matchers: []*labels.Matcher{match("__name__", "a")}, Mint: s.T, Maxt: s.T})) != 1 {
							t.Errorf("the sample at %d is not found", s.T)
						}
					}
				}
			})
			for _, at := range []int64{someTime, someTime - 1, 0, someTime + 1000} {
				f.append(t, one(labels.FromStrings("__name__", "a"), at))
			}
			if want := []int64{someTime, someTime - 1, 0, someTime + 1000}; !slices.Equal(times, want) {
				t.Errorf("written at %v, want %v", times, want)
			}
		})
	}
}

// TestWrittenInPart: Config.Written is called too if the store has failed: some samples may be there.
func TestWrittenInPart(t *testing.T) {
	written := 0
	f := openFixture(t, func(cfg *engine.Config) { cfg.Written = func(samples []bucketstore.Sample) { written += len(samples) } })
	f.store.afterApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Metric {
			return &bucketstore.RowsError{Failed: map[int]error{0: errStore}}
		}
		return nil
	}
	var rejected ingest.Rejected
	stored, err := f.Append(t.Context(), []ingest.Series{one(labels.FromStrings("__name__", "a"), 1), one(labels.FromStrings("__name__", "b"), 1)}, &rejected)
	if stored.Samples != 1 || err == nil || written != 2 {
		t.Errorf("%d stored, error %v, told of %d", stored.Samples, err, written)
	}
}

// TestHistoryWritten: when Config.WrittenBetween is called, reads find the samples, which are all between, also if the store has failed.
func TestHistoryWritten(t *testing.T) {
	var f *fixture
	var told [][2]int64
	f = openFixture(t, func(cfg *engine.Config) {
		cfg.WrittenBetween = func(mint, maxt int64) {
			if f.store.afterApply == nil && len(f.collect(t, reader.Query{Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")}, Mint: mint, Maxt: maxt})) == 0 {
				t.Errorf("nothing is found from %d to %d", mint, maxt)
			}
			told = append(told, [2]int64{mint, maxt})
		}
	})
	write := func(names string, times ...int64) error {
		t.Helper()
		w, err := f.History(t.Context())
		for _, name := range names {
			if err == nil {
				s, ofSeries := w.Series(labels.FromStrings("__name__", string(name)))
				err = errors.Join(ofSeries, s.Append(t.Context(), times, make([]float64, len(times))), s.Close(t.Context()))
			}
			times = times[:max(1, len(times)-1)]
		}
		return errors.Join(err, w.Flush(t.Context()))
	}
	if err := write("ab", someTime-5, someTime-3, someTime); err != nil {
		t.Fatal(err)
	}
	if err := write("c", someTime-100); err != nil {
		t.Fatal(err)
	}
	f.store.afterApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Metric {
			return errStore
		}
		return nil
	}
	if err := write("d", someTime-7); !errors.Is(err, errStore) {
		t.Fatal(err)
	}
	if want := [][2]int64{{someTime - 5, someTime}, {someTime - 100, someTime - 100}, {someTime - 7, someTime - 7}}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}

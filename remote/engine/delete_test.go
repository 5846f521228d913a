package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/series"
)

// openDeleting opens an engine that knows deletions, and their executor.
func openDeleting(t *testing.T, b backend, c *clock) (*fixture, *deletion.Executor) {
	t.Helper()
	var records *deletion.Records
	f := openOn(t, b.open(t, c), c, func(cfg *engine.Config) {
		about, err := meta.Open(t.Context(), cfg.Store, cfg.Schema, c.now)
		if err == nil {
			err = about.Init(t.Context())
		}
		if err == nil {
			records, err = deletion.Open(t.Context(), deletion.Config{Meta: about, Now: c.now})
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg.Deletions = records
	})
	switch appender := f.cfg.Appender.(type) {
	case *buffer.Buffer:
		if err := records.SetBuffer(t.Context(), appender); err != nil {
			t.Fatal(err)
		}
	case *bucketstore.Direct:
		appender.OnArrival(records.Arrival)
	}
	find := func(ctx context.Context, ms []*labels.Matcher, limit int64, fn func([]byte, []int64)) error {
		return f.SeriesBefore(ctx, ms, limit, fn)
	}
	return f, deletion.NewExecutor(deletion.ExecutorConfig{Records: records, Store: f.cfg.Store, Find: deletion.FindIn(find), RowsPerSecond: 1e9})
}

var allSeries = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")}

// TestDeletePaths compares each way to read a store from which samples are deleted with the same of
// a store that never had them: at once, and when they are removed.
func TestDeletePaths(t *testing.T) {
	for _, b := range backends() {
		for _, flushed := range []bool{false, true} {
			t.Run(fmt.Sprint(b.name, " flushed ", flushed), func(t *testing.T) {
				clock := newClock(someTime + 1000)
				all, executor := openDeleting(t, b, clock)
				all.append(t, cutBatch(math.MinInt64)...)
				kept := openOn(t, b.open(t, clock), clock)
				kept.append(t, cutBatch(someTime)...)
				if flushed {
					all.flush(t)
					all.reopen(t)
				}
				if err := all.Delete(t.Context(), math.MinInt64, someTime-1, allSeries); err != nil {
					t.Fatal(err)
				}
				compare := func(when string) {
					for name, read := range cutPaths() {
						if name == "explain" || name == "inventory" && when == "written again" { // it counts what is there; it takes fewer series
							continue
						}
						for _, r := range [][2]int64{
							{math.MinInt64, math.MaxInt64}, {someTime - 10, someTime + 10}, {someTime, someTime}, {someTime - 1, someTime - 1},
							{someTime - 3*series.Period, someTime - 1}, {someTime + 1, someTime + 400},
						} {
							if got, want := read(t, all, r[0], r[1]), read(t, kept, r[0], r[1]); got != want {
								t.Errorf("%s, %s, [%d, %d]:\n%.3000s\nwant\n%.3000s", when, name, r[0]-someTime, r[1]-someTime, got, want)
							}
						}
					}
				}
				compare("at once")
				clock.ms.Add(11 * 60_000)
				err := executor.Advance(t.Context())
				if deletion.IsWaiting(err) { // it has seen the deletion only now
					clock.ms.Add(11 * 60_000)
					err = executor.Advance(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				compare("removed")
				// What is written again is there again.
				for _, f := range []*fixture{all, kept} {
					f.append(t, cutBatch(math.MinInt64)...)
				}
				compare("written again")
			})
		}
	}
}

// TestWriteAfterDelete: a sample that is written after a deletion stays, while the deletion is
// pending and after, and also its current sample. One of the replica label matches nothing.
func TestWriteAfterDelete(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			clock := newClock(someTime)
			f, executor := openDeleting(t, b, clock)
			ls := labels.FromStrings("__name__", "up", "job", "a")
			f.append(t, one(ls, someTime-10, someTime-5, someTime))
			if err := f.Delete(t.Context(), math.MinInt64, math.MaxInt64, []*labels.Matcher{match("__name__", "up"), match("replica", "x")}); err != nil {
				t.Fatal(err)
			}
			wantSeries(t, "of another label", f.collect(t, everything()), one(ls, someTime-10, someTime-5, someTime))
			if err := f.Delete(t.Context(), someTime-7, math.MaxInt64, allSeries); err != nil {
				t.Fatal(err)
			}
			wantSeries(t, "deleted", f.collect(t, everything()), one(ls, someTime-10))
			again := ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: someTime - 5, V: 7}, {T: someTime + 1, V: 8}}}
			f.append(t, again)
			want := ingest.Series{Labels: ls, Samples: append([]ingest.Sample{{T: someTime - 10, V: 0}}, again.Samples...)}
			check := func(when string) {
				t.Helper()
				wantSeries(t, when, f.collect(t, everything()), want)
				found, err := f.Current(t.Context(), [][]*labels.Matcher{allSeries}, 0)
				if err != nil || len(found) != 1 || found[0].T != someTime+1 || found[0].V != 8 {
					t.Errorf("%s: the current sample is %v, %v", when, found, err)
				}
			}
			check("pending")
			for range 2 {
				if err := executor.Advance(t.Context()); err != nil && !deletion.IsWaiting(err) {
					t.Fatal(err)
				}
				check("after the executor")
				clock.ms.Add(11 * 60_000)
			}
			f.append(t, ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: someTime - 5, V: 9}}})
			want.Samples[1].V = 9
			check("overwritten")
		})
	}
}

// TestNoDeletions: an engine without deletions says so.
func TestNoDeletions(t *testing.T) {
	f := openFixture(t)
	if err := f.Delete(t.Context(), 0, 1, allSeries); err == nil {
		t.Error("it deletes")
	}
}

// TestDeleteFails: a deletion that the store does not confirm is an error, and may be repeated.
func TestDeleteFails(t *testing.T) {
	f, _ := openDeleting(t, backends()[0], newClock(someTime))
	f.append(t, one(labels.FromStrings("__name__", "up"), someTime))
	errDown := errors.New("the store is down")
	f.store.onApply = func(bucketstore.Table, []bucketstore.Mutation) error { return errDown }
	if err := f.Delete(t.Context(), 0, math.MaxInt64, allSeries); !errors.Is(err, errDown) {
		t.Errorf("%v", err)
	}
	f.store.onApply = nil
	if err := f.Delete(t.Context(), 0, math.MaxInt64, allSeries); err != nil {
		t.Fatal(err)
	}
	wantSeries(t, "deleted", f.collect(t, everything()))
}

package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

var errStore = errors.New("the store is away")

// raw is the label set of these pairs as they stand.
func raw(pairs ...string) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		b.Add(pairs[i], pairs[i+1])
	}
	return b.Labels()
}

func TestAppendRejects(t *testing.T) {
	good := one(labels.FromStrings("__name__", "up", "job", "good"), someTime, someTime+1)
	long := strings.Repeat("x", series.MaxSeriesKey)
	minute := time.Minute.Milliseconds()
	tests := []struct {
		name   string
		series ingest.Series
		// stored are the times that are stored all the same.
		stored  []int64
		reason  ingest.Reason
		count   int
		message []string
	}{
		{"no name", one(raw("job", "nameless"), someTime, someTime+1), nil, ingest.ReasonLabels, 2, []string{`{job="nameless"}`, "no metric name"}},
		{"empty name", one(raw("__name__", "", "job", "nameless"), someTime), nil, ingest.ReasonLabels, 1, []string{`{job="nameless"}`, "no metric name"}},
		{"no labels", one(raw(), someTime), nil, ingest.ReasonLabels, 1, []string{"no metric name"}},
		{"duplicate", one(raw("__name__", "up", "job", "a", "job", "b"), someTime), nil, ingest.ReasonLabels, 1, []string{`"job"`, "twice", "up"}},
		{"unsorted", one(raw("__name__", "up", "job", "a", "a", "b"), someTime), nil, ingest.ReasonLabels, 1, []string{`"a"`, "up"}},
		{"empty label name", one(raw("", "b", "__name__", "up"), someTime), nil, ingest.ReasonLabels, 1, []string{"up"}},
		{"bad UTF-8 in a value", one(raw("__name__", "up", "job", "\xff"), someTime), nil, ingest.ReasonLabels, 1, []string{"up", "UTF-8"}},
		{"bad UTF-8 in a name", one(raw("__name__", "up", "job\xff", "a"), someTime), nil, ingest.ReasonLabels, 1, []string{"up", "UTF-8"}},
		{"key too long", one(raw("__name__", "up", "job", long), someTime, someTime), nil, ingest.ReasonKeyTooLong, 2, []string{`{__name__="up"`, fmt.Sprint(len(long) + len("up,job="))}},
		{"no samples", one(raw("job", "nameless")), nil, ingest.ReasonLabels, 0, []string{"no metric name"}},
		{"before time", one(raw("__name__", "up"), -1, 0, 1), []int64{0, 1}, ingest.ReasonTime, 1, []string{`{__name__="up"}`, "timestamp -1 "}},
		{"after time", one(raw("__name__", "up"), series.MaxTime+1, someTime), []int64{someTime}, ingest.ReasonTime, 1, []string{`{__name__="up"}`, fmt.Sprint(series.MaxTime + 1)}},
		{"future", one(raw("__name__", "up"), someTime+10*minute+1, someTime+10*minute, someTime+11*minute), []int64{someTime + 10*minute}, ingest.ReasonFuture, 2, []string{`{__name__="up"}`, fmt.Sprint(someTime + 10*minute + 1), "10m0s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t, func(c *engine.Config) { c.MaxFuture = 10 * time.Minute })
			var rejected ingest.Rejected
			stored, err := f.Append(t.Context(), []ingest.Series{tt.series, good}, &rejected)
			if err != nil || stored.Total() != len(tt.stored)+2 {
				t.Errorf("%d samples stored, error %v, want %d and none", stored.Total(), err, len(tt.stored)+2)
			}
			if want := map[ingest.Reason]int{tt.reason: tt.count}; !maps.Equal(rejected.Samples, want) {
				t.Errorf("rejected %v, want %v", rejected.Samples, want)
			}
			if rejected.Err() == nil {
				t.Fatal("no error")
			}
			for _, part := range tt.message {
				if msg := rejected.Err().Error(); !strings.Contains(msg, part) || len(msg) > 1024 {
					t.Errorf("the message %.1100q should have %q in it and be short", msg, part)
				}
			}
			var times []int64
			for _, s := range f.collect(t, reader.Query{Maxt: series.MaxTime, Matchers: []*labels.Matcher{match("job", "")}}) {
				for _, sample := range s.Samples {
					times = append(times, sample.T)
				}
			}
			if !slices.Equal(times, tt.stored) {
				t.Errorf("stored beside the good ones: %d, want %d", times, tt.stored)
			}
			wantSeries(t, "the good series", f.collect(t, reader.Query{Maxt: series.MaxTime, Matchers: []*labels.Matcher{match("job", "good")}}), good)
		})
	}
}

// After the clock was set back, samples that were not too far in the future before are not
// rejected: the sender must send them again.
func TestAppendClockSetBack(t *testing.T) {
	const minute = 60_000
	var (
		present = someTime + 15_000
		of      = func(job string, times ...int64) ingest.Series {
			return one(labels.FromStrings("__name__", "up", "job", job), times...)
		}
	)
	tests := []struct {
		name string
		// back is how far the clock is set back, in milliseconds.
		back  int64
		batch []ingest.Series
		// refused says that all must be sent again. Otherwise rejected are too far in the
		// future and the others are stored.
		refused  bool
		rejected int
	}{
		{"not set back", 0, []ingest.Series{of("a", someTime+11*minute), of("b", present)}, false, 1},
		{"a little", 5 * minute, []ingest.Series{of("a", present)}, false, 0},
		{"an hour", 60 * minute, []ingest.Series{of("a", present), of("b", present)}, true, 0},
		{"an hour, most samples are new", 60 * minute, []ingest.Series{of("a", present, present+1, someTime-50*minute)}, true, 0},
		{"an hour, most samples are old", 60 * minute, []ingest.Series{of("a", present, someTime-51*minute, someTime-50*minute)}, false, 1},
		{"an hour, too far ahead before, too", 60 * minute, []ingest.Series{of("a", someTime+10*minute+1)}, false, 1},
		{"an hour, as far ahead as could be before", 60 * minute, []ingest.Series{of("a", someTime+10*minute)}, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t, func(c *engine.Config) { c.MaxFuture = 10 * time.Minute })
			f.append(t, of("before", someTime))
			f.clock.ms.Add(-tt.back)
			var rejected ingest.Rejected
			stored, err := f.Append(t.Context(), tt.batch, &rejected)
			if !tt.refused {
				if want := samplesIn(tt.batch) - tt.rejected; err != nil || stored.Total() != want || rejected.Samples[ingest.ReasonFuture] != tt.rejected {
					t.Errorf("%d samples stored, error %v, rejected %v, want %d and %d", stored.Total(), err, rejected.Samples, want, tt.rejected)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "behind by 1h0m0s") || stored.Total() != 0 || rejected.Err() != nil {
				t.Errorf("%d samples stored, error %v, rejected %v", stored.Total(), err, rejected.Samples)
			}
			f.clock.ms.Add(tt.back)
			f.append(t, tt.batch...)
		})
	}
}

func TestAppendDropsEmptyLabels(t *testing.T) {
	f := openFixture(t)
	sent := raw("__name__", "up", "empty", "", "job", "a")
	batch := []ingest.Series{one(sent, someTime)}
	f.append(t, batch...)
	if !labels.Equal(batch[0].Labels, sent) {
		t.Errorf("the batch of the caller has become %s", batch[0].Labels)
	}
	wantSeries(t, "all", f.collect(t, everything()), one(labels.FromStrings("__name__", "up", "job", "a"), someTime))
}

// The message about many errors names the first and stays short.
func TestRejectedIsShort(t *testing.T) {
	f := openFixture(t)
	var batch []ingest.Series
	for i := range 500 {
		batch = append(batch, one(raw("n", fmt.Sprint(i)), someTime, someTime))
	}
	var rejected ingest.Rejected
	if stored, err := f.Append(t.Context(), batch, &rejected); stored.Total() != 0 || err != nil {
		t.Fatalf("%d stored, %v", stored.Total(), err)
	}
	msg := rejected.Err().Error()
	if !strings.HasPrefix(msg, `500 errors: series {n="0"}`) || len(msg) > 1024 {
		t.Errorf("message of %d bytes: %s", len(msg), msg)
	}
	if got := rejected.Samples[ingest.ReasonLabels]; got != 1000 {
		t.Errorf("%d samples rejected, want 1000", got)
	}
	if f.store.rows(bucketstore.Index) != 0 {
		t.Error("index rows for what was rejected")
	}
}

func TestAppendStoreFailure(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		stored int
	}{
		{"unknown", errStore, 0},
		{"rows", &bucketstore.RowsError{Failed: map[int]error{1: errStore}}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			f.store.afterApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
				if table == bucketstore.Metric {
					return tt.err
				}
				return nil
			}
			batch := []ingest.Series{
				one(labels.FromStrings("__name__", "a"), someTime),
				one(labels.FromStrings("__name__", "b"), someTime, someTime+1),
				one(labels.FromStrings("__name__", "c"), someTime, someTime+1),
			}
			var rejected ingest.Rejected
			stored, err := f.Append(t.Context(), batch, &rejected)
			if stored.Total() != tt.stored || err == nil || rejected.Err() != nil {
				t.Errorf("%d stored, error %v, rejected %v, want %d and an error", stored.Total(), err, rejected.Err(), tt.stored)
			}
			failed := f.counter(t, "adapter_engine_appended_samples_total", "result", "failure")
			if got := f.counter(t, "adapter_engine_appended_samples_total", "result", "success"); got != float64(tt.stored) || failed != float64(5-tt.stored) {
				t.Errorf("counted %v stored and %v failed, want %d and %d", got, failed, tt.stored, 5-tt.stored)
			}
			f.store.afterApply = nil
			f.append(t, batch...)
			wantSeries(t, "after the retry", f.collect(t, everything()), batch...)
		})
	}
}

// TestAppendRefused: a batch that is not admitted changes nothing, and reads go on.
func TestAppendRefused(t *testing.T) {
	errFull := errors.New("little free space")
	var refusal error
	f := openFixture(t, func(cfg *engine.Config) { cfg.Admit = func() error { return refusal } })
	before := one(labels.FromStrings("__name__", "a"), someTime)
	f.append(t, before)
	refusal = errFull
	batch := []ingest.Series{one(labels.FromStrings("__name__", "b"), someTime)}
	var rejected ingest.Rejected
	if stored, err := f.Append(t.Context(), batch, &rejected); !errors.Is(err, errFull) || stored.Total() != 0 || rejected.Err() != nil {
		t.Errorf("%d stored, error %v, rejected %v", stored.Total(), err, rejected.Err())
	}
	if err := f.AppendMetadata(t.Context(), []ingest.Metadata{{Family: "a"}}, &rejected); !errors.Is(err, errFull) {
		t.Errorf("metadata: %v", err)
	}
	wantSeries(t, "while writes are refused", f.collect(t, everything()), before)
	refusal = nil
	f.append(t, batch...)
	wantSeries(t, "afterwards", f.collect(t, everything()), before, batch[0])
}

// One row in many fails in a real client: the rest is stored and counted.
func TestAppendRowFailure(t *testing.T) {
	broken := true
	store := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if broken && strings.HasPrefix(key, "up,n=7,") {
			return status.Error(codes.Internal, "broken row")
		}
		return nil
	}))
	f := openOn(t, store, newClock(someTime))
	var batch []ingest.Series
	for i := range 10 {
		batch = append(batch, one(labels.FromStrings("__name__", "up", "n", fmt.Sprint(i)), someTime, someTime+1))
	}
	var rejected ingest.Rejected
	if stored, err := f.Append(t.Context(), batch, &rejected); stored.Total() != 18 || err == nil || !strings.Contains(err.Error(), "broken row") {
		t.Errorf("%d stored, error %v", stored.Total(), err)
	}
	broken = false
	f.append(t, batch...)
	wantSeries(t, "after the retry", f.collect(t, everything()), batch...)
}

// Nothing is stored without an index, and a retry finds its way. Each failing
// call stands for a process that died there, reopened or not.
func TestAppendIndexFailure(t *testing.T) {
	for call := range 3 { // rows, marks, samples
		for _, reopen := range []bool{false, true} {
			for _, written := range []bool{false, true} {
				t.Run(fmt.Sprintf("call %d, written %t, reopened %t", call, written, reopen), func(t *testing.T) {
					f := openFixture(t, notAtomic)
					calls := 0
					fail := func(bucketstore.Table, []bucketstore.Mutation) error {
						if calls++; calls > call {
							return errStore
						}
						return nil
					}
					if written {
						f.store.afterApply = fail
					} else {
						f.store.onApply = fail
					}
					batch := one(labels.FromStrings("__name__", "up", "job", "a"), someTime)
					var rejected ingest.Rejected
					if stored, err := f.Append(t.Context(), []ingest.Series{batch}, &rejected); stored.Total() != 0 || !errors.Is(err, errStore) {
						t.Errorf("%d stored, error %v", stored.Total(), err)
					}
					if call < 2 && f.store.rows(bucketstore.Metric) > 0 {
						t.Error("samples are stored without an index")
					}
					f.store.onApply, f.store.afterApply = nil, nil
					if reopen {
						f.reopen(t)
					}
					f.append(t, batch)
					for _, m := range []*labels.Matcher{match("__name__", "up"), match("job", "a")} {
						wantSeries(t, m.String(), f.collect(t, reader.Query{Maxt: series.MaxTime, Matchers: []*labels.Matcher{m}}), batch)
					}
				})
			}
		}
	}
}

// Index rows are durable before the samples, the commit mark after all others.
func TestAppendOrder(t *testing.T) {
	f := openFixture(t, notAtomic)
	f.append(t, one(labels.FromStrings("__name__", "up", "job", "a"), someTime))
	mark := "p,__name__=up,"
	var steps []string
	for _, a := range f.store.applied {
		step := a.table.String()
		if strings.HasPrefix(a.keys[0], mark) {
			step = "mark"
		} else if slices.ContainsFunc(a.keys, func(k string) bool { return strings.HasPrefix(k, mark) }) {
			t.Errorf("the mark is among %q", a.keys)
		}
		steps = append(steps, step)
	}
	if want := []string{"INDEX", "mark", "METRIC"}; !slices.Equal(steps, want) {
		t.Errorf("applied %q, want %q", steps, want)
	}
	f.store.reset()
	f.append(t, one(labels.FromStrings("__name__", "up", "job", "a"), someTime+15_000))
	if n := f.store.rows(bucketstore.Index); n != 0 {
		t.Errorf("the second sample wrote %d index rows", n)
	}
}

// A batch with samples of several index periods is found in each of them.
func TestAppendSpansPeriods(t *testing.T) {
	f := openFixture(t)
	old := someTime - 3*series.Period
	up := labels.FromStrings("__name__", "up")
	f.append(t, one(up, someTime, old, someTime+1, old-series.IndexPeriod, old+1))
	for _, at := range []int64{someTime, old, old - series.IndexPeriod} {
		found := f.collect(t, reader.Query{Mint: at, Maxt: at})
		if len(found) != 1 || len(found[0].Samples) != 1 {
			t.Errorf("at %d: found %s", at, text(found))
		}
	}
}

// TestOverloadedIndex: an overloaded store fails a live write at once. What is prewritten
// waits for as long as the store says.
func TestOverloadedIndex(t *testing.T) {
	next := series.PeriodOf(someTime) + series.IndexPeriod
	f := openFixture(t)
	errOverload := &bucketstore.OverloadError{RetryAfter: time.Millisecond, Err: errStore}
	left := 0
	f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if left--; left < 0 || table != bucketstore.Index {
			return nil
		}
		return errOverload
	}
	left = 1
	batch := []ingest.Series{one(labels.FromStrings("__name__", "up"), next-1)}
	if _, err := f.Append(t.Context(), batch, new(ingest.Rejected)); !errors.Is(err, errOverload) {
		t.Errorf("a live write: %v, want that the store is overloaded", err)
	}
	f.append(t, batch...)
	f.store.reset()
	left = 3
	if err := f.Prewrite(t.Context()); err != nil || f.store.rows(bucketstore.Index) == 0 {
		t.Errorf("write ahead: %v, %d rows", err, f.store.rows(bucketstore.Index))
	}
	f.append(t, one(labels.FromStrings("__name__", "other"), next-1))
	errOverload.RetryAfter, left = time.Hour, 1
	if err := f.Prewrite(t.Context()); !errors.Is(err, errOverload) {
		t.Errorf("write ahead that would have to wait too long: %v", err)
	}
}

// The latest sample of a batch decides whether the next index period is due,
// wherever in the batch it stands.
func TestAppendPrewrites(t *testing.T) {
	next := series.PeriodOf(someTime) + series.IndexPeriod
	for _, times := range [][]int64{{next - 1, someTime}, {someTime, next - 1}, {someTime, next - 1, someTime + 1}} {
		f := openFixture(t)
		f.append(t, one(labels.FromStrings("__name__", "up"), times...))
		f.close(t)
		want := fmt.Sprintf("p,__name__=up,%013d,up", next)
		found := false
		for _, a := range f.store.applied {
			found = found || a.table == bucketstore.Index && slices.Contains(a.keys, want)
		}
		if !found {
			t.Errorf("samples at %d: no row %s", times, want)
		}
	}
}

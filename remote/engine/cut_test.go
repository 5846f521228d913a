package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
)

// cutAt cuts at a time that the test sets.
func cutAt(cut *atomic.Int64) func(*engine.Config) {
	return func(cfg *engine.Config) { cfg.Timeline = timelinetest.Cut(func(time.Time) int64 { return cut.Load() }) }
}

// flush moves the open chunks of a buffer to the store.
func (f *fixture) flush(t *testing.T) {
	t.Helper()
	if b, ok := f.cfg.Appender.(*buffer.Buffer); ok {
		if err := b.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// cutBatch has series around someTime, without the samples before a time. Those of the floats
// and of the histograms lie in one chunk each.
func cutBatch(from int64) (batch []ingest.Series) {
	add := func(s ingest.Series) {
		if s.Samples = after(s.Samples, from, func(s ingest.Sample) int64 { return s.T }); len(s.Samples) == 0 {
			s.Samples = nil
		}
		s.Histograms = after(s.Histograms, from, func(h ingest.Histogram) int64 { return h.T })
		s.Exemplars = after(s.Exemplars, from, func(x exemplar.Exemplar) int64 { return x.Ts })
		if samplesIn([]ingest.Series{s}) > 0 {
			batch = append(batch, s)
		}
	}
	floats := ingest.Series{Labels: labels.FromStrings("__name__", "floats", "job", "a")}
	counts := ingest.Series{Labels: labels.FromStrings("__name__", "histograms", "job", "a")}
	for i := int64(-100); i <= 100; i++ {
		floats.Samples = append(floats.Samples, ingest.Sample{T: someTime + i, V: float64(i)})
		counts.Histograms = append(counts.Histograms, ingest.Histogram{T: someTime + i, H: &histogram.Histogram{
			Count: uint64(i + 200), Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{i + 200},
		}})
		floats.Exemplars = append(floats.Exemplars, newExemplar(someTime+i, float64(i), "n", fmt.Sprint(i)))
	}
	add(floats)
	add(counts)
	add(one(labels.FromStrings("__name__", "at", "job", "at"), someTime))
	add(one(labels.FromStrings("__name__", "long", "job", "a"), someTime-2*series.Period, someTime-series.Period, someTime-1, someTime, someTime+1))
	// One that ended in an earlier index period, and one that ended just before.
	add(one(labels.FromStrings("__name__", "ended", "job", "ended"), someTime-series.IndexPeriod-5, someTime-series.IndexPeriod))
	add(one(labels.FromStrings("__name__", "just_ended", "job", "just_ended"), someTime-1))
	return batch
}

func after[T any](all []T, from int64, timeOf func(T) int64) (kept []T) {
	for _, x := range all {
		if timeOf(x) >= from {
			kept = append(kept, x)
		}
	}
	return kept
}

// TestCutPaths compares each way to read a store that has samples before the cut with the
// same of a store that has none.
func TestCutPaths(t *testing.T) {
	for _, backend := range backends() {
		for _, flushed := range []bool{false, true} {
			t.Run(fmt.Sprint(backend.name, " flushed ", flushed), func(t *testing.T) {
				clock := newClock(someTime + 1000)
				cut := new(atomic.Int64)
				all := openOn(t, backend.open(t, clock), clock, cutAt(cut))
				all.append(t, cutBatch(math.MinInt64)...)
				cut.Store(someTime)
				kept := openOn(t, backend.open(t, clock), clock)
				kept.append(t, cutBatch(someTime)...)
				if flushed {
					all.flush(t)
					kept.flush(t)
					all.reopen(t)
					kept.reopen(t)
				}
				for name, read := range cutPaths() {
					t.Run(name, func(t *testing.T) {
						for _, r := range [][2]int64{
							{math.MinInt64, math.MaxInt64}, {someTime - 10, someTime + 10}, {someTime - 1, someTime}, {someTime, someTime}, {someTime - 1, someTime - 1},
							{math.MinInt64, someTime - 1}, {someTime - 3*series.Period, someTime - 1}, {someTime + 1, someTime + 400},
						} {
							got, want := read(t, all, r[0], r[1]), read(t, kept, max(r[0], someTime), r[1])
							if got != want {
								t.Errorf("[%d, %d] from the cut:\n%.3000s\nwant\n%.3000s", r[0]-someTime, r[1]-someTime, got, want)
							}
						}
					})
				}
			})
		}
	}
}

// cutPaths are the ways to read, which write what they found as text.
func cutPaths() map[string]func(t *testing.T, f *fixture, mint, maxt int64) string {
	paths := make(map[string]func(t *testing.T, f *fixture, mint, maxt int64) string)
	for name, q := range map[string]reader.Query{"chunks": {}, "passing chunks": {Passing: true}, "decoded": {Decoded: true}, "decoded and passing": {Decoded: true, Passing: true}} {
		paths[name] = func(t *testing.T, f *fixture, mint, maxt int64) string {
			q.Mint, q.Maxt = mint, maxt
			set, err := f.Select(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			return chunkText(t, set)
		}
	}
	paths["chunk querier"] = func(t *testing.T, f *fixture, mint, maxt int64) string {
		q, err := f.ChunkQuerier(mint, maxt)
		if err != nil {
			t.Fatal(err)
		}
		return chunkText(t, q.Select(t.Context(), true, nil, match("job", "a")))
	}
	paths["querier"] = func(t *testing.T, f *fixture, mint, maxt int64) string {
		q, err := f.Querier(mint, maxt)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		set := q.Select(t.Context(), true, nil, match("job", "a"))
		for set.Next() {
			fmt.Fprintf(&b, "%s%s\n", set.At().Labels(), sampleText(t, set.At().Iterator(nil)))
		}
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	paths["exemplars"] = func(t *testing.T, f *fixture, mint, maxt int64) string {
		q, err := f.ExemplarQuerier(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, err := q.Select(mint, maxt, []*labels.Matcher{match("job", "a")})
		if err != nil {
			t.Fatal(err)
		}
		return describeExemplars(found)
	}
	paths["current"] = func(t *testing.T, f *fixture, mint, _ int64) string {
		found, err := f.Current(t.Context(), [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")}}, mint)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, s := range found {
			fmt.Fprintln(&b, s.Labels, s.T, s.V, s.H)
		}
		return b.String()
	}
	paths["inventory"] = func(t *testing.T, f *fixture, _, _ int64) string {
		var b strings.Builder
		found, err := f.Inventory(t.Context(), nil, 4, func(s current.Sample) error {
			fmt.Fprintln(&b, s.Labels, s.T, s.V, s.H)
			return nil
		})
		if err != nil || found.Truncated {
			t.Fatal(err, found)
		}
		return b.String()
	}
	paths["explain"] = func(t *testing.T, f *fixture, mint, maxt int64) string {
		x, err := f.Explain(t.Context(), reader.Query{Mint: mint, Maxt: maxt})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range x.Rows {
			if r.Mint < someTime {
				t.Errorf("it reads from %d before the cut", someTime-r.Mint)
			}
		}
		return fmt.Sprint(max(x.Mint, someTime), max(x.Maxt, someTime-1))
	}
	return paths
}

// chunkText writes the samples of a set, whatever their chunks.
func chunkText(t *testing.T, set storage.ChunkSeriesSet) string {
	t.Helper()
	var b strings.Builder
	for set.Next() {
		fmt.Fprint(&b, set.At().Labels())
		for it := set.At().Iterator(nil); it.Next(); {
			b.WriteString(sampleText(t, it.At().Chunk.Iterator(nil)))
		}
		b.WriteByte('\n')
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func sampleText(t *testing.T, it chunkenc.Iterator) string {
	t.Helper()
	var b strings.Builder
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		if kind == chunkenc.ValFloat {
			at, v := it.At()
			fmt.Fprintf(&b, " %d=%x", at-someTime, math.Float64bits(v))
			continue
		}
		at, h := it.AtFloatHistogram(nil)
		fmt.Fprintf(&b, " %d=%s", at-someTime, h)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAppendOld: what is older than the cut is refused, and names its series, its time and the
// flag. The rest of the request is stored, and of a series that is cached, too.
func TestAppendOld(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			clock := newClock(someTime)
			f := openOn(t, backend.open(t, clock), clock, func(cfg *engine.Config) {
				cfg.Timeline = timelinetest.Cut(func(now time.Time) int64 { return now.UnixMilli() - 1000 })
			})
			const cut = someTime - 1000
			for round := range 2 {
				var rejected ingest.Rejected
				stored, err := f.Append(t.Context(), []ingest.Series{
					{
						Labels:     up,
						Samples:    []ingest.Sample{{T: cut, V: 1}, {T: cut - 1, V: 2}, {T: 0, V: 3}, {T: someTime, V: 4}},
						Histograms: []ingest.Histogram{{T: cut - 1, H: &histogram.Histogram{}}},
						Exemplars:  []exemplar.Exemplar{newExemplar(cut-1, 5), newExemplar(cut, 6)},
					},
					one(labels.FromStrings("__name__", "old"), cut-1),
				}, &rejected)
				if err != nil || stored != (ingest.Stored{Samples: 2, Exemplars: 1}) || rejected.Samples[ingest.ReasonOld] != 5 || len(rejected.Samples) != 1 {
					t.Fatalf("round %d: stored %+v, rejected %v, %v", round, stored, rejected.Samples, err)
				}
				for _, part := range []string{`{__name__="up"}: `, fmt.Sprintf("timestamp %d is too old", cut-1), fmt.Sprint("from ", cut), "--retention.resolution-raw"} {
					if text := rejected.Err().Error(); !strings.Contains(text, part) {
						t.Errorf("%q is not in %q", part, text)
					}
				}
			}
			found := f.collect(t, reader.Query{Mint: math.MinInt64, Maxt: math.MaxInt64})
			wantSeries(t, "stored", found, ingest.Series{Labels: up, Samples: []ingest.Sample{{T: cut, V: 1}, {T: someTime, V: 4}}})
			q, err := f.Querier(0, math.MaxInt64)
			if err != nil {
				t.Fatal(err)
			}
			if names, _, err := q.LabelValues(t.Context(), "__name__", nil); err != nil || fmt.Sprint(names) != "[up]" {
				t.Errorf("names %q, %v", names, err)
			}
		})
	}
}

// TestCutLabels: names and series are cut by index period: those of the period of the cut are
// there, those of earlier ones are not.
func TestCutLabels(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			cut := new(atomic.Int64)
			clock := newClock(someTime + 1000)
			f := openOn(t, backend.open(t, clock), clock, cutAt(cut))
			f.append(t, cutBatch(math.MinInt64)...)
			period := series.PeriodOf(someTime)
			for _, tt := range []struct {
				cut  int64
				want string
			}{
				{0, "a at ended just_ended"}, {period - 1, "a at ended just_ended"}, {period, "a at just_ended"},
				{someTime + 1000, "a at just_ended"}, {period + series.IndexPeriod, ""},
			} {
				cut.Store(tt.cut)
				q, err := f.Querier(math.MinInt64, math.MaxInt64)
				if err != nil {
					t.Fatal(err)
				}
				values, _, err := q.LabelValues(t.Context(), "job", nil)
				if got := strings.Join(values, " "); err != nil || got != tt.want {
					t.Errorf("cut %d: values %q, %v, want %q", tt.cut-someTime, got, err, tt.want)
				}
				values, _, err = q.LabelValues(t.Context(), "job", nil, match("__name__", "ended"))
				if got, want := len(values) > 0, strings.Contains(tt.want, " ended"); err != nil || got != want {
					t.Errorf("cut %d: values of a series %q, %v", tt.cut-someTime, values, err)
				}
				names, _, err := q.LabelNames(t.Context(), nil)
				if got := len(names) > 0; err != nil || got != (tt.want != "") {
					t.Errorf("cut %d: names %q, %v", tt.cut-someTime, names, err)
				}
				found := f.collect(t, reader.Query{Mint: math.MinInt64, Maxt: math.MaxInt64, SeriesOnly: true, Matchers: []*labels.Matcher{match("__name__", "ended")}})
				if got := len(found) > 0; got != strings.Contains(tt.want, " ended") {
					t.Errorf("cut %d: series %v", tt.cut-someTime, found)
				}
			}
		})
	}
}

// TestOneCut: all that a request reads has the cut of its beginning.
func TestOneCut(t *testing.T) {
	cut := new(atomic.Int64)
	f := openFixture(t, cutAt(cut))
	f.append(t, one(up, someTime, someTime+1, someTime+2))
	count := func(ctx context.Context) (n int) {
		t.Helper()
		set, err := f.Select(ctx, everything())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range collectChunks(t, set, everything()) {
			n += len(s.Samples)
		}
		return n
	}
	cut.Store(someTime + 1)
	request := timeline.WithRequest(t.Context(), f.clock.now())
	if n := count(request); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
	cut.Store(someTime + 2)
	if n := count(request); n != 2 {
		t.Errorf("later in the request: %d samples, want 2", n)
	}
	if n := count(t.Context()); n != 1 {
		t.Errorf("without a request: %d samples, want 1", n)
	}
	if n := count(timeline.WithRequest(t.Context(), f.clock.now())); n != 1 {
		t.Errorf("in the next request: %d samples, want 1", n)
	}
}

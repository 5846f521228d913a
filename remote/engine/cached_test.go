package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// wireText is how a sender of this form writes ls.
func wireText(form byte, ls labels.Labels) ingest.WireText {
	return ingest.WireText{Form: form, Text: []byte(ls.String())}
}

// written gives each series of batch the CachedSeries that is found for it, or else
// its wire text. Form 0 leaves batch as it is.
func (f *fixture) written(form byte, batch []ingest.Series) []ingest.Series {
	if form == 0 {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		s := &batch[i]
		s.WireText = wireText(form, s.Labels)
		if found := f.Lookup(s.WireText); found != nil {
			s.Cached, s.Labels, s.WireText = found.State, labels.EmptyLabels(), ingest.WireText{}
		}
	}
	return batch
}

// cached stores a sample of ls at t and returns what is cached then.
func (f *fixture) cached(t testing.TB, ls labels.Labels, at int64) ingest.Cached {
	t.Helper()
	f.append(t, f.written(1, []ingest.Series{sample(ls, at, 0)})...)
	found := f.Lookup(wireText(1, ls))
	if found == nil {
		t.Fatalf("%s is not cached", ls)
	}
	return found.State
}

func TestLookup(t *testing.T) {
	for _, resource := range [][]string{nil, {"host", "podname"}} {
		f := openFixture(t, func(c *engine.Config) { c.Schema = newSchema(t, resource...) })
		all := awkwardLabels()
		for i, ls := range all {
			if f.Lookup(wireText(1, ls)) != nil {
				t.Errorf("%s is cached before it was stored", ls)
			}
			k := f.cached(t, ls, someTime+int64(i))
			if !labels.Equal(k.Labels(), ls) {
				t.Errorf("%s is cached as %s", ls, k.Labels())
			}
			switch {
			case f.Lookup(wireText(1, ls)).State != k:
				t.Errorf("%s has become another", ls)
			case f.Lookup(wireText(2, ls)) != nil:
				t.Errorf("%s is cached in another form", ls)
			}
		}
		if n := f.counter(t, "adapter_engine_known_series"); n != float64(len(all)) {
			t.Errorf("%v series cached, want %d", n, len(all))
		}
	}
}

// What is not stored is not cached.
func TestLookupFindsOnlyStored(t *testing.T) {
	tests := []struct {
		name   string
		series ingest.Series
		change func(*engine.Config)
		break_ bucketstore.Table
		fails  bool
	}{
		{name: "invalid labels", series: sample(raw("__name__", "up", "job", "a", "job", "b"), someTime, 1)},
		{name: "key too long", series: sample(raw("__name__", strings.Repeat("x", series.MaxSeriesKey+1)), someTime, 1)},
		{name: "no valid time", series: one(up, -1, series.MaxTime+1)},
		{name: "no samples", series: ingest.Series{Labels: up}},
		{name: "no index", series: sample(up, someTime, 1), break_: bucketstore.Index, fails: true},
		{name: "no rows", series: sample(up, someTime, 1), break_: bucketstore.Metric, fails: true},
		{name: "HA", series: sample(up, someTime, 1), change: withHA},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change == nil {
				tt.change = func(*engine.Config) {}
			}
			f := openFixture(t, tt.change)
			f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
				if tt.fails && table == tt.break_ {
					return errStore
				}
				return nil
			}
			tt.series.WireText = wireText(1, tt.series.Labels)
			var rejected ingest.Rejected
			if _, err := f.Append(t.Context(), []ingest.Series{tt.series}, &rejected); tt.fails != errors.Is(err, errStore) {
				t.Fatal(err)
			}
			if k := f.Lookup(tt.series.WireText); k != nil {
				t.Errorf("%s is cached", k.State.Labels())
			}
		})
	}
}

// A text too long to be cached does no harm.
func TestLookupBoundsTexts(t *testing.T) {
	f := openFixture(t)
	s := sample(up, someTime, 1)
	s.WireText = ingest.WireText{Form: 1, Text: make([]byte, 1<<20)}
	f.append(t, s)
	if f.Lookup(s.WireText) != nil {
		t.Error("a text of a megabyte is cached")
	}
}

// Whatever was cached, and dropped, each sample goes to its own series.
func TestLookupForgets(t *testing.T) {
	for _, bounds := range []seriescache.Config{{MaxSeries: 1 << 20}, {MaxSeries: 20}, {MaxSeries: 1 << 20, MaxBytes: 10_000}, {MaxSeries: 1, MaxBytes: 1}} {
		t.Run(fmt.Sprint(bounds), func(t *testing.T) {
			f := openFixture(t, func(c *engine.Config) { c.SeriesCache = bounds })
			var want []ingest.Series
			for i := range 100 {
				want = append(want, one(labels.FromStrings("__name__", "up", "n", fmt.Sprintf("%03d", i))))
			}
			for round := range int64(4) {
				for i := range want {
					s := sample(want[i].Labels, someTime+round, float64(i))
					want[i].Samples = append(want[i].Samples, s.Samples...)
					f.append(t, f.written(1, []ingest.Series{s})...)
				}
			}
			wantSeries(t, "all", f.collect(t, everything()), want...)
			if n := f.counter(t, "adapter_engine_known_series"); n > float64(bounds.MaxSeries)+1 {
				t.Errorf("%v series cached, the bound is %d", n, bounds.MaxSeries)
			}
		})
	}
}

// One number bounds the cache, also if it is set after the defaults, as flags are.
func TestCachedSeries(t *testing.T) {
	const bound = 20
	f := openFixture(t, func(c *engine.Config) {
		*c = c.WithDefaults()
		c.CachedSeries = bound
	})
	for i := range 5 * bound {
		f.append(t, f.written(1, []ingest.Series{sample(labels.FromStrings("__name__", "up", "n", fmt.Sprintf("%03d", i)), someTime, 1)})...)
	}
	if n := f.counter(t, "adapter_engine_known_series"); n < bound/2 || n > bound+1 {
		t.Errorf("%v series cached, the bound is %d", n, bound)
	}
}

// With HA on, no series is found by the numbers of symbols.
func TestSymbolsWithHA(t *testing.T) {
	if openFixture(t, withHA).Symbols() != nil {
		t.Error("there are symbols with HA on")
	}
}

// What a cached series sends is checked like all else, and named in errors.
func TestCachedIsChecked(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.MaxFuture = time.Minute })
	k := f.cached(t, up, someTime)
	var rejected ingest.Rejected
	stored, err := f.Append(t.Context(), []ingest.Series{{
		Cached:     k,
		Samples:    []ingest.Sample{{T: -1}, {T: someTime + 1, V: 1}, {T: someTime + 3_600_000}, {T: series.MaxTime + 1}},
		Histograms: []ingest.Histogram{{T: someTime + 2, H: &histogram.Histogram{Count: 5}}, {T: someTime + 3, H: &histogram.Histogram{}}, {T: -1, H: &histogram.Histogram{}}},
		Exemplars:  []exemplar.Exemplar{{Ts: someTime, HasTs: true, Labels: labels.FromStrings("trace", strings.Repeat("x", 200))}, {Ts: -1, HasTs: true}, {Ts: someTime + 1, HasTs: true}},
	}}, &rejected)
	if err != nil || stored != (ingest.Stored{Samples: 1, Histograms: 1, Exemplars: 1}) {
		t.Errorf("stored %v, error %v, want one of each", stored, err)
	}
	want := map[ingest.Reason]int{ingest.ReasonTime: 4, ingest.ReasonFuture: 1, ingest.ReasonHistogram: 1, ingest.ReasonExemplar: 1}
	if !maps.Equal(rejected.Samples, want) {
		t.Errorf("rejected %v, want %v", rejected.Samples, want)
	}
	if msg := rejected.Error(); strings.Count(msg, `{__name__="up"}`) < 5 {
		t.Errorf("the message %s should name the series", msg)
	}
}

// A cached series costs no index write but in a period where it is new, and there
// its rows are durable before the samples.
func TestCachedIsIndexed(t *testing.T) {
	f := openFixture(t)
	k := f.cached(t, up, someTime)
	period := series.PeriodOf(someTime)
	steps := []struct {
		name string
		t    int64
		want []int64 // the periods whose mark is written
	}{
		{"the same period", someTime + 15_000, nil},
		{"before the last eighth", period + series.IndexPeriod/8*7 - 1, nil},
		{"the end of the period", period + series.IndexPeriod - 1, nil}, // to be prewritten, later
		{"once more", period + series.IndexPeriod - 1, nil},
		{"the next period", period + series.IndexPeriod, []int64{period + series.IndexPeriod}},
		{"far ahead", period + 40*series.IndexPeriod, []int64{period + 40*series.IndexPeriod}},
		{"back again", someTime, nil}, // forgotten here, but not by the index
		{"an old one", period - 5*series.IndexPeriod, []int64{period - 5*series.IndexPeriod}},
		{"the first of all", 0, []int64{0}},
		{"the last of all", series.MaxTime, []int64{series.PeriodOf(series.MaxTime)}},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			f.store.reset()
			f.append(t, ingest.Series{Cached: k, Samples: []ingest.Sample{{T: step.t}}})
			var marks []string
			for i, a := range f.store.applied {
				if a.table == bucketstore.Index {
					marks = append(marks, slices.DeleteFunc(a.keys, func(key string) bool { return !strings.HasPrefix(key, "p,__name__=up,") })...)
				} else if i != len(f.store.applied)-1 {
					t.Errorf("the samples come before other rows")
				}
			}
			var want []string
			for _, p := range step.want {
				want = append(want, fmt.Sprintf("p,__name__=up,%013d,up", p))
			}
			if !slices.Equal(marks, want) {
				t.Errorf("wrote %q, want %q", marks, want)
			}
			if found := f.collect(t, reader.Query{Mint: step.t, Maxt: step.t}); len(found) != 1 {
				t.Errorf("found %s", text(found))
			}
		})
	}
}

// Index rows that were not written are written the next time.
func TestCachedIndexFails(t *testing.T) {
	f := openFixture(t)
	next := someTime + series.IndexPeriod
	batch := []ingest.Series{{Cached: f.cached(t, up, someTime), Samples: []ingest.Sample{{T: next}}}}
	f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Index {
			return errStore
		}
		return nil
	}
	if _, err := f.Append(t.Context(), batch, &ingest.Rejected{}); !errors.Is(err, errStore) {
		t.Fatalf("error %v, want that of the store", err)
	}
	f.store.onApply = nil
	f.append(t, batch...)
	wantSeries(t, "the next period", f.collect(t, reader.Query{Mint: next, Maxt: next}), one(up, next))
}

// The current sample of a series is one, however its labels are written, flushed in
// between or not.
func TestCachedCurrent(t *testing.T) {
	for _, flush := range []bool{false, true} {
		t.Run(fmt.Sprintf("flush %t", flush), func(t *testing.T) {
			f := openFixture(t)
			for i, form := range []byte{0, 1, 2, 1, 1, 0, 2, 2, 1, 0} {
				s := sample(up, someTime+int64(i), float64(i))
				s.Samples[0].ST = int64(i % 3)
				f.append(t, f.written(form, []ingest.Series{s, sample(labels.FromStrings("__name__", "other"), someTime, 1)})...)
				f.append(t, f.written(form, []ingest.Series{sample(up, someTime-1, -1)})...)
				if n := f.counter(t, "adapter_current_pending_series"); n != 2 && !flush {
					t.Errorf("%v series pending, want 2", n)
				}
				for range i % 4 { // up to when the slots go
					if err := f.FlushCurrent(t.Context()); flush && err != nil {
						t.Fatal(err)
					}
				}
				want := []ingest.Series{sample(labels.FromStrings("__name__", "other"), someTime, 1), sample(up, someTime+int64(i), float64(i))}
				wantSeries(t, "current", f.current(t, 0), want...)
			}
			f.append(t, f.written(1, []ingest.Series{sample(up, someTime+10, stale)})...)
			wantSeries(t, "after the marker", f.current(t, 0), sample(labels.FromStrings("__name__", "other"), someTime, 1))
		})
	}
}

// Metadata that are stored need not be stored again, until a sender says something
// else.
func TestCachedMetadata(t *testing.T) {
	f := openFixture(t)
	count := f.cached(t, labels.FromStrings("__name__", "h_count"), someTime)
	sum := f.cached(t, labels.FromStrings("__name__", "h_sum"), someTime)
	x := metadata.Metadata{Type: "histogram", Help: "x"}
	y := metadata.Metadata{Type: "histogram", Help: "y"}
	gauge := metadata.Metadata{Type: "gauge", Help: "x"}
	long := metadata.Metadata{Type: "histogram", Help: strings.Repeat("long", 2000)}
	steps := []struct {
		name    string
		from    ingest.Cached
		said    metadata.Metadata
		family  string
		changed bool
	}{
		{"first", count, x, "h", true},
		{"again", count, x, "h", false},
		{"from another", sum, x, "h", false},
		{"changed", sum, y, "h", true},
		{"not changed yet", count, x, "h", true},
		{"back", count, x, "h", false},
		{"other type", count, gauge, "h_count", true},
		{"other type again", count, gauge, "h_count", false},
		{"type of before", count, x, "h", false},
		{"cut", sum, long, "h", true},
		{"cut again", sum, long, "h", false},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			family, changed := step.from.CompareMetadata(step.said)
			if family != step.family || changed != step.changed {
				t.Errorf("%q, changed %t, want %q, %t", family, changed, step.family, step.changed)
			}
			if !changed {
				return
			}
			m := ingest.Metadata{Family: family, Metadata: step.said}
			f.store.onApply = func(bucketstore.Table, []bucketstore.Mutation) error { return errStore }
			if err := f.AppendMetadata(t.Context(), []ingest.Metadata{m}, &ingest.Rejected{}); !errors.Is(err, errStore) {
				t.Errorf("error %v, want that of the store", err)
			}
			f.store.onApply = nil
			if _, changed := step.from.CompareMetadata(step.said); !changed {
				t.Error("what could not be stored counts as stored")
			}
			if err := f.AppendMetadata(t.Context(), []ingest.Metadata{m}, &ingest.Rejected{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Many at once, with few series cached.
func TestCachedConcurrently(t *testing.T) {
	const writers, rounds = 4, 200
	f := openFixture(t, func(c *engine.Config) { c.SeriesCache.MaxSeries = 8 })
	sets := benchLabels(12)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			var last *seriescache.Entry
			for i := range rounds {
				if found := f.Lookup(wireText(1, sets[i%len(sets)])); found != nil {
					if last != nil {
						last.Next()
						last.SetNext(found)
					}
					last = found
				}
				s := sample(sets[(w+i)%len(sets)], someTime+int64(i*writers+w), float64(w))
				if _, err := f.Append(t.Context(), f.written(1, []ingest.Series{s}), &ingest.Rejected{}); err != nil {
					t.Error(err)
				}
				if i%50 == w {
					if err := f.FlushCurrent(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	want := make(map[string]ingest.Series)
	for i := range int64(rounds) {
		for w := range int64(writers) {
			ls := sets[(w+i)%int64(len(sets))]
			s := want[ls.String()]
			s.Labels, s.Samples = ls, append(s.Samples, ingest.Sample{T: someTime + i*writers + w, V: float64(w)})
			want[ls.String()] = s
		}
	}
	stored := slices.SortedFunc(maps.Values(want), func(a, b ingest.Series) int { return labels.Compare(a.Labels, b.Labels) })
	wantSeries(t, "all", f.collect(t, everything()), stored...)
	for i := range stored {
		stored[i].Samples = stored[i].Samples[len(stored[i].Samples)-1:]
	}
	wantSeries(t, "current", f.current(t, 0), stored...)
}

// nullAppender stores nothing.
type nullAppender struct{ *bucketstore.Direct }

func (nullAppender) Append(context.Context, []bucketstore.Sample) error { return nil }

// What an append of cached series allocates does not grow with it.
func TestCachedAllocatesNothing(t *testing.T) {
	f := openFixture(t)
	f.close(t)
	f.cfg.Appender = nullAppender{bucketstore.NewDirect(f.store, f.cfg.Schema, f.clock.now, nil)}
	f.open(t)
	end := series.PeriodOf(someTime) + series.IndexPeriod
	for name, at := range map[string]int64{"somewhere": someTime, "the end of an index period": end - 10} {
		t.Run(name, func(t *testing.T) {
			var batch []ingest.Series
			for _, ls := range benchLabels(1000) {
				k := f.cached(t, ls, at)
				batch = append(batch, ingest.Series{Cached: k, Samples: []ingest.Sample{{T: at + 1, V: 1, ST: 1}, {T: at + 2, V: 2}}})
			}
			var rejected ingest.Rejected
			n := testing.AllocsPerRun(20, func() {
				if _, err := f.Append(t.Context(), batch, &rejected); err != nil {
					t.Fatal(err)
				}
			})
			if n > 50 {
				t.Errorf("%v allocations for 2000 samples of 1000 cached series", n)
			}
		})
	}
}

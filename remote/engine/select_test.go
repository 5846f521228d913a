package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// many returns n series with samples at these times, sorted.
func many(n int, times ...int64) (batch []ingest.Series) {
	for i := range n {
		batch = append(batch, one(labels.FromStrings("__name__", "up", "n", fmt.Sprintf("%06d", i)), times...))
	}
	return batch
}

// regular returns n times, 15 s apart, from start on.
func regular(n int, start int64) (times []int64) {
	for i := range n {
		times = append(times, start+int64(i)*15_000)
	}
	return times
}

func TestSelectInBatches(t *testing.T) {
	const size = 300
	f := openFixture(t)
	batch := many(size, regular(50, someTime)...)
	f.append(t, batch...)
	tests := []struct {
		name  string
		bytes int
		split bool
		// atLeast and atMost bound the number of batches.
		atLeast, atMost int
	}{
		{"one after the first", 16 << 20, false, 2, 2},
		{"some", 32 << 10, false, 3, 40},
		{"split", 2 << 10, true, 30, size},
		{"series by series", 1, true, size - 1, size},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.SetBatchBytes(tt.bytes)
			f.store.reset()
			const name = "adapter_engine_read_batches_total"
			read, split := f.counter(t, name, "result", "read"), f.counter(t, name, "result", "split")
			wantSeries(t, "all", f.collect(t, everything()), batch...)
			read, split = f.counter(t, name, "result", "read")-read, f.counter(t, name, "result", "split")-split
			if read < float64(tt.atLeast) || read > float64(tt.atMost) || (split > 0) != tt.split {
				t.Errorf("%v batches, %v splits, want %d to %d, some splits: %t", read, split, tt.atLeast, tt.atMost, tt.split)
			}
			// A batch is one scan, but the first ones feel their way.
			if n := len(f.store.scans(bucketstore.Metric)); n < int(read+split) || n > int(read+split)+20 {
				t.Errorf("%d scans, want about %v", n, read+split)
			}
		})
	}
}

// The keys of a batch are bounded as well as its samples.
func TestSelectBoundsKeys(t *testing.T) {
	f := openFixture(t)
	var batch []ingest.Series
	for i := range 400 {
		batch = append(batch, one(labels.FromStrings("__name__", "up", "n", fmt.Sprintf("%03d", i), "z", strings.Repeat("z", 3000)), someTime))
	}
	f.append(t, batch...)
	f.store.reset()
	wantSeries(t, "all", f.collect(t, everything()), batch...)
	for _, sc := range f.store.scans(bucketstore.Metric) {
		size := 0
		for _, r := range sc.req.Rows {
			size += len(r.Start)
		}
		if size > 512<<10 {
			t.Errorf("one scan asks for %d bytes of keys", size)
		}
	}
}

// Rows are read of those series and bases that the index names, and no others.
func TestSelectReadsWhatTheIndexNames(t *testing.T) {
	for _, resource := range []string{"", "host"} {
		t.Run("resource label "+resource, func(t *testing.T) {
			f := openFixture(t, func(c *engine.Config) {
				if resource != "" {
					c.Schema = newSchema(t, resource)
				}
			})
			base, _ := series.Split(someTime)
			a := one(labels.FromStrings("__name__", "up", "host", "a"), base-2*series.Period, base-1, base, base+1, base+series.Period)
			b := one(labels.FromStrings("__name__", "up", "host", "b"), base-2*series.Period, base+series.Period)
			other := one(labels.FromStrings("__name__", "other", "host", "a"), base)
			f.append(t, a, b, other)
			tests := []struct {
				name       string
				host       string
				mint, maxt int64
				rows       int
			}{
				{"all", ".*", 0, series.MaxTime, 6},
				{"all of one", "a", 0, series.MaxTime, 4},
				{"all of the other", "b", 0, series.MaxTime, 2},
				{"one base", ".*", base, base + 1, 1},
				{"up to the base", ".*", base - 1, base - 1, 1},
				{"over the base", ".*", base - 1, base, 2},
				{"a hole", ".*", base - series.Period, base - series.Period + 1, 0},
				{"three", ".*", base - 1, base + series.Period, 4},
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					f.store.reset()
					f.collect(t, reader.Query{Mint: tt.mint, Maxt: tt.maxt, Matchers: []*labels.Matcher{
						match("__name__", "up"), labels.MustNewMatcher(labels.MatchRegexp, "host", tt.host),
					}})
					rows := 0
					for _, sc := range f.store.scans(bucketstore.Metric) {
						rows += len(sc.keys)
					}
					if rows != tt.rows {
						t.Errorf("%d rows read, want %d", rows, tt.rows)
					}
				})
			}
		})
	}
}

// A label that looks like a base lies between the rows of a series.
func TestSelectForeignKeys(t *testing.T) {
	f := openFixture(t)
	base, _ := series.Split(someTime)
	baseText := func(n int64) string { return fmt.Sprintf("%013d", base+n*series.Period) }
	up := one(labels.FromStrings("__name__", "up"), base-series.Period, base, base+series.Period)
	foreign := []ingest.Series{
		one(labels.FromStrings("__name__", "up", baseText(-1), "x"), base-series.Period, base),
		one(labels.FromStrings("__name__", "up", baseText(0), baseText(0)), base-series.Period, base, base+series.Period),
		one(labels.FromStrings("__name__", "up", "1297080123392", "x"), base),
	}
	f.append(t, append(slices.Clone(foreign), up)...)
	absent := func(name string) *labels.Matcher { return match(name, "") }
	wantSeries(t, "without the others", f.collect(t, reader.Query{Maxt: series.MaxTime, Matchers: []*labels.Matcher{
		match("__name__", "up"), absent(baseText(-1)), absent(baseText(0)), absent("1297080123392"),
	}}), up)
	all := append(slices.Clone(foreign), up)
	slices.SortFunc(all, func(a, b ingest.Series) int { return labels.Compare(a.Labels, b.Labels) })
	wantSeries(t, "all", f.collect(t, everything()), all...)
	for _, s := range foreign {
		var ms []*labels.Matcher
		s.Labels.Range(func(l labels.Label) { ms = append(ms, match(l.Name, l.Value)) })
		wantSeries(t, s.Labels.String(), f.collect(t, reader.Query{Maxt: series.MaxTime, Matchers: ms}), s)
	}
}

func TestSelectLimits(t *testing.T) {
	batch := many(100, regular(100, someTime)...)
	tests := []struct {
		name   string
		limits reader.Limits
		// early says that Select itself fails, late that the set does.
		early, late bool
	}{
		{"none", reader.Limits{}, false, false},
		{"series, just enough", reader.Limits{MaxSeries: 100}, false, false},
		{"series", reader.Limits{MaxSeries: 99}, true, false},
		{"samples, just enough", reader.Limits{MaxSamples: 100 * 100}, false, false},
		{"samples, one too few", reader.Limits{MaxSamples: 100*100 - 1}, false, true},
		{"samples in the first batch", reader.Limits{MaxSamples: 500}, true, false},
		{"bytes of a series, enough", reader.Limits{MaxSeriesBytes: 1 << 20}, false, false},
		{"bytes of a series", reader.Limits{MaxSeriesBytes: 100}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t, func(c *engine.Config) { c.Limits = tt.limits })
			f.append(t, batch...)
			set, err := f.Select(t.Context(), everything())
			if errors.Is(err, reader.ErrLimit) != tt.early {
				t.Fatalf("Select: %v", err)
			}
			if tt.early {
				return
			}
			n := 0
			for set.Next() {
				n++
			}
			if errors.Is(set.Err(), reader.ErrLimit) != tt.late || !tt.late && n != len(batch) {
				t.Errorf("%d series, then %v", n, set.Err())
			}
		})
	}
}

// Samples of a batch that is split are counted once.
func TestSelectLimitAfterSplit(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSamples = 20 * 50 })
	batch := many(20, regular(50, someTime)...)
	f.append(t, batch...)
	f.SetBatchBytes(64)
	wantSeries(t, "all", f.collect(t, everything()), batch...)
}

func TestSelectSeriesOnly(t *testing.T) {
	f := openFixture(t)
	batch := many(3, someTime)
	f.append(t, batch...)
	f.store.reset()
	found := f.collect(t, reader.Query{Mint: someTime + 1, Maxt: someTime + 2, SeriesOnly: true})
	for i := range batch {
		batch[i].Samples = nil
	}
	wantSeries(t, "labels", found, batch...)
	wantSeries(t, "another period", f.collect(t, reader.Query{Mint: someTime + series.IndexPeriod, Maxt: math.MaxInt64, SeriesOnly: true}))
	if n := len(f.store.scans(bucketstore.Metric)); n != 0 {
		t.Errorf("%d scans of METRIC", n)
	}
}

func TestSelectNothing(t *testing.T) {
	f := openFixture(t)
	f.append(t, many(3, someTime)...)
	tests := []struct {
		name       string
		mint, maxt int64
	}{
		{"inverted", someTime + 1, someTime},
		{"inverted by far", math.MaxInt64, math.MinInt64},
		{"before time", math.MinInt64, -1},
		{"after time", series.MaxTime + 1, math.MaxInt64},
		{"last instant", math.MaxInt64, math.MaxInt64},
		{"just after", someTime + 1, someTime + 1},
		{"just before", someTime - 1, someTime - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantSeries(t, "nothing", f.collect(t, reader.Query{Mint: tt.mint, Maxt: tt.maxt}))
		})
	}
}

func TestSelectFails(t *testing.T) {
	corrupt := func(qualifier, value string) bucketstore.Mutation {
		return bucketstore.Mutation{
			Key: []byte("up,n=000070,0128849018880"),
			Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: "l", Qualifier: []byte(qualifier), Value: []byte(value)}},
		}
	}
	tests := []struct {
		name string
		mut  bucketstore.Mutation
	}{
		{"a value that is no float", corrupt("\x00\x00\x00\x00", "\x01histogram")},
		{"a qualifier that is no delta", corrupt("\x00\x00\x00\x00\x00", "8 bytes.")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			f.unchecked = true
			f.append(t, many(100, someTime)...)
			if err := f.store.Store.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{tt.mut}); err != nil {
				t.Fatal(err)
			}
			set, err := f.Select(t.Context(), everything())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for set.Next() {
				n++
			}
			if !errors.Is(set.Err(), series.ErrCorrupt) || !strings.Contains(set.Err().Error(), "up,n=000070,") || n >= 100 {
				t.Errorf("%d series, then %v, want an error that names the row", n, set.Err())
			}
		})
	}
}

func TestSelectCancelled(t *testing.T) {
	f := openFixture(t)
	f.append(t, many(200, someTime)...)
	ctx, cancel := context.WithCancel(t.Context())
	set, err := f.Select(ctx, everything())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	n := 0
	for set.Next() {
		n++
	}
	if !errors.Is(set.Err(), context.Canceled) || n >= 200 {
		t.Errorf("%d series, then %v", n, set.Err())
	}
}

// A long series is many chunks, and what is delivered is counted.
func TestSelectLongSeries(t *testing.T) {
	f := openFixture(t)
	long := one(labels.FromStrings("__name__", "up"), regular(5000, someTime)...)
	f.append(t, long)
	wantSeries(t, "all", f.collect(t, everything()), long)
	if n := f.counter(t, "adapter_engine_selected_samples_total"); n != 5000 {
		t.Errorf("%v samples counted", n)
	}
	if n := f.counter(t, "adapter_engine_selected_series_total"); n != 1 {
		t.Errorf("%v series counted", n)
	}
}

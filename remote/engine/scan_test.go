package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// watched is a store whose scans of METRIC are counted, and asked about first.
type watched struct {
	bucketstore.Store
	// before may hold a scan back or end it. It is given its number, from 1 on.
	before         func(ctx context.Context, n int32) error
	begun, running atomic.Int32
}

func (w *watched) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if req.Table == bucketstore.Metric {
		w.running.Add(1)
		defer w.running.Add(-1)
		if n := w.begun.Add(1); w.before != nil {
			if err := w.before(ctx, n); err != nil {
				return err
			}
		}
	}
	return w.Store.Scan(ctx, req, fn)
}

// openWatched opens an engine on a store in which batch is stored.
func openWatched(t testing.TB, batch []ingest.Series, change ...func(*engine.Config)) (*fixture, *watched) {
	t.Helper()
	c := newClock(someTime)
	w := &watched{Store: openEmbedded(t, c)}
	f := openOn(t, w, c, change...)
	f.unchecked = true
	f.append(t, batch...)
	return f, w
}

func parallel(scans int) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Store = storetest.WithTraits(c.Store, func(t *bucketstore.Traits) { t.ParallelScans = scans })
	}
}

// While a batch is delivered the next one is read, one and no more, and where scans wait for a network four.
func TestSelectReadsAhead(t *testing.T) {
	for _, scans := range []int{1, 4} {
		t.Run(fmt.Sprint(scans, " scans"), func(t *testing.T) { testSelectReadsAhead(t, scans) })
	}
}

func testSelectReadsAhead(t *testing.T, scans int) {
	batch := many(1000, regular(20, someTime)...)
	f, w := openWatched(t, batch, parallel(scans))
	f.SetBatchBytes(100 << 10)
	set, err := f.Select(t.Context(), everything())
	if err != nil {
		t.Fatal(err)
	}
	first := w.begun.Load()
	if !set.Next() {
		t.Fatal(set.Err())
	}
	const read = "adapter_engine_read_batches_total"
	eventually(t, "the batches ahead", func() bool { return f.counter(t, read, "result", "read") == float64(1+scans) })
	ahead := w.begun.Load()
	for range 50 { // all of the first batch is 64
		set.Next()
	}
	if now := w.begun.Load(); ahead <= first || now != ahead {
		t.Errorf("%d scans before the first series, %d after it, %d after more", first, ahead, now)
	}
	rest := collectChunks(t, set, everything())
	wantSeries(t, "the rest", rest, batch[51:]...)
}

// A set that is given up leaves nothing behind when the engine is
// closed, or when its context ends.
func TestSelectLeft(t *testing.T) {
	for _, end := range []string{"close", "cancel"} {
		t.Run(end, func(t *testing.T) {
			f, w := openWatched(t, many(200, someTime), parallel(1))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			set, err := f.Select(ctx, everything())
			if err != nil {
				t.Fatal(err)
			}
			w.before = func(ctx context.Context, _ int32) error {
				<-ctx.Done()
				return ctx.Err()
			}
			if !set.Next() {
				t.Fatal(set.Err())
			}
			eventually(t, "a scan", func() bool { return w.running.Load() == 1 })
			if end == "close" {
				f.reopen(t)
			} else {
				cancel()
				n := 1
				for set.Next() {
					n++
				}
				if !errors.Is(set.Err(), context.Canceled) || n != 64 {
					t.Errorf("%d series, then %v", n, set.Err())
				}
				eventually(t, "no scan", func() bool { return w.running.Load() == 0 })
			}
			if n := w.running.Load(); n != 0 {
				t.Errorf("%d scans are running", n)
			}
		})
	}
}

// What goes wrong with the next batch is told when this one is delivered.
func TestSelectAheadFails(t *testing.T) {
	errStore := errors.New("the store is away")
	f, w := openWatched(t, many(200, someTime))
	set, err := f.Select(t.Context(), everything())
	if err != nil {
		t.Fatal(err)
	}
	w.before = func(context.Context, int32) error { return errStore }
	n := 0
	for set.Next() {
		n++
	}
	if n != 64 || !errors.Is(set.Err(), errStore) {
		t.Errorf("%d series, then %v", n, set.Err())
	}
	if set.Next() {
		t.Error("there is a series after an error")
	}
}

// A batch is read by so many scans at the same time, in order all the same.
func TestSelectParallelScans(t *testing.T) {
	base, _ := series.Split(someTime)
	batch := many(60, base-1, base, base+1, base+series.Period)
	for _, scans := range []int{2, 4} {
		for _, resource := range [][]string{nil, {"n"}} {
			t.Run(fmt.Sprintf("%d scans, resource labels %v", scans, resource), func(t *testing.T) {
				f, w := openWatched(t, batch, parallel(scans), func(c *engine.Config) { c.Schema = newSchema(t, resource...) })
				f.SetMinScanSeries(1)
				all := make(chan struct{})
				w.before = func(ctx context.Context, n int32) error {
					if int(n) == scans {
						close(all)
					}
					select {
					case <-all:
						return nil
					case <-time.After(10 * time.Second):
						return fmt.Errorf("scan %d has waited for the others for ten seconds", n)
					}
				}
				wantSeries(t, "all", f.collect(t, everything()), batch...)
			})
		}
	}
}

// The limits are those of all scans together, and the batch is split if all of
// them have met too much.
func TestSelectParallelLimits(t *testing.T) {
	batch := many(64, regular(50, someTime)...)
	for _, tt := range []struct {
		name   string
		limits reader.Limits
		fails  bool
	}{
		{"samples, just enough", reader.Limits{MaxSamples: 64 * 50}, false},
		{"samples, one too few", reader.Limits{MaxSamples: 64*50 - 1}, true},
		{"bytes of a series", reader.Limits{MaxSeriesBytes: 10}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := openWatched(t, batch, parallel(4), func(c *engine.Config) { c.Limits = tt.limits })
			f.SetMinScanSeries(1)
			for _, bytes := range []int{16 << 20, 2 << 10} {
				f.SetBatchBytes(bytes)
				n := 0
				set, err := f.Select(t.Context(), everything())
				if err == nil {
					for set.Next() {
						n++
					}
					err = set.Err()
				}
				if errors.Is(err, reader.ErrLimit) != tt.fails || !tt.fails && n != len(batch) {
					t.Errorf("batches of %d bytes: %d series, then %v", bytes, n, err)
				}
				if split := f.counter(t, "adapter_engine_read_batches_total", "result", "split"); !tt.fails && (split > 0) != (bytes < 16<<20) {
					t.Errorf("batches of %d bytes: %v are split", bytes, split)
				}
			}
		})
	}
}

// A scan that fails ends the others, and is the error.
func TestSelectParallelFails(t *testing.T) {
	errStore := errors.New("the store is away")
	f, w := openWatched(t, many(60, someTime), parallel(4))
	f.SetMinScanSeries(1)
	w.before = func(ctx context.Context, n int32) error {
		if n == 3 {
			return errStore
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if _, err := f.Select(t.Context(), everything()); !errors.Is(err, errStore) {
		t.Errorf("%v, want %v", err, errStore)
	}
	if n := w.running.Load(); n != 0 {
		t.Errorf("%d scans are running", n)
	}
}

// Rows of one series among those of another are read by the scans of both, and
// delivered once.
func TestSelectParallelForeignRows(t *testing.T) {
	base, _ := series.Split(someTime)
	times := []int64{base - series.Period, base, base + series.Period}
	batch := []ingest.Series{one(labels.FromStrings("__name__", "up"), times...)}
	for n := int64(-1); n <= 1; n++ {
		batch = append(batch, one(labels.FromStrings("__name__", "up", fmt.Sprintf("%013d", base+n*series.Period), "x"), times...))
	}
	slices.SortFunc(batch, func(a, b ingest.Series) int { return labels.Compare(a.Labels, b.Labels) })
	f, _ := openWatched(t, batch, parallel(4))
	f.SetMinScanSeries(1)
	wantSeries(t, "all", f.collect(t, everything()), batch...)
}

// BenchmarkSelectFar reads from a store that is far away: every scan takes 5 ms
// and 10 µs for each row, and the reader takes 20 µs for each series.
func BenchmarkSelectFar(b *testing.B) {
	const size, samples = 16384, 20
	const batchBytes = 512 << 10 // some 450 series
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("%d scans and lists", n), func(b *testing.B) {
			c := newClock(someTime)
			f := openOn(b, far{openEmbedded(b, c)}, c, parallel(n))
			for _, ls := range benchLabels(size) {
				f.append(b, one(ls, regular(samples, someTime)...))
			}
			f.SetBatchBytes(batchBytes)
			q := everything()
			q.Matchers = []*labels.Matcher{match("mode", "user"), match("__name__", "node_cpu_seconds_total"), match("job", "node")}
			for b.Loop() {
				set, err := f.Select(b.Context(), q)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for ; set.Next(); n++ {
					if n%50 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				if n != size/8 || set.Err() != nil {
					b.Fatalf("%d series, %v", n, set.Err())
				}
			}
		})
	}
}

// far is a store whose scans take time.
type far struct{ bucketstore.Store }

func (s far) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	time.Sleep(5 * time.Millisecond)
	n := 0
	return s.Store.Scan(ctx, req, func(r bucketstore.Row) error {
		if n++; n%100 == 0 {
			time.Sleep(time.Millisecond)
		}
		return fn(r)
	})
}

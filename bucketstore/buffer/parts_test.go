package buffer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// windowStart is the start of a window.
const windowStart = someTime - series.Window/2

// TestParts: the last write wins over samples in a part. In the store a window is one cell
// for each run of floats or histograms.
func TestParts(t *testing.T) {
	const step = 15_000
	for name, c := range map[string]struct {
		then  func(f *fixture) []bucketstore.Sample
		cells int
	}{
		"nothing": {func(*fixture) []bucketstore.Sample { return nil }, 1},
		"overwrites": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range int64(40) {
				samples = append(samples, f.sample(1, windowStart+i*3*step, -float64(i)))
			}
			return samples
		}, 1},
		"backwards": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range int64(200) {
				samples = append(samples, f.sample(1, windowStart+(250-i)*step, -float64(i)))
			}
			return samples
		}, 1},
		"in between": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range int64(100) {
				samples = append(samples, f.sample(1, windowStart+i*step+1, -float64(i)))
			}
			return samples
		}, 1},
		"one time again and again": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range 50 {
				samples = append(samples, f.sample(1, windowStart+7*step, float64(i)))
			}
			return samples
		}, 1},
		"a histogram instead of a float": {func(f *fixture) []bucketstore.Sample {
			return []bucketstore.Sample{{Ref: f.Ref(key(1)), T: windowStart + 20*step, Value: histogramValue(3)}}
		}, 3},
		"histograms": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range int64(5) {
				samples = append(samples, bucketstore.Sample{Ref: f.Ref(key(1)), T: windowStart + (200+i)*step, Value: histogramValue(uint64(i))})
			}
			return samples
		}, 2},
		"the next window": {func(f *fixture) (samples []bucketstore.Sample) {
			for i := range int64(100) {
				samples = append(samples, f.sample(1, windowStart+series.Window+i*step, float64(i)))
			}
			return samples
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, openPebble(t), func(c *config) { c.PartSamples = 16 })
			for i := range int64(150) {
				f.append(t, f.sample(1, windowStart+i*step, float64(i)))
			}
			f.check(t, "in parts")
			for i, s := range c.then(f) {
				f.append(t, s)
				f.check(t, fmt.Sprintf("after %d more", i+1))
			}
			f.kill()
			f.reopen(t)
			f.check(t, "replayed")
			if n := f.cells(t); n != c.cells {
				t.Errorf("%d cells, want %d", n, c.cells)
			}
		})
	}
}

// cells returns the number of chunks in the store.
func (f *fixture) cells(t testing.TB) (n int) {
	t.Helper()
	err := f.store.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}},
	}, func(row bucketstore.Row) error {
		n += len(row.Cells)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSealSpread: the older window is sealed when later samples are far enough ahead.
// Samples that come for it after that are not lost.
func TestSealSpread(t *testing.T) {
	const spread = 10 * time.Minute
	f := open(t, openPebble(t), func(c *config) { c.SealSpread = spread })
	f.append(t, f.sample(1, windowStart+series.Window-1, 1))
	f.clock.ms.Store(windowStart + series.Window)
	for i := int64(0); i <= 2*spread.Milliseconds(); i += 1000 { // not each sample is a review
		f.append(t, f.sample(1, windowStart+series.Window+i, float64(i)))
		if f.Sealing() > 0 || f.store.applied.Load() > 0 {
			break
		}
	}
	eventually(t, "the older window is stored", func() bool { return f.store.applied.Load() == 1 })
	f.append(t, f.sample(1, windowStart+series.Window-1, 2), f.sample(1, windowStart+1, 3))
	f.check(t, "late samples")
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.check(t, "sealed")
}

// TestHistogramsAreSealed: a chunk without parts does not stay in memory for a whole
// window.
func TestHistogramsAreSealed(t *testing.T) {
	f := open(t, openPebble(t), nil)
	for i := range int64(series.Window / 15_000 / 2) {
		f.append(t, bucketstore.Sample{Ref: f.Ref(key(1)), T: windowStart + i*15_000, Value: largeHistogram(uint64(i))})
	}
	if _, held := f.OpenBytes(); held > 64<<10 {
		t.Errorf("%d bytes are open", held)
	}
	eventually(t, "some are stored", func() bool { return f.store.applied.Load() > 0 })
	f.check(t, "all")
}

// largeHistogram is the value of a histogram of many buckets.
func largeHistogram(n uint64) []byte {
	h := &histogram.Histogram{
		Count: 200, Sum: float64(n), PositiveSpans: []histogram.Span{{Length: 200}}, PositiveBuckets: make([]int64, 200),
	}
	h.PositiveBuckets[0] = 1 // the others are differences
	return cell.Append(nil, cell.Value{Histogram: h})
}

// TestMemory: series at 15 seconds with values that hardly compress need about as much
// memory as one window in the store.
func TestMemory(t *testing.T) {
	const count, mostOnAverage, most = 200, 900, 1500
	f := open(t, openPebble(t), func(c *config) { c.SealSpread = 15 * time.Minute })
	rng := rand.New(rand.NewPCG(1, 1))
	batch := make([]bucketstore.Sample, count)
	for n := range batch {
		batch[n] = f.sample(n, windowStart, 0)
	}
	sum, peak, scrapes := 0, 0, 0
	for t0 := int64(windowStart); t0 < windowStart+3*series.Window; t0 += 15_000 {
		for n := range batch {
			if batch[n].T = t0 + int64(n); n%2 == 0 {
				batch[n].V += float64(rng.IntN(100))
			} else {
				batch[n].V = float64(rng.IntN(10_000)) / 100
			}
		}
		f.clock.ms.Store(t0)
		if err := f.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		_, held := f.OpenBytes()
		sum, peak, scrapes = sum+held, max(peak, held), scrapes+1
	}
	if average, peak := sum/scrapes/count, peak/count; average > mostOnAverage || peak > most {
		t.Errorf("a series holds %d bytes on average and up to %d, want %d and %d", average, peak, mostOnAverage, most)
	}
}

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// A dense row is read in slices: once its density is measured, no scan meets much more of
// it than it should.
func TestSelectSlicesDenseRows(t *testing.T) {
	const cells, samples = 100, 5000
	every := func(step, start int64) (times []int64) {
		for i := range int64(samples) {
			times = append(times, start+i*step)
		}
		return times
	}
	base, _ := series.Split(someTime)
	for _, tt := range []struct {
		name  string
		times []int64
	}{
		{"from the beginning", every(60_000, base)},
		{"somewhere", every(60_000, someTime)},
		{"over a base", every(60_000, base+series.Period-60_000*samples/2)},
		{"thinner", every(300_000, base)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			dense := one(labels.FromStrings("__name__", "up", "job", "dense"), tt.times...)
			thin := one(labels.FromStrings("__name__", "up", "job", "thin"), tt.times[0], tt.times[len(tt.times)-1])
			f.append(t, dense, thin)
			f.SetRowCells(cells)
			f.store.reset()
			wantSeries(t, "all", f.collect(t, everything()), dense, thin)
			most, met := 0, 0
			scans := f.store.scans(bucketstore.Metric)
			for _, sc := range scans {
				if met > 0 { // the first scan of the row has no estimate yet
					most = max(most, sc.cells)
				}
				met += sc.cells
			}
			if most > 3*cells || len(scans) > 2*samples/cells+20 {
				t.Errorf("%d scans, the largest of %d cells", len(scans), most)
			}
		})
	}
}

// Rows of years that hold little are read in few scans.
func TestSelectReadsThinRowsTogether(t *testing.T) {
	f := openFixture(t)
	var times []int64
	for n := range int64(40) { // 5 years
		times = append(times, someTime+n*series.Period)
	}
	batch := many(20, times...)
	f.append(t, batch...)
	f.store.reset()
	wantSeries(t, "all", f.collect(t, everything()), batch...)
	if n := len(f.store.scans(bucketstore.Metric)); n > 40 {
		t.Errorf("%d scans for 40 buckets of two samples", n)
	}
}

// Whatever the slices are, the answer is that of one read.
func TestSelectSlicesAtRandom(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 30 {
		f := openFixture(t)
		var times []int64
		at := someTime - rng.Int64N(2*series.Period)
		for range 500 {
			at += 1 + int64(rng.ExpFloat64()*float64(int64(1)<<rng.IntN(24)))
			if at > someTime {
				break
			}
			times = append(times, at)
		}
		if len(times) == 0 {
			continue
		}
		s := one(labels.FromStrings("__name__", "up"), times...)
		f.append(t, s)
		f.SetRowCells(1 + rng.IntN(50))
		first, last := rng.IntN(len(times)), rng.IntN(len(times))
		if first > last {
			first, last = last, first
		}
		want := ingest.Series{Labels: s.Labels, Samples: s.Samples[first : last+1]}
		got := f.collect(t, reader.Query{Mint: times[first], Maxt: times[last]})
		wantSeries(t, fmt.Sprintf("seed %d, round %d", seed, round), got, want)
	}
}

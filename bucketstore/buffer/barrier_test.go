package buffer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// covers1 covers the series with the numbers 0 to 4, in the first half of a window.
func covers1(seriesKey []byte, start, limit int64) bool {
	return start < someTime && slices.ContainsFunc([]int{0, 1, 2, 3, 4}, func(n int) bool { return bytes.Equal(key(n), seriesKey) })
}

// eachSample calls fn with the stamp of the chunk of each sample in the store and in memory.
func (f *fixture) eachSample(t testing.TB, fn func(key string, at, stamp int64, v float64)) {
	t.Helper()
	err := f.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}},
	}, func(row bucketstore.Row) error {
		seriesKey, base, err := f.cfg.Schema.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		for _, c := range row.Cells {
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return err
			}
			var samples merge.Row
			samples.Reset(base, base, base+series.Period, merge.Options{})
			samples.AddChunk(sealed)
			for samples.Next() == merge.Floats {
				ts, vs := samples.Floats()
				for i := range ts {
					fn(string(seriesKey), ts[i], sealed.Stamp, vs[i])
				}
			}
			if err := samples.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBarrier writes samples whose values count up. In whatever way chunks are made, those that
// a barrier covers have a stamp up to its own exactly if their samples came before it.
func TestBarrier(t *testing.T) {
	for seed := range storetest.Seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			f := open(t, openPebble(t), func(c *config) {
				c.PartSamples = 2 + rng.IntN(10)
				c.SegmentBytes = 500 + rng.IntN(2000)
				c.MaxLogBytes = 8 * c.SegmentBytes
				c.MaxOpenBytes = 1000 + rng.IntN(10_000)
			})
			value := 0.0
			before := make(map[int64]float64) // the values before each barrier, by its stamp
			for step := range 120 {
				f.clock.ms.Add(rng.Int64N(20_000) - 5000)
				switch rng.IntN(14) {
				case 0:
					f.kill()
					f.reopen(t)
				case 1:
					if err := f.Close(); err != nil {
						t.Fatal(err)
					}
					f.reopen(t)
				case 2:
					f.Sweep()
				case 3:
					if err := f.Pass(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 4:
					bar := buffer.Barrier{Covers: covers1}
					if rng.IntN(2) == 0 {
						bar.Stamp = f.clock.ms.Load() + rng.Int64N(600_000)
					}
					stamp, err := f.Barrier(t.Context(), bar)
					if err != nil || stamp < bar.Stamp {
						t.Fatalf("stamp %d of %d, %v", stamp, bar.Stamp, err)
					}
					before[stamp] = value
					f.cfg.Barriers = append(f.cfg.Barriers, buffer.Barrier{Stamp: stamp, Covers: covers1})
				default:
					var samples []bucketstore.Sample
					for range 1 + rng.IntN(6) {
						value++
						at := someTime + rng.Int64N(series.Window/1000)*1000 - series.Window/2
						if rng.IntN(5) == 0 {
							at -= rng.Int64N(4) * series.Window
						}
						samples = append(samples, f.sample(rng.IntN(8), at, value))
					}
					f.append(t, samples...)
				}
				f.eachSample(t, func(key string, at, stamp int64, v float64) {
					for s, value := range before {
						if covers1([]byte(key), at, at+1) && (v <= value) != (stamp <= s) {
							t.Fatalf("step %d: sample %v of %s at %d has stamp %d; the barrier at %d is after %v", step, v, key, at, stamp, s, value)
						}
					}
				})
				f.check(t, fmt.Sprint("step ", step))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestPass: what was written before is in the store, and no replay writes it again.
func TestPass(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.SealSpread = time.Hour })
	for range 2 { // the second one has nothing to store
		if err := f.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.append(t, f.sample(1, someTime, 1), f.sample(1, someTime-5*series.Window, 2))
	segments := segmentsOf(t, f.cfg.Dir)
	if err := f.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := segmentsOf(t, f.cfg.Dir); len(now) != 1 || slices.Equal(now, segments) {
		t.Errorf("segments %v, were %v", now, segments)
	}
	f.append(t, f.sample(2, someTime, 3))
	applied := f.store.applied.Load()
	f.kill()
	f.reopen(t)
	if n := f.store.applied.Load() - applied; n != 1 {
		t.Errorf("the replay wrote %d rows", n)
	}
	f.check(t, "after the replay")
	f.store.fail.Store(true)
	f.append(t, f.sample(3, someTime, 4))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Pass(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the store is down: %v", err)
	}
	f.store.fail.Store(false)
	if err := f.Pass(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPassFailingRows: a log with a row that the store does not take has not passed.
func TestPassFailingRows(t *testing.T) {
	f, store := openChoosy(t, nil)
	store.set(string(key(3)), errStore)
	f.append(t, f.sample(1, someTime, 1), f.sample(3, someTime, 2))
	if err := f.Pass(t.Context()); !errors.Is(err, buffer.ErrNotPassed) {
		t.Errorf("%v", err)
	}
	store.set(string(key(3)), nil)
	awaitFailing(t, f, 0)
	if err := f.Pass(t.Context()); err != nil {
		t.Error(err)
	}
}

package buffer_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// TestModel does random operations, failures included, and compares with a map at every
// step.
func TestModel(t *testing.T) {
	for seed := range storetest.Seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			f := &model{rng: rng, fixture: open(t, openPebble(t), func(c *config) {
				c.PartSamples = 2 + rng.IntN(30)
				c.SealSpread = time.Duration(1+rng.Int64N(series.Window)) * time.Millisecond
				c.SegmentBytes = 2000 + rng.IntN(20_000)
				c.MaxLogBytes = (2 + rng.IntN(5)) * c.SegmentBytes
				c.MaxOpenBytes = 1000 + rng.IntN(10_000)
				if rng.IntN(2) == 0 {
					c.MaxOpenBytes *= 10
				}
				if seed%2 == 1 {
					c.FsyncInterval = time.Millisecond
				}
			})}
			for step := range 150 {
				what := f.step(t)
				f.check(t, fmt.Sprintf("step %d, after %s", step, what))
				if counted, held := f.OpenBytes(); counted != held {
					t.Errorf("%d bytes are open, %d were counted", held, counted)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// model is a fixture with random operations.
type model struct {
	*fixture
	rng *rand.Rand
	// times are the times that were sent, to be sent again.
	times []int64
}

// step does one operation and returns its name.
func (f *model) step(t testing.TB) string {
	now := f.clock.ms.Load()
	switch f.rng.IntN(20) {
	case 0:
		f.crash(t)
		return "a death"
	case 1:
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f.reopen(t)
		return "a stop"
	case 2:
		f.clock.ms.Store(now + f.rng.Int64N(2*series.Window))
		f.Sweep()
		return "a sweep"
	case 3:
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if counted, _ := f.OpenBytes(); counted != 0 {
			t.Errorf("%d bytes are open after a flush", counted)
		}
		return "a flush"
	case 4:
		f.clock.ms.Store(now - f.rng.Int64N(series.Window))
		return "the clock was set back"
	case 5, 6:
		f.failing(t)
		return "failures of the store"
	default:
		f.clock.ms.Store(now + f.rng.Int64N(60_000))
		f.append(t, f.randomSamples()...)
		return "samples"
	}
}

// crash ends the process, often in the middle of a write to the log, and starts it again,
// often at the second try.
func (f *model) crash(t testing.TB) {
	f.kill()
	f.tear(t)
	for f.rng.IntN(2) == 0 { // it dies in the replay, or right after
		f.store.left.Store(f.rng.Int64N(20))
		f.store.limited.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		b, err := openLog(ctx, f.cfg)
		cancel()
		if err == nil {
			b.Kill()
		}
	}
	f.store.limited.Store(false)
	f.reopen(t)
}

// tear appends the beginning of a frame to the log.
func (f *model) tear(t testing.TB) {
	segments := segmentsOf(t, f.cfg.Dir)
	if len(segments) == 0 {
		t.Fatal("no log")
	}
	content, err := os.ReadFile(segments[len(segments)-1])
	if err != nil {
		t.Fatal(err)
	}
	const segmentHead, head = 76, 12
	if len(content) < segmentHead+head {
		return
	}
	torn := slices.Clone(content[segmentHead : segmentHead+f.rng.IntN(head+1)]) // the head of a frame, and of its body
	torn = append(torn, bytes.Repeat([]byte{0}, f.rng.IntN(2)*f.rng.IntN(100))...)
	file, err := os.OpenFile(segments[len(segments)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(torn); err != nil {
		t.Fatal(err)
	}
}

// failing sends samples while the store fails at some point of a batch, and repeats
// unacknowledged ones when it works.
func (f *model) failing(t testing.TB) {
	f.store.left.Store(f.rng.Int64N(30))
	f.store.limited.Store(true)
	var failed []bucketstore.Sample
	for range 1 + f.rng.IntN(5) {
		f.clock.ms.Store(f.clock.ms.Load() + f.rng.Int64N(600_000))
		samples := f.randomSamples()
		if err := f.Append(t.Context(), samples); err != nil {
			failed = samples
			break
		}
		f.remember(samples)
		f.Sweep()
	}
	if f.rng.IntN(2) == 0 { // until the store fails
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_ = f.Flush(ctx)
		cancel()
	}
	if f.rng.IntN(3) > 0 {
		f.crash(t)
	}
	f.store.limited.Store(false)
	for i := range failed { // with current references
		failed[i].Ref = f.Ref(failed[i].Ref.SeriesKey())
	}
	if len(failed) > 0 {
		f.append(t, failed...)
	}
}

// randomSamples returns current, late and future samples, and some that were sent before,
// with other values.
func (f *model) randomSamples() (samples []bucketstore.Sample) {
	rng, now := f.rng, f.clock.ms.Load()
	for range 1 + rng.IntN(60) {
		at := now - rng.Int64N(120_000)
		if len(samples) > 0 && rng.IntN(5) == 0 { // one time twice
			at = samples[rng.IntN(len(samples))].T
		}
		switch rng.IntN(12) {
		case 0:
			at -= rng.Int64N(5 * series.Window)
		case 1:
			at += rng.Int64N(3 * series.Window)
		case 2:
			at -= series.Period
		case 3, 4:
			if len(f.times) > 0 {
				at = f.times[rng.IntN(len(f.times))]
			}
		case 5: // the ends of windows, some of which are those of buckets
			at &^= series.Window - 1
			at -= rng.Int64N(2)
		case 6, 7: // late, and many in one window
			at -= (2 + rng.Int64N(3)) * series.Window
		}
		n := rng.IntN(4)
		s := f.sample(n, at, math.Float64frombits(rng.Uint64()))
		if rng.IntN(2) == 0 {
			s.V = float64(rng.IntN(1000))
		}
		if rng.IntN(10) == 0 && (n == 0 || rng.IntN(20) == 0) { // a chunk without a histogram has parts
			s.Value = histogramValue(rng.Uint64N(1000))
		}
		samples = append(samples, s)
		f.times = append(f.times, at)
	}
	if rng.IntN(2) == 0 {
		slices.SortStableFunc(samples, func(a, b bucketstore.Sample) int { return cmp.Compare(a.T, b.T) })
	}
	return samples
}

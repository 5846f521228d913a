package thanos

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/thanos-io/thanos/pkg/block/metadata"
	"github.com/thanos-io/thanos/pkg/compact/downsample"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour
	// days is how long the data are.
	days = 3
	// histogramEvery is the interval of the native histograms, of one series.
	histogramEvery = minute
)

// A shape is a series: every so many milliseconds, with jitter, the value of a time since the start.
type shape struct {
	name, kind string
	every      int64
	value      func(r *rand.Rand) func(t int64) float64
}

// counter rises by up to most each 15 s, and begins again about so often.
func counter(most float64, resets int64) func(*rand.Rand) func(int64) float64 {
	return func(r *rand.Rand) func(int64) float64 {
		v, last := 1000*r.Float64(), int64(0)
		return func(t int64) float64 {
			if resets > 0 && last > 0 && r.Int64N(resets) < t-last {
				v = 0
			}
			if last > 0 {
				v += math.Floor(most*r.Float64()*(1.5+math.Sin(float64(t)/float64(3*hour)))) * float64(t-last) / 15_000
			}
			last = t
			return v
		}
	}
}

var shapes = []shape{
	{"requests_total", "steady", 15_000, counter(400, 0)},
	{"requests_total", "slow", 60_000, counter(3, 0)},
	{"requests_total", "restarts", 15_000, counter(400, 5*hour)},
	{"requests_total", "crashes", 30_000, counter(40, 40*minute)},
	{"temperature", "sine", 15_000, func(r *rand.Rand) func(int64) float64 {
		return func(t int64) float64 { return 20 + 8*math.Sin(float64(t)/float64(6*hour)) + r.NormFloat64()/10 }
	}},
	{"temperature", "walk", 30_000, func(r *rand.Rand) func(int64) float64 {
		v := 50.0
		return func(int64) float64 { v += r.NormFloat64(); return v }
	}},
	{"temperature", "sparse", 4 * minute, func(r *rand.Rand) func(int64) float64 {
		return func(t int64) float64 { return 5 * math.Sin(float64(t)/float64(5*hour)) }
	}},
	{"limit", "constant", 15_000, func(*rand.Rand) func(int64) float64 { return func(int64) float64 { return 1 << 30 } }},
	{"up", "flaps", 15_000, func(r *rand.Rand) func(int64) float64 {
		return func(int64) float64 {
			if r.IntN(200) == 0 {
				return 0
			}
			return 1
		}
	}},
}

// writeBlocks writes a block of samples of days from start on, a multiple of a day, and those that Thanos makes of it for 5 minutes and for an hour. It returns
// their directories. No sample lies on the end of a bucket.
func writeBlocks(t *testing.T, dir string, start int64) (raw, fine, coarse string) {
	t.Helper()
	ctx := t.Context()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), filepath.Join(dir, "raw"), 2*days*day)
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(ctx)
	for i, s := range shapes {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		value, phase := s.value(r), 1+r.Int64N(s.every-20)
		ls := labels.FromStrings("__name__", s.name, "kind", s.kind)
		for at := start + phase; at < start+days*day; at += s.every {
			if _, err := app.Append(0, ls, at+r.Int64N(10), value(at-start)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ls := labels.FromStrings("__name__", "latency", "kind", "histogram")
	for i := range days * day / histogramEvery {
		if _, err := app.AppendHistogram(0, ls, start+i*histogramEvery+17, tsdbutil.GenerateTestHistogram(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	id, err := w.Flush(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw = filepath.Join(dir, "raw", id.String())
	meta := metadata.Thanos{Labels: map[string]string{"cluster": "a"}, Source: metadata.TestSource}
	if _, err := metadata.InjectThanos(log.NewNopLogger(), raw, meta, nil); err != nil {
		t.Fatal(err)
	}
	fine = downsampled(ctx, t, raw, filepath.Join(dir, "fine"), downsample.ResLevel1)
	coarse = downsampled(ctx, t, fine, filepath.Join(dir, "coarse"), downsample.ResLevel2)
	return raw, fine, coarse
}

// downsampled lets Thanos make a block of another one.
func downsampled(ctx context.Context, t *testing.T, block, dir string, resolution int64) string {
	t.Helper()
	meta, err := metadata.ReadFromDir(block)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), block, downsample.NewPool(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	id, err := downsample.Downsample(ctx, log.NewNopLogger(), meta, opened, dir, resolution)
	if err != nil {
		t.Fatal(fmt.Errorf("downsample %s: %w", block, err))
	}
	return filepath.Join(dir, id.String())
}

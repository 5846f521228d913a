package buffer

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// BenchmarkReplay replays a log of 20 million samples of 10,000 series at 15 s, half of
// them counters and half gauges, in requests of 2,000. It has three steps: reading and
// applying alone; with encoding, for a store that discards everything; and with the
// embedded store, until it has everything.
func BenchmarkReplay(b *testing.B) {
	const seriesCount, perSeries = 10_000, 2_000
	written := b.TempDir()
	size := writeLog(b, written, seriesCount, perSeries)
	measure := func(b *testing.B, open func(b *testing.B, dir string) (done func())) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			linkLog(b, written, dir)
			b.StartTimer()
			done := open(b, dir)
			b.StopTimer()
			done()
			b.StartTimer()
		}
		b.ReportMetric(seriesCount*perSeries*float64(b.N)/b.Elapsed().Seconds()/1e6, "Msamples/s")
		b.ReportMetric(float64(size)/(seriesCount*perSeries), "bytes/sample")
	}
	b.Run("read and apply", func(b *testing.B) { measure(b, replayOnly) })
	b.Run("with chunks encoded", func(b *testing.B) {
		measure(b, func(b *testing.B, dir string) func() { return replayInto(b, dir, discard{}) })
	})
	b.Run("into the embedded store", func(b *testing.B) {
		measure(b, func(b *testing.B, dir string) func() {
			store, err := pebble.Open(pebble.Config{Dir: b.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{})})
			if err != nil {
				b.Fatal(err)
			}
			return replayInto(b, dir, store)
		})
	})
}

// discard is a store that discards everything.
type discard struct{ bucketstore.Store }

func (discard) Apply(context.Context, bucketstore.Table, []bucketstore.Mutation) error { return nil }

func (discard) Close() error { return nil }

// replayInto opens a buffer on the log in dir.
func replayInto(b *testing.B, dir string, store bucketstore.Store) (done func()) {
	log, err := OpenDir(dir, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	buffer, err := Open(b.Context(), log, Config{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := buffer.Close(); err != nil {
			b.Error(err)
		}
	}
}

// replayOnly reads the log in dir into open chunks. Sealed chunks are dropped.
func replayOnly(b *testing.B, dir string) (done func()) {
	state, err := readDir(durable.OS(dir))
	if err != nil {
		b.Fatal(err)
	}
	m := newMetrics(Config{})
	buffer := &Buffer{
		cfg: Config{}.withDefaults(), dir: &Dir{state: state}, metrics: m, refs: make(map[string]*ref), seed: maphash.MakeSeed(),
		segments: newSegments(durable.OS(dir), m),
	}
	buffer.sealing.init()
	ctx, stop := context.WithCancel(b.Context())
	buffer.done.Go(func() { buffer.forgetSealed(ctx) })
	progress := buffer.newReplayProgress(state.heads)
	for i, head := range state.heads {
		if err == nil {
			buffer.segments.setCurrent(head.segment)
			err = buffer.replaySegment(ctx, head, i == len(state.heads)-1, progress)
		}
	}
	stop()
	buffer.done.Wait()
	if err != nil || len(buffer.refs) == 0 {
		b.Fatalf("%d series, %v", len(buffer.refs), err)
	}
	return func() {}
}

// forgetSealed drops sealed chunks until ctx ends.
func (b *Buffer) forgetSealed(ctx context.Context) {
	for b.sealing.awaitWork(ctx) == nil {
		chunks := b.sealing.take()
		b.mu.Lock()
		for _, c := range chunks {
			c.ref.dropSealed(c)
		}
		b.mu.Unlock()
		b.sealing.finish(chunks)
	}
}

// writeLog writes a log and returns its size.
func writeLog(b *testing.B, dir string, seriesCount, perSeries int) (size int64) {
	const atOnce = 2_000
	m := newMetrics(Config{})
	l := newLog(dirState{Dir: durable.OS(dir)}, Config{FsyncInterval: time.Hour}.withDefaults(), m, newSegments(durable.OS(dir), m))
	if err := l.start(); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	samples := make([]bucketstore.Sample, seriesCount)
	for n := range samples {
		key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings("__name__", "some_metric", "n", fmt.Sprint(n)))
		if err != nil {
			b.Fatal(err)
		}
		samples[n] = bucketstore.Sample{Ref: &ref{key: string(key)}, T: 30*series.Period + 100*series.Window}
	}
	stamp := int64(0)
	for range perSeries {
		for n := range samples {
			if samples[n].T += 15_000; n%2 == 0 {
				samples[n].V += float64(rng.IntN(100))
			} else {
				samples[n].V = float64(rng.IntN(10_000)) / 100
			}
		}
		for n := 0; n < seriesCount; n += atOnce {
			stamp += 2
			req := &request{samples: samples[n:min(n+atOnce, seriesCount)], stamp: samples[n].T + stamp}
			if _, err := l.write([]*request{req}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.close(); err != nil {
		b.Fatal(err)
	}
	for _, path := range logFiles(b, dir) {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// linkLog gives dir the segments of another directory.
func linkLog(b *testing.B, from, to string) {
	for _, path := range logFiles(b, from) {
		if err := os.Link(path, filepath.Join(to, filepath.Base(path))); err != nil {
			b.Fatal(err)
		}
	}
}

func logFiles(b *testing.B, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no log in %s: %v", dir, err)
	}
	return paths
}

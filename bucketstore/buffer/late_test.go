package buffer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// longAgo is in the middle of a window whose samples are late.
const longAgo = someTime - 20*series.Window

// TestLateSamplesAreMerged: a request of late samples costs one fsync, of the log. Many of
// them leave one chunk for each series and window.
func TestLateSamplesAreMerged(t *testing.T) {
	const count, requests = 10, 500
	m := newMachine(0)
	reg := prometheus.NewRegistry()
	m.cfg.Registerer, m.cfg.SegmentBytes, m.cfg.MaxLogBytes = reg, 1<<20, 1<<20
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	write := func(times ...int64) {
		t.Helper()
		var ids []sampleID
		for n := range count {
			for _, at := range times {
				ids = append(ids, sampleID{n, at})
			}
		}
		if err := m.write(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
	}
	write(someTime, someTime+series.Window)
	syncs := 0
	m.dir.SetFault(func(_ int, what string) buffer.Fault {
		if strings.HasPrefix(what, "sync ") {
			syncs++
		}
		return buffer.Fault{}
	})
	for i := range int64(requests) {
		write(longAgo + i*100)
	}
	m.dir.SetFault(nil)
	if syncs != requests {
		t.Errorf("%d syncs of %d requests", syncs, requests)
	}
	for name, want := range map[string]float64{"adapter_buffer_log_limit_bytes": 1 << 20, "adapter_buffer_open_limit_bytes": buffer.DefaultMaxBytes} {
		if got := gathered(t, reg, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	const metric = "adapter_buffer_late_samples_total"
	want := fmt.Sprintf("# HELP %s Samples of older windows than the two latest of their series, or too far ahead, which get chunks of their own.\n"+
		"# TYPE %s counter\n%s %d\n", metric, metric, metric, count*requests)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), metric); err != nil {
		t.Error(err)
	}
	m.Sweep()
	if n := m.Sealing() + chunksIn(t, m.rows); n != 0 {
		t.Errorf("%d chunks were sealed while samples came", n)
	}
	m.check(t, m.Buffer, false)

	m.clock.ms.Add(2 * time.Minute.Milliseconds())
	m.Sweep()
	eventually(t, "all late chunks are stored", func() bool { return m.Sealing() == 0 })
	if n := chunksIn(t, m.rows); n != count {
		t.Errorf("%d chunks for %d series", n, count)
	}
	m.check(t, m.Buffer, false)
	write(longAgo, longAgo+series.Window)
	m.check(t, m.Buffer, false)
	m.kill()
	m.cfg.Registerer = nil
	m.checkNext(t, false)
}

// chunksIn counts the chunks in a store.
func chunksIn(t testing.TB, store bucketstore.Store) int {
	t.Helper()
	f := fixture{store: &lasting{Store: store}}
	return f.cells(t)
}

// TestLateMemory: late samples of ever more series and windows keep to the limits of memory
// and log.
func TestLateMemory(t *testing.T) {
	const most, segment, maxLog = 64 << 10, 8 << 10, 32 << 10
	f := open(t, openPebble(t), func(c *config) { c.MaxOpenBytes, c.SegmentBytes, c.MaxLogBytes = most, segment, maxLog })
	for i := range int64(200) {
		var samples []bucketstore.Sample
		for n := range 10 {
			f.append(t, f.sample(n, someTime+i, 1))
			samples = append(samples, f.sample(n, longAgo-i*series.Window, float64(i)), f.sample(n, longAgo, float64(i)))
		}
		f.append(t, samples...)
		f.Sweep()
		if counted, held := f.OpenBytes(); counted > most || counted != held {
			t.Fatalf("%d bytes are open, %d were counted, want at most %d", held, counted, most)
		}
		eventually(t, "the log is short", func() bool { return len(segmentsOf(t, f.cfg.Dir)) <= maxLog/segment+1 })
	}
	f.check(t, "at once")
	f.kill()
	f.reopen(t)
	f.check(t, "after a death")
}

// TestLateMemoryIsCounted: late chunks have no more memory than is counted for them, and at
// least half of it, however many a series has.
func TestLateMemoryIsCounted(t *testing.T) {
	for _, chunks := range []int{1, 2, 8, 9, 100, 1000} {
		counted, held := buffer.LateMemory(100_000/chunks, chunks)
		t.Logf("%d each: %d bytes for a chunk, %d are counted", chunks, held/100_000, counted/100_000)
		if counted < held || counted > 2*held {
			t.Errorf("%d in a series: %d bytes are counted, and %d are held", chunks, counted, held)
		}
	}
}

// TestRequestIsNotSplit: of two writes of one sample in one request the last one counts, even
// if the series goes on to later windows in between, a part of the request is stored, and a
// replay does not know the requests before.
func TestRequestIsNotSplit(t *testing.T) {
	for n := range 8 { // without an order, any one of them may be right by chance
		f := open(t, openPebble(t), func(c *config) { c.SegmentBytes = 100 })
		for i := range int64(5) { // so many that they fill a segment
			f.append(t, f.sample(1, longAgo+i, 1), f.sample(1, longAgo+series.Window+i, 1))
		}
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.append(t, f.sample(2, someTime, 1)) // the next segment
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := float64(n)
		f.append(t, f.sample(1, longAgo+100, v), f.sample(1, longAgo+10*series.Window, v), f.sample(1, longAgo+100, v+0.5))
		f.check(t, "at once")
		eventually(t, "what is sealed is stored", func() bool { return f.Sealing() == 0 })
		f.check(t, "when a part of it may be stored")
		for deaths := range 2 {
			f.kill()
			f.reopen(t)
			f.check(t, fmt.Sprint("after ", deaths+1, " deaths"))
		}
	}
}

// TestFutureWindowOpens: samples that were too far ahead are in order with those that come
// when their window is there.
func TestFutureWindowOpens(t *testing.T) {
	const ahead = someTime + 5*series.Window
	for name, between := range map[string]int64{"as the latest window": 0, "as the one before": ahead + series.Window} {
		t.Run(name, func(t *testing.T) {
			f := open(t, openPebble(t), nil)
			f.append(t, f.sample(1, someTime, 1), f.sample(1, ahead, 1), f.sample(1, ahead+1, 1))
			f.append(t, f.sample(1, ahead, 2))
			f.check(t, "ahead")
			f.clock.ms.Store(ahead)
			if between > 0 {
				f.append(t, f.sample(1, between, 1))
			}
			f.append(t, f.sample(1, ahead, 3), f.sample(1, ahead+1, 3))
			f.check(t, "there")
			f.clock.ms.Store(ahead + 3*series.Window)
			f.append(t, f.sample(1, ahead+2*series.Window, 1), f.sample(1, ahead+3*series.Window, 1))
			f.append(t, f.sample(1, ahead, 4)) // too old now
			f.check(t, "gone by")
			f.kill()
			f.reopen(t)
			f.check(t, "after a death")
			f.append(t, f.sample(1, ahead, 5))
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.check(t, "flushed")
		})
	}
}

// TestLateValues: late samples may have values other than floats, and many of them.
func TestLateValues(t *testing.T) {
	f := open(t, new(storetest.Memory), func(c *config) { c.PartSamples = 8 })
	f.append(t, f.sample(1, someTime, 1), f.sample(1, someTime-series.Window, 1))
	for i := range int64(200) {
		s := f.sample(1, longAgo+i*5, float64(i))
		switch i % 3 {
		case 1:
			s.Value = largeHistogram(uint64(i))
		case 2:
			s.Value = cell.Append(nil, cell.Value{Start: longAgo, Float: float64(i)})
		}
		f.append(t, s)
	}
	if counted, held := f.OpenBytes(); counted != held || held > 64<<10 {
		t.Errorf("%d bytes are open, %d were counted", held, counted)
	}
	f.check(t, "at once")
	f.kill()
	f.reopen(t)
	f.check(t, "after a death")
}

// gathered returns the value of a gauge without labels.
func gathered(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

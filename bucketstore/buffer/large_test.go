//go:build !race

package buffer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// TestManySamplesAtOnce: a request may have more samples of one series and window than a
// chunk can count, and duplicate times.
func TestManySamplesAtOnce(t *testing.T) {
	f := open(t, openPebble(t), nil)
	var samples []bucketstore.Sample
	for i := range int64(70_000) {
		samples = append(samples, f.sample(1, someTime+i, float64(i)))
	}
	for i := range int64(70_000) { // backwards, every third time once more
		if i%3 == 0 {
			samples = append(samples, f.sample(1, someTime+70_000-i, float64(-i)))
		}
	}
	f.append(t, append(samples, f.sample(1, someTime-1, 1))...)
	for i := range int64(70_000) {
		samples[i] = f.sample(2, someTime+i, float64(i))
	}
	f.append(t, samples[:70_000]...)
	f.check(t, "open")
	f.append(t, f.sample(1, someTime+5, 2), f.sample(2, someTime+5, 2))
	f.check(t, "in parts")
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.check(t, "sealed")
	f.kill()
	f.reopen(t)
	f.check(t, "replayed")
}

// TestLargeRequest: a request can be larger than a frame of the log.
func TestLargeRequest(t *testing.T) {
	f := open(t, openPebble(t), nil)
	long := strings.Repeat("x", 3000)
	var samples []bucketstore.Sample
	for n := range 30_000 {
		key := keyOf(t, "__name__", "some_metric", "l", long, "n", fmt.Sprint(n))
		samples = append(samples, bucketstore.Sample{Ref: f.Ref(key), T: someTime, V: float64(n)})
	}
	f.append(t, samples...)
	f.kill()
	f.reopen(t)
	f.check(t, "replayed")
}

// TestFullDiskLargeRequest: of a request in several frames none stays if there is room for
// the first one only, and the same request succeeds later.
func TestFullDiskLargeRequest(t *testing.T) {
	m := newMachine(time.Hour)
	m.cfg.SegmentBytes = 1 << 30
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.write(t.Context(), sampleID{1, someTime}); err != nil {
		t.Fatal(err)
	}
	const series, size = 40_000, 2_500
	before, long := m.dir.Used(), strings.Repeat("x", size)
	samples := []bucketstore.Sample{{Ref: m.Ref(key(1)), T: someTime + 1, V: 1}}
	for n := range series {
		samples = append(samples, bucketstore.Sample{Ref: m.Ref(fmt.Appendf(nil, "%s%d", long, n)), T: someTime, V: float64(n)})
	}
	m.dir.SetRoom(before + (80 << 20)) // a frame has some more than 64 MiB
	wantRefused(t, m.Append(t.Context(), samples))
	if after := m.dir.Used(); after != before {
		t.Errorf("the log has %d bytes more", after-before)
	}
	if err := m.write(t.Context(), sampleID{1, someTime + 1}, sampleID{2, someTime}); err != nil {
		t.Fatal(err)
	}
	m.dir.SetRoom(0)
	if err := m.Append(t.Context(), samples[1:]); err != nil {
		t.Fatal(err)
	}
	m.kill()
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := readAll(t, m.Buffer)
	for n := range series {
		key := fmt.Sprintf("%s%d", long, n)
		if got := found[key][someTime]; got != valueText(float64(n), nil) {
			t.Fatalf("series %d is %q", n, got)
		}
	}
	for id, w := range m.sent {
		if got := found[string(key(id.series))][id.t]; got != w.values[len(w.values)-1] {
			t.Errorf("%v is %q", id, got)
		}
	}
	m.kill()
}

package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// leaveSamples leaves a log with samples in dir.
func leaveSamples(t *testing.T, dir string, store bucketstore.Store) {
	t.Helper()
	b := openIn(t, dir, store)
	for n := range int64(3) {
		if err := b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref([]byte("up")), T: 30*series.Period + n, V: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	b.Kill()
}

func openIn(t *testing.T, dir string, store bucketstore.Store) *Buffer {
	t.Helper()
	log, err := OpenDir(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), log, Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openEmbedded(t *testing.T) bucketstore.Store {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// replayAlone replays the log in dir, and does nothing after it.
func replayAlone(ctx context.Context, t *testing.T, dir string, store bucketstore.Store) error {
	t.Helper()
	state, err := readDir(durable.OS(dir))
	if err != nil {
		t.Fatal(err)
	}
	b := newBuffer(&Dir{state: state}, Config{Store: store}.withDefaults())
	background, stop := context.WithCancel(context.Background())
	b.done.Go(func() { b.runSealing(background) })
	err = b.replay(ctx)
	stop()
	b.done.Wait()
	return err
}

// TestReplayKeepsSegments: a process that dies after the replay, before the log has a new
// segment, leaves the old ones: without a segment the log would look lost.
func TestReplayKeepsSegments(t *testing.T) {
	dir, store := t.TempDir(), openEmbedded(t)
	leaveSamples(t, dir, store)
	if err := replayAlone(t.Context(), t, dir, store); err != nil {
		t.Fatal(err)
	}
	if found, err := segmentsIn(durable.OS(dir)); err != nil || len(found) != 1 {
		t.Errorf("after the replay there are the segments %v, %v", found, err)
	}
	openIn(t, dir, store).Kill()
	if found, err := segmentsIn(durable.OS(dir)); err != nil || len(found) != 1 || found[0] != 2 {
		t.Errorf("after the next start there are the segments %v, %v", found, err)
	}
}

// TestReplayStops: a replay ends with its context.
func TestReplayStops(t *testing.T) {
	dir, store := t.TempDir(), openEmbedded(t)
	leaveSamples(t, dir, store)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := replayAlone(ended, t, dir, store); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestReplayMemory: a replay keeps to the limit of memory, of whatever windows the samples
// are.
func TestReplayMemory(t *testing.T) {
	b := newBuffer(&Dir{state: dirState{Dir: durable.OS(t.TempDir())}}, Config{Store: openEmbedded(t), MaxOpenBytes: 10 << 10}.withDefaults())
	background, stop := context.WithCancel(t.Context())
	b.done.Go(func() { b.runSealing(background) })
	up := b.Ref([]byte("up"))
	for n := range int64(1000) {
		samples := []bucketstore.Sample{{Ref: up, T: 30*series.Period - n*series.Window, V: 1}}
		if err := b.reapply(t.Context(), samples, 30*series.Period+2*n, 1); err != nil {
			t.Fatal(err)
		}
		if counted, held := b.OpenBytes(); counted > b.cfg.MaxOpenBytes || counted != held {
			t.Fatalf("%d bytes are open after %d samples, %d were counted", held, n+1, counted)
		}
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	b.done.Wait()
}

// wantLogSize wants the metric of the size of the log to be that of its segments.
func wantLogSize(t *testing.T, b *Buffer, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the segments in %s: %q, %v", dir, files, err)
	}
	var want int64
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		want += info.Size()
	}
	if got := testutil.ToFloat64(b.metrics.logSize); got != float64(want) {
		t.Errorf("the log has %d bytes, the metric says %g", want, got)
	}
}

// TestReplayDropsOld: samples that are no longer kept are counted and dropped, also where all
// of a request are. The others are there, and the log is empty after that. On a store of several adapters the segment with them is kept: others may have made
// rollups of their day without them.
func TestReplayDropsOld(t *testing.T) {
	for _, bySeries := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint("by series ", bySeries, ", shared ", shared), func(t *testing.T) { testReplayDropsOld(t, bySeries, shared) })
		}
	}
}

// A storeOf has other traits.
type storeOf struct {
	bucketstore.Store
	traits bucketstore.Traits
}

func (s storeOf) Traits() bucketstore.Traits { return s.traits }

func testReplayDropsOld(t *testing.T, bySeries, shared bool) {
	const first = 30 * series.Period
	for kept := range 4 {
		dir, store := t.TempDir(), openEmbedded(t)
		leaveSamples(t, dir, store)
		traits := store.Traits()
		traits.Shared = shared
		segment, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
		if err != nil {
			t.Fatal(err)
		}
		log, err := OpenDir(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		reg := prometheus.NewRegistry()
		cfg := Config{Store: storeOf{store, traits}, Cut: first + 3 - int64(kept), Registerer: reg}
		if bySeries {
			later := cfg.Cut
			cfg.Cut, cfg.LatestCut = 0, later+1000
			cfg.LaterCut = func(key []byte) int64 { return map[string]int64{"up": later}[string(key)] }
		}
		b, err := Open(t.Context(), log, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(b.metrics.replayDropped); got != float64(3-kept) {
			t.Errorf("%d samples are kept: %v dropped", kept, got)
		}
		if got := testutil.ToFloat64(b.metrics.replay); got != 3 {
			t.Errorf("%d samples are kept: %v replayed", kept, got)
		}
		old, err := filepath.Glob(filepath.Join(dir, "*.old"))
		if err != nil || (len(old) == 1) != (shared && kept < 3) {
			t.Errorf("%d samples are kept: files %v, %v", kept, old, err)
		}
		for _, path := range old {
			if content, err := os.ReadFile(path); err != nil || !bytes.Equal(content, segment) {
				t.Errorf("%s is not the segment: %v", path, err)
			}
		}
		wantLogSize(t, b, dir)
		var row merge.Row
		row.Reset(first, first, first+10, merge.Options{})
		err = b.Scan(t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}},
		}, func(r bucketstore.Row) error {
			for _, c := range r.Cells {
				sealed, err := chunk.Parse(c.Qualifier, bytes.Clone(c.Value))
				if err != nil {
					return err
				}
				row.AddChunk(sealed)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var times []int64
		for row.Next() == merge.Floats {
			ts, _ := row.Floats()
			times = append(times, ts...)
		}
		if want := []int64{first, first + 1, first + 2}[3-kept:]; !slices.Equal(times, want) || row.Err() != nil {
			t.Errorf("times %v, want %v, %v", times, want, row.Err())
		}
		// The log has nothing that a start with a longer retention would bring back.
		b.Kill()
		again := openIn(t, dir, store)
		if got := testutil.ToFloat64(again.metrics.replay); got != 0 {
			t.Errorf("%v samples are in the log after its replay", got)
		}
		again.Kill()
	}
}

package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

const someTime = 400*series.Period + 3*series.Window

// A world is a store with a buffer in a directory.
type world struct {
	dir    string
	schema series.Schema
	now    atomic.Int64
	rows   *pebble.Store
	buffer *buffer.Buffer
}

func openWorld(t *testing.T, dir string, now int64) *world {
	t.Helper()
	w := &world{dir: dir}
	w.now.Store(now)
	clock := func() time.Time { return time.UnixMilli(w.now.Load()) }
	var err error
	if w.schema, err = series.NewSchema(nil); err != nil {
		t.Fatal(err)
	}
	w.rows, err = pebble.Open(pebble.Config{Dir: dir, Tables: bucketstore.Tables(bucketstore.Retention{}), Now: clock, MemTableBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	about, err := meta.Open(t.Context(), w.rows, w.schema, clock)
	if err != nil {
		t.Fatal(err)
	}
	logDir, err := buffer.OpenDir(filepath.Join(dir, snapshot.LogDir), clock())
	if err == nil {
		err = logDir.Bind(t.Context(), buffer.Terms{Store: about, Location: dir, Now: clock})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.buffer, err = buffer.Open(t.Context(), logDir, buffer.Config{
		Store: w.rows, Schema: w.schema, Now: clock, MaxOpenBytes: 64 << 10, SegmentBytes: 16 << 10, SweepInterval: time.Millisecond,
		SealSpread: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) close(t *testing.T) {
	t.Helper()
	if err := w.buffer.Close(); err != nil {
		t.Error(err)
	}
}

func seriesKey(t *testing.T, schema series.Schema, n int) []byte {
	t.Helper()
	key, err := schema.AppendSeriesKey(nil, labels.FromStrings("__name__", "x", "n", fmt.Sprint(n)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// valueOf returns the value of sample i: eight bytes that cannot be compressed.
func valueOf(i int64) float64 { return math.Sqrt(float64(i)) }

// write appends sample i of a series: its value is i, and its time follows from it.
func (w *world) write(ctx context.Context, key []byte, i int64) error {
	at := someTime + i*5_000
	w.now.Store(max(at, w.now.Load()))
	return w.buffer.Append(ctx, []bucketstore.Sample{{Ref: w.buffer.Ref(key), T: at, V: valueOf(i)}})
}

// read returns the samples of a series.
func (w *world) read(t *testing.T, key []byte, limit int64) map[int64]float64 {
	t.Helper()
	found := make(map[int64]float64)
	for base := someTime - someTime%series.Period; base < limit; base += series.Period {
		var samples merge.Row
		row := series.SingleRow(w.schema.AppendRowKey(nil, key, base))
		err := w.buffer.Scan(t.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{row}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}}}, func(row bucketstore.Row) error {
			samples.Reset(base, base, base+series.Period, merge.Options{})
			for _, c := range row.Cells {
				if c.Family != series.FamilyChunk {
					continue
				}
				sealed, err := chunk.Parse(c.Qualifier, c.Value)
				if err != nil {
					return err
				}
				samples.AddChunk(sealed)
			}
			for samples.Next() == merge.Floats {
				ts, vs := samples.Floats()
				for i := range ts {
					found[ts[i]] = vs[i]
				}
			}
			return samples.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestTake takes snapshots while samples are written, chunks are flushed and segments of the log are removed. Each has all that was
// acknowledged before it.
func TestTake(t *testing.T) {
	const writers, times = 4, 6
	r := seriestest.NewRand(t)
	w := openWorld(t, filepath.Join(t.TempDir(), "data"), someTime)
	ctx, stop := context.WithCancel(t.Context())
	var acknowledged [writers]atomic.Int64
	var writing sync.WaitGroup
	for n := range writers {
		key := seriesKey(t, w.schema, n)
		writing.Go(func() {
			for i := int64(1); ctx.Err() == nil; i++ {
				if err := w.write(context.WithoutCancel(ctx), key, i); err != nil {
					t.Error(err)
					return
				}
				acknowledged[n].Store(i)
			}
		})
	}
	snapshots := t.TempDir()
	var want [times][writers]int64
	for i := range times {
		for target := acknowledged[0].Load() + r.Int64N(1000); acknowledged[0].Load() < target && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		for n := range writers {
			want[i][n] = acknowledged[n].Load()
		}
		if _, err := snapshot.Take(t.Context(), snapshot.Source{Store: w.rows, Log: w.buffer}, filepath.Join(snapshots, fmt.Sprint(i)), time.UnixMilli(w.now.Load()), nil); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	writing.Wait()
	w.close(t)
	for i := range times {
		dir := filepath.Join(t.TempDir(), "restored")
		if _, err := snapshot.Restore(t.Context(), filepath.Join(snapshots, fmt.Sprint(i)), dir, filepath.Join(dir, snapshot.LogDir), nil); err != nil {
			t.Fatal(err)
		}
		restored := openWorld(t, dir, w.now.Load())
		for n := range writers {
			found := restored.read(t, seriesKey(t, w.schema, n), w.now.Load()+1)
			for j := int64(1); j <= want[i][n]; j++ {
				if v, ok := found[someTime+j*5_000]; !ok || v != valueOf(j) {
					t.Fatalf("snapshot %d: sample %d of %d of series %d is %v, %t", i, j, want[i][n], n, v, ok)
				}
			}
		}
		if err := restored.write(t.Context(), seriesKey(t, w.schema, 0), 1<<20); err != nil {
			t.Error(err)
		}
		restored.close(t)
	}
	if first := acknowledged[0].Load(); want[times-1][0] > first {
		t.Errorf("%d of %d", want[times-1][0], first)
	}
}

// flushAfter is a store whose buffer is flushed after its copy was made, and before that of the log.
type flushAfter struct {
	*world
	key  []byte
	done chan error
}

// Checkpoint implements snapshot.Store.
func (s flushAfter) Checkpoint(dir string) error {
	if err := s.rows.Checkpoint(dir); err != nil {
		return err
	}
	go func() { s.done <- s.buffer.Flush(context.Background()) }()
	for stored := false; !stored; time.Sleep(time.Millisecond) {
		row := series.SingleRow(s.schema.AppendRowKey(nil, s.key, someTime-someTime%series.Period))
		families := []bucketstore.FamilyRange{{Family: series.FamilyChunk}}
		err := s.rows.Scan(context.Background(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{row}, Families: families},
			func(bucketstore.Row) error { stored = true; return nil })
		if err != nil {
			return err
		}
	}
	select { // Flush would now remove the segment of the log
	case err := <-s.done:
		s.done <- err
	case <-time.After(100 * time.Millisecond):
	}
	return nil
}

// TestTakeKeepsSegments: a segment whose samples are stored after the copy of the store was made is in the copy of the log.
func TestTakeKeepsSegments(t *testing.T) {
	w := openWorld(t, filepath.Join(t.TempDir(), "data"), someTime)
	key := seriesKey(t, w.schema, 0)
	var samples []bucketstore.Sample
	for i := range int64(5000) { // more than a segment
		samples = append(samples, bucketstore.Sample{Ref: w.buffer.Ref(key), T: someTime + i, V: valueOf(i)})
	}
	for part := range slices.Chunk(samples, 100) {
		if err := w.buffer.Append(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	taken, dir := filepath.Join(t.TempDir(), "taken"), filepath.Join(t.TempDir(), "restored")
	store := flushAfter{w, key, make(chan error, 1)}
	if _, err := snapshot.Take(t.Context(), snapshot.Source{Store: store, Log: w.buffer}, taken, time.UnixMilli(someTime), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-store.done; err != nil {
		t.Error(err)
	}
	w.close(t)
	if _, err := snapshot.Restore(t.Context(), taken, dir, filepath.Join(dir, snapshot.LogDir), nil); err != nil {
		t.Fatal(err)
	}
	restored := openWorld(t, dir, someTime)
	defer restored.close(t)
	if found := restored.read(t, key, someTime+series.Period); len(found) != len(samples) {
		t.Errorf("%d of %d samples", len(found), len(samples))
	}
}

// fill writes samples and takes a snapshot of them.
func fill(t *testing.T, w *world, from, to int64, dir string) *snapshot.Manifest {
	t.Helper()
	ref := w.buffer.Ref(seriesKey(t, w.schema, 0))
	var samples []bucketstore.Sample
	for i := from; i < to; i++ {
		samples = append(samples, bucketstore.Sample{Ref: ref, T: someTime + i*5_000, V: valueOf(i)})
	}
	w.now.Store(someTime + to*5_000)
	if err := w.buffer.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	if err := w.buffer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.Take(t.Context(), snapshot.Source{Store: w.rows, Log: w.buffer}, dir, time.UnixMilli(w.now.Load()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCopy copies two snapshots, the second beside the first: tables of both are the same files.
func TestCopy(t *testing.T) {
	data, taken, backups := filepath.Join(t.TempDir(), "data"), t.TempDir(), t.TempDir()
	w := openWorld(t, data, someTime)
	fill(t, w, 1, 50_000, filepath.Join(taken, "0"))
	w.close(t) // which makes tables
	w = openWorld(t, data, w.now.Load())
	defer w.close(t)
	first := filepath.Join(taken, "1")
	if _, err := snapshot.Take(t.Context(), snapshot.Source{Store: w.rows, Log: w.buffer}, first, time.UnixMilli(w.now.Load()), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Copy(t.Context(), first, filepath.Join(backups, "1"), "", nil); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(taken, "2")
	fill(t, w, 50_000, 50_100, second)
	like, err := snapshot.Latest(backups)
	if err != nil || like != filepath.Join(backups, "1") {
		t.Fatalf("latest: %q, %v", like, err)
	}
	// A copy that is interrupted goes on.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := 0
	stopAfter := func(int64, int64, string) {
		if steps++; steps == 3 {
			cancel()
		}
	}
	if _, err := snapshot.Copy(ctx, second, filepath.Join(backups, "2"), like, stopAfter); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := snapshot.Read(filepath.Join(backups, "2")); !errors.Is(err, snapshot.ErrNone) {
		t.Fatal(err)
	}
	// What a crash may leave: a part of a file, and a file of another snapshot.
	for _, name := range []string{"FORMAT.part", "999999.sst"} {
		if err := os.WriteFile(filepath.Join(backups, "2.unfinished", name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := snapshot.Adopt(filepath.Join(backups, "3")); err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.Copy(t.Context(), second, filepath.Join(backups, "3"), like, nil)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(backups, "*.unfinished")); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(backups, "3", "999999.sst")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of another snapshot: %v", err)
	}
	linked := 0
	for _, f := range m.Files {
		info, err := os.Stat(filepath.Join(backups, "3", f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if before, err := os.Stat(filepath.Join(backups, "1", f.Name)); err == nil && os.SameFile(info, before) {
			linked++
		}
	}
	if linked == 0 {
		t.Error("no file is that of the snapshot before")
	}
	if removed, err := snapshot.Prune(backups, 1, filepath.Join(backups, "3")); err != nil || len(removed) != 1 || removed[0] != filepath.Join(backups, "1") {
		t.Errorf("removed %q, %v", removed, err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := snapshot.Restore(t.Context(), filepath.Join(backups, "3"), dir, filepath.Join(dir, snapshot.LogDir), nil); err != nil {
		t.Fatal(err)
	}
	restored := openWorld(t, dir, w.now.Load())
	defer restored.close(t)
	if found := restored.read(t, seriesKey(t, w.schema, 0), w.now.Load()+1); len(found) != 50_099 {
		t.Errorf("%d samples", len(found))
	}
}

// TestRestoreElsewhere restores a log to a directory of its own.
func TestRestoreElsewhere(t *testing.T) {
	w := openWorld(t, filepath.Join(t.TempDir(), "data"), someTime)
	defer w.close(t)
	taken := filepath.Join(t.TempDir(), "1")
	fill(t, w, 1, 10, taken)
	dir := t.TempDir()
	if _, err := snapshot.Restore(t.Context(), taken, filepath.Join(dir, "data"), filepath.Join(dir, "log"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "log", "identity")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{snapshot.LogDir, "SNAPSHOT"} {
		if _, err := os.Stat(filepath.Join(dir, "data", name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefused: what is no whole snapshot is refused, with the reason, and so is a directory that is not empty.
func TestRefused(t *testing.T) {
	w := openWorld(t, filepath.Join(t.TempDir(), "data"), someTime)
	defer w.close(t)
	for _, c := range []struct {
		name, reason string
		change       func(dir, target string, m *snapshot.Manifest) error
	}{
		{"no manifest", "has no file SNAPSHOT", func(dir, _ string, _ *snapshot.Manifest) error { return os.Remove(filepath.Join(dir, "SNAPSHOT")) }},
		{"missing file", "FORMAT is missing", func(dir, _ string, _ *snapshot.Manifest) error { return os.Remove(filepath.Join(dir, "FORMAT")) }},
		{"longer file", "was an adapter started on it?", func(dir, _ string, _ *snapshot.Manifest) error {
			return os.WriteFile(filepath.Join(dir, "FORMAT"), []byte("something else, and much longer"), 0o600)
		}},
		{"later version", "says 3", func(dir, _ string, m *snapshot.Manifest) error {
			m.Version = 3
			return writeManifest(dir, m)
		}},
		{"path", "which is not in it", func(dir, _ string, m *snapshot.Manifest) error {
			m.Files = append(m.Files, snapshot.File{Name: "../x"})
			return writeManifest(dir, m)
		}},
		{"damaged manifest", "is damaged", func(dir, _ string, _ *snapshot.Manifest) error {
			return os.WriteFile(filepath.Join(dir, "SNAPSHOT"), []byte("{"), 0o600)
		}},
		{"target", "is not empty", func(_, target string, _ *snapshot.Manifest) error {
			return errors.Join(os.Mkdir(target, 0o700), os.WriteFile(filepath.Join(target, "x"), nil, 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, target := filepath.Join(t.TempDir(), "taken"), filepath.Join(t.TempDir(), "target")
			m := fill(t, w, 1+rand.Int64N(100), 102, dir)
			if err := c.change(dir, target, m); err != nil {
				t.Fatal(err)
			}
			_, err := snapshot.Restore(t.Context(), dir, target, filepath.Join(target, snapshot.LogDir), nil)
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("restore: %v", err)
			}
			if _, err := snapshot.Copy(t.Context(), dir, target, "", nil); err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("copy: %v", err)
			}
		})
	}
}

// TestDamagedCopy: a file of a snapshot that has one other bit, with the size and the time that it had, is named, whatever is done with it,
// and nothing is there on which an adapter would start.
func TestDamagedCopy(t *testing.T) {
	w := openWorld(t, filepath.Join(t.TempDir(), "data"), someTime)
	defer w.close(t)
	taken := filepath.Join(t.TempDir(), "taken")
	m := fill(t, w, 1, 50_000, taken)
	for _, f := range m.Files {
		if f.Size == 0 {
			continue
		}
		path := filepath.Join(taken, f.Name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(content []byte) {
			t.Helper()
			// A new file: the store has the same table under another name.
			if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
				t.Fatal(err)
			}
		}
		damaged := bytes.Clone(whole)
		damaged[rand.IntN(len(damaged))] ^= 1 << rand.IntN(8)
		write(damaged)
		target := filepath.Join(t.TempDir(), "target")
		if _, err := snapshot.Restore(t.Context(), taken, target, filepath.Join(target, snapshot.LogDir), nil); !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), f.Name) {
			t.Errorf("restore with another %s: %v", f.Name, err)
		}
		if _, err := os.Stat(filepath.Join(target, "FORMAT")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("restore with another %s has made a data directory: %v", f.Name, err)
		}
		if _, err := snapshot.Copy(t.Context(), taken, target+"2", "", nil); !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), f.Name) {
			t.Errorf("copy with another %s: %v", f.Name, err)
		}
		write(whole)
		if _, err := snapshot.Restore(t.Context(), taken, target, filepath.Join(target, snapshot.LogDir), nil); err != nil {
			t.Errorf("restore of the whole snapshot after that: %v", err)
		}
	}
	// The sums of tables that the last snapshot had are those that reading them gives.
	again, err := snapshot.Take(t.Context(), snapshot.Source{Store: w.rows, Log: w.buffer}, taken+"2", time.UnixMilli(w.now.Load()), m)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := snapshot.Take(t.Context(), snapshot.Source{Store: w.rows, Log: w.buffer}, taken+"3", time.UnixMilli(w.now.Load()), nil)
	if err != nil {
		t.Fatal(err)
	}
	sums := func(m *snapshot.Manifest) (sums []string) {
		for _, f := range m.Files {
			if strings.HasSuffix(f.Name, ".sst") {
				sums = append(sums, f.Name+" "+f.Sum)
			}
		}
		return sums
	}
	if got, want := sums(again), sums(fresh); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("sums\n%q, want\n%q", got, want)
	}
}

func writeManifest(dir string, m *snapshot.Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "SNAPSHOT"), text, 0o600)
}

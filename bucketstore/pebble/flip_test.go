package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

const flipDir = "/data"

// flipConfig is for a disk in memory. Batches from 8 KiB on become tables.
func flipConfig(disk vfs.FS) pebble.Config {
	cfg := onDisk(flipDir)
	cfg.MemTableBytes = 256 << 10
	return cfg.WithFS(disk).WithIngest(8 << 10).WithPatience(time.Millisecond)
}

// contents are the cells of rows, as text.
type contents map[string]string

// flipBatch is the n-th write: rows with cells of one day, of which some lose a family again.
func flipBatch(n int) []bucketstore.Mutation {
	var muts []bucketstore.Mutation
	for i := range 8 {
		mut := bucketstore.Mutation{Key: fmt.Appendf(nil, "batch %03d row %02d,%s", n, i, testBase)}
		for c := range cellsOfAFamily {
			mut.Ops = append(mut.Ops, bucketstore.Op{Family: "r0", Qualifier: series.AppendQualifier(nil, uint32(n%40*2)*halfDay+uint32(c)), Time: int64(n), Value: flipValue(n, i, c)})
		}
		if i%4 == 0 {
			mut.Ops = append(mut.Ops, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: "r1"})
		}
		muts = append(muts, mut)
	}
	return muts
}

// flipValue returns a value that compresses well. When Pebble meets a damaged block it tries
// all flips of one bit, which takes the square of the size.
func flipValue(n, i, c int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%d ", n*1000+i*10+c), 12) }

// allDays is for reads of all days.
const allDays = -1

// batches returns the keys of each batch.
func (c contents) batches(t *testing.T) map[int][]string {
	t.Helper()
	keys := make(map[int][]string)
	for key := range c {
		var n int
		if _, err := fmt.Sscanf(key, "batch %d ", &n); err != nil {
			t.Fatal(err)
		}
		keys[n] = append(keys[n], key)
	}
	return keys
}

// write applies a batch and notes its cells.
func (c contents) write(t *testing.T, s *pebble.Store, muts []bucketstore.Mutation) {
	t.Helper()
	if err := s.Apply(t.Context(), bucketstore.Metric, muts); err != nil {
		t.Fatal(err)
	}
	for _, mut := range muts {
		row := bucketstore.Row{Key: mut.Key}
		for _, op := range mut.Ops {
			if op.Kind == bucketstore.SetCell {
				row.Cells = append(row.Cells, bucketstore.Cell{Family: op.Family, Qualifier: op.Qualifier, Time: op.Time, Value: op.Value})
			}
		}
		c[string(mut.Key)] = cellsText(row)
	}
}

func cellsText(row bucketstore.Row) string {
	var b strings.Builder
	for _, c := range row.Cells {
		fmt.Fprintf(&b, "%s %x %d %x\n", c.Family, c.Qualifier, c.Time, c.Value)
	}
	return b.String()
}

// scan reads rows, of one day or of all days, and compares all that it gets with c.
func (c contents) scan(t *testing.T, s *pebble.Store, rows []series.RowRange, day int) (found map[string]bool, err error) {
	t.Helper()
	req := allOf(bucketstore.Metric)
	req.Rows = rows
	if day != allDays {
		for i := range req.Families {
			req.Families[i].Start = series.AppendQualifier(nil, uint32(day*2)*halfDay)
			req.Families[i].Limit = series.AppendQualifier(nil, uint32(day*2+2)*halfDay)
		}
	}
	found = make(map[string]bool)
	err = s.Scan(t.Context(), req, func(row bucketstore.Row) error {
		if got := cellsText(row); got != c[string(row.Key)] {
			t.Errorf("row %q has the cells\n%swant\n%s", row.Key, got, c[string(row.Key)])
		}
		found[string(row.Key)] = true
		return nil
	})
	return found, err
}

// scanAll reads all rows.
func (c contents) scanAll(t *testing.T, s *pebble.Store) (found map[string]bool, err error) {
	t.Helper()
	return c.scan(t, s, []series.RowRange{{}}, allDays)
}

// A flipStore is a store on a disk that a process left without stopping, and its content.
type flipStore struct {
	disk *vfs.MemFS
	contents
	// last are the keys of the last write.
	last map[string]bool
}

// makeFlipStore makes a store with compacted, ingested and flushed tables and with a log.
func makeFlipStore(t *testing.T) flipStore {
	t.Helper()
	f := flipStore{disk: vfs.NewCrashableMem(), contents: contents{}, last: map[string]bool{}}
	s := openStore(t, flipConfig(f.disk))
	n := 0
	for range 3 {
		for range 2 {
			f.write(t, s, flipBatch(n)) // to the log
			n++
		}
		var many []bucketstore.Mutation
		for range 2 {
			for _, mut := range flipBatch(n) {
				mut.Ops = mut.Ops[:cellsOfAFamily]
				many = append(many, mut)
			}
			n++
		}
		f.write(t, s, many) // ingested
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if n == 8 {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		last := flipBatch(n)[:4]
		f.write(t, s, last)
		clear(f.last)
		for _, mut := range last {
			f.last[string(mut.Key)] = true
		}
		n++
	}
	f.disk = f.disk.CrashClone(vfs.CrashCloneCfg{})
	return f
}

// files returns the names and sizes of the files of the store.
func (f flipStore) files(t *testing.T) map[string]int {
	t.Helper()
	names, err := f.disk.List(flipDir)
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int)
	for _, name := range names {
		if info, err := f.disk.Stat(path.Join(flipDir, name)); err != nil {
			t.Fatal(err)
		} else if !info.IsDir() {
			sizes[name] = int(info.Size())
		}
	}
	return sizes
}

// read returns the content of a file.
func (f flipStore) read(name string) ([]byte, error) {
	file, err := f.disk.Open(path.Join(flipDir, name))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	return content, errors.Join(err, file.Close())
}

// flip returns a copy of the disk with another bit in a file.
func (f flipStore) flip(t *testing.T, name string, at, bit int) *vfs.MemFS {
	t.Helper()
	content, err := f.read(name)
	if err != nil {
		t.Fatal(err)
	}
	content[at] ^= 1 << bit
	return f.replace(t, name, content)
}

// replace returns a copy of the disk with another content of a file.
func (f flipStore) replace(t *testing.T, name string, content []byte) *vfs.MemFS {
	t.Helper()
	disk := f.disk.CrashClone(vfs.CrashCloneCfg{})
	out, err := disk.Create(path.Join(flipDir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = out.Write(bytes.Clone(content)) // Write may change what it is given
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		t.Fatal(err)
	}
	// Another copy must have the new file.
	dir, err := disk.OpenDir(flipDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	return disk
}

// positions are where a file of this size is damaged: its ends, and a part of the rest.
func positions(size, ends, step int) (at []int) {
	for i := range size {
		if i < ends || i >= size-ends || i%step == 0 {
			at = append(at, i)
		}
	}
	return at
}

// TestBitFlips damages every file of a store, one bit at a time. What is read is right or an
// error that names the file, and all that is not damaged can be read and written.
func TestBitFlips(t *testing.T) {
	parts := storetest.Rounds(t, 4)
	f := makeFlipStore(t)
	files := f.files(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		size := files[name]
		t.Run(name, func(t *testing.T) {
			ends, step := parts, max(1, size/parts)
			if strings.HasSuffix(name, ".sst") {
				ends = 1
			}
			outcomes := map[string]int{}
			for _, at := range positions(size, ends, step) {
				outcomes[f.checkFlip(t, name, at, at%8)]++
				if t.Failed() {
					t.Fatalf("with bit %d of byte %d of %d", at%8, at, size)
				}
			}
			t.Logf("%d bytes: %v", size, outcomes)
		})
	}
}

// checkFlip opens a store with one damaged bit and says how that went.
func (f flipStore) checkFlip(t *testing.T, name string, at, bit int) (outcome string) {
	t.Helper()
	cfg := flipConfig(f.flip(t, name, at, bit))
	s, err := pebble.Open(cfg)
	if err != nil {
		if !strings.Contains(err.Error(), name) || strings.HasSuffix(name, ".sst") {
			t.Errorf("the start is refused: %v", err)
		}
		return "refused"
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	outcome = f.checkReads(t, s, name)
	more := contents{}
	more.write(t, s, flipBatch(900)[:1])
	var many []bucketstore.Mutation
	for n := range 2 {
		many = append(many, flipBatch(901+n)...)
		for i := range many {
			many[i].Ops = many[i].Ops[:cellsOfAFamily]
		}
	}
	more.write(t, s, many) // to be ingested
	if err := s.Flush(); err != nil {
		t.Errorf("flush: %v", err)
	}
	if err := s.Compact(t.Context()); err != nil {
		f.wantNamed(t, name, err)
	}
	if after := f.merged(more).checkReads(t, s, name); after != outcome {
		t.Errorf("%s, and after a compaction %s", outcome, after)
	}
	return outcome
}

// merged returns f with more content.
func (f flipStore) merged(more contents) flipStore {
	all := maps.Clone(f.contents)
	maps.Copy(all, more)
	return flipStore{f.disk, all, f.last}
}

// wantNamed checks an error of a read.
func (f flipStore) wantNamed(t *testing.T, name string, err error) {
	t.Helper()
	if !strings.HasSuffix(name, ".sst") || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v does not name %s", err, name)
	}
}

// checkReads reads all rows, together and by batch.
func (f flipStore) checkReads(t *testing.T, s *pebble.Store, name string) (outcome string) {
	t.Helper()
	together, err := f.scanAll(t, s)
	if err != nil {
		if f.wantNamed(t, name, err); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%v is no ErrCorrupt", err)
		}
	}
	failed, missing := 0, 0
	batches := f.batches(t)
	for n, keys := range batches {
		var rows []series.RowRange
		for _, key := range slices.Sorted(slices.Values(keys)) {
			rows = append(rows, series.SingleRow([]byte(key)))
		}
		found, batchErr := f.scan(t, s, rows, n%40)
		if batchErr != nil {
			f.wantNamed(t, name, batchErr)
			failed++
			continue
		}
		for _, key := range keys {
			if !found[key] {
				missing++
				if !f.last[key] || !strings.HasSuffix(name, ".log") {
					t.Errorf("row %q is missing", key)
				}
			}
			if err == nil && found[key] != together[key] {
				t.Errorf("row %q is there: %t among all others, %t among its batch", key, together[key], found[key])
			}
		}
	}
	switch {
	case failed == len(batches):
		t.Errorf("nothing can be read: %v", err)
	case err == nil && failed > 0:
		t.Errorf("%d batches cannot be read alone, but with all others", failed)
	case failed > 0:
		return "damaged"
	case missing > 0:
		return "the last write is lost"
	case err != nil:
		return "damaged between rows"
	}
	return "no effect"
}

// flipTables damages every table in its first block, or in its properties, and returns the
// name of one.
func (f flipStore) flipTables(t *testing.T, properties bool) (_ flipStore, name string) {
	t.Helper()
	for file := range f.files(t) {
		if !strings.HasSuffix(file, ".sst") {
			continue
		}
		name = file
		at := 100
		if properties {
			content, err := f.read(file)
			if at = bytes.Index(content, []byte("promtable.newest")); err != nil || at < 0 {
				t.Fatalf("no properties in %s: %v", file, err)
			}
		}
		f.disk = f.flip(t, file, at, 3)
	}
	if name == "" {
		t.Fatal("there is no table")
	}
	return f, name
}

// A logOutput collects log lines. The store also logs in the background.
type logOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *logOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(line)
}

func (o *logOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestDamagedReads: reads of a damaged table are counted, and logged once.
func TestDamagedReads(t *testing.T) {
	f, name := makeFlipStore(t).flipTables(t, false)
	var output logOutput
	cfg := flipConfig(f.disk)
	cfg.Logger = log.NewLogfmtLogger(&output)
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	s := openStore(t, cfg)
	const reads = 5
	before := metricValue(t, reg, "adapter_pebble_damaged_reads_total")
	for range reads {
		if _, err := f.scanAll(t, s); !errors.Is(err, series.ErrCorrupt) {
			t.Fatalf("error %v", err)
		}
	}
	if got := metricValue(t, reg, "adapter_pebble_damaged_reads_total") - before; got < reads {
		t.Errorf("%g reads are counted, want %d", got, reads)
	}
	if got := metricValue(t, reg, "adapter_pebble_damaged_files"); got < 1 {
		t.Errorf("%g damaged files", got)
	}
	line := "file=" + path.Join(flipDir, name)
	if n := strings.Count(output.String(), line); n > 1 {
		t.Errorf("%d lines have %q:\n%s", n, line, output.String())
	}
}

// TestDamageIsNotRetriedAtOnce: a compaction, or the reader of properties, that meets damage
// waits, while reads and writes go on, and ends when the store is closed.
func TestDamageIsNotRetriedAtOnce(t *testing.T) {
	for _, properties := range []bool{false, true} {
		t.Run(fmt.Sprintf("properties %t", properties), func(t *testing.T) {
			f, _ := makeFlipStore(t).flipTables(t, properties)
			reg := prometheus.NewRegistry()
			cfg := flipConfig(f.disk).WithPatience(time.Hour)
			cfg.Registerer = reg
			s, err := pebble.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			const damaged, failures = "adapter_pebble_damaged_reads_total", "adapter_pebble_background_failures_total"
			compacted := make(chan error, 1)
			if properties {
				waitForMetric(t, reg, failures, 1)
			} else {
				before := metricValue(t, reg, damaged)
				go func() { compacted <- s.Compact(t.Context()) }()
				waitForMetric(t, reg, damaged, before+1)
			}
			before := metricValue(t, reg, damaged)
			for n := range 50 { // less than a memtable
				contents{}.write(t, s, flipBatch(500 + n)[:1])
			}
			select {
			case err := <-compacted:
				t.Errorf("the compaction ended: %v", err)
			default:
			}
			if got := metricValue(t, reg, damaged); got != before {
				t.Errorf("damage was met %g times more", got-before)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !properties {
				if err := <-compacted; err == nil {
					t.Error("the compaction succeeded")
				}
			}
		})
	}
}

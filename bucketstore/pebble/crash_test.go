package pebble_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

const (
	crashWriters   = 4
	rowsOfABatch   = 3
	cellsOfAFamily = 8
)

// crashBatch is the i-th write of a writer: rows with cells in two families, of two layers, in
// several days.
func crashBatch(round, writer, i int) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, rowsOfABatch)
	for n := range muts {
		muts[n].Key = fmt.Appendf(nil, "round %d writer %d batch %d row %d,%s", round, writer, i, n, testBase)
		for _, family := range []string{rollup.FiveMinutes.Family(), series.FamilyR0} {
			for c := range cellsOfAFamily {
				muts[n].Ops = append(muts[n].Ops, bucketstore.Op{
					Family: family, Qualifier: series.AppendQualifier(nil, uint32(c)*halfDay), Time: int64(i), Value: noise(i*cellsOfAFamily + c),
				})
			}
		}
	}
	return muts
}

// noise returns bytes that do not compress, the same for the same n.
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	var b []byte
	for range 8 {
		b = binary.BigEndian.AppendUint64(b, random.Uint64())
	}
	return b
}

// allOf asks for everything in a table.
func allOf(table bucketstore.Table) bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: table, Rows: []series.RowRange{{}}}
	for _, family := range bucketstore.Tables(bucketstore.Retention{})[table].Families {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
	}
	return req
}

// wantBatches checks that all rows of all batches are complete, and that no row or batch is
// there in part.
func wantBatches(t *testing.T, s *pebble.Store, batches [][]bucketstore.Mutation) {
	t.Helper()
	found := make(map[string][]string)
	rows := make(map[string]int) // of each batch
	err := s.Scan(t.Context(), allOf(bucketstore.Metric), func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			found[string(row.Key)] = append(found[string(row.Key)], fmt.Sprintf("%s %x %d %x", c.Family, c.Qualifier, c.Time, c.Value))
		}
		batch, _, _ := strings.Cut(string(row.Key), " row ")
		rows[batch]++
		if len(row.Cells) != 2*cellsOfAFamily {
			return fmt.Errorf("row %q has %d cells, want %d", row.Key, len(row.Cells), 2*cellsOfAFamily)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for batch, n := range rows {
		if n != rowsOfABatch {
			t.Fatalf("%d rows of %s are there, want %d", n, batch, rowsOfABatch)
		}
	}
	for _, batch := range batches {
		for _, mut := range batch {
			var want []string
			for _, op := range mut.Ops {
				want = append(want, fmt.Sprintf("%s %x %d %x", op.Family, op.Qualifier, op.Time, op.Value))
			}
			if fmt.Sprint(found[string(mut.Key)]) != fmt.Sprint(want) {
				t.Fatalf("row %q was answered and holds %q, want %q", mut.Key, found[string(mut.Key)], want)
			}
		}
	}
}

func TestKill(t *testing.T) {
	rounds := storetest.Rounds(t, 5)
	dir := filepath.Join(t.TempDir(), "data")
	var answered [][]bucketstore.Mutation
	for round := range rounds {
		child := startChild(t, "write", dir)
		for n := 0; n < 150+100*round; n++ {
			var writer, i int
			if !child.lines.Scan() {
				t.Fatalf("the child ended: %s", child.stderr.String())
			}
			if _, err := fmt.Sscan(child.lines.Text(), &writer, &i); err != nil {
				t.Fatal(err)
			}
			answered = append(answered, crashBatch(child.cmd.Process.Pid, writer, i))
		}
		child.kill()
		s, err := pebble.Open(onDisk(dir))
		if err != nil {
			t.Fatal(err)
		}
		wantBatches(t, s, answered)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// crashDisk is a disk that can be cloned while it is written to. Pebble's deadlocks if it
// is cloned while a file is linked or reused: that takes a read lock twice, and the clone
// waits to write in between.
type crashDisk struct {
	*vfs.MemFS
	linking *sync.RWMutex
}

func newCrashDisk(fs *vfs.MemFS) crashDisk { return crashDisk{fs, new(sync.RWMutex)} }

func (d crashDisk) Link(from, to string) error {
	d.linking.RLock()
	defer d.linking.RUnlock()
	return d.MemFS.Link(from, to)
}

func (d crashDisk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.linking.RLock()
	defer d.linking.RUnlock()
	return d.MemFS.ReuseForWrite(from, to, category)
}

func (d crashDisk) clone(cfg vfs.CrashCloneCfg) crashDisk {
	d.linking.Lock()
	defer d.linking.Unlock()
	return newCrashDisk(d.CrashClone(cfg))
}

func TestPowerLoss(t *testing.T) {
	for _, tc := range []struct {
		name     string
		unsynced int // percent of what was not synced that stays all the same
		ingest   int // size from which on batches become tables; 0 is the default
	}{
		{"all that was not synced is lost", 0, 0},
		{"half of what was not synced is lost", 50, 0},
		{"tables of each batch", 0, -1},
		{"tables of each batch, half is lost", 50, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			random := seriestest.NewRand(t)
			disk := newCrashDisk(vfs.NewCrashableMem())
			var answered [][]bucketstore.Mutation
			for round := range storetest.Rounds(t, 6) {
				cfg := onDisk("/data")
				cfg.MemTableBytes = 32 << 10
				s := openStore(t, cfg.WithFS(disk).WithIngest(tc.ingest))
				wantBatches(t, s, answered)
				clone := func() crashDisk {
					return disk.clone(vfs.CrashCloneCfg{UnsyncedDataPercent: tc.unsynced, RNG: random})
				}
				more, after := writeUntilPowerLoss(t, s, round, 40+random.IntN(100), clone)
				answered = append(answered, more...)
				disk = after
			}
			wantBatches(t, openStore(t, onDisk("/data").WithFS(disk)), answered)
		})
	}
}

// writeUntilPowerLoss writes from several goroutines, takes the clone meanwhile, after so
// many answers, and returns what was acknowledged before.
func writeUntilPowerLoss(t *testing.T, s *pebble.Store, round, writes int, clone func() crashDisk) (answered [][]bucketstore.Mutation, after crashDisk) {
	t.Helper()
	type answer struct {
		batch []bucketstore.Mutation
		err   error
	}
	answers := make(chan answer)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for w := range crashWriters {
		writing.Go(func() {
			for i := 0; ; i++ {
				batch := crashBatch(round, w, i)
				err := s.Apply(t.Context(), bucketstore.Metric, batch)
				select {
				case answers <- answer{batch, err}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for range writes {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
		}
		answered = append(answered, a.batch)
	}
	after = clone()
	stop()
	writing.Wait()
	return answered, after
}

func TestDiskFailure(t *testing.T) {
	for _, tc := range []struct{ role, want string }{
		{"log sync fails", "injected error"},
		{"table sync fails", "injected error"},
		{"no next log", "the disk is full"},
	} {
		t.Run(tc.role, func(t *testing.T) {
			startChild(t, tc.role, t.TempDir()).wantDeath(tc.want)
		})
	}
}

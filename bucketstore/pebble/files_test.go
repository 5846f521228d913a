//go:build !race

package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// wantWholeOrRefused opens the store on a damaged disk. It must be refused, with the name of a file
// and without a change, or have everything. It says whether it was refused.
func (f flipStore) wantWholeOrRefused(t *testing.T, disk *vfs.MemFS, name string) (refused bool) {
	t.Helper()
	before := flipStore{disk: disk}.files(t)
	s, err := pebble.Open(flipConfig(disk))
	if err != nil {
		if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
		after := flipStore{disk: disk}.files(t)
		delete(before, "OWNER")
		delete(after, "OWNER")
		if !maps.Equal(after, before) {
			t.Errorf("a start that is refused leaves\n%v, before\n%v", after, before)
		}
		return true
	}
	found, err := f.scanAll(t, s)
	if err != nil || len(found) != len(f.contents) {
		t.Errorf("%d of %d rows are there, %v", len(found), len(f.contents), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return false
}

// crash replaces the disk by what is on it now.
func (f *flipStore) crash() { f.disk = f.disk.CrashClone(vfs.CrashCloneCfg{}) }

// newest returns the last name of a file with this beginning or ending.
func (f flipStore) newest(t *testing.T, part string) string {
	t.Helper()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.files(t))), func(name string) bool { return !strings.HasPrefix(name, part) && !strings.HasSuffix(name, part) })
	if len(names) == 0 {
		t.Fatalf("no file %s", part)
	}
	return names[len(names)-1]
}

// TestCutManifest: a manifest without its end is of an older version of the store. It is opened
// only if nothing is lost with it.
func TestCutManifest(t *testing.T) {
	for _, tt := range []struct {
		name string
		last func(t *testing.T, f *flipStore, s *pebble.Store)
	}{
		{"after a flush", func(t *testing.T, f *flipStore, s *pebble.Store) {
			f.write(t, s, flipBatch(500))
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}},
		{"after a compaction", func(t *testing.T, f *flipStore, s *pebble.Store) {
			f.write(t, s, flipBatch(500))
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"at a start", func(*testing.T, *flipStore, *pebble.Store) {}},
		{"after writes to the log", func(t *testing.T, f *flipStore, s *pebble.Store) { f.write(t, s, flipBatch(500)) }},
		{"after a stop", func(t *testing.T, f *flipStore, s *pebble.Store) {
			f.write(t, s, flipBatch(500))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			f.crash()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := makeFlipStore(t)
			s, err := pebble.Open(flipConfig(f.disk))
			if err != nil {
				t.Fatal(err)
			}
			before := f.disk
			tt.last(t, &f, s)
			if f.disk == before {
				f.crash()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			name := f.newest(t, "MANIFEST-")
			content, err := f.read(name)
			if err != nil {
				t.Fatal(err)
			}
			refused, stride := 0, storetest.Stride(t, 1)
			for cut := 1 + rand.IntN(stride); cut < len(content); cut += stride {
				if f.wantWholeOrRefused(t, f.replace(t, name, content[:len(content)-cut]), name) {
					refused++
				}
				if t.Failed() {
					t.Fatalf("without the last %d of %d bytes", cut, len(content))
				}
			}
			t.Logf("%d of %d are refused", refused, len(content))
			if refused == 0 {
				t.Error("nothing is refused")
			}
			if f.wantWholeOrRefused(t, f.disk, "") {
				t.Error("the sound store is refused")
			}
		})
	}
}

// TestDamagedLog: damage of the newest log before writes that are whole is no unfinished write.
func TestDamagedLog(t *testing.T) {
	f := flipStore{disk: vfs.NewCrashableMem(), contents: contents{}}
	cfg := flipConfig(f.disk).WithIngest(1 << 30)
	cfg.MemTableBytes = 8 << 20
	s := openStore(t, cfg)
	for n := range 60 {
		f.write(t, s, flipBatch(n))
	}
	f.crash()
	name := f.newest(t, ".log")
	content, err := f.read(name)
	if err != nil {
		t.Fatal(err)
	}
	const block, write = 4 << 10, 16 << 10
	for _, damage := range []struct {
		name string
		of   func(b []byte)
		// after is how many writes must follow. A loss of power leaves zeros where the last ones were.
		after int
	}{
		{"a flipped bit", func(b []byte) { b[0] ^= 4 }, 1},
		{"other bytes", func(b []byte) { copy(b[:block], bytes.Repeat([]byte{7}, block)) }, 2},
		{"a lost block", func(b []byte) { clear(b[:block]) }, 5},
		{"lost blocks", func(b []byte) { clear(b[:2*block]) }, 5},
	} {
		t.Run(damage.name, func(t *testing.T) {
			stride := storetest.Stride(t, 1)
			for at := 1009 * rand.IntN(stride); at < len(content)-damage.after*write; at += 1009 * stride {
				damaged := slices.Clone(content)
				damage.of(damaged[at:])
				if !f.wantWholeOrRefused(t, f.replace(t, name, damaged), name) {
					t.Errorf("with damage at byte %d of %d the store opens", at, len(content))
				}
			}
		})
	}
}

// TestLostLogs: of the logs that are needed, all must be there, and all but the newest closed.
func TestLostLogs(t *testing.T) {
	// Three logs, of which no flush has taken the first.
	disk := &tablesFull{smallDisk: newSmallDisk(1 << 40)}
	disk.full.Store(true)
	written := contents{}
	cfg := flipConfig(nil).WithFS(disk).WithIngest(1 << 30)
	s := openStore(t, cfg)
	for n := range 40 {
		written.write(t, s, flipBatch(n))
	}
	f := flipStore{disk: disk.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{}), contents: written}
	disk.full.Store(false)
	var logs []string
	for _, name := range slices.Sorted(maps.Keys(f.files(t))) {
		if strings.HasSuffix(name, ".log") {
			logs = append(logs, name)
		}
	}
	if len(logs) < 3 {
		t.Fatalf("logs %q", logs)
	}
	for i, name := range logs[:len(logs)-1] {
		content, err := f.read(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, len(content) / 2, len(content) - 1} {
			t.Run(fmt.Sprintf("log %d with %d bytes", i, size), func(t *testing.T) {
				if !f.wantWholeOrRefused(t, f.replace(t, name, content[:size]), name) {
					t.Error("the store opens")
				}
			})
		}
	}
	t.Run("all are missing", func(t *testing.T) {
		gone := f.disk.CrashClone(vfs.CrashCloneCfg{})
		for _, name := range logs {
			if err := gone.Remove(flipDir + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
		if !f.wantWholeOrRefused(t, gone, "MANIFEST-") {
			t.Error("the store opens")
		}
	})
}

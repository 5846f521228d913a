//go:build !race

package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

func openReadOnly(t *testing.T, cfg pebble.Config) *pebble.Store {
	t.Helper()
	cfg.ReadOnly = true
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkTables(t *testing.T, cfg pebble.Config) []pebble.DamagedTable {
	t.Helper()
	s := openReadOnly(t, cfg)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var read int64
	damaged, err := s.CheckTables(t.Context(), func(bytes int64) { read += bytes })
	if err != nil {
		t.Fatal(err)
	}
	if read == 0 && len(damaged) == 0 {
		t.Error("nothing was read")
	}
	return damaged
}

// snapshot returns the content of all files below a directory, by path.
func snapshot(t *testing.T, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		at := disk.PathJoin(dir, name)
		info, err := disk.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			files[at] = "directory"
			maps.Copy(files, snapshot(t, disk, at))
			continue
		}
		file, err := disk.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		files[at] = string(content)
	}
	return files
}

// TestReadOnly: a store that is open to be read only, after a crash, answers as any other. No
// file changes, and no write is taken.
func TestReadOnly(t *testing.T) {
	f := makeFlipStore(t)
	for _, name := range []string{"with all files", "without LOCK"} {
		t.Run(name, func(t *testing.T) {
			if name == "without LOCK" {
				if err := f.disk.Remove(path.Join(flipDir, "LOCK")); err != nil {
					t.Fatal(err)
				}
			}
			before := snapshot(t, f.disk, flipDir)
			s := openReadOnly(t, flipConfig(f.disk))
			found, err := f.scanAll(t, s)
			if err != nil || len(found) != len(f.contents) {
				t.Errorf("%d rows of %d, %v", len(found), len(f.contents), err)
			}
			if damaged, err := s.CheckTables(t.Context(), func(int64) {}); err != nil || len(damaged) > 0 {
				t.Errorf("damaged: %v, %v", damaged, err)
			}
			if err := s.Apply(t.Context(), bucketstore.Metric, flipBatch(900)); err == nil {
				t.Error("it took a write")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if after := snapshot(t, f.disk, flipDir); !maps.Equal(before, after) {
				t.Errorf("files before: %q, after: %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// TestReadOnlyOnDisk: the same on a real file system. A store that is open refuses a reader.
func TestReadOnlyOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := onDisk(dir)
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ReadOnly = true
	if _, err := pebble.Open(cfg); err == nil || !strings.Contains(err.Error(), "in use by pid") {
		t.Errorf("a second process: %v", err)
	}
	written := contents{}
	written.write(t, s, flipBatch(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, vfs.Default, dir)
	reader := openReadOnly(t, cfg)
	if found, err := written.scanAll(t, reader); err != nil || len(found) != len(written) {
		t.Errorf("%d rows, %v", len(found), err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if after := snapshot(t, vfs.Default, dir); !maps.Equal(before, after) {
		t.Errorf("files before: %q, after: %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	cfg.Dir = filepath.Join(dir, "none")
	if _, err := pebble.Open(cfg); err == nil || !strings.Contains(err.Error(), "no store") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

// TestCheckTables damages every table, one bit at a time and by larger parts: the check finds the
// file, and changes nothing.
func TestCheckTables(t *testing.T) {
	f := makeFlipStore(t)
	for name, size := range f.files(t) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		damages := map[string]func(content []byte) []byte{
			"cut off":      func(content []byte) []byte { return content[:size/2] },
			"zeros inside": func(content []byte) []byte { clear(content[size/3 : size/2]); return content },
			"all zeros":    func(content []byte) []byte { clear(content); return content },
			"empty":        func([]byte) []byte { return nil },
		}
		for _, at := range positions(size, 1, size/4) {
			damages[fmt.Sprintf("bit of byte %d", at)] = func(content []byte) []byte { content[at] ^= 4; return content }
		}
		for what, damage := range damages {
			t.Run(name+", "+what, func(t *testing.T) {
				content, err := f.read(name)
				if err != nil {
					t.Fatal(err)
				}
				f.wantDamaged(t, name, damage(content), strings.HasPrefix(what, "bit"))
			})
		}
	}
}

// wantDamaged checks the store with this content of a table, which must be damaged unless it may
// be where no reader looks.
func (f flipStore) wantDamaged(t *testing.T, name string, content []byte, mayBeSound bool) (damaged []pebble.DamagedTable) {
	t.Helper()
	cfg := flipConfig(f.replace(t, name, content))
	before := snapshot(t, cfg.FS(), flipDir)
	damaged = checkTables(t, cfg)
	if len(damaged) == 0 && mayBeSound {
		if found, err := f.scanAll(t, openReadOnly(t, cfg)); err != nil || len(found) != len(f.contents) {
			t.Errorf("the check finds nothing, and %d rows of %d are there, %v", len(found), len(f.contents), err)
		}
		return nil
	}
	if len(damaged) != 1 || damaged[0].Name != name || len(damaged[0].Lost) == 0 || !errors.Is(damaged[0].Err, series.ErrCorrupt) || strings.Contains(damaged[0].Err.Error(), "table 000000") {
		t.Fatalf("damaged: %+v", damaged)
	}
	if !maps.Equal(before, snapshot(t, cfg.FS(), flipDir)) {
		t.Error("the check has changed files")
	}
	return damaged
}

// makeLargeTable makes a store with a table of many blocks, and returns its name.
func makeLargeTable(t *testing.T) (f flipStore, name string) {
	t.Helper()
	f = flipStore{disk: vfs.NewCrashableMem(), contents: contents{}}
	s, err := pebble.Open(flipConfig(f.disk).WithIngest(1 << 30))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 120 {
		f.write(t, s, flipBatch(n))
	}
	if err := errors.Join(s.Flush(), s.Compact(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	largest := 0
	for file, size := range f.files(t) {
		if strings.HasSuffix(file, ".sst") && size > largest {
			name, largest = file, size
		}
	}
	return f, name
}

// TestCheckBlocks damages some blocks of a table of many, and only these are named.
func TestCheckBlocks(t *testing.T) {
	f, name := makeLargeTable(t)
	content, err := f.read(name)
	if err != nil {
		t.Fatal(err)
	}
	blocks := pebble.DataBlocks(t.Context(), f.disk, path.Join(flipDir, name))
	n := len(blocks)
	if n < 6 {
		t.Fatalf("%d blocks", n)
	}
	for _, bad := range [][]int{{0}, {n - 1}, {n / 2}, {1, 2}, {0, 3, n - 1}} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			content := bytes.Clone(content)
			lost := uint64(0)
			for _, i := range bad {
				content[blocks[i].Offset+blocks[i].Length/2] ^= 1
				lost += blocks[i].Length
			}
			damaged := f.wantDamaged(t, name, content, false)
			if damaged[0].LostBytes != lost || len(damaged[0].Lost) != len(bad) {
				t.Errorf("damaged: %+v", damaged)
			}
		})
	}
}

// TestUnreadableTable: a bad sector is handled as a damaged block. The store opens, reads that
// meet it fail and name the file, compactions do not end the process, and the check names the
// file.
func TestUnreadableTable(t *testing.T) {
	f, name := makeLargeTable(t)
	blocks := pebble.DataBlocks(t.Context(), f.disk, path.Join(flipDir, name))
	size := f.files(t)[name]
	for _, tt := range []struct {
		name      string
		at, bytes uint64
		lost      uint64 // 0 is all
	}{
		{"the first block", blocks[0].Offset, 512, blocks[0].Length},
		{"two blocks", blocks[2].Offset + blocks[2].Length - 10, 512, blocks[2].Length + blocks[3].Length},
		{"the last block", blocks[len(blocks)-1].Offset + 100, 512, blocks[len(blocks)-1].Length},
		{"the footer", uint64(size) - 10, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := flipStore{disk: f.disk.CrashClone(vfs.CrashCloneCfg{}), contents: f.contents}
			disk := vfs.FS(badSector{f.disk, path.Join(flipDir, name), int64(tt.at), int64(tt.at + tt.bytes)})
			cfg := flipConfig(disk)
			var output logOutput
			cfg.Logger = log.NewLogfmtLogger(&output)
			s, err := pebble.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.scanAll(t, s); !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("a read: %v", err)
			}
			for n := range 120 {
				f.write(t, s, flipBatch(n)[:1])
			}
			if err := errors.Join(s.Flush(), s.Compact(t.Context())); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("a compaction: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if line := output.String(); !strings.Contains(line, name) || !strings.Contains(line, syscall.EIO.Error()) {
				t.Errorf("logged is %s", line)
			}
			damaged := checkTables(t, cfg)
			if len(damaged) != 1 || damaged[0].Name != name || !errors.Is(damaged[0].Err, series.ErrCorrupt) || !strings.Contains(damaged[0].Err.Error(), syscall.EIO.Error()) {
				t.Fatalf("damaged: %+v", damaged)
			}
			if d := damaged[0]; tt.lost > 0 && d.LostBytes != tt.lost {
				t.Errorf("lost %d bytes, want %d: %q", d.LostBytes, tt.lost, d.Lost)
			}
		})
	}
}

// A badSector is a disk that cannot read the bytes [from, to) of a file.
type badSector struct {
	vfs.FS
	path     string
	from, to int64
}

func (b badSector) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := b.FS.Open(name, opts...)
	if err != nil || name != b.path {
		return file, err
	}
	return badFile{file, b}, nil
}

func (b badSector) Unwrap() vfs.FS { return b.FS }

type badFile struct {
	vfs.File
	badSector badSector
}

func (f badFile) ReadAt(p []byte, at int64) (int, error) {
	if at < f.badSector.to && f.badSector.from < at+int64(len(p)) {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, at)
}

// tables returns the names of the tables that the store has, sorted: those that it misses
// without any. Files of tables that were compacted may still be there.
func (f flipStore) tables(t *testing.T) (names []string) {
	t.Helper()
	empty := flipStore{disk: f.disk.CrashClone(vfs.CrashCloneCfg{})}
	for name := range empty.files(t) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		if err := empty.disk.Remove(path.Join(flipDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := openReadOnly(t, flipConfig(empty.disk))
	damaged, err := s.CheckTables(t.Context(), func(int64) {})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, d := range damaged {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// TestMissingTable: the start is refused and names the file. The check names it, too.
func TestMissingTable(t *testing.T) {
	f := makeFlipStore(t)
	tables := f.tables(t)
	for _, missing := range [][]string{tables[:1], tables[1:], tables} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			f := flipStore{disk: f.disk.CrashClone(vfs.CrashCloneCfg{}), contents: f.contents}
			for _, name := range missing {
				if err := f.disk.Remove(path.Join(flipDir, name)); err != nil {
					t.Fatal(err)
				}
			}
			cfg := flipConfig(f.disk)
			wantOpenError(t, cfg, append([]string{"adapter check"}, strings.TrimSuffix(missing[0], ".sst"))...)
			before := snapshot(t, f.disk, flipDir)
			s := openReadOnly(t, cfg)
			damaged, err := s.CheckTables(t.Context(), func(int64) {})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			if after := snapshot(t, f.disk, flipDir); !maps.Equal(before, after) {
				t.Error("the check has changed files")
			}
			var found []string
			for _, d := range damaged {
				found = append(found, d.Name)
				if !d.Missing || len(d.Lost) != 1 || !strings.Contains(d.Err.Error(), "the file is missing") {
					t.Errorf("damaged: %+v", d)
				}
			}
			if slices.Sort(found); !slices.Equal(found, missing) {
				t.Fatalf("missing are %q, want %q", found, missing)
			}
		})
	}
}

// TestLostVersions: a damaged table says so if another one has older versions of its cells.
func TestLostVersions(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, err := pebble.Open(flipConfig(disk).WithIngest(1 << 30))
	if err != nil {
		t.Fatal(err)
	}
	c := contents{}
	c.write(t, s, flipBatch(1))
	if err := errors.Join(s.Flush(), s.Compact(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.write(t, s, flipBatch(1))
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	f := flipStore{disk: disk, contents: c}
	var names []string
	for name := range f.files(t) {
		if strings.HasSuffix(name, ".sst") {
			names = append(names, name)
		}
	}
	older := 0 // which of both is a question of when a compaction made the first one again
	for _, name := range names {
		damaged := checkTables(t, flipConfig(f.replace(t, name, nil)))
		if len(damaged) != 1 || len(damaged[0].Lost) != 1 {
			t.Fatalf("damaged: %+v", damaged)
		}
		if strings.Contains(damaged[0].Lost[0], "older values and deleted cells may come back") {
			older++
		}
	}
	if len(names) != 2 || older != 1 {
		t.Errorf("of the tables %v %d have older values in another one", names, older)
	}
}

package pebble_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
)

// A smallDisk has room for so many bytes in files. Writes beyond fail as on a full disk.
type smallDisk struct {
	vfs.FS
	size atomic.Int64
	// failed counts the writes that failed.
	failed atomic.Int64

	mu    sync.Mutex
	files map[string]int64 // sizes
}

func newSmallDisk(size int64) *smallDisk {
	d := &smallDisk{FS: vfs.NewCrashableMem(), files: make(map[string]int64)}
	d.size.Store(size)
	return d
}

// reboot returns the disk as it is after the power failed, with this much free space.
func (d *smallDisk) reboot(free int64) *smallDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := &smallDisk{FS: d.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{}), files: make(map[string]int64)}
	for name, size := range d.files {
		if _, err := after.FS.Stat(name); err == nil {
			after.files[name] = size
			free += size
		}
	}
	after.size.Store(free)
	return after
}

// used returns the bytes in files.
func (d *smallDisk) used() (bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, size := range d.files {
		bytes += size
	}
	return bytes
}

// grow takes space for a file.
func (d *smallDisk) grow(name string, bytes int64) error {
	if d.used()+bytes > d.size.Load() {
		d.failed.Add(1)
		return syscall.ENOSPC
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] += bytes
	return nil
}

// GetDiskUsage implements vfs.FS.
func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	used, size := uint64(d.used()), uint64(d.size.Load())
	return vfs.DiskUsage{AvailBytes: size - min(used, size), TotalBytes: 1 << 40, UsedBytes: used}, nil
}

// Create implements vfs.FS. A file takes a block, however small.
func (d *smallDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	const block = 4 << 10
	if err := d.grow(name, block); err != nil {
		return nil, err
	}
	f, err := d.FS.Create(name, category)
	return smallFile{f, d, name}, err
}

// Remove implements vfs.FS.
func (d *smallDisk) Remove(name string) error {
	d.mu.Lock()
	delete(d.files, name)
	d.mu.Unlock()
	return d.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (d *smallDisk) RemoveAll(name string) error {
	d.mu.Lock()
	for file := range d.files {
		if len(file) > len(name) && file[:len(name)+1] == name+"/" {
			delete(d.files, file)
		}
	}
	d.mu.Unlock()
	return d.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (d *smallDisk) Rename(from, to string) error {
	d.mu.Lock()
	d.files[to] = d.files[from]
	delete(d.files, from)
	d.mu.Unlock()
	return d.FS.Rename(from, to)
}

// Link implements vfs.FS: the names share their space, until the first is removed.
func (d *smallDisk) Link(from, to string) error {
	d.mu.Lock()
	d.files[to] = d.files[from]
	d.files[from] = 0
	d.mu.Unlock()
	return d.FS.Link(from, to)
}

type smallFile struct {
	vfs.File
	disk *smallDisk
	name string
}

func (f smallFile) Write(b []byte) (int, error) {
	if err := f.disk.grow(f.name, int64(len(b))); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func onSmallDisk(disk vfs.FS) pebble.Config {
	cfg := onDisk("/data")
	cfg.MemTableBytes = 256 << 10
	return cfg.WithFS(disk)
}

// tablesFull has no room for tables while full is set.
type tablesFull struct {
	*smallDisk
	full atomic.Bool
}

func (d *tablesFull) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == "pebble-memtable-flush" && d.full.Load() {
		d.failed.Add(1)
		return nil, syscall.ENOSPC
	}
	return d.smallDisk.Create(name, category)
}

// TestFlushOnFullDisk: a flush that finds no space is counted and not retried at once. It
// succeeds when there is space, and a stop does not wait for it.
func TestFlushOnFullDisk(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patience time.Duration
	}{{"space comes", time.Millisecond}, {"no space", time.Hour}} {
		t.Run(tt.name, func(t *testing.T) {
			disk := &tablesFull{smallDisk: newSmallDisk(1 << 40)}
			reg := prometheus.NewRegistry()
			cfg := onSmallDisk(disk).WithPatience(tt.patience)
			cfg.Registerer = reg
			s, err := pebble.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			const failures = "adapter_pebble_background_failures_total"
			written := contents{}
			disk.full.Store(true)
			written.write(t, s, flipBatch(0))
			if err := s.StartFlush(); err != nil {
				t.Fatal(err)
			}
			for metricValue(t, reg, failures) == 0 {
				time.Sleep(time.Millisecond)
			}
			if tt.patience == time.Hour {
				for n := range 20 {
					written.write(t, s, flipBatch(900 + n)[:1])
				}
				if got := disk.failed.Load(); got != 1 {
					t.Errorf("%d attempts", got)
				}
			} else {
				disk.full.Store(false)
				if err := s.Flush(); err != nil {
					t.Error(err)
				}
				if s.EngineMetrics().Flush.Count == 0 {
					t.Error("nothing is flushed")
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			disk.full.Store(false)
			s = openStore(t, onSmallDisk(disk))
			found, err := written.scanAll(t, s)
			if err != nil || len(found) != len(written) {
				t.Errorf("%d rows of %d, %v", len(found), len(written), err)
			}
		})
	}
}

// TestIngestOnFullDisk: while flushes find no space, and where there is almost none left, a batch that would be a table of its own is an error that
// says so, at once, and nothing of it is stored. With space the same batch is stored.
func TestIngestOnFullDisk(t *testing.T) {
	open := func(t *testing.T) (*tablesFull, *prometheus.Registry, *pebble.Store) {
		t.Helper()
		disk := &tablesFull{smallDisk: newSmallDisk(1 << 40)}
		reg := prometheus.NewRegistry()
		cfg := onSmallDisk(disk).WithPatience(time.Hour).WithIngest(-1)
		cfg.Registerer = reg
		s, err := pebble.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return disk, reg, s
	}
	again := func(t *testing.T, disk *tablesFull, rows int, at int64) {
		t.Helper()
		disk.full.Store(false)
		disk.size.Store(1 << 40)
		s := openStore(t, onSmallDisk(disk).WithIngest(-1))
		if err := s.Apply(t.Context(), bucketstore.Index, indexRows(rows, at)); err != nil {
			t.Fatal(err)
		}
		want := make(map[string]int64)
		for _, m := range indexRows(rows, at) {
			want[string(m.Key)] = at
		}
		wantLatest(t, s, want)
	}
	t.Run("flushes have none", func(t *testing.T) {
		disk, reg, s := open(t)
		disk.full.Store(true)
		contents{}.write(t, s, flipBatch(0))
		if err := s.StartFlush(); err != nil {
			t.Fatal(err)
		}
		for metricValue(t, reg, "adapter_pebble_background_failures_total") == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := s.Apply(t.Context(), bucketstore.Index, indexRows(50, 1)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		wantLatest(t, s, nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		again(t, disk, 50, 2)
	})
	t.Run("almost none", func(t *testing.T) {
		disk, _, s := open(t)
		disk.size.Store(disk.used() + 100<<10)
		if err := s.Apply(t.Context(), bucketstore.Index, indexRows(50, 1)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		wantLatest(t, s, nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		again(t, disk, 50, 2)
	})
}

// reserve returns the size of the reserve, 0 if there is none.
func (d *smallDisk) reserve() int64 {
	info, err := d.Stat("/data/RESERVE")
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestStartOnFullDisk: a start on a disk without a free byte reads everything, because it
// removes the reserve. The reserve is made again when there is space above the floor.
func TestStartOnFullDisk(t *testing.T) {
	const reserve = 4 << 20
	onDisk := func(disk vfs.FS) pebble.Config {
		cfg := onSmallDisk(disk)
		cfg.MinFree = 16 * reserve
		return cfg
	}
	disk := newSmallDisk(1 << 30)
	s := openStore(t, onDisk(disk))
	if err := s.MakeReserve(t.Context()); err != nil || disk.reserve() != reserve {
		t.Fatalf("a reserve of %d bytes, %v", disk.reserve(), err)
	}
	written := contents{}
	for n := range 40 {
		written.write(t, s, flipBatch(n))
	}

	full := disk.reboot(0)
	s = openStore(t, onDisk(full))
	if full.reserve() != 0 {
		t.Error("the reserve is still there")
	}
	if found, err := written.scanAll(t, s); err != nil || len(found) != len(written) {
		t.Errorf("%d rows of %d, %v", len(found), len(written), err)
	}
	for _, tt := range []struct{ free, want int64 }{
		{16*reserve + 2*reserve - 1, 0},
		{16*reserve + 2*reserve, reserve},
	} {
		full.size.Store(full.used() + tt.free)
		if err := s.MakeReserve(t.Context()); err != nil || full.reserve() != tt.want {
			t.Errorf("with %d bytes free a reserve of %d, %v, want %d", tt.free, full.reserve(), err, tt.want)
		}
	}

	withoutReserve := full.reboot(0)
	if err := withoutReserve.Remove("/data/RESERVE"); err != nil {
		t.Fatal(err)
	}
	withoutReserve.size.Store(withoutReserve.used())
	wantOpenError(t, onDisk(withoutReserve), `the disk of data directory "/data" is full`, "free some space")

	nearlyFull := full.reboot(reserve)
	openStore(t, onDisk(nearlyFull))
	if nearlyFull.reserve() != reserve {
		t.Error("a start with enough space removed the reserve")
	}
}

// TestStartOnSmallDisk: on a small file system, whose floor is small, a start without a free byte
// reads everything, even if no memtable was flushed before.
func TestStartOnSmallDisk(t *testing.T) {
	for _, total := range []uint64{120 << 20, 300 << 20} {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			const memTable = 1 << 20
			config := func(disk vfs.FS) pebble.Config {
				cfg := onSmallDisk(disk).WithIngest(1 << 30)
				cfg.MinFree = total / 20
				cfg.MemTableBytes = memTable
				return cfg
			}
			disk := &tablesFull{smallDisk: newSmallDisk(int64(total))}
			disk.full.Store(true)
			s := openStore(t, config(disk))
			if err := s.MakeReserve(t.Context()); err != nil {
				t.Fatal(err)
			}
			written := contents{}
			for n, bytes := 0, 0; bytes < memTable/2; n++ {
				batch := flipBatch(n)
				for i := range batch {
					for j := range batch[i].Ops {
						if value := &batch[i].Ops[j].Value; *value != nil {
							*value = noise(n*1000 + i*100 + j)
							bytes += len(*value)
						}
					}
				}
				written.write(t, s, batch)
			}
			full := disk.reboot(0)
			disk.full.Store(false)
			s = openStore(t, config(full))
			if found, err := written.scanAll(t, s); err != nil || len(found) != len(written) {
				t.Errorf("%d rows of %d, %v", len(found), len(written), err)
			}
		})
	}
}

// TestReserveNeedsSpace: a reserve that does not fit leaves nothing behind.
func TestReserveNeedsSpace(t *testing.T) {
	disk := newSmallDisk(1 << 30)
	cfg := onSmallDisk(disk)
	cfg.MinFree = 16 << 20
	s := openStore(t, cfg.WithFS(lyingDisk{disk}))
	disk.size.Store(disk.used() + 512<<10)
	if err := s.MakeReserve(t.Context()); err == nil || disk.reserve() != 0 {
		t.Errorf("a reserve of %d bytes, %v", disk.reserve(), err)
	}
	// The store itself tries in the background, too.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := disk.List("/data")
		if err == nil && !slices.Contains(names, "RESERVE.new") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the directory holds %q, %v", names, err)
		}
	}
}

// A lyingDisk says that it has much space, as soon as it has little.
type lyingDisk struct{ *smallDisk }

func (d lyingDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.size.Load() < 1<<30 {
		return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
	}
	return vfs.DiskUsage{TotalBytes: 1 << 41}, nil
}

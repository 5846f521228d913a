package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore/disk"
)

const gib = 1 << 30

func TestFloor(t *testing.T) {
	for _, tt := range []struct{ minFree, total, want uint64 }{
		{gib, 100 * gib, gib},
		{gib, 20 * gib, gib},
		{gib, 10 * gib, gib / 2},
		{0, 100 * gib, 0},
		{gib, 0, 0},
	} {
		if got := disk.Floor(tt.minFree, tt.total); got != tt.want {
			t.Errorf("Floor(%d, %d) = %d, want %d", tt.minFree, tt.total, got, tt.want)
		}
	}
}

// disks are file systems by path, with a clock and a log.
type disks struct {
	usage map[string]disk.Usage
	err   error
	asked int
	now   time.Time
	log   bytes.Buffer
	reg   *prometheus.Registry
	watch *disk.Watch
}

func newDisks(minFree uint64) *disks {
	d := &disks{
		usage: map[string]disk.Usage{"/store": {Free: 50 * gib, Total: 100 * gib}, "/log": {Free: 5 * gib, Total: 10 * gib}},
		now:   time.Unix(1e9, 0),
		reg:   prometheus.NewRegistry(),
	}
	d.watch = disk.New(disk.Config{
		Paths: []string{"/store", "/log"}, MinFree: minFree,
		Usage: func(path string) (disk.Usage, error) {
			d.asked++
			return d.usage[path], d.err
		},
		Now:        func() time.Time { return d.now },
		Logger:     log.NewLogfmtLogger(&d.log),
		Registerer: d.reg,
	})
	return d
}

// set sets the free space of a path, and moves the clock.
func (d *disks) set(path string, free uint64) {
	d.usage[path] = disk.Usage{Free: free, Total: d.usage[path].Total}
	d.now = d.now.Add(time.Second)
}

func TestAdmit(t *testing.T) {
	d := newDisks(gib)
	for _, step := range []struct {
		path    string
		free    uint64
		refused string
	}{
		{"/store", 50 * gib, ""},
		{"/store", gib, ""},
		{"/store", gib - 1, "the file system of /store has 1073741823 bytes free, and takes writes from 1073741824 bytes on"},
		{"/store", 0, "/store has 0 bytes free"},
		{"/store", gib, ""},
		{"/log", gib / 2, ""}, // 5 % of it
		{"/log", gib/2 - 1, "/log has 536870911 bytes free"},
		{"/log", 5 * gib, ""},
	} {
		d.set(step.path, step.free)
		err := d.watch.Admit()
		if (err != nil) != (step.refused != "") || err != nil && (!errors.Is(err, disk.ErrLittleSpace) || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s has %d: error %v, want %q", step.path, step.free, err, step.refused)
		}
	}
	const refused, accepted = "writes are refused", "writes are accepted"
	var changes []string
	for _, line := range strings.Split(d.log.String(), "\n") {
		for _, change := range []string{refused, accepted} {
			if strings.Contains(line, change) {
				changes = append(changes, change)
			}
		}
	}
	if got, want := fmt.Sprint(changes), fmt.Sprint([]string{refused, accepted, refused, accepted}); got != want {
		t.Errorf("the log has %s, want %s:\n%s", got, want, d.log.String())
	}
	const want = `
# HELP adapter_disk_free_bytes Free space of the file system of a directory.
# TYPE adapter_disk_free_bytes gauge
adapter_disk_free_bytes{path="/log"} 5.36870912e+09
adapter_disk_free_bytes{path="/store"} 1.073741824e+09
# HELP adapter_disk_min_free_bytes Free space below which writes are refused.
# TYPE adapter_disk_min_free_bytes gauge
adapter_disk_min_free_bytes{path="/log"} 5.36870912e+08
adapter_disk_min_free_bytes{path="/store"} 1.073741824e+09
# HELP adapter_disk_refused_writes_total Writes that were refused because a file system had less free space than its floor.
# TYPE adapter_disk_refused_writes_total counter
adapter_disk_refused_writes_total 3
`
	if err := testutil.GatherAndCompare(d.reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// A gatherer gathers all metrics whenever one is registered, as a scrape during a start may.
type gatherer struct{ *prometheus.Registry }

func (g gatherer) Register(c prometheus.Collector) error {
	err := g.Registry.Register(c)
	_, _ = g.Gather()
	return err
}

// TestGatheredEarly: a scrape while a Watch is made reads nothing of what is not there yet.
func TestGatheredEarly(t *testing.T) {
	reg := prometheus.NewRegistry()
	disk.New(disk.Config{
		Paths:      []string{"/store", "/log"},
		Usage:      func(string) (disk.Usage, error) { return disk.Usage{Free: 5 * gib, Total: 10 * gib}, nil },
		Now:        func() time.Time { return time.Unix(1e9, 0) },
		Registerer: gatherer{reg},
	})
	want := `# HELP adapter_disk_free_bytes Free space of the file system of a directory.
# TYPE adapter_disk_free_bytes gauge
adapter_disk_free_bytes{path="/log"} 5.36870912e+09
adapter_disk_free_bytes{path="/store"} 5.36870912e+09
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "adapter_disk_free_bytes"); err != nil {
		t.Error(err)
	}
}

// TestAskedOncePerSecond: writes and scrapes together ask for the free space once a second,
// and again after the clock was set back.
func TestAskedOncePerSecond(t *testing.T) {
	d := newDisks(gib)
	for range 100 {
		if err := d.watch.Admit(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.reg.Gather(); err != nil {
			t.Fatal(err)
		}
	}
	if d.asked != 2 {
		t.Errorf("asked %d times, want once for each path", d.asked)
	}
	d.now = d.now.Add(-time.Hour)
	if err := d.watch.Admit(); err != nil || d.asked != 4 {
		t.Errorf("after the clock was set back asked %d times, %v", d.asked, err)
	}
}

func TestOff(t *testing.T) {
	d := newDisks(0)
	d.set("/store", 0)
	if err := d.watch.Admit(); err != nil {
		t.Error(err)
	}
}

// TestUnknownUsage: while the free space is unknown nothing is written, and one line is logged.
func TestUnknownUsage(t *testing.T) {
	for _, free := range []uint64{0, 50 * gib} {
		d := newDisks(gib)
		d.set("/store", free)
		before := d.watch.Admit()
		d.err = errors.New("no such file system")
		for range 3 {
			d.set("/store", free)
			if err := d.watch.Admit(); err == nil || !strings.Contains(err.Error(), "/store takes no writes: no such file system") {
				t.Errorf("%d bytes were free: error %v", free, err)
			}
		}
		if n := strings.Count(d.log.String(), "path=/store err=\"no such file system\""); n != 1 {
			t.Errorf("%d lines:\n%s", n, d.log.String())
		}
		d.err = nil
		d.set("/store", free)
		if err := d.watch.Admit(); (err == nil) != (before == nil) {
			t.Errorf("%d bytes are free again: error %v, before %v", free, err, before)
		}
	}
}

// TestOtherDirectory: once a directory is another one than it was, or none, nothing is written.
func TestOtherDirectory(t *testing.T) {
	for _, minFree := range []uint64{0, gib} {
		for _, tt := range []struct {
			name    string
			replace func(dir string) error
			want    string
		}{
			{"removed", os.RemoveAll, "no such file"},
			{"removed and made again", func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o750)) }, "it is another directory"},
			{"a file", func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.WriteFile(dir, nil, 0o600)) }, "it is another directory"},
		} {
			t.Run(fmt.Sprintf("%s, %d", tt.name, minFree), func(t *testing.T) {
				parent := t.TempDir()
				store, log := filepath.Join(parent, "store"), filepath.Join(parent, "log")
				if err := errors.Join(os.Mkdir(store, 0o750), os.Mkdir(log, 0o750)); err != nil {
					t.Fatal(err)
				}
				now := time.Unix(1e9, 0)
				watch := disk.New(disk.Config{
					Paths: []string{store, log}, MinFree: minFree, Stat: os.Stat, Now: func() time.Time { return now },
					Usage: func(string) (disk.Usage, error) { return disk.Usage{Free: 50 * gib, Total: 100 * gib}, nil },
				})
				if err := watch.Admit(); err != nil {
					t.Fatal(err)
				}
				if err := tt.replace(log); err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Second)
				if err := watch.Admit(); err == nil || !strings.Contains(err.Error(), log+" takes no writes") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			})
		}
	}
}

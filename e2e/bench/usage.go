package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A usage is what a process has used since it started.
type usage struct {
	cpu     time.Duration // user and system
	peak    int64         // most resident memory, bytes
	files   int64         // resident pages of files, the program among them, bytes, now
	written int64         // bytes that it made the kernel write to disk
}

// usageOf reads the usage of a running process from /proc.
func usageOf(pid int) (u usage, err error) {
	if u.cpu, err = cpuOf(pid); err != nil {
		return usage{}, err
	}
	kilobytes, err := procField(pid, "status", "VmHWM:")
	if err != nil {
		return usage{}, err
	}
	u.peak = kilobytes << 10
	if kilobytes, err = procField(pid, "status", "RssFile:"); err != nil {
		return usage{}, err
	}
	u.files = kilobytes << 10
	u.written, err = procField(pid, "io", "write_bytes:")
	return u, err
}

// resetPeak makes the peak of a running process what it has now, which it returns in bytes.
func resetPeak(pid int) (int64, error) {
	const peakOnly = "5"
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peakOnly), 0); err != nil {
		return 0, err
	}
	kilobytes, err := procField(pid, "status", "VmHWM:")
	return kilobytes << 10, err
}

// cpuOf returns the user and system time of a process. /proc/PID/stat has it in hundredths
// of a second, which is too coarse for one query.
func cpuOf(pid int) (time.Duration, error) {
	const scheduled = 2 // the low bits of a clock of a process, whose other bits are those of ^pid
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// procField returns the number that follows a name in a file of /proc/PID.
func procField(pid int, file, name string) (int64, error) {
	return fileField(fmt.Sprintf("/proc/%d/%s", pid, file), name)
}

// fileField returns the number that follows a name in a file.
func fileField(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// total returns the usage of a server that has ended, but for its memory.
func (s *server) total() usage {
	state := s.State()
	u := usage{cpu: state.UserTime() + state.SystemTime()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.written = int64(r.Oublock) * 512
	}
	return u
}

// settle waits until a process is nearly idle for two seconds, but not longer than limit.
func settle(ctx context.Context, pid int, limit time.Duration) error {
	const look, idle = 500 * time.Millisecond, 15 * time.Millisecond
	deadline := time.Now().Add(limit)
	last, err := cpuOf(pid)
	for quiet := 0; err == nil && quiet < 4 && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
		var now time.Duration
		now, err = cpuOf(pid)
		if quiet++; now-last > idle {
			quiet = 0
		}
		last = now
	}
	return err
}

// load returns how many processes wanted to run, on average of the last minute.
// A machine that was not idle spoils latencies, and CPU time less.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	average, _, _ := strings.Cut(string(text), " ")
	return average
}

// A space is what files take.
type space struct {
	occupied int64 // bytes, as du counts them
	length   int64 // bytes that can be read: what is allocated ahead is not in it
}

// diskUsage adds up the files below dir, but for those below skip.
func diskUsage(dir, skip string) (total space, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == skip && d.IsDir():
			return fs.SkipDir
		case path == skip:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			total.length += info.Size()
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			total.occupied += stat.Blocks * 512
		}
		return nil
	})
	return total, err
}

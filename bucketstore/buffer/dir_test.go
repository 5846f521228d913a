package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
)

// TestCheckUnused: a log without a request may be left.
func TestCheckUnused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(t *testing.T, dir string) // nil is no directory
		empty bool
	}{
		{"no directory", nil, true},
		{"nothing", func(*testing.T, string) {}, true},
		{"a log with its head", func(t *testing.T, dir string) { killIn(t, dir, 0) }, true},
		{"a log with a request", func(t *testing.T, dir string) { killIn(t, dir, 1) }, false},
		{"a log that was not finished", func(t *testing.T, dir string) { writeSegment(t, dir, 1, make([]byte, 16)) }, true},
		{"a head that was not finished", func(t *testing.T, dir string) { writeSegment(t, dir, 1, []byte("promtable")) }, true},
		{"another log", func(t *testing.T, dir string) { writeSegment(t, dir, 1, []byte("promtable log\x00\x00\x04")) }, false},
		{"zeros before the last segment", func(t *testing.T, dir string) {
			writeSegment(t, dir, 1, make([]byte, 16))
			writeSegment(t, dir, 2, []byte("promtable log\x00\x00\x01"))
		}, false},
		{"a request before the last segment", func(t *testing.T, dir string) {
			killIn(t, dir, 1)
			writeSegment(t, dir, 2, []byte("promtable log\x00\x00\x01"))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			if tt.write != nil {
				if err := os.Mkdir(dir, 0o750); err != nil {
					t.Fatal(err)
				}
				tt.write(t, dir)
			}
			err := buffer.CheckUnused(t.Context(), dir, newTerms(t, openPebble(t)))
			if tt.empty != (err == nil) || err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("%v", err)
			}
		})
	}
}

// killIn leaves a log in dir, as if its process was killed after so many requests.
func killIn(t *testing.T, dir string, requests int) {
	f := open(t, openPebble(t), func(c *config) { c.Dir = dir })
	for n := range requests {
		f.append(t, f.sample(n, someTime, 1))
	}
	f.kill()
}

// TestHeld: the error about a locked log names the process that holds it.
func TestHeld(t *testing.T) {
	f := open(t, openPebble(t), nil)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	_, err = openLog(t.Context(), f.cfg)
	for _, want := range []string{
		"held by another process", f.cfg.Dir, fmt.Sprintf("pid %d on %s", os.Getpid(), host), f.clock.now().UTC().Format("since 2006-01-02T15:04:05Z"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	f.append(t, f.sample(1, someTime, 1))
	f.check(t, "it lives")
}

// TestOnEmpty: Close calls the function of OnEmpty only after the log is removed; the ID of
// the log stays.
func TestOnEmpty(t *testing.T) {
	f := open(t, openPebble(t), nil)
	id, calls := f.ID(), 0
	count := func() {
		f.OnEmpty(func(ctx context.Context) {
			if calls++; ctx.Err() != nil || f.Sealing() > 0 || len(segmentsOf(t, f.cfg.Dir)) > 0 {
				t.Errorf("%d chunks and segments %v are left, %v", f.Sealing(), segmentsOf(t, f.cfg.Dir), ctx.Err())
			}
		})
	}
	count()
	f.append(t, f.sample(1, someTime, 1))
	f.kill()
	f.reopen(t)
	count()
	if calls != 0 || f.ID() != id {
		t.Errorf("after a death it was called %d times, and the log is %s, was %s", calls, f.ID(), id)
	}
	f.append(t, f.sample(2, someTime, 1))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if calls != 1 {
		t.Errorf("after a stop it was called %d times", calls)
	}
	f.reopen(t)
	other := open(t, openPebble(t), nil)
	if f.ID() != id || other.ID() == id || id == "" {
		t.Errorf("the log is %q, was %q, another one is %q", f.ID(), id, other.ID())
	}
}

// TestForeignDirectory: a log is not made in a directory of something else, nor below a
// directory that is missing. Nothing is changed.
func TestForeignDirectory(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		want  string // empty is a log
	}{
		{"a foreign file", []string{"a.txt"}, `holds "a.txt", which is not ours`},
		{"logs of the system", []string{"syslog.log"}, `holds "syslog.log", which is not ours`},
		{"a store", []string{"FORMAT", "000004.log"}, "which is not ours"},
		{"a foreign directory", []string{"mysql/ibdata1"}, `holds "mysql", which is not ours`},
		{"a foreign file beside a log", []string{"identity", "a.txt"}, ""},
		{"a foreign log beside a log", []string{"identity", "a.log"}, "a.log is not the name of a segment: move this file out"},
		{"a new file system", []string{"lost+found/x"}, ""},
		{"a start that ended early", []string{"lock", "owner", "identity.new"}, ""},
		{"a log without an identity", []string{"lock", "owner", "stamp", "identity.damaged", "identity.damaged-2", buffer.SegmentName(7), buffer.SegmentName(7) + ".damaged"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range tt.files {
				path, content := filepath.Join(dir, name), ""
				switch name {
				case "identity":
					content = `{"log":"A"}`
				case "stamp":
					content = "1"
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			checkErr := buffer.Check(t.Context(), dir, buffer.CheckConfig{Report: func(bucketstore.Finding) {}, Note: func(string, string) {}})
			log, err := buffer.OpenDir(dir, time.UnixMilli(someTime))
			if err == nil {
				defer log.Close()
			}
			for _, err := range []error{checkErr, err} {
				if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir)) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			}
			if names, err := filepath.Glob(filepath.Join(dir, "*")); !slices.Contains(tt.files, "identity") && tt.want != "" && (err != nil || len(names) != len(tt.files)) {
				t.Errorf("there are %v, %v", names, err)
			}
		})
	}
	t.Run("no directory above", func(t *testing.T) {
		top := filepath.Join(t.TempDir(), "mount")
		_, err := buffer.OpenDir(filepath.Join(top, "x", "log"), time.UnixMilli(someTime))
		if err == nil || !strings.Contains(err.Error(), filepath.Join(top, "x", "log")+": the directory above it does not exist") {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(top); !os.IsNotExist(err) {
			t.Errorf("the directory above was made: %v", err)
		}
	})
}

// TestRemovedDirectory: where the log wants to begin a segment in a directory that was removed, requests are refused, and the process
// lives.
func TestRemovedDirectory(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.SegmentBytes = 200 })
	removed := f.cfg.Dir + ".removed"
	if err := os.Rename(f.cfg.Dir, removed); err != nil {
		t.Fatal(err)
	}
	f.SyncLog()
	var err error
	written := 0
	for ; err == nil && written < 100; written++ {
		err = f.Append(t.Context(), []bucketstore.Sample{f.sample(written, someTime, 1)})
	}
	if !errors.Is(err, os.ErrNotExist) || written == 1 {
		t.Errorf("after %d requests: %v", written, err)
	}
	if err := os.Rename(removed, f.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	f.append(t, f.sample(1, someTime+1, 1))
	f.kill()
	f.reopen(t)
}

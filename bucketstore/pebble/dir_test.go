package pebble_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
)

func onDisk(dir string) pebble.Config {
	return pebble.Config{Dir: dir, Tables: bucketstore.Tables(bucketstore.Retention{})}
}

// existing opens a directory as a check does.
func existing(dir string) pebble.Config {
	cfg := onDisk(dir)
	cfg.ReadOnly = true
	return cfg
}

// wantOpenError checks that Open fails and that its text has all parts.
func wantOpenError(t *testing.T, cfg pebble.Config, parts ...string) {
	t.Helper()
	s, err := pebble.Open(cfg)
	if err == nil {
		s.Close()
		t.Fatal("Open succeeded")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not have %q", err, part)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	const unusual = "promtable pebble format 7"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"unknown format", map[string]string{"FORMAT": unusual + "\n"}, []string{unusual, `reads "promtable pebble format 3" only`, "--storage.path"}},
		{"a lower format", map[string]string{"FORMAT": "promtable pebble format 2\n"}, []string{"format 2", "format 3", "start with a new --storage.path"}},
		{"damaged format", map[string]string{"FORMAT": "\x00\x00"}, []string{`FORMAT says "\x00\x00"`, "damaged"}},
		{"empty format", map[string]string{"FORMAT": ""}, []string{`FORMAT says ""`, "damaged"}},
		{"a flipped bit in the format", map[string]string{"FORMAT": "promtable pebblm format 3\n"}, []string{"the file is damaged; restore it from a backup"}},
		{"a flipped bit in its number", map[string]string{"FORMAT": "promtable pebble format 7\n"}, []string{"if this version wrote it, FORMAT is damaged"}},
		{"a database of another program", map[string]string{"MANIFEST-000001": "x"}, []string{"no file FORMAT", "not one of ours"}},
		{"Prometheus", map[string]string{"wal/00000000": "x"}, []string{"is one of Prometheus", `"wal"`}},
		{"Prometheus without a log", map[string]string{"chunks_head/000001": "x"}, []string{"is one of Prometheus", `"chunks_head"`}},
		{"a block of Prometheus", map[string]string{"01HZX4V8Q2M7N5T9BKW3E6R1YD/meta.json": "{}"}, []string{"is one of Prometheus", "01HZX4"}},
		{"a foreign file", map[string]string{"notes.txt": "x"}, []string{`holds "notes.txt", which is not ours`}},
		{"a foreign directory", map[string]string{"mysql/ibdata1": "x"}, []string{`holds "mysql", which is not ours`}},
		{"format is a directory", map[string]string{"FORMAT/x": "x"}, []string{"FORMAT"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, tc.files)
			for range 2 { // The first failure must not hold the lock.
				want := append(tc.want, fmt.Sprintf("%q", dir))
				wantOpenError(t, onDisk(dir), want...)
				wantOpenError(t, existing(dir), want...)
			}
		})
	}
	t.Run("no directory named", func(t *testing.T) { wantOpenError(t, onDisk(""), "no data directory") })
	t.Run("a file in the way", func(t *testing.T) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"data": "x"})
		wantOpenError(t, onDisk(filepath.Join(dir, "data", "store")), "cannot be read", "not a directory")
		wantOpenError(t, onDisk(filepath.Join(dir, "data")), "cannot be read", "not a directory")
	})
	t.Run("no directory above", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "mount", "data")
		wantOpenError(t, onDisk(dir), fmt.Sprintf("%q", dir), "the directory above it does not exist")
		wantOpenError(t, existing(dir), fmt.Sprintf("%q", dir), "the directory above it does not exist")
	})
	for name, err := range map[string]error{"no permission": os.ErrPermission, "a disk that is read only": syscall.EROFS} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpLock || op.Kind == errorfs.OpCreate {
					return err
				}
				return nil
			}))
			wantOpenError(t, onDisk(dir).WithFS(disk), fmt.Sprintf("%q", dir), "is not writable by this process")
		})
	}
	t.Run("a new file system and a log", func(t *testing.T) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"lost+found/x": "x", "buffer/lock": "", "LOCK": "", "FORMAT.new": ""})
		openStore(t, onDisk(dir))
	})
	t.Run("family name", func(t *testing.T) {
		cfg := onDisk(t.TempDir())
		cfg.Tables = []bucketstore.TableSpec{{Table: bucketstore.Meta, Families: []bucketstore.FamilySpec{{Name: "a\x00b"}}}}
		wantOpenError(t, cfg, "letters and digits")
	})
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockedDirectory(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	message := func(pid int) string {
		return fmt.Sprintf("data directory %q is in use by pid %d on %s since 2", dir, pid, host)
	}
	t.Run("by this process", func(t *testing.T) {
		openStore(t, onDisk(dir))
		wantOpenError(t, onDisk(dir), message(os.Getpid()))
		t.Chdir(filepath.Dir(dir))
		wantOpenError(t, onDisk(filepath.Base(dir)), message(os.Getpid()))
	})
	t.Run("by another process", func(t *testing.T) {
		child := startChild(t, "hold", dir)
		child.waitFor("open")
		wantOpenError(t, onDisk(dir), message(child.cmd.Process.Pid))
		wantOpenError(t, onDisk(dir), message(child.cmd.Process.Pid))
	})
	t.Run("by a process that was killed", func(t *testing.T) {
		child := startChild(t, "hold", dir)
		child.waitFor("open")
		child.kill()
		openStore(t, onDisk(dir))
		wantOpenError(t, onDisk(dir), message(os.Getpid()))
	})
}

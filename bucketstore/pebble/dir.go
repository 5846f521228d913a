package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Files of our own in the data directory.
const (
	formatFile = "FORMAT"
	ownerFile  = "OWNER"
)

// format is the content of FORMAT.
const format = "promtable pebble format 2"

// maxSmallFile bounds what is read of FORMAT and OWNER, in bytes.
const maxSmallFile = 1024

// lockDirectory locks the directory, and creates it if it is missing, unless existing is
// set. It checks that this version can read the content. The caller closes the lock.
func lockDirectory(fs vfs.FS, dir string, existing bool, since time.Time) (*pebble.Lock, error) {
	if existing {
		if _, err := fs.Stat(fs.PathJoin(dir, formatFile)); err != nil {
			return nil, fmt.Errorf("no store in data directory %q: %w", dir, err)
		}
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, fmt.Errorf("data directory %q is in use by %s: %w", dir, readOwner(fs, dir), err)
	}
	if err := prepareDirectory(fs, dir, since); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func prepareDirectory(fs vfs.FS, dir string, since time.Time) error {
	if err := checkFormat(fs, dir); err != nil {
		return err
	}
	return writeSmallFile(fs, dir, ownerFile, describeOwner(since))
}

// describeOwner describes this process, for the error of another one.
func describeOwner(since time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("pid %d on %s since %s", os.Getpid(), host, since.UTC().Format(time.RFC3339))
}

// readOwner returns the text of OWNER. It is only for a message, so an error is part of the
// text.
func readOwner(fs vfs.FS, dir string) string {
	text, err := readSmallFile(fs, dir, ownerFile)
	if err != nil {
		return "an unknown process"
	}
	return text
}

// checkFormat compares FORMAT with our format, or writes it into a new directory.
func checkFormat(fs vfs.FS, dir string) error {
	text, err := readSmallFile(fs, dir, formatFile)
	switch {
	case err == nil && text == format:
		return nil
	case err == nil:
		return fmt.Errorf("data directory %q: %s says %q, this version reads %q only; start with a new --storage.path, or with the version that wrote it",
			dir, formatFile, text, format)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("data directory %q: %w", dir, err)
	}
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("data directory %q: %w", dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST-") {
			return fmt.Errorf("data directory %q: there is a database but no file %s, so it is not one of ours; choose another directory", dir, formatFile)
		}
	}
	// Before FORMAT exists no write was acknowledged. After it the directory entries above
	// are durable, even if a start created them and died.
	if err := syncAncestors(fs, dir); err != nil {
		return err
	}
	return writeSmallFile(fs, dir, formatFile, format)
}

// syncAncestors makes the directory entries above dir durable. It skips directories that we
// may not read: we have created nothing in them.
func syncAncestors(fs vfs.FS, dir string) error {
	for {
		parent := fs.PathDir(dir)
		if parent == dir {
			return nil
		}
		if err := syncDirectory(fs, parent); err != nil && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("sync directory: %w", err)
		}
		dir = parent
	}
}

func syncDirectory(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeSmallFile replaces a file of one line, durably and atomically.
func writeSmallFile(fs vfs.FS, dir, name, text string) error {
	temporary := fs.PathJoin(dir, name+".new")
	f, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.WriteString(f, text+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fs.Rename(temporary, fs.PathJoin(dir, name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDirectory(fs, dir)
}

// readSmallFile returns the text of a file without the end of the line.
func readSmallFile(fs vfs.FS, dir, name string) (string, error) {
	f, err := fs.Open(fs.PathJoin(dir, name))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSmallFile))
	return strings.TrimSpace(string(text)), errors.Join(err, f.Close())
}

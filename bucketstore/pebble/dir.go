package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Files of our own in the data directory.
const (
	formatFile = "FORMAT"
	ownerFile  = "OWNER"
)

// Format is the version of the format of a data directory that is open.
const Format = "3"

// format is the content of FORMAT.
const format = "promtable pebble format " + Format

// formatText matches what any version writes to FORMAT.
var formatText = regexp.MustCompile(`^promtable pebble format [0-9]+$`)

// maxSmallFile bounds what is read of FORMAT and OWNER, in bytes.
const maxSmallFile = 1024

// temporary is the ending of a file that will replace another one.
const temporary = ".new"

// lockDirectory locks the directory, and creates it if it is missing, unless existing is
// set. It checks that this version can read the content. The caller closes the lock.
func lockDirectory(cfg Config, since time.Time) (*pebble.Lock, error) {
	fs, dir := cfg.fs, cfg.Dir
	if cfg.Existing {
		if _, err := fs.Stat(fs.PathJoin(dir, formatFile)); err != nil {
			if foreign := checkDirectory(fs, dir); foreign != nil && !errors.Is(foreign, errNoDirectory) {
				return nil, fmt.Errorf("no store in data directory %q: %w", dir, foreign)
			}
			return nil, fmt.Errorf("no store in data directory %q: %w", dir, err)
		}
	}
	if err := makeDirectory(fs, dir); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	switch {
	case isUnwritable(err):
		return nil, fmt.Errorf("data directory %q is not writable by this process: %w", dir, err)
	case err != nil:
		return nil, fmt.Errorf("data directory %q is in use by %s: %w", dir, readOwner(fs, dir), err)
	}
	if err := prepareDirectory(cfg, since); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// makeDirectory creates a missing directory. It refuses one that holds something else.
func makeDirectory(fs vfs.FS, dir string) error {
	err := checkDirectory(fs, dir)
	if !errors.Is(err, errNoDirectory) {
		return err
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

// errNoDirectory says that the directory is missing, and the one above it is there.
var errNoDirectory = errors.New("the directory does not exist")

// checkDirectory refuses a directory that holds something else, or without one above it.
func checkDirectory(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	switch {
	case err == nil:
		return checkContent(dir, names)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("data directory %q cannot be read: %w", dir, err)
	}
	if _, err := fs.Stat(fs.PathDir(dir)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data directory %q: the directory above it does not exist; create it, or correct --storage.path", dir)
	}
	return errNoDirectory
}

// isUnwritable says whether err is for want of permission, or of a disk that can be written
// to.
func isUnwritable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// checkContent refuses a directory that holds something else than a store. Before FORMAT
// there may be what a start leaves that ends early, the log of the buffer, and what a new
// file system has.
func checkContent(dir string, names []string) error {
	if slices.Contains(names, formatFile) {
		return nil
	}
	for _, name := range names {
		switch {
		case slices.Contains([]string{"LOCK", formatFile + temporary, "buffer", "lost+found"}, name):
		case name == "chunks_head", name == "wal", isULID(name):
			return fmt.Errorf("data directory %q is one of Prometheus: it holds %q; choose an empty directory", dir, name)
		case strings.HasPrefix(name, "MANIFEST-"), strings.HasPrefix(name, "marker."), name == "CURRENT", name == schemaFile:
			return fmt.Errorf("data directory %q: there is a database but no file %s, so it is not one of ours; choose an empty directory", dir, formatFile)
		default:
			return fmt.Errorf("data directory %q holds %q, which is not ours; choose an empty directory", dir, name)
		}
	}
	return nil
}

// isULID says whether name may be that of a block of Prometheus.
func isULID(name string) bool {
	return len(name) == 26 && strings.Trim(name, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

func prepareDirectory(cfg Config, since time.Time) error {
	fs, dir := cfg.fs, cfg.Dir
	if cfg.ReadOnly {
		return checkFormat(fs, dir)
	}
	if err := releaseReserve(fs, dir, cfg.Logger); err != nil {
		return fmt.Errorf("data directory %q: %w", dir, err)
	}
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

// checkFormat compares FORMAT with our format, or writes ours into a new directory.
func checkFormat(fs vfs.FS, dir string) error {
	text, err := readSmallFile(fs, dir, formatFile)
	switch {
	case err == nil && text == format:
		return nil
	case err == nil && formatText.MatchString(text):
		return fmt.Errorf("data directory %q: %s says %q, this version reads %q only; start with a new --storage.path, or with the version that wrote it; if this version wrote it, %s is damaged: restore it from a backup",
			dir, formatFile, text, format, formatFile)
	case err == nil:
		return fmt.Errorf("data directory %q: %s says %q, which no version writes: the file is damaged; restore it from a backup. This version writes %q",
			dir, formatFile, text, format)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("data directory %q: %w", dir, err)
	}
	// Before FORMAT exists no write was acknowledged. After it the entry of the directory is
	// durable, even if a start created it and died.
	if err := syncDirectory(fs, fs.PathDir(dir)); err != nil && !errors.Is(err, os.ErrPermission) { // then we have not created it
		return fmt.Errorf("sync directory: %w", err)
	}
	return writeSmallFile(fs, dir, formatFile, format)
}

func syncDirectory(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeSmallFile replaces a file of text, durably and atomically.
func writeSmallFile(fs vfs.FS, dir, name, text string) error {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path+temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.WriteString(f, text+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fs.Rename(path+temporary, path); err != nil {
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

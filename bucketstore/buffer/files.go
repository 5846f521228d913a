package buffer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// A directory holds the files of a log. Names are names of files in it, without a path. What
// it creates, renames and removes is durable after sync, the content of a file after the
// Sync of the file.
type directory interface {
	path() string
	// make creates the directory, durably, unless it exists.
	make() error
	// names returns the names of the files, in any order.
	names() ([]string, error)
	// open opens a file as os.OpenFile does.
	open(name string, flag int) (file, error)
	// rename replaces the file to, if there is one.
	rename(from, to string) error
	remove(name string) error
	sync() error
	// lock creates a file and locks it for this process.
	lock(name string) (fileutil.Releaser, error)
}

// A file is an open file of a directory.
type file interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// isNoSpace says whether err comes from a disk or a quota that is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnwritable says whether err is for want of permission, or of a disk that can be written
// to.
func isUnwritable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// A refusal is why requests were not written although the log works. It is as it was
// before, and the next request may succeed.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// refuseIfFull makes a refusal of err, the error of a write, if the disk is full.
func refuseIfFull(err error) error {
	if isNoSpace(err) {
		return refusal{err}
	}
	return err
}

// isRefusal says whether err is a refusal, and nothing else.
func isRefusal(err error) bool { return errors.As(err, new(refusal)) }

// removeIfThere removes a file. A missing one is no error.
func removeIfThere(dir directory, name string) error {
	if err := dir.remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// An osDirectory is the path of a directory of the operating system.
type osDirectory string

func (d osDirectory) path() string { return string(d) }

func (d osDirectory) join(name string) string { return filepath.Join(string(d), name) }

func (d osDirectory) make() error { return makeDir(string(d)) }

func (d osDirectory) names() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d osDirectory) open(name string, flag int) (file, error) {
	f, err := os.OpenFile(d.join(name), flag, 0o640)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d osDirectory) rename(from, to string) error { return os.Rename(d.join(from), d.join(to)) }

func (d osDirectory) remove(name string) error { return os.Remove(d.join(name)) }

func (d osDirectory) sync() error { return syncDir(string(d)) }

func (d osDirectory) lock(name string) (fileutil.Releaser, error) {
	lock, _, err := fileutil.Flock(d.join(name))
	return lock, err
}

// makeDir creates a missing directory, durably. The directory above it must exist: it may be
// where a disk is to be mounted.
func makeDir(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: the directory above it does not exist; create it, or correct --buffer.path", path)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(path string) error {
	dir, err := fileutil.OpenDir(path) // Windows cannot sync what os.Open returns
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

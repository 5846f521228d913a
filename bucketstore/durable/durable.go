// Package durable makes files durable: after a loss of power they have the content, and the
// name, that they had when its functions returned. The system promises less: the content of
// a file is durable after a sync of the file, and its name after a sync of the directory.
package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// A Dir is a directory. Names are names of files in it, without a path. What it creates,
// renames and removes is durable after Sync, the content of a file after the Sync of the
// file.
type Dir interface {
	Path() string
	// Make creates the directory, durably, unless it exists. The directory above it must
	// exist: else the error is ErrNoParent.
	Make() error
	// Names returns the names of the files, in any order.
	Names() ([]string, error)
	// Open opens a file as os.OpenFile does.
	Open(name string, flag int) (File, error)
	// Rename replaces the file to, if there is one.
	Rename(from, to string) error
	Remove(name string) error
	Sync() error
	// Lock creates a file and locks it for this process.
	Lock(name string) (unlock func() error, err error)
}

// A File is an open file of a Dir.
type File interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes durable what was written. After an ErrAway that may be so in part, and another Sync goes on. After any other
	// error nothing is known of it.
	Sync() error
}

// ErrAway marks an error of what the files are kept in: it does not answer, or has not done what it was asked. What was asked may have
// happened, and to ask again may help.
var ErrAway = errors.New("what keeps the files is away")

// Temporary ends the name of a file that will replace another one.
const Temporary = ".new"

// Create opens a file for writing, with os.O_EXCL or os.O_TRUNC, and calls write, after which
// its content is durable. Its name is so after a Sync of the directory. After an error of
// write there is no file.
func Create(d Dir, name string, flag int, write func(io.Writer) error) error {
	f, err := d.Open(name, os.O_CREATE|os.O_WRONLY|flag)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, removeIfThere(d, name))
	}
	return nil
}

// WriteFile replaces a file, durably and atomically. It writes nothing if the file has this
// content, so that this works on a full disk.
func WriteFile(d Dir, name string, content []byte) error {
	if held, err := ReadFile(d, name); err == nil && bytes.Equal(held, content) {
		return d.Sync() // the process that renamed it may have died before its sync
	}
	err := Create(d, name+Temporary, os.O_TRUNC, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.Rename(name+Temporary, name); err != nil {
		return errors.Join(err, removeIfThere(d, name+Temporary))
	}
	return d.Sync()
}

// ReadFile returns the content of a file.
func ReadFile(d Dir, name string) (content []byte, err error) {
	f, err := d.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		content, err = io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	}
	return content, errors.Join(err, f.Close())
}

// Remove removes files, durably. A missing one is no error.
func Remove(d Dir, names ...string) (err error) {
	for _, name := range names {
		err = errors.Join(err, removeIfThere(d, name))
	}
	return errors.Join(err, d.Sync())
}

func removeIfThere(d Dir, name string) error {
	if err := d.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// An OS is the path of a directory of the operating system. Only its owner and group read
// what it creates.
type OS string

// ErrNoParent says that the directory above one that is to be made does not exist.
var ErrNoParent = errors.New("the directory above it does not exist")

// Path implements Dir.
func (d OS) Path() string { return string(d) }

// Join returns the path of a file.
func (d OS) Join(name string) string { return filepath.Join(string(d), name) }

// Make implements Dir. The directory above may be where a disk is to be mounted.
func (d OS) Make() error {
	path := filepath.Clean(string(d))
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := OS(filepath.Dir(path))
	if _, err := os.Stat(string(parent)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrNoParent)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return parent.Sync()
}

// Names implements Dir.
func (d OS) Names() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Open implements Dir.
func (d OS) Open(name string, flag int) (File, error) {
	f, err := os.OpenFile(d.Join(name), flag, 0o640)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Rename implements Dir.
func (d OS) Rename(from, to string) error { return os.Rename(d.Join(from), d.Join(to)) }

// Remove implements Dir.
func (d OS) Remove(name string) error { return os.Remove(d.Join(name)) }

// Sync implements Dir.
func (d OS) Sync() error {
	dir, err := fileutil.OpenDir(string(d)) // Windows cannot sync what os.Open returns
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Lock implements Dir.
func (d OS) Lock(name string) (unlock func() error, err error) {
	lock, _, err := fileutil.Flock(d.Join(name))
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

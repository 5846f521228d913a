package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A readOnlyFS is a file system in which nothing changes.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = fmt.Errorf("the store is open to be read only: %w", os.ErrPermission)

func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }

func (readOnlyFS) Link(string, string) error { return errReadOnly }

func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

func (readOnlyFS) Remove(string) error { return errReadOnly }

func (readOnlyFS) RemoveAll(string) error { return errReadOnly }

func (readOnlyFS) Rename(string, string) error { return errReadOnly }

func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

func (readOnlyFS) MkdirAll(string, os.FileMode) error { return errReadOnly }

// Lock locks a file that exists, so that the adapter cannot start meanwhile. A directory
// without one has no adapter.
func (fs readOnlyFS) Lock(name string) (io.Closer, error) {
	if _, err := fs.Stat(name); errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	return fs.FS.Lock(name)
}

func (fs readOnlyFS) Unwrap() vfs.FS { return fs.FS }

// setReadOnly makes opts those of a database in which nothing changes. Damaged tables, which
// are looked for, do not keep it from opening.
func setReadOnly(opts *pebble.Options) {
	opts.ReadOnly = true
	opts.DisableConsistencyCheck = true
	opts.DisableTableStats = true
}

// openWithoutMissing opens a database to be read only. A table whose file is missing is an
// empty file, which is damaged. It returns their names.
func openWithoutMissing(dir string, opts *pebble.Options) (db *pebble.DB, missing map[string]bool, err error) {
	for missing = make(map[string]bool); ; {
		if db, err = pebble.Open(dir, opts); err != nil {
			return nil, nil, err
		}
		_, listErr := db.SSTables()
		found := missingTable.FindStringSubmatch(fmt.Sprint(listErr))
		if listErr == nil {
			return db, missing, nil
		}
		if err := db.Close(); err != nil || found == nil || missing[found[1]+".sst"] {
			return nil, nil, errors.Join(listErr, err)
		}
		missing[found[1]+".sst"] = true
		opts.FS = missingFS{opts.FS, dir, found[1] + ".sst"}
	}
}

// missingTable matches what Pebble says of a table that is in the manifest alone.
var missingTable = regexp.MustCompile(`file ([0-9]+) \(type sstable\) unknown to the objstorage provider`)

// A missingFS has an empty file of this name in dir.
type missingFS struct {
	vfs.FS
	dir, name string
}

func (fs missingFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	if err == nil && dir == fs.dir {
		names = append(names, fs.name)
	}
	return names, err
}

func (fs missingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if name == fs.PathJoin(fs.dir, fs.name) {
		return vfs.NewMemFile(nil), nil
	}
	return fs.FS.Open(name, opts...)
}

func (fs missingFS) Stat(name string) (vfs.FileInfo, error) {
	if name == fs.PathJoin(fs.dir, fs.name) {
		return vfs.NewMemFile(nil).Stat()
	}
	return fs.FS.Stat(name)
}

// Unwrap returns the file system beneath.
func (fs missingFS) Unwrap() vfs.FS { return fs.FS }

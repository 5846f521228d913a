package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"

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

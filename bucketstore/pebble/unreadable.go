package pebble

import (
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An unreadableFS makes parts of tables which the disk cannot read damaged ones: they read as
// zeros, whose checksum is wrong. So Pebble handles a bad sector as it does a flipped bit,
// and names the file. Pebble compares file systems by ==.
type unreadableFS struct {
	vfs.FS
	guard *guard
}

func (fs unreadableFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := fs.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return unreadableFile{file, func(err error) { fs.guard.logDamage(name, err) }}, nil
}

// Unwrap returns the file system beneath.
func (fs unreadableFS) Unwrap() vfs.FS { return fs.FS }

// An unreadableFile is a table in an unreadableFS.
type unreadableFile struct {
	vfs.File
	report func(err error)
}

// ReadAt implements io.ReaderAt.
func (f unreadableFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	if !errors.Is(err, syscall.EIO) {
		return n, err
	}
	f.report(err)
	info, statErr := f.Stat()
	if statErr != nil {
		return n, err
	}
	clear(p[n:])
	if left := info.Size() - at; left < int64(len(p)) {
		return int(max(0, left)), io.EOF
	}
	return len(p), nil
}

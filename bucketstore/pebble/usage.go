package pebble

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore/disk"
)

// DiskUsage returns the space of the file system of a directory, which exists.
func DiskUsage(dir string) (disk.Usage, error) { return usage(vfs.Default, dir) }

func usage(fs vfs.FS, dir string) (disk.Usage, error) {
	u, err := fs.GetDiskUsage(dir)
	return disk.Usage{Free: u.AvailBytes, Total: u.TotalBytes}, err
}

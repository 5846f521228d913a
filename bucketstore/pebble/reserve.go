package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore/disk"
)

const (
	// reserveFile takes space that a start on a full disk needs: such a start removes it,
	// because Pebble writes a few files before it can read.
	reserveFile = "RESERVE"
	// maxReserve bounds its size, and reserveShare is its share of the floor of free space.
	maxReserve   = 64 << 20
	reserveShare = 16
	// startBytes is what a start writes beside tables: a log, a manifest and small files.
	startBytes = 2 << 20
	// reserveInterval is how often a missing reserve is looked for.
	reserveInterval = time.Minute
)

// DiskUsage returns the space of the file system of a directory, which exists.
func DiskUsage(dir string) (disk.Usage, error) { return usage(vfs.Default, dir) }

func usage(fs vfs.FS, dir string) (disk.Usage, error) {
	u, err := fs.GetDiskUsage(dir)
	return disk.Usage{Free: u.AvailBytes, Total: u.TotalBytes}, err
}

// releaseReserve removes the reserve if less than its size is free, or if the space is
// unknown.
func releaseReserve(fs vfs.FS, dir string, logger log.Logger) error {
	path := fs.PathJoin(dir, reserveFile)
	info, err := fs.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	u, err := usage(fs, dir)
	if err == nil && u.Free >= uint64(info.Size()) {
		return nil
	}
	level.Warn(logger).Log("msg", "the disk is full: the reserve is removed, so that the store can be read; free some space", "file", path, "bytes", info.Size(), "free_bytes", u.Free)
	return fs.Remove(path)
}

// adviseSpace adds what to do to an error about a full disk.
func adviseSpace(dir string, err error) error {
	if vfs.IsNoSpaceError(err) {
		return fmt.Errorf("the disk of data directory %q is full, and no reserve is left: free some space and start again: %w", dir, err)
	}
	return err
}

// keepReserve makes the reserve when it is missing and there is space, until ctx ends.
func (s *Store) keepReserve(ctx context.Context) {
	for {
		if err := s.makeReserve(ctx); err != nil && ctx.Err() == nil {
			level.Warn(s.guard.logger).Log("msg", "cannot reserve the disk space that a start on a full disk needs, trying again", "err", err)
		}
		if !sleep(ctx, reserveInterval) {
			return
		}
	}
}

// reserveBytes returns the size of the reserve. A start writes what the logs of all memtables have
// as tables, however small the file system is. Without a floor there is no reserve.
func (s *Store) reserveBytes(floor uint64) uint64 {
	if floor == 0 {
		return 0
	}
	return min(maxReserve, max(floor/reserveShare, memTables*s.memTableBytes+startBytes))
}

// makeReserve makes the reserve if it is missing, and if enough space is left above the
// floor.
func (s *Store) makeReserve(ctx context.Context) error {
	s.reserving.Lock()
	defer s.reserving.Unlock()
	u, err := usage(s.fs, s.dir)
	if err != nil {
		return err
	}
	floor := disk.Floor(s.minFree, u.Total)
	size := s.reserveBytes(floor)
	path := s.fs.PathJoin(s.dir, reserveFile)
	if _, err := s.fs.Stat(path); size == 0 || u.Free < floor+2*size || !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := fill(ctx, s.fs, path+temporary, int(size)); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), removeIfThere(s.fs, path+temporary))
	}
	if err := s.fs.Rename(path+temporary, path); err != nil {
		return err
	}
	return syncDirectory(s.fs, s.dir)
}

// fill writes a durable file of this many random bytes: a file system may store zeros
// without space.
func fill(ctx context.Context, fs vfs.FS, path string, size int) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{})
	block := make([]byte, 1<<20)
	for size > 0 && err == nil && ctx.Err() == nil {
		block = block[:min(size, len(block))]
		_, _ = random.Read(block) // it never fails
		_, err = f.Write(block)
		size -= len(block)
	}
	return errors.Join(err, ctx.Err(), f.Sync(), f.Close())
}

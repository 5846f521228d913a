package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// DamagedDir is the directory, in that of the store, to which SetAside moves damaged tables.
const DamagedDir = "damaged"

// SetAside moves damaged tables of a store, which is not open, to DamagedDir. A table with
// what can still be read takes the place of each, with the same name and size. So the
// manifest stays as it is, and no other table is touched. It calls done after each table,
// with its path in DamagedDir, which is empty if the table was missing.
func SetAside(ctx context.Context, cfg Config, damaged []DamagedTable, done func(d *DamagedTable, path string)) error {
	cfg.Existing = true
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	lock, err := lockDirectory(cfg, time.Now())
	if err != nil {
		return err
	}
	fs, to := cfg.fs, cfg.fs.PathJoin(cfg.Dir, DamagedDir)
	err = errors.Join(fs.MkdirAll(to, 0o750), syncDirectory(fs, cfg.Dir))
	for i := 0; i < len(damaged) && err == nil; i++ {
		var path string
		if path, err = setAside(ctx, cfg, to, &damaged[i]); err == nil {
			done(&damaged[i], path)
		} else {
			err = fmt.Errorf("set %s aside: %w", damaged[i].Name, err)
		}
	}
	return errors.Join(err, lock.Close())
}

// setAside moves one table. At any time there is a table of this name, whole or damaged.
func setAside(ctx context.Context, cfg Config, to string, d *DamagedTable) (path string, err error) {
	fs, dir := cfg.fs, cfg.Dir
	table, rest := fs.PathJoin(dir, d.Name), fs.PathJoin(to, d.Name+temporary)
	if err := writeRest(ctx, cfg, table, rest, d); err != nil {
		return "", errors.Join(err, removeIfThere(fs, rest))
	}
	if !d.Missing {
		if path, err = linkAside(fs, table, to, d.Name); err != nil {
			return "", err
		}
	}
	if err := fs.Rename(rest, table); err != nil {
		return "", err
	}
	return path, errors.Join(syncDirectory(fs, dir), syncDirectory(fs, to))
}

// linkAside gives a table a second name in the directory to, durably, and returns its path.
func linkAside(fs vfs.FS, table, to, name string) (path string, err error) {
	path = fs.PathJoin(to, name)
	for n := 2; ; n++ {
		err := fs.Link(table, path)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return "", err
		}
		path = fs.PathJoin(to, fmt.Sprintf("%s.%d", name, n)) // it was damaged before
	}
	return path, syncDirectory(fs, to)
}

// writeRest writes what can be read of a table to the file rest, durably.
func writeRest(ctx context.Context, cfg Config, table, rest string, d *DamagedTable) (err error) {
	opts := engineOptions(cfg)
	opts.EnsureDefaults()
	file, err := cfg.fs.Create(rest, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	format, size := opts.FormatMajorVersion.MaxTableFormat(), int64(d.info.Size)
	w := sstable.NewRawWriter(objstorageprovider.NewFileWritable(file), opts.MakeWriterOptions(d.level, format))
	if d.whole {
		err = w.Add(placeholder(d.info), nil, false)
	} else {
		size, err = copyTable(ctx, cfg.fs, table, opts.MakeReaderOptions(), w, d)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return growTable(cfg.fs, rest, size, int64(format.FooterSize()))
}

// placeholder returns the only key of a table of which nothing can be read: the tombstone of
// a cell that is not there.
func placeholder(info pebble.SSTableInfo) sstable.InternalKey {
	key := append(bytes.Clone(info.Smallest.UserKey), 0)
	if bytes.Compare(key, info.Largest.UserKey) >= 0 {
		key = info.Smallest.UserKey
	}
	return sstable.InternalKey{UserKey: key} // the sequence number is 0: before all others
}

// copyTable copies what is not damaged, with its sequence numbers, and returns the size of
// the table.
func copyTable(ctx context.Context, fs vfs.FS, path string, opts sstable.ReaderOptions, w sstable.RawWriter, d *DamagedTable) (size int64, err error) {
	t, err := openTable(ctx, fs, path, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.reader.Close()) }()
	if err := t.copyCells(ctx, w, d); err != nil || d.deletions {
		return t.size, err
	}
	deletions, err := t.reader.NewRawRangeDelIter(ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || deletions == nil {
		return t.size, err
	}
	defer deletions.Close()
	span, err := deletions.First()
	for ; err == nil && span != nil; span, err = deletions.Next() {
		if err = w.EncodeSpan(*span); err != nil {
			return 0, err
		}
	}
	return t.size, err
}

// copyCells copies the cells between the damaged blocks.
func (t *tableFile) copyCells(ctx context.Context, w sstable.RawWriter, d *DamagedTable) error {
	var from []byte
	copied := 0
	for _, b := range d.blocks {
		if b.after != nil {
			n, err := t.copyRange(ctx, w, from, behind(b.after))
			if err != nil {
				return err
			}
			copied += n
		}
		from = behind(b.last)
	}
	n, err := t.copyRange(ctx, w, from, nil)
	if copied += n; copied > 0 || err != nil {
		return err
	}
	return w.Add(placeholder(d.info), nil, false)
}

// behind returns the least key behind a separator of blocks.
func behind(separator []byte) []byte { return append(bytes.Clone(separator), 0) }

// copyRange copies the cells with stored keys in [from, limit), which are in sound blocks.
func (t *tableFile) copyRange(ctx context.Context, w sstable.RawWriter, from, limit []byte) (n int, err error) {
	it, err := t.reader.NewIter(sstable.NoTransforms, from, limit, sstable.AssertNoBlobHandles)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := it.Close(); !pebble.IsCorruptionError(closeErr) { // the damaged block behind
			err = errors.Join(err, closeErr)
		}
	}()
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		value, _, err := kv.Value(nil)
		if err != nil {
			return n, err
		}
		if err := w.Add(kv.K, value, false); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// growTable makes a table larger, to this size: its footer must be at the end, and what is
// before the footer may be anything.
func growTable(fs vfs.FS, path string, size, footer int64) error {
	file, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > size {
		err = fmt.Errorf("what can be read of it has %d bytes, more than the %d of the table", info.Size(), size)
	}
	content := make([]byte, footer)
	if err == nil {
		_, err = file.ReadAt(content, info.Size()-footer)
	}
	if err == nil {
		_, err = file.WriteAt(content, size-footer)
	}
	return errors.Join(err, file.Sync(), file.Close())
}

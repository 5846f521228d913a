package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/promtable/promtable/bucketstore/durable"
)

// Progress is called with the bytes that are there, of all, and what the next file is.
type Progress func(done, all int64, next string)

// Copy copies a snapshot to a directory, which must not exist or be empty. A table that the snapshot like has, too, with the
// same name, size and time of change, becomes a hard link to that, where the file system has them: then only what is new takes
// room. like is empty if there is none. A copy that was interrupted goes on with the file at which it was. progress may be nil.
func Copy(ctx context.Context, from, to, like string, progress Progress) (*Manifest, error) {
	m, err := Read(from)
	if err != nil {
		return nil, err
	}
	building := to + unfinished
	if err := checkEmpty(to); err != nil {
		return nil, err
	}
	if err = (copying{m, dirFiles{from, like}, progress}).to(ctx, building); err == nil {
		err = finish(m, building, to)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the snapshot %q to %q: %w", from, to, err)
	}
	return m, nil
}

// Adopt makes what is there of an unfinished copy, in the same directory as to, the beginning of a copy to that.
func Adopt(to string) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(to), "*"+unfinished))
	for _, other := range others {
		if other == to+unfinished {
			return nil
		}
	}
	if len(others) > 0 {
		err = os.Rename(others[0], to+unfinished)
	}
	return err
}

// Restore copies a snapshot to a data directory and a directory of the log, which must not exist or be empty. They may be on other disks, and
// where disks are mounted. FORMAT, without which no adapter starts on it, comes last. A restore that was interrupted goes on.
func Restore(ctx context.Context, from, dataDir, logDir string, progress Progress) (*Manifest, error) {
	m, err := Read(from)
	if err != nil {
		return nil, err
	}
	if err = RestoreFiles(ctx, m, dirFiles{dir: from}, dataDir, logDir, progress); err != nil {
		return nil, fmt.Errorf("restore the snapshot %q: %w", from, err)
	}
	return m, nil
}

// RestoreFiles is Restore of a snapshot whose files are elsewhere.
func RestoreFiles(ctx context.Context, m *Manifest, files Files, dataDir, logDir string, progress Progress) error {
	return copying{m, files, progress}.restore(ctx, dataDir, logDir)
}

// restoring is the directory in a data directory in which a restore is made.
const restoring = "restoring" + unfinished

// CheckRestored refuses a data directory in which a restore has not finished.
func CheckRestored(dataDir string) error {
	_, err := os.Stat(filepath.Join(dataDir, restoring))
	if err == nil {
		return fmt.Errorf("a restore to %q has not finished: it has a directory %s. Run adapter restore again, with the same snapshot, which goes on; or remove %q to begin anew", dataDir, restoring, dataDir)
	}
	return nil // that it cannot be read is for those who open it
}

// Files are the files of a snapshot.
type Files interface {
	// Fetch writes one to a path, durably, unless it is there already, as a whole. It fails if the content has not the sum of the file.
	Fetch(ctx context.Context, f File, to string) error
}

// A copying is a snapshot that is copied. progress may be nil.
type copying struct {
	m        *Manifest
	files    Files
	progress Progress
}

// dirFiles are those of a directory. like may be another snapshot, and empty.
type dirFiles struct{ dir, like string }

func (d dirFiles) Fetch(ctx context.Context, f File, to string) error {
	name := filepath.FromSlash(f.Name)
	from := filepath.Join(d.dir, name)
	if d.like != "" && isTable(f.Name) && linkSame(filepath.Join(d.like, name), from, to) {
		return nil
	}
	return copyFile(ctx, from, to, f.Sum)
}

func (c copying) restore(ctx context.Context, dataDir, logDir string) error {
	store, log := c.m.split()
	if err := checkRestorable(dataDir, store, logDir == filepath.Join(dataDir, LogDir)); err != nil {
		return err
	}
	if err := checkRestorable(logDir, log, false); err != nil {
		return err
	}
	building := filepath.Join(dataDir, restoring)
	if err := c.to(ctx, building); err != nil {
		return err
	}
	if err := checkFiles(c.m, building); err != nil {
		return err
	}
	if err := os.MkdirAll(logDir, 0o750); err != nil {
		return err
	}
	for _, f := range log.Files { // the directory may be on another disk
		if err := copyFile(ctx, filepath.Join(building, LogDir, f.Name), filepath.Join(logDir, f.Name), f.Sum); err != nil {
			return err
		}
	}
	if err := durable.OS(logDir).Sync(); err != nil {
		return err
	}
	slices.SortStableFunc(store.Files, func(a, b File) int { return cmp.Compare(rank(a), rank(b)) })
	for _, f := range store.Files {
		if err := durable.OS(dataDir).Sync(); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(building, f.Name), filepath.Join(dataDir, f.Name)); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(building), durable.OS(dataDir).Sync())
}

// lastFile is the file that makes a directory a data directory.
const lastFile = "FORMAT"

func rank(f File) int {
	if f.Name == lastFile {
		return 1
	}
	return 0
}

// split returns the files of the store and those of the log, without its directory.
func (m *Manifest) split() (store, log *Manifest) {
	store, log = &Manifest{}, &Manifest{}
	for _, f := range m.Files {
		if name, ok := strings.CutPrefix(f.Name, LogDir+"/"); ok {
			f.Name = name
			log.Files = append(log.Files, f)
		} else {
			store.Files = append(store.Files, f)
		}
	}
	return store, log
}

// checkRestorable checks that a directory does not exist, is empty, or has a part of what is to be restored, from a restore that was interrupted.
func checkRestorable(dir string, m *Manifest, hasLog bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	isRestoring := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == restoring })
	for _, entry := range entries {
		isOurs := slices.ContainsFunc(m.Files, func(f File) bool {
			info, err := entry.Info()
			return err == nil && f.Name == entry.Name() && f.Size == info.Size() && f.Name != lastFile
		})
		switch name := entry.Name(); {
		case name == restoring, name == "lost+found", isOurs && (isRestoring || !hasLog), name == LogDir && hasLog && isRestoring:
		default:
			return fmt.Errorf("%q is not empty, it has %q: choose a directory that does not exist", dir, name)
		}
	}
	return nil
}

// checkEmpty checks that a directory does not exist or is empty.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%q is not empty, it has %q: choose a directory that does not exist", dir, entries[0].Name())
	}
	return nil
}

// to copies the files that are not there yet. Other files are removed.
func (c copying) to(ctx context.Context, to string) error {
	m, progress := c.m, c.progress
	if progress == nil {
		progress = func(int64, int64, string) {}
	}
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	if err := removeOthers(m, to); err != nil {
		return err
	}
	all, done := m.Bytes(), int64(0)
	for _, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress(done, all, f.Name)
		name := filepath.FromSlash(f.Name)
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o750); err != nil {
			return err
		}
		if err := c.files.Fetch(ctx, f, filepath.Join(to, name)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		done += f.Size
	}
	progress(done, all, "")
	return nil
}

// isTable says whether a file does not change as long as it has its name.
func isTable(name string) bool { return path.Ext(name) == ".sst" && !strings.Contains(name, "/") }

// removeOthers removes the files that are not of a snapshot: those of another one that was not finished.
func removeOthers(m *Manifest, dir string) error {
	files, err := filesIn(dir)
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		wanted[f.Name] = true
	}
	for _, f := range files {
		if !wanted[f.Name] {
			if err := os.Remove(filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkSame makes to a link to like if that has the size and the time of from.
func linkSame(like, from, to string) bool {
	if !isSame(like, from) {
		return false
	}
	err := os.Link(like, to)
	return err == nil || errors.Is(err, os.ErrExist) && isSame(to, from)
}

// isSame says whether two files have the same size and time of change.
func isSame(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && first.Size() == second.Size() && first.ModTime().Equal(second.ModTime())
}

// ErrDamaged says that a file of a snapshot has another content than when it was taken.
var ErrDamaged = errors.New("its content is not that of which the snapshot was taken: the disk has damaged it; use another snapshot")

// copyFile copies a file whose content has a sum, with its time of change, unless the copy is there. It is durable before it has its name and
// its time.
func copyFile(ctx context.Context, from, to, sum string) (err error) {
	if isSame(from, to) {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	part := to + ".part"
	err = durable.Create(durable.OS(filepath.Dir(part)), filepath.Base(part), os.O_TRUNC, func(w io.Writer) error {
		got, err := SumOf(ctx, io.TeeReader(src, w))
		if err == nil && got != sum {
			err = ErrDamaged
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Chtimes(part, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(part, to)
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

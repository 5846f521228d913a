package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/promtable/promtable/bucketstore/durable"
)

const (
	// LogDir is the directory of the log in a snapshot.
	LogDir = "buffer"
	// manifestName is the file that says what a snapshot has. It is written last.
	manifestName = "SNAPSHOT"
	// version is that of the manifest. Others are refused.
	version = 2
	// unfinished ends the name of a snapshot or a copy that is not whole yet.
	unfinished = ".unfinished"
)

// A Manifest says what a snapshot has.
type Manifest struct {
	// Version is 2.
	Version int `json:"version"`
	// Time is when it was taken.
	Time time.Time `json:"time"`
	// Files are all other files.
	Files []File `json:"files"`
}

// A File is a file of a snapshot.
type File struct {
	// Name is its path in the snapshot, with slashes.
	Name string `json:"name"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Sum is the XXH64 of its content, as 16 hexadecimal digits.
	Sum string `json:"xxh64"`
}

// A Sum takes a content.
type Sum struct{ *xxhash.Digest }

// NewSum returns that of no content.
func NewSum() Sum { return Sum{xxhash.New()} }

// String returns the sum of what was written, as File.Sum has it.
func (s Sum) String() string { return fmt.Sprintf("%016x", s.Sum64()) }

// SumOf returns the sum of a content.
func SumOf(ctx context.Context, content io.Reader) (string, error) {
	s := NewSum()
	_, err := io.Copy(s, contextReader{ctx, content})
	return s.String(), err
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (bytes int64) {
	for _, f := range m.Files {
		bytes += f.Size
	}
	return bytes
}

// A Store can be copied while it is in use.
type Store interface {
	// Checkpoint writes a copy to a directory, which does not exist.
	Checkpoint(dir string) error
}

// A Log can be copied while it is in use.
type Log interface {
	// Snapshot writes a copy to a directory, which does not exist, that is not older than what store copies.
	Snapshot(ctx context.Context, dir string, store func() error) error
}

// A Source is what a snapshot is taken of. Log is nil if there is none.
type Source struct {
	Store Store
	Log   Log
}

// Take writes a snapshot to a directory, which must not exist or be empty. After an error the
// directory is as it was before. All files are read for their sums, but for tables that an earlier snapshot of the store has, too: last is its
// manifest, or nil.
func Take(ctx context.Context, of Source, dir string, now time.Time, last *Manifest) (*Manifest, error) {
	building, logCopy := dir+unfinished, dir+".log"+unfinished
	removeBoth := func() error { return errors.Join(os.RemoveAll(building), os.RemoveAll(logCopy)) }
	if err := removeBoth(); err != nil { // those of a process that died
		return nil, err
	}
	m, err := of.take(ctx, building, logCopy, now)
	if err == nil {
		err = m.sum(ctx, building, last)
	}
	if err == nil {
		err = finish(m, building, dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take a snapshot: %w", err), removeBoth())
	}
	return m, nil
}

func (of Source) take(ctx context.Context, dir, logCopy string, now time.Time) (m *Manifest, err error) {
	if of.Log == nil {
		err = of.Store.Checkpoint(dir)
	} else if err = of.Log.Snapshot(ctx, logCopy, func() error { return of.Store.Checkpoint(dir) }); err == nil {
		err = os.Rename(logCopy, filepath.Join(dir, LogDir))
	}
	if err != nil {
		return nil, err
	}
	m = &Manifest{Version: version, Time: now.UTC()}
	m.Files, err = filesIn(dir)
	return m, err
}

// sum sets the sums of the files, which are in a directory.
func (m *Manifest) sum(ctx context.Context, dir string, last *Manifest) error {
	known := make(map[string]File)
	if last != nil {
		for _, f := range last.Files {
			known[f.Name] = f
		}
	}
	for i := range m.Files {
		f := &m.Files[i]
		if before, ok := known[f.Name]; ok && isTable(f.Name) && before.Size == f.Size {
			f.Sum = before.Sum
			continue
		}
		content, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Name)))
		if err != nil {
			return err
		}
		f.Sum, err = SumOf(ctx, content)
		if err = errors.Join(err, content.Close()); err != nil {
			return fmt.Errorf("read %s: %w", f.Name, err)
		}
	}
	return nil
}

// filesIn returns the files of a directory and those below.
func filesIn(dir string) (files []File, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, File{Name: filepath.ToSlash(name), Size: info.Size()})
		return err
	})
	return files, err
}

// finish writes the manifest and gives a snapshot its name.
func finish(m *Manifest, building, dir string) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err := checkFiles(m, building); err != nil {
		return err
	}
	if err := durable.WriteFile(durable.OS(building), manifestName, text); err != nil {
		return err
	}
	return publish(building, dir)
}

// publish gives a finished directory its name, durably. One of this name may be there if it is empty.
func publish(building, dir string) error {
	if err := syncDirs(building); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // Rename wants no directory there
		return err
	}
	if err := os.Rename(building, dir); err != nil {
		return err
	}
	return durable.OS(filepath.Dir(dir)).Sync()
}

// syncDirs makes the entries of a directory and of those below durable.
func syncDirs(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return durable.OS(path).Sync()
	})
}

// Lock locks a directory of snapshots for this process, and fails if another one has it.
func Lock(dir string) (unlock func() error, err error) {
	unlock, err = durable.OS(dir).Lock(lockName)
	if err != nil {
		return nil, fmt.Errorf("another process works on the snapshots in %q: %w", dir, err)
	}
	return unlock, nil
}

// lockName is the file that is locked.
const lockName = ".lock"

// Clean removes what a process left in a directory of snapshots that died.
func Clean(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*"+unfinished))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// Rename gives a snapshot another name on the same disk, durably.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(durable.OS(filepath.Dir(to)).Sync(), durable.OS(filepath.Dir(from)).Sync())
}

// ErrNone says that a directory is no snapshot, or not a whole one.
var ErrNone = errors.New("no snapshot")

// Read returns what a snapshot has, and checks that it is all there. The error is an ErrNone if the directory is no snapshot, or
// lacks files.
func Read(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%q is %w: it has no file %s, which is written last", dir, ErrNone, manifestName)
	}
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%q is %w: %s is damaged: %v", dir, ErrNone, manifestName, err)
	}
	if m.Version != version {
		return nil, fmt.Errorf("%q is %w of version %d, which this adapter reads: %s says %d; use the adapter that wrote it", dir, ErrNone, version, manifestName, m.Version)
	}
	if err := checkFiles(&m, dir); err != nil {
		return nil, fmt.Errorf("%q is %w: %w", dir, ErrNone, err)
	}
	return &m, nil
}

// checkFiles checks that a directory has the files of a manifest.
func checkFiles(m *Manifest, dir string) error {
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			return fmt.Errorf("%s names %q, which is not in it", manifestName, f.Name)
		}
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(f.Name)))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s is missing", f.Name)
		case err != nil:
			return err
		case info.Size() != f.Size:
			return fmt.Errorf("%s has %d bytes, it had %d; was an adapter started on it?", f.Name, info.Size(), f.Size)
		}
	}
	return nil
}

// in returns the paths of the whole snapshots in a directory, the oldest first.
func in(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	times := make(map[string]time.Time)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !entry.IsDir() || strings.HasSuffix(path, unfinished) {
			continue
		}
		if m, err := Read(path); err == nil {
			paths = append(paths, path)
			times[path] = m.Time
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return times[a].Compare(times[b]) })
	return paths, err
}

// Latest returns the path of the latest whole snapshot in a directory. It is empty if there is none.
func Latest(dir string) (string, error) {
	paths, err := in(dir)
	if len(paths) == 0 {
		return "", err
	}
	return paths[len(paths)-1], err
}

// Prune removes all whole snapshots in a directory but the latest ones, of which keep stay, and that at taken, whatever its time. It returns what it
// removed.
func Prune(dir string, keep int, taken string) (removed []string, err error) {
	paths, err := in(dir)
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == taken })
	for len(paths) > keep-1 && err == nil {
		// A part of it is none: the manifest goes first.
		if err = os.Remove(filepath.Join(paths[0], manifestName)); err == nil {
			err = os.RemoveAll(paths[0])
		}
		removed, paths = append(removed, paths[0]), paths[1:]
	}
	return removed, err
}

package buffer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// Files in the directory of the log, beside its segments and the stamp.
const (
	lockName     = "lock"
	ownerName    = "owner"
	identityName = "identity"
	// idName is the file in which early versions kept the ID of the log.
	idName = "id"
)

// maxSmallFile bounds what is read of owner, identity and id, in bytes.
const maxSmallFile = 4096

// A Binding says which store a log belongs to: its identity, and the digest of its schema.
// The zero Binding is that of a log which an early version wrote, or which is not bound
// yet.
type Binding struct {
	Store  string `json:"store"`
	Schema string `json:"schema"`
}

// dirIdentity is the content of the identity file, as JSON.
type dirIdentity struct {
	// Log is the ID of the log.
	Log string `json:"log"`
	Binding
	// Location is where the store was when the log was bound to it, for messages.
	Location string `json:"location"`
}

// A dirState is the content of a directory: the identity of the log and the heads of its
// segments.
type dirState struct {
	path string
	dirIdentity
	// heads are the heads of the segments, ascending.
	heads []segmentHead
}

// readDir reads the state of a directory. A directory that does not exist is empty.
func readDir(path string) (s dirState, err error) {
	s.path = path
	segments, err := segmentsIn(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if s.dirIdentity, err = readIdentity(path); err != nil {
		return s, err
	}
	for i, segment := range segments {
		if next := segments[0] + uint64(i); segment != next {
			return s, fmt.Errorf("segment %s is missing", segmentName(next))
		}
	}
	for i, segment := range segments {
		head, err := readHead(path, segment)
		if err == nil && head.blank && i < len(segments)-1 {
			err = fmt.Errorf("%w: nothing is in it", series.ErrCorrupt)
		}
		if err != nil {
			return s, fmt.Errorf("segment %s: %w", segmentName(segment), err)
		}
		s.heads = append(s.heads, head)
	}
	return s, nil
}

// readIdentity returns the identity in a directory. It is empty if there is none.
func readIdentity(dir string) (identity dirIdentity, err error) {
	text, err := readFile(filepath.Join(dir, identityName))
	switch {
	case err == nil:
		if err := json.Unmarshal([]byte(text), &identity); err != nil || identity.Log == "" {
			return identity, fmt.Errorf("%w: %s holds %.80q and no identity", series.ErrCorrupt, identityName, text)
		}
		return identity, nil
	case !errors.Is(err, os.ErrNotExist):
		return identity, err
	}
	if identity.Log, err = readFile(filepath.Join(dir, idName)); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return identity, err
}

// holdsSamples says whether the log may hold a request.
func (s *dirState) holdsSamples() bool {
	return slices.ContainsFunc(s.heads, func(h segmentHead) bool { return !h.empty })
}

// size returns the bytes of all segments.
func (s *dirState) size() (bytes int64) {
	for _, h := range s.heads {
		bytes += h.size
	}
	return bytes
}

// A Dir is the directory of a log, locked for this process.
type Dir struct {
	state dirState
	lock  fileutil.Releaser
	// store lists the log in META, once it is bound.
	store *meta.Store
}

// OpenDir locks the directory of a log, creates it if it is missing, and reads its state.
// It fails if another process has locked it. since is the start of this process; it goes
// into the error of such another process.
func OpenDir(path string, since time.Time) (*Dir, error) {
	if err := makeDir(path); err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	lock, err := lockDir(path, since)
	if err != nil {
		return nil, err
	}
	d := &Dir{lock: lock}
	if d.state, err = readDir(path); err == nil && d.state.Log == "" {
		err = d.setIdentity(dirIdentity{Log: rand.Text()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", path, err), lock.Release())
	}
	return d, nil
}

// ID is the random name of the log. It survives restarts.
func (d *Dir) ID() string { return d.state.Log }

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Release() }

// setIdentity makes the identity of the log durable.
func (d *Dir) setIdentity(identity dirIdentity) error {
	text, err := json.Marshal(identity)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(d.state.path, identityName), string(text)); err != nil {
		return err
	}
	d.state.dirIdentity = identity
	return nil
}

// lockDir locks a directory, which exists, and writes the owner file.
func lockDir(dir string, since time.Time) (fileutil.Releaser, error) {
	lock, _, err := fileutil.Flock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("the log in %s is held by another process, %s: %w", dir, readOwner(dir), err)
	}
	if err := writeFile(filepath.Join(dir, ownerName), describeOwner(since)); err != nil {
		return nil, errors.Join(fmt.Errorf("take the log in %s: %w", dir, err), lock.Release())
	}
	return lock, nil
}

// describeOwner describes this process, for the error of another one.
func describeOwner(since time.Time) string {
	return fmt.Sprintf("pid %d on %s since %s", os.Getpid(), hostname(), since.UTC().Format(time.RFC3339))
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "an unknown host"
	}
	return host
}

// readOwner returns the text of the owner file.
func readOwner(dir string) string {
	text, err := readFile(filepath.Join(dir, ownerName))
	if err != nil || text == "" {
		return "which left no name"
	}
	return text
}

// readFile returns the text of a small file without space around it.
func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSmallFile))
	return strings.TrimSpace(string(text)), errors.Join(err, file.Close())
}

// writeFile replaces a small file, durably and atomically.
func writeFile(path, text string) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return fileutil.Rename(path+".new", path)
}

// makeDir creates a missing directory and its parents, durably.
func makeDir(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
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

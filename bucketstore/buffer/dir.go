package buffer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/rowfiles"
	"github.com/promtable/promtable/series"
)

// Files in the directory of the log, beside its segments and the stamp.
const (
	lockName     = "lock"
	ownerName    = "owner"
	identityName = "identity"
)

// damagedSuffix follows the name of a file in which a repair keeps what was damaged.
const damagedSuffix = ".damaged"

// A Binding says which store a log belongs to: its identity, and the digest of its schema.
// The zero Binding is that of a log which is not bound yet.
type Binding struct {
	Store  string `json:"store"`
	Schema string `json:"schema"`
}

// Suffixes of the names of files that a start sets aside, behind the ID of their log: those of a log that the store has forgotten, and
// copies of segments with samples that are older than samples are kept.
const (
	forgottenSuffix = ".forgotten"
	oldSuffix       = ".old"
)

// asideName is the name of a file of the log that is set aside.
func (s *dirState) asideName(name, suffix string) string { return name + "." + s.Log + suffix }

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
	durable.Dir
	dirIdentity
	// heads are the heads of the segments, ascending.
	heads []segmentHead
	// rowFiles are the heads of the row files, ascending, with their numbers as segments.
	rowFiles []segmentHead
	// synced is how far the log is known to be synced, if that is in the last segment.
	synced position
}

// readDir reads the state of a directory. A directory that does not exist is empty.
func readDir(dir durable.Dir) (s dirState, err error) {
	s.Dir = dir
	segments, err := segmentsIn(dir)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if s.dirIdentity, err = readIdentity(dir); err != nil {
		return s, err
	}
	if s.synced, err = readSynced(dir); err != nil {
		return s, err
	}
	for i, segment := range segments {
		if next := segments[0] + uint64(i); segment != next {
			return s, fmt.Errorf("%w: segment %s is missing", series.ErrCorrupt, segmentName(next))
		}
	}
	for i, segment := range segments {
		head, err := readHead(dir, segment)
		if err == nil && head.blank && i < len(segments)-1 {
			err = fmt.Errorf("%w: nothing is in it", series.ErrCorrupt)
		}
		if err != nil {
			return s, fmt.Errorf("segment %s: %w", segmentName(segment), err)
		}
		if i > 0 && head.previous > 0 && head.previous != s.heads[i-1].size {
			return s, fmt.Errorf("segment %s: %w: it has %d bytes, and had %d when the next one was begun", segmentName(segment-1), series.ErrCorrupt, s.heads[i-1].size, head.previous)
		}
		if s.synced.segment == segment && (head.size < s.synced.size || head.blank) {
			return s, fmt.Errorf("segment %s: %w: only %d of %d bytes that were synced are there", segmentName(segment), series.ErrCorrupt, head.size, s.synced.size)
		}
		s.heads = append(s.heads, head)
	}
	if n := len(s.heads); s.synced.segment > 0 && (n == 0 || s.heads[n-1].segment < s.synced.segment) {
		return s, fmt.Errorf("%w: segment %s is missing, of which %d bytes were synced", series.ErrCorrupt, segmentName(s.synced.segment), s.synced.size)
	}
	s.rowFiles, err = readRowHeads(dir)
	return s, err
}

// readIdentity returns the identity in a directory. It is empty if there is none.
func readIdentity(dir durable.Dir) (identity dirIdentity, err error) {
	text, err := readFile(dir, identityName)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return identity, nil
	case err != nil:
		return identity, err
	}
	if err := json.Unmarshal([]byte(text), &identity); err != nil || identity.Log == "" {
		return identity, fmt.Errorf("%w: %s holds %.80q and no identity", series.ErrCorrupt, identityName, text)
	}
	return identity, nil
}

// holdsSamples says whether the log may hold a request.
func (s *dirState) holdsSamples() bool {
	return len(s.rowFiles) > 0 || slices.ContainsFunc(s.heads, func(h segmentHead) bool { return !h.empty })
}

// HoldsSamples says whether the log in a directory has samples that may not be in the store. It changes nothing. A directory that does not exist
// has none.
func HoldsSamples(dir string) (bool, error) {
	state, err := readDir(durable.OS(dir))
	return state.holdsSamples(), err
}

// splitUnused returns the heads without the last one if that segment never had a frame, and
// that one. It may not be durable, so that it could be damage between two others. A log keeps
// its only segment, without which it would look lost, unless that was not finished.
func (s *dirState) splitUnused() (used, unused []segmentHead) {
	n := len(s.heads)
	if n > 0 && (s.heads[n-1].blank || s.heads[n-1].empty && n > 1) {
		n--
	}
	return s.heads[:n], s.heads[n:]
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
	// unlock ends the lock of the directory.
	unlock func() error
	// store lists the log in META, once it is bound. metaStamp is its stamp in META.
	store     *meta.Store
	metaStamp int64
	// rows are the files of a log without a directory. It is nil for one with.
	rows *rowfiles.Dir
}

// OpenDir locks the directory of a log, creates it if it is missing, and reads its state.
// It fails if another process has locked it, if it holds something else, or if the directory
// above it is missing. since is the start of this process; it goes
// into the error of such another process.
func OpenDir(path string, since time.Time) (*Dir, error) {
	return openDir(durable.OS(path), rand.Text(), since)
}

// OpenRows reads the state of a log whose files are rows. It may be a new one.
func OpenRows(rows *rowfiles.Dir, since time.Time) (*Dir, error) {
	d, err := openDir(rows, rows.ID(), since)
	if err == nil {
		d.rows = rows
	}
	return d, err
}

// openDir opens a directory. A new log gets this ID.
func openDir(dir durable.Dir, id string, since time.Time) (*Dir, error) {
	err := dir.Make()
	if errors.Is(err, durable.ErrNoParent) {
		err = fmt.Errorf("%w; create it, or correct --buffer.path", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	if err := checkContent(dir); err != nil {
		return nil, err
	}
	unlock, err := lockDir(dir, since)
	if err != nil {
		return nil, err
	}
	d := &Dir{unlock: unlock}
	if d.state, err = readDir(dir); err == nil && d.state.Log == "" {
		err = d.setIdentity(dirIdentity{Log: id})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", dir.Path(), err), unlock())
	}
	return d, nil
}

// checkContent refuses a directory that holds something else than a log. Without an identity
// there may be what a start leaves that ends early, a log whose identity is lost, and what a
// new file system has.
func checkContent(dir durable.Dir) error {
	names, err := dir.Names()
	if err != nil {
		return fmt.Errorf("the directory of the log cannot be read: %w", err)
	}
	if slices.Contains(names, identityName) {
		return nil
	}
	for _, name := range names {
		if !isOwnName(name) {
			return fmt.Errorf("the directory %s of the log holds %q, which is not ours; choose an empty directory, or correct --buffer.path", dir.Path(), name)
		}
	}
	return nil
}

// isOwnName says whether a file in a directory without an identity may be one of a log.
func isOwnName(name string) bool {
	name, _, _ = strings.Cut(name, damagedSuffix)
	name = strings.TrimSuffix(name, durable.Temporary)
	if slices.Contains([]string{lockName, ownerName, identityName, stampName, syncedName, "lost+found"}, name) {
		return true
	}
	digits, _, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && (name == segmentName(n) || name == rowFileName(n))
}

// ID is the random name of the log. It survives restarts.
func (d *Dir) ID() string { return d.state.Log }

// Close unlocks the directory.
func (d *Dir) Close() error { return d.unlock() }

// setIdentity makes the identity of the log durable.
func (d *Dir) setIdentity(identity dirIdentity) error {
	text, err := json.Marshal(identity)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(d.state, identityName, text); err != nil {
		return err
	}
	d.state.dirIdentity = identity
	return nil
}

// lockDir locks a directory, which exists, and writes the owner file.
func lockDir(dir durable.Dir, since time.Time) (unlock func() error, err error) {
	unlock, err = dir.Lock(lockName)
	if err != nil {
		return nil, describeLockError(dir, err)
	}
	err = durable.WriteFile(dir, ownerName, []byte(describeOwner(since)))
	if isNoSpace(err) {
		err = durable.Remove(dir, ownerName) // no name is better than that of another process
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the log in %s: %w", dir.Path(), err), unlock())
	}
	return unlock, nil
}

// describeLockError says why dir was not locked.
func describeLockError(dir durable.Dir, err error) error {
	switch {
	case isUnwritable(err):
		return fmt.Errorf("the directory %s of the log is not writable by this process: %w", dir.Path(), err)
	case isNoSpace(err):
		return fmt.Errorf("lock the log in %s: %w", dir.Path(), err)
	}
	return fmt.Errorf("the log in %s is held by another process, %s: %w", dir.Path(), readOwner(dir), err)
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
func readOwner(dir durable.Dir) string {
	text, err := readFile(dir, ownerName)
	if err != nil || text == "" {
		return "which left no name"
	}
	return text
}

// readFile returns the text of a small file without space around it.
func readFile(dir durable.Dir, name string) (string, error) {
	text, err := durable.ReadFile(dir, name)
	return strings.TrimSpace(string(text)), err
}

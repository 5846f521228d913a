// Package objects keeps snapshots in object storage, such as S3.
//
//	Bucket    what is there, reading, restoring   objects.go
//	Session   copying to it, removing old ones    session.go
//	lock      one writer at a time                lock.go
//
// Its objects:
//
//	snapshots/<time>    a Manifest, as JSON. It is written last
//	contents/<sum>-<size>-<token>   the content of a file. One that several snapshots have is there once
//	unfinished/<token>  a Manifest of what a session has copied so far, so that the next one goes on
//	verified/<time>     when a snapshot was verified
//	locks/<token>, beats/<token>    who works on it
//
// Object storage has no rename, and the interface that we use no conditional write: only reads and lists that find what was written before. The
// rules that this is enough for:
//
//   - A session writes locks/<token>, once, and begins when it is the only one that is listed. So of two, at most one begins.
//   - It writes beats/<token> again and again. A lock whose beats stand still is deleted by those who wait, by their own clock.
//   - A session whose lock is gone ends, whatever it was about to do: it looks before each deletion, and after a manifest is
//     written, which it deletes then.
//   - The contents that a session writes have names of its own, by its token, and it refers to others only if a manifest does that
//     it has found after it began. What another session may still delete, which was paused, is in no manifest by then. So a
//     late deletion hits nothing that is needed.
package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/thanos-io/objstore"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/snapshot"
)

// The directories of a bucket.
const (
	snapshotsDir  = "snapshots/"
	contentsDir   = "contents/"
	unfinishedDir = "unfinished/"
	verifiedDir   = "verified/"
	locksDir      = "locks/"
	beatsDir      = "beats/"
)

const (
	// version is that of a Manifest. Others are refused.
	version = 1
	// attempts is how often a request is made, with pauses that double.
	attempts   = 5
	firstPause = time.Second
	// NameFormat is that of the names of snapshots: their time in UTC.
	NameFormat = "20060102T150405.000Z"
	// maxManifest bounds what is read of a manifest, in bytes.
	maxManifest = 256 << 20
)

// Config says where snapshots are. Objects and Name are required.
type Config struct {
	// Objects are those of a directory in a bucket. What was written must be found by all reads and lists after that.
	Objects objstore.Bucket
	// Name is the URL for messages.
	Name string
	// Holder names this process to others that want to write.
	Holder string
	// Logger may be nil.
	Logger log.Logger
	// Stale is after how long a lock whose beats stand still is taken away. 0 is a minute.
	Stale time.Duration
	// Pause replaces the pause between two attempts, for tests.
	Pause func(ctx context.Context, d time.Duration) error
}

// A Bucket has snapshots. It is safe for concurrent use.
type Bucket struct{ cfg Config }

// New returns a Bucket.
func New(cfg Config) *Bucket {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Stale == 0 {
		cfg.Stale = time.Minute
	}
	if cfg.Pause == nil {
		cfg.Pause = bucketstore.Sleep
	}
	return &Bucket{cfg}
}

// A Manifest says what a snapshot has.
type Manifest struct {
	// Version is 1.
	Version int `json:"version"`
	// Time is when it was taken.
	Time time.Time `json:"time"`
	// Files are all files of the snapshot, but for its own manifest.
	Files []File `json:"files"`
}

// A File is a file of a snapshot, and where its content is.
type File struct {
	snapshot.File
	// Object is in contents/. An empty file has none.
	Object string `json:"object,omitempty"`
}

// A Snapshot is one that is there.
type Snapshot struct {
	// Name is its time, in NameFormat.
	Name string
	Manifest
	// Missing names a content that is not there, or is empty if the snapshot is whole.
	Missing string
	// Verified is when its content was last compared with its sums, or zero.
	Verified time.Time
}

// Bytes returns the size of all files.
func (m Manifest) Bytes() (bytes int64) {
	for _, f := range m.Files {
		bytes += f.Size
	}
	return bytes
}

// errGone says that an object is not there.
var errGone = errors.New("it is not there")

func isGone(err error) bool { return errors.Is(err, errGone) }

// retry makes a request until it does not fail, a few times.
func (b *Bucket) retry(ctx context.Context, what string, request func() error) error {
	for n := range attempts {
		err := request()
		if err == nil {
			return nil
		}
		if b.cfg.Objects.IsObjNotFoundErr(err) {
			return fmt.Errorf("%s in %s: %w: %w", what, b.cfg.Name, errGone, err)
		}
		if n == attempts-1 || ctx.Err() != nil || b.cfg.Objects.IsAccessDeniedErr(err) || errors.Is(err, snapshot.ErrDamaged) {
			return fmt.Errorf("%s in %s: %w", what, b.cfg.Name, err)
		}
		level.Warn(b.cfg.Logger).Log("msg", "object storage failed, trying again", "request", what, "err", err)
		if err := b.cfg.Pause(ctx, firstPause<<n); err != nil {
			return err
		}
	}
	return nil
}

// list returns the names of the objects in a directory, without it.
func (b *Bucket) list(ctx context.Context, dir string) (names []string, err error) {
	err = b.retry(ctx, "list "+dir, func() error {
		names = names[:0]
		return b.cfg.Objects.Iter(ctx, dir, func(name string) error {
			names = append(names, strings.TrimPrefix(name, dir))
			return nil
		})
	})
	return names, err
}

// get reads a small object. The error of one that is not there is isGone.
func (b *Bucket) get(ctx context.Context, name string) (content []byte, err error) {
	err = b.retry(ctx, "read "+name, func() error {
		r, err := b.cfg.Objects.Get(ctx, name)
		if err != nil {
			return err
		}
		content, err = io.ReadAll(io.LimitReader(r, maxManifest))
		return cmp.Or(err, r.Close()) // one that stays as it is: retry looks at it
	})
	return content, err
}

// put writes a small object.
func (b *Bucket) put(ctx context.Context, name string, content []byte) error {
	return b.retry(ctx, "write "+name, func() error { return b.cfg.Objects.Upload(ctx, name, strings.NewReader(string(content))) })
}

// remove deletes an object, which may be gone.
func (b *Bucket) remove(ctx context.Context, name string) error {
	return b.retry(ctx, "delete "+name, func() error {
		if err := b.cfg.Objects.Delete(ctx, name); err != nil && !b.cfg.Objects.IsObjNotFoundErr(err) {
			return err
		}
		return nil
	})
}

// manifest reads a manifest.
func (b *Bucket) manifest(ctx context.Context, name string) (m Manifest, err error) {
	text, err := b.get(ctx, name)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s in %s is damaged: %w", name, b.cfg.Name, err)
	}
	if m.Version != version {
		return m, fmt.Errorf("%s in %s has version %d, this adapter reads %d: use the one that wrote it", name, b.cfg.Name, m.Version, version)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Size > 0 && !strings.HasPrefix(f.Object, contentsDir) {
			return m, fmt.Errorf("%s in %s is damaged: it has a file %q in %q", name, b.cfg.Name, f.Name, f.Object)
		}
	}
	return m, nil
}

// Snapshots returns what is there, the oldest first.
func (b *Bucket) Snapshots(ctx context.Context) (all []Snapshot, err error) {
	names, err := b.list(ctx, snapshotsDir)
	if err != nil {
		return nil, err
	}
	contents, err := b.contents(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		s := Snapshot{Name: name}
		if s.Manifest, err = b.manifest(ctx, snapshotsDir+name); isGone(err) {
			continue // just removed
		}
		if err != nil {
			return nil, err
		}
		for _, f := range s.Files {
			if f.Size > 0 && !contents[f.Object] {
				s.Missing = f.Object
			}
		}
		text, err := b.get(ctx, verifiedDir+name)
		if err == nil {
			err = s.Verified.UnmarshalText(text)
		}
		if err != nil && !isGone(err) {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// contents returns which contents are there.
func (b *Bucket) contents(ctx context.Context) (map[string]bool, error) {
	names, err := b.list(ctx, contentsDir)
	found := make(map[string]bool, len(names))
	for _, name := range names {
		found[contentsDir+name] = true
	}
	return found, err
}

// Find returns the snapshot with a name, or the newest whole one if the name is empty.
func (b *Bucket) Find(ctx context.Context, name string) (s Snapshot, err error) {
	all, err := b.Snapshots(ctx)
	if err != nil {
		return s, err
	}
	for _, s := range slices.Backward(all) {
		switch {
		case name != "" && s.Name != name:
		case s.Missing == "":
			return s, nil
		case name != "":
			return s, fmt.Errorf("the snapshot %s in %s is not whole: %s is missing", name, b.cfg.Name, s.Missing)
		default:
			level.Warn(b.cfg.Logger).Log("msg", "a snapshot that is not whole is left out", "snapshot", s.Name, "missing", s.Missing)
		}
	}
	if name != "" {
		return s, fmt.Errorf("%s has %w %s", b.cfg.Name, snapshot.ErrNone, name)
	}
	return s, fmt.Errorf("%s has %w", b.cfg.Name, snapshot.ErrNone)
}

// Verified notes that the content of a snapshot was compared with its sums.
func (b *Bucket) Verified(ctx context.Context, name string, at time.Time) error {
	text, err := at.UTC().Truncate(time.Second).MarshalText()
	if err != nil {
		return err
	}
	return b.put(ctx, verifiedDir+name, text)
}

// Restore copies a snapshot to a data directory and a directory of the log, as snapshot.Restore does.
func (b *Bucket) Restore(ctx context.Context, s Snapshot, dataDir, logDir string, progress snapshot.Progress) error {
	m := snapshot.Manifest{Time: s.Time}
	files := bucketFiles{b, make(map[string]string, len(s.Files))}
	for _, f := range s.Files {
		m.Files = append(m.Files, f.File)
		files.objects[f.Name] = f.Object
	}
	if err := snapshot.RestoreFiles(ctx, &m, files, dataDir, logDir, progress); err != nil {
		return fmt.Errorf("restore the snapshot %s of %s: %w", s.Name, b.cfg.Name, err)
	}
	return nil
}

// bucketFiles are the files of a snapshot, by name.
type bucketFiles struct {
	b       *Bucket
	objects map[string]string
}

// Fetch implements snapshot.Files.
func (f bucketFiles) Fetch(ctx context.Context, file snapshot.File, to string) error {
	isThere, err := hasContent(ctx, to, file)
	if err != nil || isThere {
		return err
	}
	part := to + ".part"
	object := f.objects[file.Name]
	err = f.b.retry(ctx, "read "+object, func() error {
		return durable.Create(durable.OS(filepath.Dir(part)), filepath.Base(part), os.O_TRUNC, func(w io.Writer) error {
			if file.Size == 0 {
				return nil
			}
			r, err := f.b.cfg.Objects.Get(ctx, object)
			if err != nil {
				return err
			}
			sum, err := snapshot.SumOf(ctx, io.TeeReader(r, w))
			if err = cmp.Or(err, r.Close()); err == nil && sum != file.Sum {
				err = snapshot.ErrDamaged
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return os.Rename(part, to)
}

// hasContent says whether a path has the content of a file already.
func hasContent(ctx context.Context, path string, f snapshot.File) (bool, error) {
	content, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum, err := snapshot.SumOf(ctx, content)
	return sum == f.Sum, errors.Join(err, content.Close())
}

// objectOf returns the name of the content of a file that a session writes.
func objectOf(f snapshot.File, token string) string {
	return contentsDir + f.Sum + "-" + strconv.FormatInt(f.Size, 10) + "-" + token
}

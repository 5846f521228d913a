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
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore/snapshot"
)

const (
	// uploads is how many files are copied at once.
	uploads = 4
	// noteInterval is how often a session notes what it has copied.
	noteInterval = 30 * time.Second
)

// A Session is the one process that writes to a Bucket. It is not safe for concurrent use.
type Session struct {
	b    *Bucket
	lock *lock
	// ctx ends when the lock is lost.
	ctx  context.Context
	stop func()
}

// Begin returns the session of this process, until it ends. The error is an ErrLocked if another one writes.
func (b *Bucket) Begin(ctx context.Context) (*Session, error) {
	l, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	working, lost := context.WithCancelCause(ctx)
	holding, release := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { l.hold(holding, lost) })
	return &Session{b: b, lock: l, ctx: working, stop: func() {
		release()
		beats.Wait()
		lost(nil)
	}}, nil
}

// End releases the lock.
func (s *Session) End() error {
	s.stop()
	return s.lock.release(s.ctx)
}

// cause returns the reason of an error: a lost lock ends the context.
func (s *Session) cause(err error) error {
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// A Push is what copying a snapshot has done.
type Push struct {
	// Name is that of the snapshot.
	Name string
	// Bytes and Files are those of the snapshot, Sent are the bytes that were not there.
	Bytes, Sent int64
	Files       int
}

// Push copies a snapshot in a directory. What an earlier snapshot has, or a session that has not finished, is not sent again. progress may
// be nil.
func (s *Session) Push(dir string, progress snapshot.Progress) (p Push, err error) {
	m, err := snapshot.Read(dir)
	if err != nil {
		return p, err
	}
	if progress == nil {
		progress = func(int64, int64, string) {}
	}
	p = Push{Name: m.Time.UTC().Format(NameFormat), Bytes: m.Bytes(), Files: len(m.Files)}
	if p.Sent, err = s.push(dir, p.Name, m, progress); err != nil {
		return p, fmt.Errorf("copy the snapshot %q to %s: %w", dir, s.b.cfg.Name, s.cause(err))
	}
	return p, nil
}

func (s *Session) push(dir, name string, m *snapshot.Manifest, progress snapshot.Progress) (sent int64, err error) {
	there, err := s.known()
	if err != nil {
		return 0, err
	}
	done := Manifest{Version: version, Time: m.Time}
	var missing []snapshot.File
	for _, f := range m.Files {
		if object := there[contentOf(f)]; object != "" || f.Size == 0 {
			done.Files = append(done.Files, File{f, object})
		} else {
			missing = append(missing, f)
		}
	}
	bytes, all, noted := done.Bytes(), m.Bytes(), time.Now()
	var mu sync.Mutex // for these, sent and done
	group, ctx := errgroup.WithContext(s.ctx)
	group.SetLimit(uploads)
	for _, f := range missing {
		mu.Lock()
		progress(bytes, all, f.Name)
		mu.Unlock()
		group.Go(func() error {
			object := objectOf(f, s.lock.token)
			if err := s.send(ctx, filepath.Join(dir, filepath.FromSlash(f.Name)), f, object); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			mu.Lock()
			bytes, sent = bytes+f.Size, sent+f.Size
			done.Files = append(done.Files, File{f, object})
			part, isDue := done, time.Since(noted) >= noteInterval
			if isDue {
				noted = time.Now()
			}
			mu.Unlock()
			if !isDue {
				return nil
			}
			return s.write(ctx, unfinishedDir+s.lock.token, part)
		})
	}
	if err := group.Wait(); err != nil {
		// What is there is of use to the next session.
		last, cancel := afterEnd(s.ctx)
		defer cancel()
		return sent, errors.Join(err, s.write(last, unfinishedDir+s.lock.token, done))
	}
	progress(all, all, "")
	slices.SortFunc(done.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	if err := s.write(s.ctx, snapshotsDir+name, done); err != nil {
		return sent, err
	}
	if err := s.lock.check(s.ctx); err != nil { // another session may have removed what was sent
		last, cancel := afterEnd(s.ctx)
		defer cancel()
		return sent, errors.Join(err, s.b.remove(last, snapshotsDir+name))
	}
	return sent, s.removeAll(unfinishedDir, func(string) bool { return true })
}

// A content is what a file has.
type content struct {
	sum  string
	size int64
}

func contentOf(f snapshot.File) content { return content{f.Sum, f.Size} }

// known returns the objects of the contents that manifests refer to, and that are there.
func (s *Session) known() (map[content]string, error) {
	found := make(map[content]string)
	var manifests []string
	for _, dir := range []string{snapshotsDir, unfinishedDir} {
		names, err := s.b.list(s.ctx, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			manifests = append(manifests, dir+name)
		}
	}
	contents, err := s.b.contents(s.ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range manifests {
		m, err := s.b.manifest(s.ctx, name)
		if err != nil && !isGone(err) {
			return nil, err
		}
		for _, f := range m.Files {
			if contents[f.Object] {
				found[contentOf(f.File)] = f.Object
			}
		}
	}
	return found, nil
}

// sized says how long a content is that is read.
type sized struct {
	io.Reader
	size int64
}

// ObjectSize implements objstore.ObjectSizer.
func (s sized) ObjectSize() (int64, error) { return s.size, nil }

// send writes the content of a file.
func (s *Session) send(ctx context.Context, path string, f snapshot.File, object string) error {
	return s.b.retry(ctx, "write "+object, func() error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		sum := snapshot.NewSum()
		err = s.b.cfg.Objects.Upload(ctx, object, sized{io.TeeReader(file, sum), f.Size})
		if err == nil && sum.String() != f.Sum {
			err = errors.Join(snapshot.ErrDamaged, s.b.cfg.Objects.Delete(ctx, object))
		}
		return cmp.Or(err, file.Close())
	})
}

// write writes a manifest.
func (s *Session) write(ctx context.Context, name string, m Manifest) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return s.b.put(ctx, name, text)
}

// Prune removes all whole snapshots but the latest ones, of which keep stay, all older ones that are not whole, and what no snapshot has. It returns
// the names of those that it removed.
func (s *Session) Prune(keep int) (removed []string, err error) {
	all, err := s.b.Snapshots(s.ctx)
	if err != nil {
		return nil, s.cause(err)
	}
	needed := make(map[string]bool)
	whole := 0
	for _, one := range slices.Backward(all) {
		if one.Missing == "" {
			whole++
		}
		if whole > keep || one.Missing != "" && whole > 0 {
			removed = append(removed, one.Name)
			continue
		}
		for _, f := range one.Files {
			needed[f.Object] = true
		}
	}
	isRemoved := func(name string) bool { return slices.Contains(removed, name) }
	// The manifests first: what they refer to is not of use to others any more.
	for _, of := range []struct {
		dir     string
		removes func(name string) bool
	}{
		{snapshotsDir, isRemoved},
		{verifiedDir, isRemoved},
		{unfinishedDir, func(string) bool { return true }},
		{contentsDir, func(name string) bool { return !needed[contentsDir+name] }},
		{beatsDir, func(name string) bool { return name != s.lock.token }},
	} {
		if err := s.removeAll(of.dir, of.removes); err != nil {
			return removed, fmt.Errorf("remove old snapshots of %s: %w", s.b.cfg.Name, s.cause(err))
		}
	}
	slices.Reverse(removed)
	return removed, nil
}

// removeAll removes objects of a directory.
func (s *Session) removeAll(dir string, removes func(name string) bool) error {
	names, err := s.b.list(s.ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !removes(name) {
			continue
		}
		if err := s.lock.check(s.ctx); err != nil {
			return err
		}
		if err := s.b.remove(s.ctx, dir+name); err != nil {
			return err
		}
	}
	return nil
}

package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thanos-io/objstore"

	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/bucketstore/snapshot/objects"
)

// files is a store with these files.
type files map[string]string

func (f files) Checkpoint(dir string) error {
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	for name, content := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// take takes a snapshot of files, and returns its directory.
func (f files) take(t *testing.T, at time.Time) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "taken")
	if _, err := snapshot.Take(t.Context(), snapshot.Source{Store: f}, dir, at, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// names are those of objects.
func names(t *testing.T, b objstore.Bucket, dir string) (found []string) {
	t.Helper()
	err := b.Iter(t.Context(), dir, func(name string) error { found = append(found, name); return nil }, objstore.WithRecursiveIter())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantFiles wants a restore of a snapshot, or of the newest one, to have these files.
func wantFiles(t *testing.T, b *objects.Bucket, name string, want files) {
	t.Helper()
	s, err := b.Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if err := b.Restore(t.Context(), s, dir, filepath.Join(dir, snapshot.LogDir), nil); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v, want %q", name, got, err, content)
		}
	}
}

func noPause(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func begin(t *testing.T, b *objects.Bucket) *objects.Session {
	t.Helper()
	s, err := b.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var someTime = time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC)

// TestPush: a snapshot comes back as it was, of a second one only what is new is sent, and old ones go with what only they have.
func TestPush(t *testing.T) {
	in := objstore.NewInMemBucket()
	b := objects.New(objects.Config{Objects: objstore.NewPrefixedBucket(in, "a/b"), Name: "s3://x/a/b", Pause: noPause})
	if _, err := b.Find(t.Context(), ""); !errors.Is(err, snapshot.ErrNone) {
		t.Errorf("of none: %v", err)
	}
	s := begin(t, b)
	first := files{"FORMAT": "1", "000001.sst": "table one", "000002.sst": "", "MANIFEST": "old"}
	p, err := s.Push(first.take(t, someTime), nil)
	if err != nil || p.Sent != p.Bytes || p.Bytes != int64(len("1table oneold")) || p.Name != "20260102T033000.000Z" {
		t.Fatalf("%+v, %v", p, err)
	}
	wantFiles(t, b, "", first)
	second := files{"FORMAT": "1", "000001.sst": "table one", "000003.sst": "table three", "MANIFEST": "new"}
	if p, err = s.Push(second.take(t, someTime.Add(time.Hour)), nil); err != nil || p.Sent != int64(len("table threenew")) {
		t.Fatalf("%+v, %v", p, err)
	}
	wantFiles(t, b, "", second)
	wantFiles(t, b, "20260102T033000.000Z", first)
	if err := b.Verified(t.Context(), "20260102T033000.000Z", someTime); err != nil {
		t.Fatal(err)
	}
	all, err := b.Snapshots(t.Context())
	if err != nil || len(all) != 2 || !all[0].Verified.Equal(someTime) || !all[1].Verified.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	removed, err := s.Prune(1)
	if err != nil || !slices.Equal(removed, []string{"20260102T033000.000Z"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	wantFiles(t, b, "", second)
	if _, err := b.Find(t.Context(), "20260102T033000.000Z"); !errors.Is(err, snapshot.ErrNone) {
		t.Errorf("one that is removed: %v", err)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	found := names(t, in, "")
	if len(found) != 5 || slices.ContainsFunc(found, func(name string) bool { return !strings.HasPrefix(name, "a/b/") }) { // 4 contents and a manifest
		t.Errorf("what is left: %q", found)
	}
}

// TestDamaged: contents that have changed or are missing are named, and a manifest of another version is refused by number.
func TestDamaged(t *testing.T) {
	in := objstore.NewInMemBucket()
	b := objects.New(objects.Config{Objects: in, Name: "s3://x", Pause: noPause})
	s := begin(t, b)
	older := files{"FORMAT": "1", "000001.sst": "table"}
	for i, f := range []files{older, {"FORMAT": "1", "000001.sst": "other"}} {
		if _, err := s.Push(f.take(t, someTime.Add(time.Duration(i)*time.Hour)), nil); err != nil {
			t.Fatal(err)
		}
	}
	newest, err := b.Find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	object := newest.Files[slices.IndexFunc(newest.Files, func(f objects.File) bool { return f.Name == "000001.sst" })].Object
	if err := in.Upload(t.Context(), object, strings.NewReader("oTher")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	err = b.Restore(t.Context(), newest, dir, filepath.Join(dir, snapshot.LogDir), nil)
	if !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), "000001.sst") {
		t.Errorf("a changed content: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "FORMAT")); err == nil {
		t.Error("a data directory is made of a damaged snapshot")
	}
	if err := in.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Find(t.Context(), newest.Name); err == nil || !strings.Contains(err.Error(), object) {
		t.Errorf("a missing content: %v", err)
	}
	wantFiles(t, b, "", older) // the newest whole one
	if err := in.Upload(t.Context(), "snapshots/20270102T033000.000Z", strings.NewReader(`{"version": 7}`)); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"find":  func() error { _, err := b.Find(t.Context(), ""); return err },
		"push":  func() error { _, err := s.Push(older.take(t, someTime), nil); return err },
		"prune": func() error { _, err := s.Prune(1); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "has version 7, this adapter reads 1") {
			t.Errorf("%s beside another version: %v", what, err)
		}
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
}

// TestFormat: what version 1 has written is read for ever.
func TestFormat(t *testing.T) {
	in := objstore.NewInMemBucket()
	for name, content := range map[string]string{
		"contents/7d6b73a7b11e744b-5-TOKEN": "table", "verified/20260102T033000.000Z": "2026-01-02T04:00:00Z",
		"snapshots/20260102T033000.000Z": `{"version": 1, "time": "2026-01-02T03:30:00Z", "files": [
			{"name": "FORMAT", "size": 0, "xxh64": "ef46db3751d8e999"},
			{"name": "000001.sst", "size": 5, "xxh64": "7d6b73a7b11e744b", "object": "contents/7d6b73a7b11e744b-5-TOKEN"}]}`,
	} {
		if err := in.Upload(t.Context(), name, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	b := objects.New(objects.Config{Objects: in, Name: "s3://x"})
	wantFiles(t, b, "20260102T033000.000Z", files{"FORMAT": "", "000001.sst": "table"})
}

// A faulty bucket calls before in front of each request.
type faulty struct {
	objstore.Bucket
	before func(ctx context.Context, op, name string) error
}

func (f faulty) Upload(ctx context.Context, name string, r io.Reader, opts ...objstore.ObjectUploadOption) error {
	if err := f.before(ctx, "upload", name); err != nil {
		return err
	}
	if size, err := r.(interface{ ObjectSize() (int64, error) }); strings.HasPrefix(name, "contents/") && (!err || size == nil) {
		return errors.New("the size is not known")
	}
	content, err := io.ReadAll(r) // all or nothing
	if err != nil {
		return err
	}
	return f.Bucket.Upload(ctx, name, bytes.NewReader(content), opts...)
}

func (f faulty) Delete(ctx context.Context, name string) error {
	if err := f.before(ctx, "delete", name); err != nil {
		return err
	}
	return f.Bucket.Delete(ctx, name)
}

func (f faulty) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := f.before(ctx, "get", name); err != nil {
		return nil, err
	}
	return f.Bucket.Get(ctx, name)
}

func (f faulty) Exists(ctx context.Context, name string) (bool, error) {
	if err := f.before(ctx, "exists", name); err != nil {
		return false, err
	}
	return f.Bucket.Exists(ctx, name)
}

func (f faulty) Iter(ctx context.Context, dir string, fn func(string) error, opts ...objstore.IterOption) error {
	if err := f.before(ctx, "iter", dir); err != nil {
		return err
	}
	return f.Bucket.Iter(ctx, dir, fn, opts...)
}

var errFault = errors.New("503 Slow Down")

// TestFaults: requests that fail now and then do no harm. One that goes on failing ends a push, and the next goes on with what was sent.
func TestFaults(t *testing.T) {
	in := objstore.NewInMemBucket()
	var mu sync.Mutex
	failed, dead := make(map[string]int), ""
	b := objects.New(objects.Config{Name: "s3://x", Pause: noPause, Objects: faulty{in, func(_ context.Context, op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		if failed[op+name]++; failed[op+name]%3 != 0 || dead != "" && strings.Contains(name, dead) {
			return errFault
		}
		return nil
	}}})
	many := files{"FORMAT": "1"}
	for i := range 20 {
		many[fmt.Sprintf("%06d.sst", i)] = strings.Repeat(fmt.Sprint(i), 100)
	}
	many["MANIFEST"] = "the one that fails"
	sum, err := snapshot.SumOf(t.Context(), strings.NewReader(many["MANIFEST"]))
	if err != nil {
		t.Fatal(err)
	}
	dead = sum
	dir := many.take(t, someTime)
	s := begin(t, b)
	if _, err := s.Push(dir, nil); !errors.Is(err, errFault) || !strings.Contains(err.Error(), "MANIFEST") {
		t.Fatalf("%v", err)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if all, err := b.Snapshots(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after a push that failed: %v, %v", all, err)
	}
	dead = ""
	s = begin(t, b)
	p, err := s.Push(dir, nil)
	if err != nil || p.Sent >= p.Bytes {
		t.Errorf("it goes on: %+v, %v", p, err)
	}
	wantFiles(t, b, "", many)
	if _, err := s.Prune(1); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, b, "", many)
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if found := names(t, in, ""); len(found) != len(many)+1 {
		t.Errorf("what is left: %q", found)
	}
}

const stale = time.Minute

// TestLock: of several processes one writes. The others are refused while it works, and take its lock when it is dead. One that was paused for so long that its lock
// was taken publishes nothing.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := objstore.NewInMemBucket()
		pause := make(chan struct{}, 1) // has room while the beats of the first go out
		one := objects.New(objects.Config{Name: "s3://x", Holder: "one", Stale: stale, Objects: faulty{in, func(_ context.Context, op, name string) error {
			if op == "upload" && strings.HasPrefix(name, "beats/") {
				pause <- struct{}{}
				<-pause
			}
			return nil
		}}})
		two := objects.New(objects.Config{Name: "s3://x", Holder: "two", Stale: stale, Objects: in})
		first := begin(t, one)
		began := time.Now()
		if _, err := two.Begin(t.Context()); !errors.Is(err, objects.ErrLocked) || !strings.Contains(err.Error(), "one") {
			t.Errorf("beside one that works: %v", err)
		}
		if took := time.Since(began); took > stale {
			t.Errorf("it was refused after %s", took)
		}
		if found := names(t, in, "locks/"); len(found) != 1 {
			t.Errorf("locks: %q", found)
		}
		pause <- struct{}{}
		second := begin(t, two)
		<-pause
		if _, err := second.Push(files{"FORMAT": "2"}.take(t, someTime), nil); err != nil {
			t.Error(err)
		}
		if _, err := first.Push(files{"FORMAT": "1"}.take(t, someTime.Add(time.Hour)), nil); err == nil || !strings.Contains(err.Error(), "has taken its lock on the snapshots away") {
			t.Errorf("one whose lock is taken pushes: %v", err)
		}
		if _, err := first.Prune(0); err == nil {
			t.Error("one whose lock is taken removes snapshots")
		}
		wantFiles(t, two, "", files{"FORMAT": "2"})
		if err := errors.Join(first.End(), second.End()); err != nil {
			t.Error(err)
		}
		third := begin(t, one)
		if err := third.End(); err != nil {
			t.Error(err)
		}
		if found := append(names(t, in, "locks/"), names(t, in, "beats/")...); len(found) > 0 {
			t.Errorf("what is left: %q", found)
		}
	})
}

// TestLateDelete: a process is paused while it deletes a content that no snapshot has any more. What it deletes at last is not what another one has
// written since with the same content.
func TestLateDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := objstore.NewInMemBucket()
		sent, goes := make(chan struct{}), make(chan struct{})
		one := objects.New(objects.Config{Name: "s3://x", Stale: stale, Objects: faulty{in, func(_ context.Context, op, name string) error {
			if op == "delete" && strings.HasPrefix(name, "contents/") {
				close(sent)
				<-goes
			}
			if op == "upload" && strings.HasPrefix(name, "beats/") {
				select {
				case <-sent: // all of it is paused
					<-goes
				default:
				}
			}
			return nil
		}}})
		two := objects.New(objects.Config{Name: "s3://x", Stale: stale, Objects: in})
		first := begin(t, one)
		old := files{"000001.sst": "table"}
		for i, f := range []files{old, {"000002.sst": "other"}} {
			if _, err := first.Push(f.take(t, someTime.Add(time.Duration(i)*time.Hour)), nil); err != nil {
				t.Fatal(err)
			}
		}
		pruned := make(chan error)
		go func() {
			_, err := first.Prune(1)
			pruned <- err
		}()
		<-sent
		second := begin(t, two)
		if _, err := second.Push(old.take(t, someTime.Add(2*time.Hour)), nil); err != nil {
			t.Fatal(err)
		}
		close(goes)
		if err := <-pruned; err == nil {
			t.Error("one whose lock is taken has pruned")
		}
		wantFiles(t, two, "20260102T053000.000Z", old)
		if err := errors.Join(first.End(), second.End()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessions: processes that push and prune at once, die and are paused at any request: a push that has said it is done is whole until it is pruned, and in the end the next
// process has a whole snapshot, and nothing is left that is in none.
func TestSessions(t *testing.T) {
	for range 40 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sessions(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func sessions(t *testing.T, r *rand.Rand) {
	in := objstore.NewInMemBucket()
	var mu sync.Mutex // for r, done and active
	done := make(map[string]files)
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	const processes = 4
	taken := make(map[int]files)
	dirs := make(map[int]string)
	for i := range processes * 6 {
		f := files{"FORMAT": "1"}
		for range 5 {
			n := r.IntN(12)
			f[fmt.Sprintf("%06d.sst", n)] = fmt.Sprint("table ", n)
		}
		taken[i], dirs[i] = f, f.take(t, someTime.Add(time.Duration(i)*time.Minute))
	}
	var running sync.WaitGroup
	for process := range processes {
		running.Go(func() {
			for round := range 6 {
				n := round*processes + process
				dies, isDead := pick(400), false
				b := objects.New(objects.Config{Name: "s3://x", Holder: fmt.Sprint(process), Stale: stale, Objects: faulty{in, func(ctx context.Context, _, _ string) error {
					mu.Lock()
					dies--
					isDead = isDead || dies == 0
					dead, wait := isDead, time.Duration(r.IntN(3))*time.Second
					if r.IntN(100) == 0 {
						wait = time.Duration(r.IntN(4)) * stale
					}
					mu.Unlock()
					if dead {
						return errFault
					}
					time.Sleep(wait) // also past the end of ctx: the request is on its way
					return nil
				}}})
				ctx, kill := context.WithCancel(t.Context())
				if s, err := b.Begin(ctx); err == nil {
					if p, err := s.Push(dirs[n], nil); err == nil {
						mu.Lock()
						done[p.Name] = taken[n]
						mu.Unlock()
						if pick(2) == 0 {
							removed, _ := s.Prune(2)
							mu.Lock()
							for _, name := range removed {
								delete(done, name)
							}
							mu.Unlock()
						}
					}
					_ = s.End() // it may be dead
				}
				kill()
				time.Sleep(time.Duration(pick(120)) * time.Second)
			}
		})
	}
	running.Wait()
	b := objects.New(objects.Config{Name: "s3://x", Stale: stale, Objects: in})
	all, err := b.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range done {
		i := slices.IndexFunc(all, func(s objects.Snapshot) bool { return s.Name == name })
		if i < 0 || all[i].Missing != "" {
			t.Errorf("%s was copied, and is not whole", name)
			continue
		}
		wantFiles(t, b, name, want)
	}
	last := begin(t, b)
	if _, err := last.Push(dirs[0], nil); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Prune(1); err != nil {
		t.Fatal(err)
	}
	if err := last.End(); err != nil {
		t.Fatal(err)
	}
	s, err := b.Find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, b, s.Name, nil)
	wanted := make(map[string]bool)
	for _, f := range s.Files {
		wanted[f.Object] = true
	}
	if found := names(t, in, ""); len(found) != len(wanted)+1 {
		t.Errorf("%d objects are left, want %d: %q", len(found), len(wanted)+1, found)
	}
	t.Logf("%d of %d are done and not pruned", len(done), len(taken))
}

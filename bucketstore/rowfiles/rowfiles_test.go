package rowfiles_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/rowfiles"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series/seriestest"
)

var errStore = errors.New("the store is away")

// A flaky store fails some appends, before they happen or after.
type flaky struct {
	storetest.Memory
	fails func() (before, after bool)
}

func (s *flaky) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	before, after := s.fails()
	if before {
		return false, errStore
	}
	applied, err := s.Memory.CheckAndApply(ctx, table, cond, mut)
	if after {
		return false, errStore
	}
	return applied, err
}

func newFlaky() *flaky { return &flaky{fails: func() (bool, bool) { return false, false }} }

func clock() time.Time { return time.UnixMilli(1_700_000_000_000) }

func names(t *testing.T, d durable.Dir) []string {
	t.Helper()
	all, err := d.Names()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAppend: what is appended is there, whatever appends had no answer, and is read from any byte on.
func TestAppend(t *testing.T) {
	rng := seriestest.NewRand(t)
	store := newFlaky()
	store.fails = func() (bool, bool) { return rng.IntN(4) == 0, rng.IntN(4) == 0 }
	dir := rowfiles.New(store, "LOG1", clock)
	want := make(map[string][]byte)
	for _, name := range []string{"1.log", "10.log", "2.log"} {
		f, err := dir.Open(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			b := make([]byte, 1+rng.IntN(3000))
			if rng.IntN(10) == 0 {
				b = make([]byte, 2_500_000) // several rows
			}
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
			want[name] = append(want[name], b...)
			for {
				err := f.Sync()
				if err == nil {
					break
				}
				if !errors.Is(err, durable.ErrAway) || !errors.Is(err, errStore) {
					t.Fatal(err)
				}
			}
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"1.log", "10.log", "2.log"}) {
		t.Errorf("files %q", got)
	}
	for name, content := range want {
		f, err := dir.Open(name, os.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != int64(len(content)) {
			t.Fatalf("%s has %d bytes, %v, want %d", name, info.Size(), err, len(content))
		}
		for range 30 {
			from := rng.IntN(len(content))
			got := make([]byte, 1+rng.IntN(len(content)-from+10))
			n, err := f.ReadAt(got, int64(from))
			wanted := content[from:min(len(content), from+len(got))]
			if !bytes.Equal(got[:n], wanted) || err != nil && err != io.EOF || (err == io.EOF) != (n < len(got)) {
				t.Errorf("%s from byte %d: %d bytes, %v, want %d", name, from, n, err, len(wanted))
			}
		}
		cut := rng.IntN(len(content))
		if err := f.Truncate(int64(cut)); err != nil {
			t.Fatal(err)
		}
		if got, err := durable.ReadFile(dir, name); cut > 0 && (err != nil || !bytes.Equal(got, content[:cut])) {
			t.Errorf("cut to %d bytes %s has %d, %v", cut, name, len(got), err)
		}
	}
	if err := dir.Remove("10.log"); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"1.log", "2.log"}) {
		t.Errorf("files %q", got)
	}
	if err := dir.RemoveAll(); err != nil || len(names(t, dir)) > 0 {
		t.Errorf("files %q, %v", names(t, dir), err)
	}
}

// TestReplace: small files are replaced, also by a process whose clock is behind.
func TestReplace(t *testing.T) {
	store := newFlaky()
	for i, content := range []string{"one", "three", "2", "2"} {
		dir := rowfiles.New(store, "LOG1", func() time.Time { return clock().Add(-time.Duration(i) * time.Hour) })
		if err := durable.WriteFile(dir, "identity", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := durable.ReadFile(dir, "identity"); err != nil || string(got) != content {
			t.Errorf("%q, %v, want %q", got, err, content)
		}
		f, err := dir.Open("synced", os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
		if err == nil {
			_, err = f.WriteAt([]byte(content), 4)
		}
		if err == nil {
			err = f.Sync()
		}
		if got, readErr := durable.ReadFile(dir, "synced"); err != nil || readErr != nil || string(got) != "\x00\x00\x00\x00"+content {
			t.Errorf("%q, %v, %v, want %q", got, err, readErr, content)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"identity", "synced"}) {
			t.Errorf("files %q", got)
		}
	}
	other := rowfiles.New(store, "LOG", clock) // whose ID is the begin of another
	if got := names(t, other); len(got) > 0 {
		t.Errorf("files %q of another log", got)
	}
	if _, err := other.Open("identity", os.O_RDONLY); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open a missing file: %v", err)
	}
	if err := other.Remove("identity"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remove a missing file: %v", err)
	}
}

// TestEnd: behind the end that one process gives a file no other one appends, also if the file does not exist.
func TestEnd(t *testing.T) {
	store := newFlaky()
	ours, theirs := rowfiles.New(store, "LOG1", clock), rowfiles.New(store, "LOG1", clock)
	open := func(d *rowfiles.Dir, name string) durable.File {
		t.Helper()
		f, err := d.Open(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write := func(f durable.File, text string) error {
		t.Helper()
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
		return f.Sync()
	}
	first, second := open(ours, "1.log"), open(ours, "2.log")
	if err := write(first, "some"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, name := range []string{"1.log", "2.log"} {
			if done, err := theirs.End(name); err != nil || !done {
				t.Errorf("end %s: %t, %v", name, done, err)
			}
		}
	}
	for name, f := range map[string]durable.File{"1.log": first, "2.log": second} {
		if err := write(f, " more"); !errors.Is(err, rowfiles.ErrTaken) || errors.Is(err, durable.ErrAway) {
			t.Errorf("append to %s: %v", name, err)
		}
	}
	if got := names(t, theirs); !slices.Equal(got, []string{"1.log"}) {
		t.Errorf("files %q", got)
	}
	if got, err := durable.ReadFile(theirs, "1.log"); err != nil || string(got) != "some" {
		t.Errorf("%q, %v", got, err)
	}
	// A file that is appended to meanwhile has another end.
	third := open(ours, "3.log")
	var inner error
	store.fails = func() (bool, bool) {
		store.fails = func() (bool, bool) { return false, false }
		inner = write(third, "x")
		return false, false
	}
	if done, err := theirs.End("3.log"); done || err != nil || inner != nil {
		t.Errorf("end: %t, %v, after a write: %v", done, err, inner)
	}
	if done, err := theirs.End("3.log"); !done || err != nil {
		t.Errorf("end: %t, %v", done, err)
	}
}

package buffer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// newTerms are the terms of an exclusive store.
func newTerms(t testing.TB, rows bucketstore.Store) buffer.Terms {
	t.Helper()
	c := new(clock)
	c.ms.Store(someTime)
	terms, err := termsOf(t.Context(), rows, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func termsOf(ctx context.Context, rows bucketstore.Store, now func() time.Time) (buffer.Terms, error) {
	store, err := meta.Open(ctx, rows, series.Schema{}, now)
	return buffer.Terms{Store: store, Location: "here", Now: now}, err
}

// startBound opens the log in dir for a store, as an adapter does.
func startBound(ctx context.Context, dir string, rows bucketstore.Store, terms buffer.Terms) (*buffer.Buffer, error) {
	log, err := buffer.OpenDir(dir, terms.Now())
	if err != nil {
		return nil, err
	}
	if err := log.Bind(ctx, terms); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return buffer.Open(ctx, log, buffer.Config{Store: &lasting{Store: rows}, Now: terms.Now})
}

// mustStart is startBound.
func mustStart(t testing.TB, dir string, rows bucketstore.Store) *buffer.Buffer {
	t.Helper()
	b, err := startBound(t.Context(), dir, rows, newTerms(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logged leaves a log with samples, as if its process was killed.
func logged(t testing.TB, dir string, rows bucketstore.Store) {
	t.Helper()
	b := mustStart(t, dir, rows)
	for n := range 25 {
		if err := b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref(key(n)), T: someTime, V: float64(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	b.Kill()
}

// wantLogged checks the samples of logged, after a start and after a clean stop.
func wantLogged(t testing.TB, dir string, rows bucketstore.Store) {
	t.Helper()
	b := mustStart(t, dir, rows)
	checkLogged(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkLogged(t, rows)
	if logs, err := newTerms(t, rows).Store.Logs(t.Context()); err != nil || len(logs) > 0 {
		t.Errorf("after a clean stop META lists %v, %v", logs, err)
	}
}

func checkLogged(t testing.TB, rows bucketstore.Store) {
	t.Helper()
	got := readAll(t, rows)
	for n := range 25 {
		if want := valueText(float64(n), nil); got[string(key(n))][someTime] != want {
			t.Errorf("series %d: %v", n, got[string(key(n))])
		}
	}
}

// contents returns the log files in a directory, by name.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "owner" {
			files[e.Name()] = string(content)
		}
	}
	return files
}

// TestForeignLog: a log is replayed into its own store only, and a refused start changes
// nothing.
func TestForeignLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(t *testing.T) bucketstore.Store
	}{
		{"a new store", func(t *testing.T) bucketstore.Store { return openPebble(t) }},
		{"a store with an identity", func(t *testing.T) bucketstore.Store {
			rows := openPebble(t)
			if err := mustStart(t, t.TempDir(), rows).Close(); err != nil {
				t.Fatal(err)
			}
			return rows
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, dir := openPebble(t), filepath.Join(t.TempDir(), "log")
			logged(t, dir, rows)
			before := contents(t, dir)

			other := tt.other(t)
			terms := newTerms(t, other)
			_, err := startBound(t.Context(), dir, other, terms)
			if !errors.Is(err, buffer.ErrForeignLog) {
				t.Fatalf("started on another store: %v", err)
			}
			for _, part := range []string{dir, newTerms(t, rows).Store.Identity(), terms.Store.Identity(), "(here)"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not name %s", err, part)
				}
			}
			if after := contents(t, dir); !maps.Equal(before, after) {
				t.Errorf("the log was changed")
			}
			if got := readAll(t, other); len(got) > 0 {
				t.Errorf("the other store got samples of %d series", len(got))
			}
			wantLogged(t, dir, rows)
		})
	}
}

// TestForeignSegment: a segment of another store's log stops the start.
func TestForeignSegment(t *testing.T) {
	rows, dir := openPebble(t), t.TempDir()
	logged(t, dir, rows)
	otherRows, otherDir := openPebble(t), t.TempDir()
	logged(t, otherDir, otherRows)
	foreign := contents(t, otherDir)[buffer.SegmentName(1)]
	writeSegment(t, dir, 2, []byte(foreign))
	_, err := startBound(t.Context(), dir, rows, newTerms(t, rows))
	if !errors.Is(err, buffer.ErrForeignLog) || !strings.Contains(err.Error(), buffer.SegmentName(2)) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(dir, buffer.SegmentName(2))); err != nil {
		t.Fatal(err)
	}
	wantLogged(t, dir, rows)
}

// TestOtherSchema: a log is not replayed with another schema than it was written with.
func TestOtherSchema(t *testing.T) {
	rows, dir := openPebble(t), t.TempDir()
	logged(t, dir, rows)
	schema, err := series.NewSchema([]string{"n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meta.Open(t.Context(), rows, schema, newTerms(t, rows).Now); !errors.Is(err, meta.ErrSchema) {
		t.Errorf("the store says %v", err)
	}
	// The log has a schema digest of its own, should the store's schema change.
	sealed := contents(t, dir)["identity"]
	changed := strings.Replace(sealed, newTerms(t, rows).Store.SchemaDigest(), strings.Repeat("ab", 16), 1)
	if err := os.WriteFile(filepath.Join(dir, "identity"), []byte(changed), 0o640); err != nil || changed == sealed {
		t.Fatal(err)
	}
	if _, err := startBound(t.Context(), dir, rows, newTerms(t, rows)); !errors.Is(err, buffer.ErrForeignLog) || !strings.Contains(err.Error(), "schema") {
		t.Errorf("the log says %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "identity"), []byte(sealed), 0o640); err != nil {
		t.Fatal(err)
	}
	wantLogged(t, dir, rows)
}

// TestLostLog: an exclusive store whose log is missing does not serve until it is told that
// the log is lost.
func TestLostLog(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(t *testing.T, dir string) (otherDir string)
	}{
		{"another directory", func(t *testing.T, _ string) string { return t.TempDir() }},
		{"removed segments", func(t *testing.T, dir string) string {
			for _, path := range segmentsOf(t, dir) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}},
		{"a removed directory", func(t *testing.T, dir string) string {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, dir := openPebble(t), filepath.Join(t.TempDir(), "log")
			logged(t, dir, rows)
			other := tt.lose(t, dir)
			var lost *buffer.LostLogError
			_, err := startBound(t.Context(), other, rows, newTerms(t, rows))
			if !errors.As(err, &lost) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), other) {
				t.Fatalf("with a buffer: %v", err)
			}
			if err := buffer.CheckUnused(t.Context(), other, newTerms(t, rows)); !errors.As(err, &lost) {
				t.Fatalf("without a buffer: %v", err)
			}
			terms := newTerms(t, rows)
			var lines bytes.Buffer
			terms.Discard, terms.Logger = lost.Log.ID, log.NewLogfmtLogger(&lines)
			b, err := startBound(t.Context(), other, rows, terms)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(lines.String(), "level=error") || !strings.Contains(lines.String(), lost.Log.ID) {
				t.Errorf("it was not logged as an error: %s", &lines)
			}
			b.Kill()
			if b, err = startBound(t.Context(), other, rows, terms); err != nil { // told so once more
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("a log that is there", func(t *testing.T) {
		rows, dir := openPebble(t), t.TempDir()
		logged(t, dir, rows)
		logs, err := newTerms(t, rows).Store.Logs(t.Context())
		if err != nil || len(logs) != 1 {
			t.Fatalf("META lists %v, %v", logs, err)
		}
		terms := newTerms(t, rows)
		terms.Discard = logs[0].ID
		if _, err := startBound(t.Context(), dir, rows, terms); err == nil || !strings.Contains(err.Error(), "is not lost") {
			t.Errorf("discarded: %v", err)
		}
		wantLogged(t, dir, rows)
	})
}

// TestOtherLogs: META of a store that is not exclusive lists the logs of several adapters.
func TestOtherLogs(t *testing.T) {
	rows, dir := storetest.Shared(openPebble(t), true), t.TempDir()
	logged(t, dir, rows)
	terms := newTerms(t, rows)
	b, err := startBound(t.Context(), t.TempDir(), rows, terms)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := terms.Store.Logs(t.Context())
	if err != nil || len(logs) != 2 {
		t.Errorf("META lists %v, %v", logs, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err = terms.Store.Logs(t.Context())
	if err != nil || len(logs) != 1 || logs[0].Path != dir || logs[0].Seen != someTime {
		t.Errorf("META lists %v, %v", logs, err)
	}
	wantLogged(t, dir, rows)
}

// TestEmptyLogOfAnother: the directory of a log that was stopped cleanly may serve another
// store.
func TestEmptyLogOfAnother(t *testing.T) {
	first, second, dir := openPebble(t), openPebble(t), t.TempDir()
	logged(t, dir, first)
	wantLogged(t, dir, first)
	logged(t, dir, second)
	if _, err := startBound(t.Context(), dir, first, newTerms(t, first)); !errors.Is(err, buffer.ErrForeignLog) {
		t.Errorf("the first store: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "identity")); err != nil {
		t.Fatal(err)
	}
	wantLogged(t, dir, second)
}

// TestNewIDForAnotherStore: on another store the log gets a new ID, because the first store
// may list the old one for ever.
func TestNewIDForAnotherStore(t *testing.T) {
	first, second, dir := openPebble(t), openPebble(t), t.TempDir()
	b := mustStart(t, dir, first)
	before := b.ID()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = mustStart(t, dir, first)
	if b.ID() != before {
		t.Errorf("on the same store the log is %s, was %s", b.ID(), before)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = mustStart(t, dir, second)
	if b.ID() == before {
		t.Error("the log has the ID that it had on another store")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStopsBeforeTheStoreForgets: if a stop cannot remove the log from META, it leaves the
// log to the next start.
func TestStopsBeforeTheStoreForgets(t *testing.T) {
	rows, dir := openPebble(t), t.TempDir()
	logged(t, dir, rows)
	failing := &stubbornStore{Store: rows, left: 2} // the start lists the log, and lists it again
	b, err := startBound(t.Context(), dir, failing, newTerms(t, failing))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); !errors.Is(err, errStubborn) {
		t.Errorf("the stop: %v", err)
	}
	wantLogged(t, dir, rows)
}

// TestCheckUnusedOfALogInUse: an adapter without a buffer does not touch the log of a
// running one, even if it is empty.
func TestCheckUnusedOfALogInUse(t *testing.T) {
	rows, dir := storetest.Shared(openPebble(t), true), t.TempDir()
	terms := newTerms(t, rows)
	b, err := startBound(t.Context(), dir, rows, terms)
	if err != nil {
		t.Fatal(err)
	}
	if err := buffer.CheckUnused(t.Context(), dir, terms); err == nil || !strings.Contains(err.Error(), "held by another process") {
		t.Errorf("beside a running adapter: %v", err)
	}
	logs := func() int {
		logs, err := terms.Store.Logs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(logs)
	}
	if n := logs(); n != 1 {
		t.Errorf("META lists %d logs of a running adapter", n)
	}
	b.Kill()
	if err := buffer.CheckUnused(t.Context(), dir, terms); err != nil {
		t.Errorf("after its death: %v", err)
	}
	if n := logs(); n != 0 {
		t.Errorf("META still lists %d empty logs", n)
	}
}

// TestListedSize: META has the size of the log.
func TestListedSize(t *testing.T) {
	rows, dir := openPebble(t), t.TempDir()
	logged(t, dir, rows)
	ctx, cancel := context.WithCancel(t.Context())
	failing := &cancellingStore{Store: rows, cancel: cancel}
	if _, err := startBound(ctx, dir, failing, newTerms(t, rows)); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	info, err := os.Stat(filepath.Join(dir, buffer.SegmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := newTerms(t, rows).Store.Logs(t.Context())
	if err != nil || len(logs) != 1 || logs[0].Bytes != info.Size() {
		t.Errorf("META lists %v, the log has %d bytes, %v", logs, info.Size(), err)
	}
	wantLogged(t, dir, rows)
}

// cancellingStore ends a context with the first write to METRIC.
type cancellingStore struct {
	bucketstore.Store
	cancel context.CancelFunc
}

func (s *cancellingStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		s.cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Apply(ctx, table, muts)
}

// stubbornStore accepts so many writes to META and then none.
type stubbornStore struct {
	bucketstore.Store
	left int
}

var errStubborn = errors.New("no more writes")

func (s *stubbornStore) take(table bucketstore.Table) error {
	if table == bucketstore.Meta {
		if s.left == 0 {
			return errStubborn
		}
		s.left--
	}
	return nil
}

func (s *stubbornStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if err := s.take(table); err != nil {
		return err
	}
	return s.Store.Apply(ctx, table, muts)
}

func (s *stubbornStore) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if err := s.take(table); err != nil {
		return false, err
	}
	return s.Store.CheckAndApply(ctx, table, cond, mut)
}

func (s *stubbornStore) Close() error { return nil }

// TestHeadBytes: the head of a segment is part of the stored format.
func TestHeadBytes(t *testing.T) {
	rows, dir := openPebble(t), t.TempDir()
	logged(t, dir, rows)
	content := []byte(contents(t, dir)[buffer.SegmentName(1)])
	terms := newTerms(t, rows)
	want := slices.Concat([]byte("promtable log\x00\x00\x03"), []byte(terms.Store.Identity()), make([]byte, 32-len(terms.Store.Identity())))
	if !bytes.HasPrefix(content, want) || fmt.Sprintf("%x", content[48:64]) != terms.Store.SchemaDigest() {
		t.Errorf("%q", content[:76])
	}
	wantLogged(t, dir, rows)
}

// copyLog copies the files of a log, but for its lock.
func copyLog(t *testing.T, from, to string) {
	t.Helper()
	err := os.RemoveAll(to)
	if err == nil {
		err = os.Mkdir(to, 0o750)
	}
	for name, content := range contents(t, from) {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, name), []byte(content), 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderLog: a log whose requests are all older than what the store knows of it is a copy, or has lost its end. It is refused, and
// nothing changes: what was deleted since would come back. The error says what to do, and that helps.
func TestOlderLog(t *testing.T) {
	more := func(t *testing.T, b *buffer.Buffer) {
		t.Helper()
		if err := b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref(key(30)), T: someTime, V: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		// since is what the log does after it was copied.
		since  func(t *testing.T, b *buffer.Buffer) error
		listed bool
	}{
		{"stopped", func(_ *testing.T, b *buffer.Buffer) error { return b.Close() }, false},
		{"written, and stopped", func(t *testing.T, b *buffer.Buffer) error { more(t, b); return b.Close() }, false},
		{"written, registered and killed", func(t *testing.T, b *buffer.Buffer) error {
			more(t, b)
			err := b.Register(t.Context())
			b.Kill()
			return err
		}, true},
		{"passed, written, registered and killed", func(t *testing.T, b *buffer.Buffer) error {
			err := b.Pass(t.Context())
			more(t, b)
			err = errors.Join(err, b.Register(t.Context()))
			b.Kill()
			return err
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, dir, older := openPebble(t), filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "older")
			logged(t, dir, rows)
			copyLog(t, dir, older)
			b := mustStart(t, dir, rows)
			more(t, b)
			id := b.ID()
			if err := tt.since(t, b); err != nil {
				t.Fatal(err)
			}
			deleted := series.Schema{}.AppendRowKey(nil, key(3), 30*series.Period)
			if err := rows.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: deleted, Ops: []bucketstore.Op{{Kind: bucketstore.DeleteFamily, Family: "c"}}}}); err != nil {
				t.Fatal(err)
			}
			copyLog(t, older, dir)
			before := contents(t, dir)
			terms := newTerms(t, rows)
			_, err := startBound(t.Context(), dir, rows, terms)
			advice := map[bool]string{false: "move this directory away", true: "start once with --buffer.discard-lost-log=" + id}[tt.listed]
			if !errors.Is(err, buffer.ErrOlderLog) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), advice) {
				t.Fatalf("%v, without %q", err, advice)
			}
			if err := terms.CheckBinding(t.Context(), dir); !errors.Is(err, buffer.ErrOlderLog) {
				t.Errorf("a check finds %v", err)
			}
			delete(before, "lock")
			after := contents(t, dir)
			delete(after, "lock")
			if !maps.Equal(before, after) {
				t.Error("the log was changed")
			}
			if _, ok := readAll(t, rows)[string(key(3))]; ok {
				t.Error("what was deleted is back")
			}

			if tt.listed {
				terms.Discard = id
				b, err = startBound(t.Context(), dir, rows, terms)
			} else {
				b, err = startBound(t.Context(), filepath.Join(t.TempDir(), "empty"), rows, terms)
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.ID() == id {
				t.Error("the log still has the ID of another")
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if logs, err := terms.Store.Logs(t.Context()); err != nil || len(logs) > 0 {
				t.Errorf("META lists %v, %v", logs, err)
			}
		})
	}
}

// TestOlderLogOfSnapshot: a log and a store that were copied together are of one time, whatever META says when the store is copied.
func TestOlderLogOfSnapshot(t *testing.T) {
	rows, dir, snapshot := new(storetest.Memory), filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "snapshot")
	logged(t, dir, rows)
	b := mustStart(t, dir, rows)
	write := func(n int) error {
		return b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref(key(n)), T: someTime, V: float64(n)}})
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	var copied *storetest.Memory
	err := b.Snapshot(t.Context(), snapshot, func() error {
		defer func() { copied = rows.Clone() }()
		return errors.Join(write(1), write(2), b.Register(t.Context()))
	})
	b.Kill()
	if err != nil {
		t.Fatal(err)
	}
	wantLogged(t, snapshot, copied)
}

// TestForgottenLog: a log that the store was made to forget is not replayed when it comes back. A start sets its files aside, also after one that died in between,
// and has a new log, which is replayed as any other.
func TestForgottenLog(t *testing.T) {
	rows, dir := openFake(t), filepath.Join(t.TempDir(), "log")
	logged(t, dir, rows)
	before := contents(t, dir)
	store := newTerms(t, rows).Store
	logs, err := store.Logs(t.Context())
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	id := logs[0].ID
	if err := store.ForgetLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if logs, err = store.Logs(t.Context()); err != nil || len(logs) > 0 {
		t.Fatalf("a log is listed that was forgotten: %v, %v", logs, err)
	}
	isAside := func(name string) bool { return name == "synced" || strings.HasSuffix(name, ".log") }
	ids := map[string]bool{id: true}
	for _, renamed := range [][]string{nil, {"synced"}, {"synced", "0000000000000001.log"}} { // by a start that died
		copied := filepath.Join(t.TempDir(), "log")
		copyLog(t, dir, copied)
		for _, name := range renamed {
			if _, ok := before[name]; ok {
				if err := os.Rename(filepath.Join(copied, name), filepath.Join(copied, name+"."+id+".forgotten")); err != nil {
					t.Fatal(err)
				}
			}
		}
		b := mustStart(t, copied, rows)
		if got := readAll(t, b); len(got) > 0 {
			t.Errorf("%q were renamed: %d series are back", renamed, len(got))
		}
		if ids[b.ID()] {
			t.Errorf("%q were renamed: the log is %s again", renamed, b.ID())
		}
		ids[b.ID()] = true
		after := contents(t, copied)
		for name, content := range before {
			if isAside(name) && after[name+"."+id+".forgotten"] != content {
				t.Errorf("%q were renamed: %s is not kept", renamed, name)
			}
		}
		b.Kill()
		logged(t, copied, rows)
		wantLogged(t, copied, rows)
		for n := range 25 {
			if err := rows.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: series.Schema{}.AppendRowKey(nil, key(n), 30*series.Period), Ops: []bucketstore.Op{{Kind: bucketstore.DeleteFamily, Family: series.FamilyChunk}}}}); err != nil {
				t.Fatal(err)
			}
		}
	}

	// The disk comes back, and its files are given their names again in an empty directory: what people want replayed is.
	again := filepath.Join(t.TempDir(), "again")
	if err := os.Mkdir(again, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, content := range before {
		if isAside(name) {
			if err := os.WriteFile(filepath.Join(again, name), []byte(content), 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantLogged(t, again, rows)
}

// TestForgottenInBetween: a member whose log is forgotten after its start looked, and before its row is written, ends.
func TestForgottenInBetween(t *testing.T) {
	rows, dir := openFake(t), filepath.Join(t.TempDir(), "log")
	logged(t, dir, rows)
	terms := newTerms(t, rows)
	log, err := buffer.OpenDir(dir, terms.Now())
	if err == nil {
		err = log.Bind(t.Context(), terms)
	}
	if err == nil {
		err = terms.Store.ForgetLog(t.Context(), log.ID())
	}
	if err != nil {
		t.Fatal(err)
	}
	var died error
	b, err := buffer.Open(t.Context(), log, buffer.Config{Store: &lasting{Store: rows}, Now: terms.Now, Address: "http://127.0.0.1:1", Die: func(err error) { died = errors.Join(died, err) }})
	if !errors.Is(died, buffer.ErrForeignRow) {
		t.Errorf("it goes on: %v, %v", died, err)
	}
	if err == nil {
		b.Kill()
	}
}

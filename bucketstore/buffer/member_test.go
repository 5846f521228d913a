package buffer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// metaFails is a store whose META cannot be changed while fails is set.
type metaFails struct {
	bucketstore.Store
	fails atomic.Bool
	// writes counts changes of META.
	writes atomic.Int64
}

func (s *metaFails) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if s.fails.Load() {
		return false, errStore
	}
	s.writes.Add(1)
	return s.Store.CheckAndApply(ctx, table, cond, mut)
}

// memberFixture is a buffer that is a member.
type memberFixture struct {
	*buffer.Buffer
	t     *testing.T
	clock *clock
	store *metaFails
	terms buffer.Terms
	died  atomic.Pointer[error]
}

func openMember(t *testing.T) *memberFixture {
	t.Helper()
	return openMemberOn(t, func(s bucketstore.Store) bucketstore.Store { return &lasting{Store: s} })
}

func openMemberOn(t *testing.T, wrap func(bucketstore.Store) bucketstore.Store) *memberFixture {
	t.Helper()
	f := &memberFixture{t: t, clock: new(clock), store: &metaFails{Store: openPebble(t)}}
	f.clock.ms.Store(someTime)
	var err error
	if f.terms, err = termsOf(t.Context(), f.store, f.clock.now); err != nil {
		t.Fatal(err)
	}
	dir, err := buffer.OpenDir(t.TempDir(), f.clock.now())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Bind(t.Context(), f.terms); err != nil {
		t.Fatal(err)
	}
	f.Buffer, err = buffer.Open(t.Context(), dir, buffer.Config{
		Store: wrap(f.store), Now: f.clock.now, Address: "a:1", SweepInterval: time.Hour,
		Die: func(err error) { f.died.Store(&err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// row is the row in META.
func (f *memberFixture) row() meta.Log {
	f.t.Helper()
	l, _, err := f.terms.Store.ReadLog(f.t.Context(), f.ID())
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

func (f *memberFixture) send(at int64) error {
	return f.Append(f.t.Context(), []bucketstore.Sample{{Ref: f.Ref(key(1)), T: at, V: 1}})
}

func (f *memberFixture) pass(d time.Duration) { f.clock.ms.Add(d.Milliseconds()) }

// TestMember: a member acknowledges nothing before others know of it, and no sample before its promise in META before META has a
// lower one. The promise is raised when the samples are stored, and not above those that are not.
func TestMember(t *testing.T) {
	f := openMember(t)
	if l := f.row(); l.Address != "a:1" || l.Token == "" || l.Token != f.Token() {
		t.Errorf("the row is %+v", l)
	}
	f.pass(buffer.JoinTime - time.Second)
	if err := f.send(someTime); err == nil || !strings.Contains(err.Error(), "may not know") {
		t.Errorf("before others know of it: %v", err)
	}
	f.pass(time.Second)
	if err := f.WaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	register := func() {
		t.Helper()
		if err := f.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	promises := func(when string, from, to int64) {
		t.Helper()
		if p := f.row().Promise; p < from || p > to {
			t.Errorf("%s META promises that nothing is before %d, want a time from %d to %d", when, p, from, to)
		}
	}
	writes := f.store.writes.Load()
	if err := f.send(someTime); err != nil {
		t.Fatal(err)
	}
	if n := f.store.writes.Load(); n != writes {
		t.Errorf("a sample of now costs %d writes of META", n-writes)
	}
	register()
	promises("with a sample of now", someTime-2*series.Window, someTime)
	old := someTime - 10*series.Window
	f.store.fails.Store(true)
	if err := f.send(old); err == nil || !strings.Contains(err.Error(), "not withdrawn") {
		t.Errorf("an old sample is acknowledged though META promises that there is none: %v", err)
	}
	f.store.fails.Store(false)
	if err := f.send(old); err != nil {
		t.Fatal(err)
	}
	promises("with an old sample", 1, old)
	register()
	promises("with an old sample, renewed,", 1, old)
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	register()
	promises("when it is stored", old+1, someTime)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if l := f.row(); l.Address != "" {
		t.Errorf("after a clean stop the row is %+v", l)
	}
}

// rowWatcher is a store that wants META to have a row as long as rows of METRIC are written.
type rowWatcher struct {
	*lasting
	check func()
}

func (s *rowWatcher) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		s.check()
	}
	return s.lasting.Apply(ctx, table, muts)
}

// TestMemberLeaves: the row of a member goes when all its samples are stored.
func TestMemberLeaves(t *testing.T) {
	var stored, gone atomic.Int64
	watcher := &rowWatcher{}
	f := openMemberOn(t, func(s bucketstore.Store) bucketstore.Store {
		watcher.lasting = &lasting{Store: s}
		return watcher
	})
	watcher.check = func() {
		stored.Add(1)
		if f.row().Address == "" {
			gone.Add(1)
		}
	}
	f.pass(buffer.JoinTime)
	if err := f.send(someTime); err != nil {
		t.Fatal(err)
	}
	f.mustClose()
	if stored.Load() == 0 || gone.Load() > 0 {
		t.Errorf("of %d writes %d come when the row has gone", stored.Load(), gone.Load())
	}
	if f.row().Address != "" {
		t.Error("the row stays")
	}
}

// TestMemberSilent: a member whose row was not renewed for long acknowledges nothing until it is.
func TestMemberSilent(t *testing.T) {
	f := openMember(t)
	f.pass(buffer.JoinTime)
	if err := f.send(someTime); err != nil {
		t.Fatal(err)
	}
	f.store.fails.Store(true)
	if err := f.Register(t.Context()); err == nil {
		t.Error("META is away, and the row is renewed")
	}
	f.pass(9 * time.Minute)
	if err := f.send(someTime); err != nil {
		t.Errorf("META is away for 9 minutes: %v", err)
	}
	f.pass(2 * time.Minute)
	if err := f.send(someTime); err == nil || !strings.Contains(err.Error(), "not renewed") {
		t.Errorf("META is away for 11 minutes: %v", err)
	}
	f.store.fails.Store(false)
	if err := f.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.send(someTime); err != nil {
		t.Error(err)
	}
	f.mustClose()
}

// TestMemberForeign: a member whose row another process has written, or that was forgotten, dies without another write.
func TestMemberForeign(t *testing.T) {
	for name, change := range map[string]func(f *memberFixture) error{
		"another process": func(f *memberFixture) error {
			return f.terms.Store.PutLog(t.Context(), meta.Log{ID: f.ID(), Address: "b:1", Token: "other"})
		},
		"forgotten": func(f *memberFixture) error { return f.terms.Store.RemoveLog(t.Context(), f.ID()) },
	} {
		t.Run(name, func(t *testing.T) {
			f := openMember(t)
			f.pass(buffer.JoinTime)
			if err := change(f); err != nil {
				t.Fatal(err)
			}
			before := f.row()
			if err := f.Register(t.Context()); !errors.Is(err, buffer.ErrForeignRow) {
				t.Errorf("renewed: %v", err)
			}
			if died := f.died.Load(); died == nil || !errors.Is(*died, buffer.ErrForeignRow) {
				t.Error("it goes on")
			}
			if after := f.row(); after != before {
				t.Errorf("the row is %+v, before %+v", after, before)
			}
			f.mustClose()
		})
	}
}

func (f *memberFixture) mustClose() {
	f.t.Helper()
	if err := f.Close(); err != nil {
		f.t.Error(err)
	}
}

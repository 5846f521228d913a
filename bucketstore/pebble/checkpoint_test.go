package pebble_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// A linkHook calls a function before the first link of a table to a checkpoint.
type linkHook struct {
	vfs.FS
	dir    string
	called *atomic.Bool
	hook   func()
}

// Link implements vfs.FS.
func (fs linkHook) Link(from, to string) error {
	if strings.HasPrefix(to, fs.dir) && fs.called.CompareAndSwap(false, true) {
		fs.hook()
	}
	return fs.FS.Link(from, to)
}

// TestCheckpoint: while a checkpoint is made, a large batch is written, and then a small one. If the checkpoint has the second, it has the first.
func TestCheckpoint(t *testing.T) {
	const many = 20_000
	dir := filepath.Join(t.TempDir(), "copy")
	var s *pebble.Store
	index := func(muts []bucketstore.Mutation) {
		if err := s.Apply(context.Background(), bucketstore.Index, muts); err != nil {
			t.Error(err)
		}
	}
	last := bucketstore.Mutation{Key: []byte("z"), Ops: []bucketstore.Op{{Family: "i", Qualifier: []byte("q"), Time: 1, Value: []byte("1")}}}
	fs := linkHook{FS: vfs.Default, dir: dir, called: new(atomic.Bool), hook: func() {
		index(indexRows(many, 7))
		index([]bucketstore.Mutation{last})
	}}
	s = openStore(t, onDisk(t.TempDir()).WithFS(fs))
	first := indexRows(many, 3)
	for i := range first {
		first[i].Key = append([]byte("before,"), first[i].Key...)
	}
	index(first) // a table, which is linked
	if err := s.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	if !fs.called.Load() {
		t.Fatal("no table was linked")
	}
	count := func(s *pebble.Store, prefix string) (n int) {
		req := bucketstore.ScanRequest{Table: bucketstore.Index, Rows: []series.RowRange{series.PrefixRange([]byte(prefix))}, Families: []bucketstore.FamilyRange{{Family: "i"}}}
		if err := s.Scan(t.Context(), req, func(bucketstore.Row) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	checkpoint := openStore(t, onDisk(dir))
	if n := count(checkpoint, "before,"); n != many {
		t.Errorf("%d rows from before, want %d", n, many)
	}
	if p, z := count(checkpoint, "p,"), count(checkpoint, "z"); z > 0 && p != many {
		t.Errorf("%d of %d rows that were written before one that is there", p, many)
	}
	if n := count(s, "p,"); n != many {
		t.Errorf("%d rows in the store", n)
	}
}

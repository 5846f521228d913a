package buffer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/durable"
)

func FuzzParseSynced(f *testing.F) {
	f.Add(appendSynced(nil, position{1, 68, false}))
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := parseSynced(src)
		if err != nil || p == (position{}) {
			return
		}
		if again := appendSynced(nil, p); string(again) != string(src[:syncedSize]) {
			t.Errorf("%x is %v, which is %x", src, p, again)
		}
	})
}

// TestSyncedFile: of the two slots the later whole one counts, whatever becomes of the other,
// and an older position is not written over a newer one.
func TestSyncedFile(t *testing.T) {
	dir := durable.OS(t.TempDir())
	path := filepath.Join(string(dir), syncedName)
	check := func(when string, want position) {
		t.Helper()
		if got, err := readSynced(dir); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	check("no file", position{})
	s := &syncedFile{dir: dir}
	for _, p := range []position{{1, 68, false}, {1, 70, false}, {2, 68, false}, {1, 90, false}, {2, 69, false}, {2, 68, false}} {
		if err := s.put(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	check("written", position{2, 69, false})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(change func(b []byte) []byte) {
		t.Helper()
		if err := os.WriteFile(path, change(append([]byte(nil), content...)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	damage(func(b []byte) []byte { return b[:len(b)-1] })
	check("the last slot is torn", position{2, 68, false})
	damage(func(b []byte) []byte { b[magicSize+8] ^= 1; return b })
	check("the slot before is damaged", position{2, 69, false})
	damage(func([]byte) []byte { return nil })
	check("empty", position{})
	damage(func(b []byte) []byte { b[len(syncedPrefix)] = 3; return b })
	if _, err := OpenDir(string(dir), time.Now()); err == nil || !strings.Contains(err.Error(), "synced has version 3, this adapter reads versions 1 and 2; use the version that wrote it") {
		t.Errorf("another version: %v", err)
	}
}

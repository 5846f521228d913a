//go:build !race

package buffer_test

import (
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
	"github.com/promtable/promtable/series"
)

// A checkedLog is a log of several segments, left by a process that was killed.
type checkedLog struct {
	dir  string
	rows bucketstore.Store
	// writes are where each write begins.
	writes []writePlace
	// discard is the ID of a lost log, or empty.
	discard string
}

type writePlace struct {
	segment uint64
	at, end int64
}

// headSize is the size of the head of a segment.
const headSize = 76

// start opens the log. Its segments are small.
func (l *checkedLog) start(t testing.TB, interval time.Duration) (*buffer.Buffer, error) {
	t.Helper()
	terms := newTerms(t, l.rows)
	terms.Discard = l.discard
	log, err := buffer.OpenDir(l.dir, terms.Now())
	if err != nil {
		return nil, err
	}
	if err := log.Bind(t.Context(), terms); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return buffer.Open(t.Context(), log, buffer.Config{
		Store: &lasting{Store: l.rows}, Now: terms.Now, SegmentBytes: 400, FsyncInterval: interval, NoteInterval: time.Hour,
		Die: func(err error) { t.Errorf("Die: %v", err) },
	})
}

// makeCheckedLog writes 25 samples. With an interval, synced of them are synced.
func makeCheckedLog(t *testing.T, interval time.Duration, synced int) *checkedLog {
	t.Helper()
	l := &checkedLog{dir: t.TempDir(), rows: openPebble(t)}
	b, err := l.start(t, interval)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 25 {
		if n == synced && n > 0 {
			b.SyncLog()
		}
		if n == 24 {
			if err := b.Register(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		segments := segmentsOf(t, l.dir)
		size := sizeOf(t, segments[len(segments)-1])
		if err := b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref(key(n % 3)), T: someTime + int64(n)*1000, V: float64(n) * 1.1}}); err != nil {
			t.Fatal(err)
		}
		if after := segmentsOf(t, l.dir); len(after) > len(segments) {
			segments, size = after, headSize
		}
		last := segments[len(segments)-1]
		l.writes = append(l.writes, writePlace{uint64(len(segments)), size, sizeOf(t, last)})
	}
	b.Kill()
	if last := l.writes[24]; last.segment < 3 || l.writes[22].segment != last.segment {
		t.Fatalf("the log has too few segments: %v", l.writes)
	}
	return l
}

// last returns the last write of a segment.
func (l *checkedLog) last(segment uint64) (last writePlace) {
	for _, w := range l.writes {
		if w.segment == segment {
			last = w
		}
	}
	return last
}

func (l *checkedLog) path(segment uint64) string {
	return filepath.Join(l.dir, buffer.SegmentName(segment))
}

// change replaces the content of a file.
func change(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fn(content), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(at int64) func([]byte) []byte {
	return func(content []byte) []byte {
		content[at] ^= 1
		return content
	}
}

// inspect checks the log. The notes are lines.
func (l *checkedLog) inspect(t *testing.T, repair bool) (found []bucketstore.Finding, notes string) {
	t.Helper()
	err := buffer.Check(t.Context(), l.dir, buffer.CheckConfig{
		Repair: repair,
		Report: func(f bucketstore.Finding) { found = append(found, f) },
		Note:   func(where, what string) { notes += fmt.Sprintf("%s: %s\n", where, what) },
		Progress: func(bytes int64) {
			if bytes <= 0 {
				t.Errorf("progress by %d bytes", bytes)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, notes
}

// TestCheck damages a log in every way that stops a start. The check names the file and
// changes nothing. After the repair the start succeeds, what is not damaged is there, and
// what was cut off is in files.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name     string
		interval time.Duration
		synced   int
		damage   func(t *testing.T, l *checkedLog)
		// found are parts of the findings, in order, and notes a part of the notes.
		found []string
		notes string
		lost  func(l *checkedLog, n int) bool
	}{
		{name: "nothing", damage: func(*testing.T, *checkedLog) {}},
		{name: "a flipped bit in the first segment",
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(1), flip(l.writes[2].at+5)) },
			found:  []string{"at byte"},
			lost:   func(l *checkedLog, n int) bool { return n >= 2 && l.writes[n].segment == 1 }},
		{name: "a flipped bit in the last segment",
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(l.writes[23].segment), flip(l.writes[23].at)) },
			found:  []string{"at byte"},
			lost:   func(_ *checkedLog, n int) bool { return n >= 23 }},
		{name: "a torn write",
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(l.writes[24].segment), func(b []byte) []byte { return b[:len(b)-1] })
			},
			notes: "the log ends with a write that was not finished",
			lost:  func(_ *checkedLog, n int) bool { return n == 24 }},
		{name: "a hole after the last sync", interval: time.Hour, synced: 20,
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(l.writes[22].segment), flip(l.writes[22].at)) },
			notes:  "after the last sync",
			lost:   func(_ *checkedLog, n int) bool { return n >= 22 }},
		{name: "a hole before the last sync", interval: time.Hour, synced: 24,
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(l.writes[22].segment), flip(l.writes[22].at)) },
			found:  []string{"at byte", "synced"},
			lost:   func(_ *checkedLog, n int) bool { return n >= 22 }},
		{name: "less than was synced", interval: time.Hour, synced: 24,
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(l.writes[22].segment), func(b []byte) []byte { return b[:l.writes[22].at] })
			},
			found: []string{"synced"},
			lost:  func(_ *checkedLog, n int) bool { return n >= 22 }},
		{name: "half of the last segment, with an fsync before each answer", synced: 24,
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(l.writes[22].segment), func(b []byte) []byte { return b[:l.writes[22].at] })
			},
			found: []string{"synced"},
			lost:  func(_ *checkedLog, n int) bool { return n >= 22 }},
		{name: "an empty last segment, with an fsync before each answer", synced: 24,
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(l.writes[24].segment), func(b []byte) []byte { return nil })
			},
			found: []string{"0 of them are whole"},
			lost:  func(l *checkedLog, n int) bool { return l.writes[n].segment == l.writes[24].segment }},
		{name: "no last segment, with an fsync before each answer", synced: 24,
			damage: func(t *testing.T, l *checkedLog) {
				if err := os.Remove(l.path(l.writes[24].segment)); err != nil {
					t.Fatal(err)
				}
			},
			found: []string{"the segment is missing", "0 of them are whole"},
			lost:  func(l *checkedLog, n int) bool { return l.writes[n].segment == l.writes[24].segment }},
		{name: "the end of a segment, between two writes",
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(2), func(b []byte) []byte { return b[:len(b)-int(l.last(2).end-l.last(2).at)] })
			},
			found: []string{"bytes, and had "},
			lost:  func(l *checkedLog, n int) bool { return l.writes[n] == l.last(2) }},
		{name: "half of a segment, between two writes",
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(1), func(b []byte) []byte { return b[:l.writes[3].at] })
			},
			found: []string{"bytes, and had "},
			lost:  func(l *checkedLog, n int) bool { return n >= 3 && l.writes[n].segment == 1 }},
		{name: "a flipped bit after the last note, with an fsync before each answer", synced: 22,
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(l.writes[23].segment), flip(l.writes[23].at)) },
			found:  []string{"at byte"},
			lost:   func(_ *checkedLog, n int) bool { return n >= 23 }},
		{name: "a torn write after the last note, with an fsync before each answer", synced: 22,
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(l.writes[24].segment), func(b []byte) []byte { return b[:len(b)-1] })
			},
			notes: "the log ends with a write that was not finished",
			lost:  func(_ *checkedLog, n int) bool { return n == 24 }},
		{name: "a flipped bit in a head",
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(2), flip(20)) },
			found:  []string{"its head has another checksum"}},
		{name: "a head of zeros, and more",
			damage: func(t *testing.T, l *checkedLog) {
				change(t, l.path(2), func(b []byte) []byte { clear(b[:100]); return b })
			},
			found: []string{"does not begin like a log", "at byte 76"},
			lost:  func(l *checkedLog, n int) bool { return l.writes[n].segment == 2 }},
		{name: "a segment of zeros",
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(2), func(b []byte) []byte { clear(b); return b }) },
			found:  []string{"nothing is in it", "at byte 76"},
			lost:   func(l *checkedLog, n int) bool { return l.writes[n].segment == 2 }},
		{name: "an empty segment",
			damage: func(t *testing.T, l *checkedLog) { change(t, l.path(1), func([]byte) []byte { return nil }) },
			found:  []string{"nothing is in it"},
			lost:   func(l *checkedLog, n int) bool { return l.writes[n].segment == 1 }},
		{name: "no segment",
			damage: func(t *testing.T, l *checkedLog) {
				if err := os.Remove(l.path(2)); err != nil {
					t.Fatal(err)
				}
			},
			found: []string{"the segment is missing"},
			lost:  func(l *checkedLog, n int) bool { return l.writes[n].segment == 2 }},
		{name: "two segments", damage: func(t *testing.T, l *checkedLog) {
			change(t, l.path(1), flip(l.writes[1].at))
			change(t, l.path(2), func(b []byte) []byte { return b[:len(b)-3] })
		},
			found: []string{"at byte", "at byte"},
			lost: func(l *checkedLog, n int) bool {
				return n >= 1 && l.writes[n].segment == 1 || l.writes[n].segment == 2 && l.writes[n+1].segment == 3
			}},
		{name: "no stamp", damage: func(t *testing.T, l *checkedLog) {
			if err := os.WriteFile(filepath.Join(l.dir, "stamp"), []byte("many"), 0o640); err != nil {
				t.Fatal(err)
			}
		},
			found: []string{`holds "many" and no stamp`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := makeCheckedLog(t, tt.interval, tt.synced)
			tt.damage(t, l)
			before := contents(t, l.dir)
			for _, repair := range []bool{false, true} {
				found, notes := l.inspect(t, repair)
				for i, want := range tt.found {
					if i >= len(found) || !strings.Contains(found[i].String(), want) || !strings.Contains(found[i].Where, l.dir) || found[i].Repair == "" || found[i].Repaired != repair {
						t.Errorf("found %+v, want %q", found, tt.found)
						break
					}
				}
				if len(found) != len(tt.found) || !strings.Contains(notes, tt.notes) || (notes != "") != (tt.notes != "") {
					t.Errorf("found %+v with the notes %q", found, notes)
				}
				if after := contents(t, l.dir); (!repair || len(tt.found) == 0) && !maps.Equal(before, after) {
					t.Error("the check has changed files")
				}
				if !repair && len(tt.found) > 0 && tt.name != "no stamp" { // a replay may not come so far
					if b, err := l.start(t, 0); err == nil {
						b.Kill()
						t.Error("the start succeeds without a repair")
					}
				}
			}
			if found, _ := l.inspect(t, false); len(found) > 0 {
				t.Errorf("after the repair: %+v", found)
			}
			l.checkKept(t, before)
			l.wantWrites(t, tt.interval, tt.lost)
		})
	}
}

// wantWrites starts the log, and checks the samples of makeCheckedLog but those that are lost.
func (l *checkedLog) wantWrites(t *testing.T, interval time.Duration, lost func(l *checkedLog, n int) bool) {
	t.Helper()
	b, err := l.start(t, interval)
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, b)
	for n := range l.writes {
		want, at := valueText(float64(n)*1.1, nil), someTime+int64(n)*1000
		if lost != nil && lost(l, n) {
			want = ""
		}
		if value := got[string(key(n%3))][at]; value != want {
			t.Errorf("write %d is %q, want %q", n, value, want)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// checkKept checks that a repair has lost no byte: what a file had is in it, or in those
// beside it, at the start or at the end.
func (l *checkedLog) checkKept(t *testing.T, before map[string]string) {
	t.Helper()
	after := contents(t, l.dir)
	for name, content := range before {
		rest := content
		for _, other := range slices.Backward(slices.Sorted(maps.Keys(after))) {
			if !strings.HasPrefix(other, name+".damaged") {
				continue
			}
			kept := after[other]
			isHead := other == name+".damaged" && len(after[name]) >= headSize && !strings.HasPrefix(content, after[name][:headSize])
			if head, ok := strings.CutSuffix(rest, kept); ok && !isHead {
				rest = head
			} else if strings.HasPrefix(rest, kept) {
				rest = after[name][:headSize] + rest[len(kept):] // it was written again
			} else {
				t.Errorf("%s has other bytes than %s", other, name)
			}
		}
		if after[name] != rest {
			t.Errorf("of the %d bytes of %s %d are left", len(content), name, len(after[name]))
		}
	}
}

// TestCheckInUse: a log that a process uses is not checked, and a directory that is not there
// has no log.
func TestCheckInUse(t *testing.T) {
	l := &checkedLog{dir: t.TempDir(), rows: openPebble(t)}
	b, err := l.start(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, repair := range []bool{false, true} {
		if err := buffer.Check(t.Context(), l.dir, buffer.CheckConfig{Repair: repair}); err == nil || !strings.Contains(err.Error(), "is held by another process, pid ") {
			t.Errorf("in use: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(l.dir, "none")
	if err := buffer.Check(t.Context(), missing, buffer.CheckConfig{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check has made a directory: %v", err)
	}
}

// TestCheckRowFiles: rows that were set aside are listed. A damaged file of them is renamed.
func TestCheckRowFiles(t *testing.T) {
	store := &choosy{Store: openPebble(t)}
	store.set(string(key(3)), errBusy)
	f := open(t, store, nil)
	f.append(t, f.sample(3, someTime, 1), f.sample(4, someTime, 1))
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.kill()
	l := &checkedLog{dir: f.cfg.Dir}
	found, notes := l.inspect(t, false)
	if want := fmt.Sprintf("row %q of METRIC waits here, with 1 cells", series.Schema{}.AppendRowKey(nil, key(3), 30*series.Period)); len(found) > 0 || !strings.Contains(notes, want) {
		t.Errorf("%v and notes %q without %q", found, notes, want)
	}
	file := rowFilesOf(t, f)[0]
	change(t, file, flip(sizeOf(t, file)-3))
	if found, _ = l.inspect(t, true); len(found) != 1 || found[0].Where != file || !found[0].Repaired {
		t.Errorf("a damaged file: %+v", found)
	}
	if _, err := os.Stat(file + ".damaged"); err != nil {
		t.Error(err)
	}
	store.set(string(key(3)), nil)
	f.reopen(t) // the log has the sample, too
	awaitFailing(t, f, 0)
	f.check(t, "after the repair")
}

// TestCheckIdentity: without its identity a log is one that the store does not know. It is
// replayed when the start is told to discard the lost one.
func TestCheckIdentity(t *testing.T) {
	l := &checkedLog{dir: t.TempDir(), rows: openPebble(t)}
	logged(t, l.dir, l.rows)
	terms := newTerms(t, l.rows)
	if err := terms.CheckBinding(t.Context(), l.dir); err != nil {
		t.Errorf("a sound log: %v", err)
	}
	change(t, filepath.Join(l.dir, "identity"), func(b []byte) []byte { return b[:len(b)/2] })
	if found, _ := l.inspect(t, true); len(found) != 1 || !found[0].Repaired {
		t.Fatalf("found %+v", found)
	}
	var lost *buffer.LostLogError
	if err := terms.CheckBinding(t.Context(), l.dir); !errors.As(err, &lost) {
		t.Fatalf("a log without an identity: %v", err)
	}
	var lines strings.Builder
	terms.Discard, terms.Logger = lost.Log.ID, log.NewLogfmtLogger(&lines)
	b, err := startBound(t.Context(), l.dir, l.rows, terms)
	if err != nil {
		t.Fatal(err)
	}
	checkLogged(t, b)
	if got := lines.String(); !strings.Contains(got, "level=warn") || !strings.Contains(got, lost.Log.ID) || strings.Contains(got, "level=error") {
		t.Errorf("the start logs %s", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

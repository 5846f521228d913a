//go:build !race

package buffer_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/buffer"
)

// TestCheckWithoutIdentity damages the identity of a log, and a segment. The binding is that
// of the other segments. If nothing has it, the repair leaves the frames of the segment alone.
func TestCheckWithoutIdentity(t *testing.T) {
	removeSegment := func(t *testing.T, l *checkedLog) {
		if err := os.Remove(l.path(2)); err != nil {
			t.Fatal(err)
		}
	}
	flipAll := func(t *testing.T, l *checkedLog) {
		for n := uint64(1); n <= l.writes[24].segment; n++ {
			change(t, l.path(n), flip(20))
		}
	}
	ofSegment2 := func(l *checkedLog, n int) bool { return l.writes[n].segment == 2 }
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, l *checkedLog)
		found  string
		// stuck says that there is no repair.
		stuck bool
		lost  func(l *checkedLog, n int) bool
	}{
		{"a flipped bit in a head", func(t *testing.T, l *checkedLog) { change(t, l.path(1), flip(20)) },
			"its head has another checksum", false, nil},
		{"a flipped bit in the version", func(t *testing.T, l *checkedLog) {
			change(t, l.path(1), func(b []byte) []byte { b[15] ^= 4; return b })
		}, "a log of version 7", false, nil},
		{"a flipped bit in every head", flipAll, "neither identity nor another segment says", true, nil},
		{"a segment of zeros", func(t *testing.T, l *checkedLog) {
			change(t, l.path(2), func(b []byte) []byte { clear(b); return b })
		}, "nothing is in it", false, ofSegment2},
		{"no segment", removeSegment, "the segment is missing", false, ofSegment2},
		{"no segment, and no head", func(t *testing.T, l *checkedLog) { flipAll(t, l); removeSegment(t, l) },
			"neither identity nor another segment says", true, nil},
	} {
		for identity, content := range map[string]string{"damaged": `{"log`, "lost": ""} {
			t.Run(tt.name+", identity "+identity, func(t *testing.T) {
				l := makeCheckedLog(t, time.Hour, 26)
				tt.damage(t, l)
				path := filepath.Join(l.dir, "identity")
				err := os.Remove(path)
				if content != "" {
					err = os.WriteFile(path, []byte(content), 0o640)
				}
				if err != nil {
					t.Fatal(err)
				}
				before := contents(t, l.dir)
				found, _ := l.inspect(t, true)
				wrong := 0
				for _, f := range found {
					if f.Where == path && f.Repaired {
						continue
					}
					if wrong++; f.Repaired == tt.stuck || tt.stuck != (f.Repair == "") || wrong == 1 && !strings.Contains(f.What, tt.found) {
						t.Errorf("found %+v, want %q", f, tt.found)
					}
				}
				if wrong == 0 {
					t.Errorf("found %+v", found)
				}
				if tt.stuck {
					after := contents(t, l.dir)
					for _, files := range []map[string]string{before, after} {
						maps.DeleteFunc(files, func(name, _ string) bool { return !strings.HasSuffix(name, ".log") })
					}
					if !maps.Equal(before, after) {
						t.Error("the repair has changed segments")
					}
					return
				}
				var lost *buffer.LostLogError
				if err := newTerms(t, l.rows).CheckBinding(t.Context(), l.dir); !errors.As(err, &lost) {
					t.Fatalf("a log without an identity: %v", err)
				}
				l.discard = lost.Log.ID
				l.wantWrites(t, time.Hour, tt.lost)
			})
		}
	}
}

// TestOtherVersion: a segment with a shorter or longer head, of another version, is refused by its number. A repair leaves it as it is.
func TestOtherVersion(t *testing.T) {
	for version, size := range map[byte]int{1: 16, 2: 68, 4: 84} {
		l := makeCheckedLog(t, time.Hour, 26)
		change(t, l.path(1), func(b []byte) []byte {
			head := append(bytes.Clone(b[:headSize]), make([]byte, 8)...)[:size]
			head[15] = version
			return append(head, b[headSize:]...)
		})
		before := contents(t, l.dir)
		want := fmt.Sprintf("a log of version %d, this adapter reads version 3; use the version that wrote it", version)
		if _, err := startBound(t.Context(), l.dir, l.rows, newTerms(t, l.rows)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d: %v", version, err)
		}
		if found, _ := l.inspect(t, true); len(found) == 0 || found[0].Repair != "" || !strings.Contains(found[0].What, want) {
			t.Errorf("version %d: found %+v", version, found)
		}
		if name := buffer.SegmentName(1); contents(t, l.dir)[name] != before[name] {
			t.Errorf("version %d: the segment has changed", version)
		}
	}
}

// TestCheckGap: segments that are missing one after the other are one finding. A gap that a
// stray file makes is not filled.
func TestCheckGap(t *testing.T) {
	l := makeCheckedLog(t, 0, 0)
	for _, tt := range []struct {
		segment    uint64
		isRepaired bool
	}{{1<<64 - 1, false}, {300_002, false}, {l.writes[24].segment + 101, true}} {
		sound, err := os.ReadFile(l.path(l.writes[24].segment))
		if err == nil {
			err = os.WriteFile(l.path(tt.segment), sound, 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
		found, _ := l.inspect(t, true)
		if len(found) != 1 || found[0].Repaired != tt.isRepaired || (found[0].Repair != "") != tt.isRepaired ||
			!strings.Contains(found[0].What, "segments are missing, up to "+buffer.SegmentName(tt.segment-1)) {
			t.Errorf("segment %d: %+v", tt.segment, found)
		}
		if !tt.isRepaired {
			if err := os.Remove(l.path(tt.segment)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found, _ := l.inspect(t, false); len(found) > 0 {
		t.Errorf("after the repair: %+v", found)
	}
	l.wantWrites(t, 0, nil)
}

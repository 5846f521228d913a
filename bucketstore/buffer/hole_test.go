//go:build !race

package buffer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/series"
)

// TestHole: with fsyncs at an interval, the loss of power can leave a hole before a
// complete write in the last segment. What was not synced is cut off from the hole on, with
// a warning. Damage to what was synced stops the start, and so does a hole in a log
// that has lost the note of how far it was synced. The error names the byte; a log that is
// cut off there has the samples before it.
func TestHole(t *testing.T) {
	const writes, holeAfter = 20, 7
	for _, tt := range []struct {
		name string
		// synced is the number of writes before the last sync, -1 is no sync.
		synced int
		damage func(log []byte, at, end int) []byte
		isLost bool // the file synced
		cut    bool
	}{
		{"never synced", -1, clearHole, false, true},
		{"synced before", 5, clearHole, false, true},
		{"synced up to it", holeAfter + 1, clearHole, false, true},
		{"synced behind it", holeAfter + 2, clearHole, false, false},
		{"long", -1, farFrame, false, true}, // more after the hole than is read at once
		{"the end is zeros", 5, func(log []byte, at, _ int) []byte { clear(log[at:]); return log }, false, true},
		{"the end was not written", 5, func(log []byte, at, _ int) []byte { return log[:at+3] }, false, true},
		{"the end that was synced is zeros", writes, func(log []byte, at, _ int) []byte { clear(log[at:]); return log }, false, false},
		{"without the note", -1, clearHole, true, false},
		{"without the note, long", -1, farFrame, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var logged bytes.Buffer
			f := open(t, openPebble(t), func(c *config) { c.FsyncInterval, c.Logger = time.Hour, log.NewLogfmtLogger(&logged) })
			path := filepath.Join(f.cfg.Dir, buffer.SegmentName(1))
			sizes := []int64{0}
			for n := range writes {
				f.append(t, f.sample(n, someTime, float64(n)))
				if n+1 == tt.synced {
					f.SyncLog()
				}
				sizes = append(sizes, sizeOf(t, path))
			}
			f.kill()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			holeAt := sizes[holeAfter+1]
			content = tt.damage(content, int(holeAt), int(sizes[holeAfter+2]))
			writeSegment(t, f.cfg.Dir, 1, content)
			if tt.isLost {
				if err := os.Remove(filepath.Join(f.cfg.Dir, "synced")); err != nil {
					t.Fatal(err)
				}
			}
			for n := holeAfter + 1; n < writes; n++ {
				delete(f.want, string(key(n)))
			}
			if tt.cut {
				f.reopen(t)
				f.check(t, "cut off")
				want := fmt.Sprintf("segment=%s from_byte=%d bytes=%d", buffer.SegmentName(1), holeAt, int64(len(content))-holeAt)
				if !strings.Contains(logged.String(), "level=warn") || !strings.Contains(logged.String(), want) {
					t.Errorf("%s is not in\n%s", want, logged.String())
				}
				return
			}

			_, err = openLog(t.Context(), f.cfg)
			want := fmt.Sprintf("segment %s: at byte %d of %d", buffer.SegmentName(1), holeAt, len(content))
			if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), f.cfg.Dir) || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v, not %s", err, want)
			}
			if sizeOf(t, path) != int64(len(content)) {
				t.Error("a start that was refused has changed the log")
			}
			if err := os.Truncate(path, holeAt); err != nil {
				t.Fatal(err)
			}
			if !tt.isLost {
				if _, err := openLog(t.Context(), f.cfg); !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), "bytes that were synced") {
					t.Fatalf("a log without what was synced: %v", err)
				}
				if err := os.Remove(filepath.Join(f.cfg.Dir, "synced")); err != nil {
					t.Fatal(err)
				}
			}
			f.reopen(t)
			f.check(t, "cut off by hand")
		})
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// clearHole makes a hole in the log.
func clearHole(log []byte, at, end int) []byte {
	clear(log[at+1 : end])
	return log
}

// farFrame makes a hole in the log and puts noise behind it, more than is read of a segment
// at once.
func farFrame(log []byte, at, end int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	far := append([]byte(nil), clearHole(log, at, end)[:end]...)
	for range 20 << 20 {
		far = append(far, byte(rng.Uint32()))
	}
	return append(far, log[end:]...)
}

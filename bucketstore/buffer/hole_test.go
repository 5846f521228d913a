package buffer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/series"
)

// TestHole: with fsyncs at an interval, the loss of power can leave a hole before a
// complete write in the last segment. That stops the start, as all damage does. The error
// names the byte. A log that is cut off there has the samples before it.
func TestHole(t *testing.T) {
	const writes, synced = 20, 7
	for _, tt := range []struct {
		name string
		big  bool // more after the hole than is read at once
	}{{"short", false}, {"long", true}} {
		t.Run(tt.name, func(t *testing.T) {
			f := open(t, openPebble(t), func(c *config) { c.FsyncInterval = time.Hour })
			path := filepath.Join(f.cfg.Dir, buffer.SegmentName(1))
			var holeAt, holeEnd int64
			for n := range writes {
				f.append(t, f.sample(n, someTime, float64(n)))
				if info, err := os.Stat(path); err != nil {
					t.Fatal(err)
				} else if n == synced {
					holeAt = info.Size()
				} else if n == synced+1 {
					holeEnd = info.Size()
				}
			}
			f.kill()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if clear(content[holeAt+1 : holeEnd]); tt.big {
				content = farFrame(content, int(holeEnd))
			}
			writeSegment(t, f.cfg.Dir, 1, content)

			_, err = openLog(t.Context(), f.cfg)
			if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), path[:len(path)-len(filepath.Base(path))-1]) {
				t.Fatalf("%v", err)
			}
			m := regexp.MustCompile(`segment ` + buffer.SegmentName(1) + `: at byte (\d+) of ` + fmt.Sprint(len(content))).FindStringSubmatch(err.Error())
			if m == nil {
				t.Fatalf("%v", err)
			}
			at, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil || at != holeAt {
				t.Errorf("the hole is at %d, %s was named", holeAt, m[1])
			}
			if err := os.Truncate(path, at); err != nil {
				t.Fatal(err)
			}
			f.reopen(t)
			for n := synced + 1; n < writes; n++ {
				delete(f.want, string(key(n)))
			}
			f.check(t, "cut off")
		})
	}
}

// farFrame puts noise between the front of a log and its last frames, more than is read of
// a segment at once.
func farFrame(log []byte, at int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	far := append([]byte(nil), log[:at]...)
	for range 20 << 20 {
		far = append(far, byte(rng.Uint32()))
	}
	return append(far, log[at:]...)
}

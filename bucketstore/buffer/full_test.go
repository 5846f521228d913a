package buffer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// wantRefused wants the error of a full disk.
func wantRefused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("on a full disk: %v", err)
	}
}

// TestFullDisk does random operations while the disk fills up and gets room again. The
// process lives, starts, and has all that was acknowledged.
func TestFullDisk(t *testing.T) {
	for seed := range storetest.Seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			m := newMachine([]time.Duration{0, time.Hour}[seed%2])
			m.cfg.SegmentBytes = 200 + rng.IntN(1000)
			if err := m.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			refused := 0
			for step := range 300 {
				what := "a request"
				switch rng.IntN(12) {
				case 0:
					what = "the disk has no limit"
					m.dir.SetRoom(0)
				case 1, 2:
					what = "the disk has little room"
					m.dir.SetRoom(m.dir.Used() + 1 + rng.IntN(300))
				case 3:
					what = "a flush"
					if err := m.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 4:
					what = "a death"
					m.kill()
					if err := m.start(t.Context()); err != nil {
						t.Fatalf("step %d: a start on a full disk: %v", step, err)
					}
				case 5:
					what = "a sync"
					m.SyncLog()
				default:
					var ids []sampleID
					for range 1 + rng.IntN(20) {
						id := sampleID{rng.IntN(30), someTime + int64(rng.IntN(50))*1000}
						if !slices.Contains(ids, id) {
							ids = append(ids, id)
						}
					}
					if err := m.write(t.Context(), ids...); err != nil {
						wantRefused(t, err)
						refused++
					}
				}
				if m.check(t, m.Buffer, false); t.Failed() {
					t.Fatalf("step %d, after %s", step, what)
				}
			}
			if refused == 0 {
				t.Error("nothing was refused: the test shows less than it should")
			}
			m.dir.SetRoom(0)
			m.kill()
			m.after(m.dir.Survive()).checkNext(t, false)
			if len(m.ended) > 0 {
				t.Errorf("the process ended: %v", m.ended)
			}
		})
	}
}

// TestFullDiskAtStart: a buffer opens on a full disk, even without any segment. It refuses
// samples until there is room, and META lists the log before the first one.
func TestFullDiskAtStart(t *testing.T) {
	for _, hasLog := range []bool{true, false} {
		t.Run(fmt.Sprint("with a log ", hasLog), func(t *testing.T) {
			m := newMachine(0)
			if err := m.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.write(t.Context(), sampleID{1, someTime}); err != nil {
				t.Fatal(err)
			}
			if hasLog {
				m.kill()
			} else if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			m.dir.SetRoom(m.dir.Used())
			for i := range 2 { // a death without a segment does no harm either
				registry := prometheus.NewRegistry()
				m.cfg.Registerer = registry
				if err := m.start(t.Context()); err != nil {
					t.Fatalf("a start on a full disk: %v", err)
				}
				m.check(t, m.Buffer, false)
				wantRefused(t, m.write(t.Context(), sampleID{1, someTime + 1}))
				wantRefused(t, m.write(t.Context(), sampleID{2, someTime}))
				want := "# HELP adapter_buffer_refused_commits_total Commits that were refused because the disk of the log was full.\n" +
					"# TYPE adapter_buffer_refused_commits_total counter\nadapter_buffer_refused_commits_total 2\n"
				if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "adapter_buffer_refused_commits_total"); err != nil {
					t.Error(err)
				}
				m.kill()
				if names, _ := m.dir.Names(); i == 0 && slices.Contains(names, "owner") { // later its room is free
					t.Error("the directory names a process that could not write its name")
				}
			}
			m.cfg.Registerer = nil
			if err := m.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.dir.SetRoom(0)
			if err := m.write(t.Context(), sampleID{1, someTime + 1}); err != nil {
				t.Fatalf("there is room again: %v", err)
			}
			if logs, err := newTerms(t, m.rows).Store.Logs(t.Context()); err != nil || len(logs) != 1 {
				t.Errorf("META lists %v, %v", logs, err)
			}
			m.kill()
			m.checkNext(t, false)
		})
	}
}

// TestFullDiskNewDirectory: a log that does not exist yet needs room for its identity, without
// which it could not be told from another one.
func TestFullDiskNewDirectory(t *testing.T) {
	m := newMachine(0)
	m.dir.SetRoom(1)
	for range 2 {
		err := m.start(t.Context())
		if wantRefused(t, err); !strings.Contains(fmt.Sprint(err), "/memory") {
			t.Errorf("%v does not name the directory", err)
		}
	}
	m.dir.SetRoom(0)
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.write(t.Context(), sampleID{1, someTime}); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.checkNext(t, false)
}

// TestCutFails: if an unfinished write can not be cut off, or the log not synced, the process
// ends, as nothing is known of the log.
func TestCutFails(t *testing.T) {
	for what, wanted := range map[string]string{
		"truncate":         "cut off a write that was not finished: input/output error, after: ",
		"sync 00000000000": "cut off a write that was not finished: input/output error, after: ",
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(0)
			if err := m.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.dir.SetFault(func(_ int, now string) buffer.Fault {
				switch {
				case strings.HasPrefix(now, what):
					return buffer.Fault{Err: syscall.EIO}
				case strings.HasPrefix(now, "write"):
					return buffer.Fault{Err: syscall.ENOSPC, Part: true}
				}
				return buffer.Fault{}
			})
			if err := m.write(t.Context(), sampleID{1, someTime}); err == nil {
				t.Error("it was acknowledged")
			}
			m.kill()
			if len(m.ended) != 1 || !strings.Contains(m.ended[0].Error(), wanted) {
				t.Errorf("it ended with %v", m.ended)
			}
			m.after(m.dir.Survive()).checkNext(t, false)
		})
	}
}

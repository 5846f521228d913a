package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// fsyncModes are the two ways to sync the log.
var fsyncModes = map[string]time.Duration{"always": 0, "interval": time.Hour}

// TestFaults: each operation of a log fails once. Then the process goes on, or ends with an
// error that says why. Nothing that was acknowledged is lost, by the death of the process or
// by a loss of power, at its end or some operations after the failed one.
func TestFaults(t *testing.T) {
	for mode, interval := range fsyncModes {
		for name, fault := range map[string]buffer.Fault{
			"an error":               {Err: syscall.EIO},
			"a full disk":            {Err: syscall.ENOSPC},
			"a short write":          {Err: syscall.EIO, Part: true},
			"a short write, no room": {Err: syscall.ENOSPC, Part: true},
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				ended := 0
				n := eachOperation(t, func(t *testing.T, at int) (what string, reached bool) {
					rng := rand.New(rand.NewPCG(uint64(at), 1))
					for _, powerOff := range []int{-1, at + 1 + rng.IntN(4), at + 5 + rng.IntN(30)} {
						m := newMachine(interval)
						m.dir.SetFault(func(op int, now string) buffer.Fault {
							if op != at {
								return buffer.Fault{PowerOff: op == powerOff}
							}
							what, reached = now, true
							return fault
						})
						m.run(t.Context())
						m.dir.SetFault(nil)
						for _, err := range m.ended {
							ended++
							if !errors.Is(err, fault.Err) || !strings.Contains(err.Error(), " ") {
								t.Errorf("it ended with: %v", err)
							}
						}
						m.checkReboots(t, never, buffer.Coin(uint64(at)))
						if powerOff < 0 {
							m.after(m.dir.Survive()).checkNext(t, false)
						}
						if t.Failed() {
							t.Logf("the power was lost at operation %d", powerOff)
							break
						}
					}
					return what, reached
				})
				t.Logf("%d operations, the process ended %d times", n, ended)
			})
		}
	}
}

// TestPowerLoss: the power is lost before each operation of a log. All that was
// acknowledged and synced is there after the next start, whatever is there of the rest.
func TestPowerLoss(t *testing.T) {
	for mode, interval := range fsyncModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := eachOperation(t, func(t *testing.T, at int) (what string, reached bool) {
				m := newMachine(interval)
				m.dir.SetFault(func(op int, now string) buffer.Fault {
					if op == at {
						what, reached = now, true
					}
					return buffer.Fault{PowerOff: op == at}
				})
				m.run(t.Context())
				keeps := []func() bool{never, always}
				for seed := range uint64(4) {
					keeps = append(keeps, buffer.Coin(uint64(at)*10+seed))
				}
				m.checkReboots(t, keeps...)
				return what, reached
			})
			t.Logf("%d operations", n)
		})
	}
}

// checkReboots checks what the next process finds after a loss of power.
func (m *machine) checkReboots(t *testing.T, keeps ...func() bool) {
	t.Helper()
	for i, keep := range keeps {
		if m.after(m.dir.Reboot(keep)).checkNext(t, true); t.Failed() {
			t.Logf("reboot %d", i)
			return
		}
	}
}

func always() bool { return true }

func never() bool { return false }

// eachOperation calls fn with 0, 1, … until that operation is not reached. It takes one in four, from a random one on, and all of them if
// STORETEST_PERCENT is 400.
func eachOperation(t *testing.T, fn func(t *testing.T, at int) (what string, reached bool)) (n int) {
	stride := storetest.Stride(t, 4)
	n = rand.IntN(stride)
	for reached := true; reached && !t.Failed(); n += stride {
		t.Run(fmt.Sprint("operation ", n), func(t *testing.T) {
			var what string
			what, reached = fn(t, n)
			if t.Failed() {
				t.Logf("before: %s", what)
			}
		})
	}
	return n - stride
}

// run does all that a log does: writing, syncing, beginning and removing segments, a death,
// a replay, a clean stop. It ends early when the process has ended.
func (m *machine) run(ctx context.Context) {
	request := 0
	send := func(n int) {
		for range n {
			request++
			// One series has a sample twice, one begins; the second one is always there.
			// Of one most samples are late.
			_ = m.write(ctx, sampleID{1, someTime + int64(request/2)*1000}, sampleID{2, someTime + int64(request)*1000}, sampleID{10 + request, someTime},
				sampleID{3, someTime - int64(request%4)*5*series.Window + int64(request/8)})
			if m.cfg.FsyncInterval > 0 && request%4 == 0 {
				m.SyncLog()
				m.settle()
			}
		}
	}
	flush := func() {
		if m.Flush(m.ctx) == nil {
			m.settle()
		}
	}
	for _, life := range []func() (err error){
		func() error {
			send(5)
			flush()
			send(4)
			m.kill()
			m.dir.Tear()
			return nil
		},
		func() error { send(3); flush(); send(1); return m.stop() },
		func() error { send(3); m.kill(); return nil },
	} {
		err := m.start(ctx)
		if err == nil {
			m.settle() // the replay has stored it
			err = life()
		}
		if err != nil && !m.dir.IsOff() {
			m.ended = append(m.ended, err)
		}
		if m.dir.IsOff() {
			break
		}
	}
	m.kill()
}

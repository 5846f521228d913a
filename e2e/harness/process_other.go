//go:build !linux

package harness

import (
	"syscall"
	"time"
)

// dieTogether works on Linux only.
func dieTogether() *syscall.SysProcAttr { return nil }

// isStopped waits: it cannot be seen.
func isStopped(int) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

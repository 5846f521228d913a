package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dieTogether ends a program with the test process, however that ends: a panic
// or a timeout runs no cleanup.
func dieTogether() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// isStopped returns nil if no thread of a process runs any more, after a SIGSTOP: where there is little CPU, some go on for a while.
func isStopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("threads of %d: %d, %v", pid, len(threads), err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		// The state follows the name, which is in parentheses.
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return fmt.Errorf("%s is%.2s", thread, state)
		}
	}
	return nil
}

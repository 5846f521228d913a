//go:build !linux

package harness

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieTogether works on Linux only.
func dieTogether() *syscall.SysProcAttr { return nil }

// isStopped returns nil if a process does not run any more, after a SIGSTOP.
func isStopped(pid int) error {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "T") {
		err = fmt.Errorf("%d is %s", pid, state)
	}
	return err
}

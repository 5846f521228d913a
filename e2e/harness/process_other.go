//go:build !linux

package harness

import "syscall"

// dieTogether works on Linux only.
func dieTogether() *syscall.SysProcAttr { return nil }

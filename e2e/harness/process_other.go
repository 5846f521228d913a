//go:build !linux

package harness

import "syscall"

// dieTogether is a thing of Linux.
func dieTogether() *syscall.SysProcAttr { return nil }

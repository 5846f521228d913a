//go:build !linux

package e2e

import "syscall"

// dieTogether is a thing of Linux.
func dieTogether() *syscall.SysProcAttr { return nil }

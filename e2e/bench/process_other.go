//go:build !linux

package main

import "syscall"

// dieTogether is a thing of Linux.
func dieTogether() *syscall.SysProcAttr { return nil }

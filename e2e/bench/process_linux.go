package main

import "syscall"

// dieTogether ends a program with this process, however that ends.
func dieTogether() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

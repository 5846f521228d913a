package harness

import "syscall"

// dieTogether ends a program with the test process, however that ends: a panic
// or a timeout runs no cleanup.
func dieTogether() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

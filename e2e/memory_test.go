package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// peakMemory returns the most memory that the process has held, in bytes, as
// Linux counts it.
func (p *process) peakMemory(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+([0-9]+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", status)
	}
	kilobytes, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// TestScale runs the command scale with the series of one host. It checks the answers itself.
func TestScale(t *testing.T) {
	s := &scale{
		workload:   workload{Series: len(hostShapes()), Samples: 4, Interval: 15 * time.Second, End: endBefore(time.Now().UnixMilli())},
		perRequest: 200, connections: 2, dir: t.TempDir(), protocol: harness.RemoteWrite2(),
		adapter: newAdapter(program{path: harness.AdapterProgram(t)}, nil),
	}
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.phases.String(); !strings.Contains(got, "| start after kill -9 |") || !strings.Contains(s.disk, "B a series") {
		t.Errorf("got\n%s\n%s", got, s.disk)
	}
}

func TestTableOfCells(t *testing.T) {
	var rows table
	rows.add("", "MB")
	rows.add(`{a=~"b|c"}`, "1")
	if got, want := rows.String(), "|  | MB |\n|---|---:|\n| {a=~\"b\\|c\"} | 1 |\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An exception names evaluations of a file of the corpus that cannot pass, by
// their lines.
type exception struct {
	file   string
	reason string
	// everywhere is for those that cannot pass over any protocol; the others are
	// those that need start timestamps.
	everywhere bool
	lines      []int
}

// exceptions lists them. All other evaluations pass in every run.
func exceptions() []exception {
	const (
		starts = "remote write 1.0 and the SAMPLES answer of remote read have no start timestamps"
		before = "the reset hint of the first histogram in a range is known to a store only by the one before, which nobody asks for"
	)
	return []exception{
		{"start_timestamps.test", starts, false, []int{
			8, 13, 18, 24, 42, 66, 74, 82, 144, 169, 189, 207, 210, 213, 217, 234, 240, 246, 259, 276, 284, 289, 305,
		}},
		{"native_histograms.test", before, true, []int{1747, 1752, 1821, 1826, 1880, 1885}},
		{"range_queries.test", before, true, []int{93}},
	}
}

// hasStarts says whether start timestamps get through.
func (a acceptance) hasStarts() bool {
	return a.protocol.name == remoteWrite2().name && a.answer == streamed
}

// excepted returns the lines of the evaluations in b that cannot pass in this
// run.
func (a acceptance) excepted(b block) (lines []int) {
	evaluations := b.evaluations()
	for _, e := range exceptions() {
		if e.file != b.file || (!e.everywhere && a.hasStarts()) {
			continue
		}
		for _, line := range e.lines {
			if slices.Contains(evaluations, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// evaluations returns the lines, from 1, on which the evaluations of b begin.
func (b block) evaluations() (lines []int) {
	for i, line := range strings.Split(b.text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "eval") {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// evaluating returns b with those of its evaluations that keep wants.
func (b block) evaluating(keep func(line int) bool) block {
	lines := strings.Split(b.text, "\n")
	dropping := false
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "eval"):
			dropping = !keep(i + 1)
		case line == "" || strings.HasPrefix(line, "load") || strings.HasPrefix(line, "clear"):
			dropping = false
		}
		if dropping {
			lines[i] = ""
		}
	}
	return block{b.file, b.line, strings.Join(lines, "\n")}
}

// failures returns the evaluations that a child reports to have failed, as
// file:line.
func failures(output string) (failed []string) {
	report := regexp.MustCompile(`(?m)^ *--- FAIL: TestAcceptance/([a-z_]+\.test):\d+/line_(\d+)/`)
	for _, m := range report.FindAllStringSubmatch(output, -1) {
		failed = append(failed, fmt.Sprintf("%s:%s", m[1], m[2]))
	}
	return failed
}

package acceptance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/promtable/promtable/e2e/harness"
)

// An exception names evaluations of a file of the corpus that cannot pass over
// protocols without start timestamps, by their lines.
type exception struct {
	file  string
	lines []int
}

// exceptions lists those that need start timestamps, which remote write 1.0 and
// the SAMPLES answer of remote read do not have. All other evaluations pass in
// every run, and these where both protocols have them.
func exceptions() []exception {
	return []exception{
		{"start_timestamps.test", []int{
			8, 13, 18, 24, 29, 34, 47, 71, 79, 87, 149, 174, 194, 259, 282, 299, 326, 418, 422, 438, 441, 444, 448, 465, 471, 477, 490, 507, 515, 520, 536,
		}},
	}
}

// hasStarts says whether start timestamps get through.
func (a acceptance) hasStarts() bool {
	return a.protocol.Name == harness.RemoteWrite2().Name && a.answer == harness.Streamed
}

// excepted returns the lines of the evaluations in b that cannot pass in this
// run.
func (a acceptance) excepted(b block) (lines []int) {
	if a.hasStarts() {
		return nil
	}
	evaluations := b.evaluations()
	for _, e := range exceptions() {
		if e.file != b.file {
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

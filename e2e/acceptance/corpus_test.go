package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// A block is a part of Prometheus' acceptance corpus: what lies between two
// clear commands.
type block struct {
	file string
	line int // of its first command, from 1
	text string
}

// readCorpus returns the blocks of the corpus that the pinned module of
// Prometheus brings along.
func readCorpus(t testing.TB) []block {
	t.Helper()
	dir, err := harness.GoOutput(".", "list", "-f", "{{.Dir}}", "github.com/prometheus/prometheus/promql/promqltest")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*.test"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, splitBlocks(filepath.Base(file), string(text))...)
	}
	return blocks
}

// splitBlocks cuts a file before each clear command. Blank lines replace the blocks before,
// so that line numbers stay those of the file.
func splitBlocks(file, text string) []block {
	lines := strings.Split(text, "\n")
	var blocks []block
	first := -1 // the first command of the block
	cut := func(limit int) {
		if first >= 0 {
			text := strings.Repeat("\n", first) + strings.Join(lines[first:limit], "\n")
			blocks = append(blocks, block{file, first + 1, text})
		}
		first = -1
	}
	for i, line := range lines {
		switch line = strings.TrimSpace(line); {
		case strings.EqualFold(line, "clear"):
			cut(i)
		case first < 0 && line != "" && !strings.HasPrefix(line, "#"):
			first = i
		}
	}
	cut(len(lines))
	return blocks
}

func TestSplitBlocks(t *testing.T) {
	const text = "# comment\n\nload 1m\n  a 1\n\neval instant at 0 a\n  a 1\n\nclear\n# none\n clear\nload 1m\n  b 2\n\nCLEAR\n"
	got := splitBlocks("f", text)
	want := []block{
		{"f", 3, "\n\nload 1m\n  a 1\n\neval instant at 0 a\n  a 1\n"},
		{"f", 12, strings.Repeat("\n", 11) + "load 1m\n  b 2\n"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d: %v", len(got), len(want), got)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("block %d is %v, want %v", i, got[i], want[i])
		}
	}
	if got, want := got[0].evaluating(func(int) bool { return false }).text, "\n\nload 1m\n  a 1\n\n\n\n"; got != want {
		t.Errorf("without evaluations it is %+q, want %+q", got, want)
	}
}

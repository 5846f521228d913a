package harness

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Mutant is the module with one text in a file changed.
type Mutant struct {
	File, Old, New string
	// Tests are a package and a pattern of tests, one of which fails.
	Tests [2]string
}

// CheckMutants wants each text to be in its file once. If run, it builds each mutant and wants its tests to fail.
func CheckMutants(t *testing.T, run bool, all []Mutant) {
	for _, m := range all {
		source, err := os.ReadFile(filepath.Join(ModuleRoot, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.Old); n != 1 {
			t.Errorf("%s has %q %d times, want once", m.File, m.Old, n)
		} else if run {
			t.Run(m.File, func(t *testing.T) { testMutant(t, m, strings.Replace(string(source), m.Old, m.New, 1)) })
		}
	}
}

func testMutant(t *testing.T, m Mutant, source string) {
	dir := t.TempDir()
	root, err := filepath.Abs(ModuleRoot)
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.File): changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{changed: []byte(source), overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The program of the tests is built by them, in a folder of its own: it is changed like they are.
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-run", m.Tests[1], m.Tests[0])
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-overlay="+overlay, "GOCACHE="+strings.TrimSpace(string(cache)), "XDG_CACHE_HOME="+dir)
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "--- FAIL") {
		t.Errorf("%s with %q for %q: go %s: %v\n%.1000s", m.File, m.New, m.Old, strings.Join(cmd.Args[1:], " "), err, output)
		return
	}
	t.Logf("%d tests fail", strings.Count(string(output), "    --- FAIL"))
}

package project

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestFaults: the tests that docs/faults.md names exist.
func TestFaults(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:([a-z0-9/]+): )?(Test[A-Za-z0-9]+)`")
	found := 0
	for _, row := range regexp.MustCompile(`(?m)^\|.*$`).FindAllString(string(page), -1) {
		dir := ""
		for _, m := range named.FindAllStringSubmatch(row, -1) {
			if m[1] != "" {
				dir = m[1]
			}
			if !hasTest(t, filepath.Join("..", "..", dir), m[2]) {
				t.Errorf("%s has no %s", dir, m[2])
			}
			found++
		}
	}
	if found < 40 {
		t.Errorf("%d tests are named", found)
	}
}

// hasTest says whether the package in a directory has a test of this name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`).Match(src) {
			return true
		}
	}
	return false
}

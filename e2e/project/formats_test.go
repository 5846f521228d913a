package project

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestReleasedFormats: the golden directories of formats that a release has written stay as they are, for ever.
func TestReleasedFormats(t *testing.T) {
	for folder, want := range map[string]string{
		"cmd/adapter/testdata/format-1.0": "d556d69dbfff2a525b113bdfbe7fb34d5bbe8b95157e415ae91650af8263ee2d",
		"e2e/cli/testdata/format-1.0":     "cb551a21e0f9a83fbb6dc35da1f3662268b5ded093558aa40faca65c0e6e0478",
	} {
		files, err := filepath.Glob(filepath.Join(harness.ModuleRoot, filepath.FromSlash(folder), "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", folder, files, err)
		}
		slices.Sort(files)
		sum := sha256.New()
		for _, file := range files {
			fmt.Fprintf(sum, "%s %x\n", filepath.Base(file), sha256.Sum256([]byte(mustReadFile(t, file))))
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
			t.Errorf("%s has changed: its checksum is %s, not %s. A released format stays; a new one needs a folder of its own", folder, got, want)
		}
	}
}

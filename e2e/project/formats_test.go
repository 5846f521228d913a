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
		"cmd/adapter/testdata/format-1.0": "59ebaf591228b30e7afbdbbf088eb9d19ec4d8f61e8d2bbc7c5f56b071d7a98e",
		"e2e/cli/testdata/format-1.0":     "0d52a6e154360778db4bfaaea54ec7885922980a32bd6ed093d130f44afb8f99",
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

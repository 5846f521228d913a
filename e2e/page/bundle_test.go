//go:build browser

package page

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPageBundle makes the editor's bundle again, in another directory, and wants it to be the one that is committed.
func TestPageBundle(t *testing.T) {
	t.Parallel()
	const ui = "../../remote/ui"
	if _, err := exec.LookPath("npm"); err != nil {
		t.Fatalf("this test makes the editor of the page: %v; install it with: apt-get install -y --no-install-recommends npm", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "build.js", "entry.js"} {
		text, err := os.ReadFile(filepath.Join(ui, "editor", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"run", "build", "--", "made"}} {
		npm := exec.Command("npm", args...)
		npm.Dir = dir
		if output, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm %v: %v\n%s", args, err, output)
		}
	}
	committed := filepath.Join(ui, "static", "vendor", "codemirror")
	names := map[string]bool{}
	for _, root := range []string{committed, filepath.Join(dir, "made")} {
		entries, err := fs.ReadDir(os.DirFS(root), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	if len(names) != 2 {
		t.Errorf("there are the files %v", names)
	}
	for name := range names {
		want, err1 := os.ReadFile(filepath.Join(committed, name))
		got, err2 := os.ReadFile(filepath.Join(dir, "made", name))
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the lock file gives: %v, %v; make it with: go generate ./remote/ui", name, err1, err2)
		}
	}
}

package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// filesOf returns the files and directories below one, with a sum and the time of change of each file. A file that is locked is touched.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			files = append(files, path)
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && entry.Name() != "LOCK" {
			path += " " + info.ModTime().String()
		}
		files = append(files, fmt.Sprintf("%s %x", path, sha256.Sum256(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// readers are the commands that only read a store.
func readers(t *testing.T, now int64) map[string][]string {
	start := "--start=" + harness.FormatSeconds(now-1000*hour)
	return map[string][]string{
		"check":              {"check"},
		"digest":             {"digest", "--match=hourly", start},
		"export blocks":      {"export", "blocks", "--match=hourly", start, t.TempDir()},
		"export openmetrics": {"export", "openmetrics", "--match=hourly", start, filepath.Join(t.TempDir(), "text")},
		"dump":               {"dump"},
		"buffer list":        {"buffer", "list"},
		"retention explain":  {"retention", "explain", "hourly"},
	}
}

// TestReadersChangeNothing: a command that only reads leaves each file of the store as it is, and finds what was written.
func TestReadersChangeNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + dir}}
	now := harness.NowMillis()
	a := harness.StartAdapter(t, b)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 99, 0))
	a.Terminate(t)
	if err := os.Remove(filepath.Join(dir, "RESERVE")); err != nil { // a reader adds none
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	for name, words := range readers(t, now) {
		if code, output := harness.RunCommand(t, b, words...); code != 0 {
			t.Errorf("%s: %d\n%s", name, code, output)
		}
		after := filesOf(t, dir)
		if !slices.Equal(after, before) {
			others := slices.DeleteFunc(slices.Clone(after), func(file string) bool { return slices.Contains(before, file) })
			t.Fatalf("%s: the directory has %d files, before %d, and other ones are %q", name, len(after), len(before), others)
		}
	}
	out := filepath.Join(t.TempDir(), "text")
	if code, output := harness.RunCommand(t, b, "export", "openmetrics", "--match=hourly", "--start="+harness.FormatSeconds(now-1000*hour), out); code != 0 || !harness.ContainsAll(output, []string{"samples=100"}) {
		t.Errorf("export: %d\n%s", code, output)
	}

	// What the log of a killed adapter has is found, too.
	a = harness.StartAdapter(t, b)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 149, 100))
	a.Kill(t)
	if code, output := harness.RunCommand(t, b, "export", "openmetrics", "--match=hourly", "--start="+harness.FormatSeconds(now-1000*hour), out+"2"); code != 0 || !harness.ContainsAll(output, []string{"samples=150"}) {
		t.Errorf("export of a store whose adapter was killed: %d\n%s", code, output)
	}
}

// TestUnfinishedRestore: a directory to which a restore has not finished is refused by name, with how to go on.
func TestUnfinishedRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "restoring.unfinished"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + dir}}
	want := []string{"a restore to", dir, "adapter restore again"}
	harness.CheckRefused(t, b, want...)
	for name, words := range readers(t, harness.NowMillis()) {
		if code, output := harness.RunCommand(t, b, words...); name != "retention explain" && (code == 0 || !harness.ContainsAll(output, want)) {
			t.Errorf("%s: %d\n%s", name, code, output)
		}
	}
}

package project

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var releases = flag.Bool("release", false, "make the files of a release twice, the second time with an empty build cache; and compile what is stored for arm64, which takes minutes")

// TestRelease makes the files of a release twice, for this platform, and wants the same bytes, a program that
// runs and says its version, the licence of each module that is linked in, and checksums.
func TestRelease(t *testing.T) {
	if !*releases {
		return // TestReleaseRefuses runs the script
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	name := "promtable-9.8.7." + platform
	first, second := makeRelease(t, "9.8.7"), makeRelease(t, "v9.8.7", "GOCACHE="+t.TempDir())
	if names := slices.Sorted(maps.Keys(first)); !slices.Equal(names, []string{"SHA256SUMS", name + ".cdx.json", name + ".tar.gz"}) {
		t.Fatalf("files %q", names)
	}
	var sums strings.Builder
	for _, file := range []string{name + ".tar.gz", name + ".cdx.json"} {
		if !bytes.Equal(first[file], second[file]) {
			t.Errorf("%s differs between two runs", file)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(first[file]), file)
	}
	if got := string(first["SHA256SUMS"]); got != sums.String() {
		t.Errorf("SHA256SUMS has\n%s\nwant\n%s", got, sums.String())
	}
	archive := readArchive(t, first[name+".tar.gz"])
	for _, file := range []string{"LICENSE", "README.txt", "changelog.md", "licenses/go/LICENSE", "licenses/page/LICENSES"} {
		if len(archive[name+"/"+file]) == 0 {
			t.Errorf("the archive has no %s", file)
		}
	}
	checkReleased(t, archive[name+"/adapter"])
	checkBill(t, first[name+".cdx.json"], name, archive)
}

// makeRelease runs the script for this platform and returns what it writes, by file names.
func makeRelease(t *testing.T, version string, env ...string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(harness.ModuleRoot, "deploy", "release", "release.sh"), version, dir, runtime.GOOS+"/"+runtime.GOARCH)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, output)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		files[filepath.Base(path)] = []byte(mustReadFile(t, path))
	}
	return files
}

// readArchive returns the files of an archive. It wants all to have one time and root as the owner, and names
// to be sorted.
func readArchive(t *testing.T, packed []byte) map[string][]byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files, r := map[string][]byte{}, tar.NewReader(unzipped)
	times := map[int64]bool{}
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		times[head.ModTime.Unix()] = true
		if head.Uid != 0 || head.Gid != 0 || head.Mode&0o022 != 0 {
			t.Errorf("%s has owner %d:%d and mode %o", head.Name, head.Uid, head.Gid, head.Mode)
		}
		if files[head.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(times) != 1 || !unzipped.ModTime.IsZero() {
		t.Errorf("the times of files are %v, that of gzip %v", times, unzipped.ModTime)
	}
	return files
}

// checkReleased runs a released program.
func checkReleased(t *testing.T, program []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "adapter")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	commit, err := exec.CommandContext(t.Context(), "git", "-C", harness.ModuleRoot, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("adapter, version 9.8.7 (branch: HEAD, revision: %s)", bytes.TrimSpace(commit))
	if !strings.HasPrefix(string(output), want+"\n") {
		t.Errorf("--version prints\n%s\nwant\n%s", output, want)
	}
	root, err := filepath.Abs(harness.ModuleRoot)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte(root+"/")) {
		t.Errorf("the program contains the path %s", root)
	}
}

// checkBill wants a bill of materials to list modules, each with a licence in the archive.
func checkBill(t *testing.T, text []byte, name string, archive map[string][]byte) {
	t.Helper()
	var bill struct {
		Metadata struct {
			Component struct{ Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	if got := bill.Metadata.Component.Version; got != "v9.8.7" {
		t.Errorf("the bill of materials is of %q", got)
	}
	licensed := map[string]bool{"std": true}
	for file := range archive {
		if rest, ok := strings.CutPrefix(file, name+"/licenses/"); ok && !strings.HasSuffix(file, "/") {
			licensed[rest[:max(strings.LastIndexByte(rest, '/'), 0)]] = true
		}
	}
	for _, c := range bill.Components {
		if !licensed[c.Name] {
			t.Errorf("the archive has no licence of %s %s", c.Name, c.Version)
		}
	}
	if len(bill.Components) < 50 {
		t.Errorf("the bill of materials has %d modules", len(bill.Components))
	}
}

// TestReleaseRefuses: the script writes nothing over what is there, and takes no word for a version.
func TestReleaseRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, version, dir, want string }{
		{"a directory with files", "0.1.0", full, "is not empty"},
		{"no version", "latest", t.TempDir(), "latest is no version such as 0.1.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), filepath.Join(harness.ModuleRoot, "deploy", "release", "release.sh"), tt.version, tt.dir).CombinedOutput()
			if err == nil || !strings.Contains(string(output), tt.want) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

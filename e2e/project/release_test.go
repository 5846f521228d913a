package project

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var makeRelease = flag.Bool("release", false, "make a release twice, the second time with an empty build cache, and look at what is compiled for arm64, which takes minutes")

// cloneTree returns a clone of what is committed.
func cloneTree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "-q", harness.ModuleRoot, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// release runs the script of a clone.
func release(clone string, env []string, args ...string) (output string, err error) {
	c := exec.Command(filepath.Join(clone, "deploy", "release", "release.sh"), args...)
	c.Env = append(os.Environ(), env...)
	text, err := c.CombinedOutput()
	return string(text), err
}

// TestReleaseRefuses: no release is made of a version that has another form, that the changelog does not know, or of what is not committed.
func TestReleaseRefuses(t *testing.T) {
	clone, out := cloneTree(t), t.TempDir()
	for _, tt := range []struct{ version, part string }{
		{"0.1.0", "0.1.0 is no version such as v0.1.0"},
		{"v99.0.0", "has no section 99.0.0"},
		{"v0.1.0", "changes that are not committed"},
	} {
		if tt.version == "v0.1.0" {
			if err := os.WriteFile(filepath.Join(clone, "new.go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if output, err := release(clone, nil, tt.version, out); err == nil || !strings.Contains(output, tt.part) {
			t.Errorf("%s: %v, %s", tt.version, err, output)
		}
	}
	if files, err := os.ReadDir(out); err != nil || len(files) > 0 {
		t.Errorf("made are %v, %v", files, err)
	}
}

// TestRelease: two releases of one commit are the same byte for byte, from another directory and with nothing built before. The program says its version, the sums are
// right, and bill and licences name what is linked in.
func TestRelease(t *testing.T) {
	if !*makeRelease {
		return // TestReleaseRefuses runs the script
	}
	target := runtime.GOOS + "/" + runtime.GOARCH
	outs := []string{t.TempDir(), t.TempDir()}
	for i, out := range outs {
		var env []string
		if i == 1 {
			env = []string{"GOCACHE=" + t.TempDir()}
		}
		if output, err := release(cloneTree(t), env, "v0.1.0", out, target); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	if output, err := exec.Command("diff", "-r", outs[0], outs[1]).CombinedOutput(); err != nil {
		t.Errorf("two releases differ: %s", output)
	}
	sums := exec.Command("sha256sum", "-c", "SHA256SUMS")
	sums.Dir = outs[0]
	if output, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	name := "promtable-0.1.0-" + strings.ReplaceAll(target, "/", "-")
	if output, err := exec.Command("tar", "-C", outs[0], "-xzf", filepath.Join(outs[0], name+".tar.gz")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	program := filepath.Join(outs[0], name, "adapter")
	if output, err := exec.Command(program, "--version").CombinedOutput(); err != nil || !strings.HasPrefix(string(output), "adapter, version 0.1.0 ") {
		t.Errorf("%v: %s", err, output)
	}
	text, err := os.ReadFile(filepath.Join(outs[0], name+".sbom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	licences, err := os.ReadFile(filepath.Join(outs[0], name, "LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	linked, err := exec.Command("go", "version", "-m", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, linked)
	}
	modules := 0
	for line := range strings.Lines(string(linked)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "dep" {
			continue
		}
		modules++
		if !slices.ContainsFunc(bill.Components, func(c struct{ Name, Version string }) bool { return c.Name == fields[1] && c.Version == fields[2] }) {
			t.Errorf("%s %s is not in the bill", fields[1], fields[2])
		}
		if !strings.Contains(string(licences), "\n"+fields[1]+": ") && !strings.HasPrefix(string(licences), fields[1]+": ") {
			t.Errorf("the licence of %s is missing", fields[1])
		}
	}
	if modules < 50 {
		t.Errorf("only %d modules are linked in", modules)
	}
}

// TestFusedArithmetic: on arm64 the compiler makes one instruction of x*y + z, which rounds once. So what is stored must have none, or a store would have other bytes
// than one of amd64: only what it costs to read is computed so.
func TestFusedArithmetic(t *testing.T) {
	if !*makeRelease {
		return // what has changed since is compiled for a release
	}
	c := exec.Command("go", "build", "-gcflags=-S", "./series/...")
	c.Dir, c.Env = harness.ModuleRoot, append(os.Environ(), "GOARCH=arm64", "GOCACHE="+t.TempDir()) // what is cached is not printed with another -trimpath
	listing, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, listing)
	}
	multiplied := 0
	for line := range strings.Lines(string(listing)) {
		if strings.Contains(line, "FMULD") {
			multiplied++
		}
		if fused := regexp.MustCompile(`FN?M(ADD|SUB)[DS]\b`).MatchString(line); fused && !strings.Contains(line, "series/rollup/plan.go:") && !strings.Contains(line, "series/seriestest/") {
			t.Errorf("fused: %s", line)
		}
	}
	if multiplied == 0 {
		t.Error("nothing is multiplied: is that the code?")
	}
}

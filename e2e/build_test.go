package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// adapterVersion is the version that the tests build into the adapter.
const adapterVersion = "9.8.7-e2e"

// programs is the one variable of the package: all tests share the binaries,
// each of which is built when a test first asks for it.
var programs = newProgramSet()

// A programSet builds programs once and keeps them in one directory.
type programSet struct {
	dir        func() (string, error)
	adapter    func() (string, error)
	emulator   func() (string, error)
	prometheus func() (string, error)
}

func newProgramSet() *programSet {
	p := &programSet{dir: sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "promtable-e2e-") })}
	p.adapter = sync.OnceValues(p.buildAdapter)
	p.emulator = sync.OnceValues(p.buildEmulator)
	p.prometheus = sync.OnceValues(p.buildPrometheus)
	return p
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs.dir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// buildAdapter builds the adapter with the tag of deploy/Dockerfile.
func (p *programSet) buildAdapter() (string, error) {
	ldflags := "-X github.com/prometheus/common/version.Version=" + adapterVersion
	return p.build("..", "adapter", "-tags", "disable_grpc_modules", "-ldflags", ldflags, "./cmd/adapter")
}

func (p *programSet) buildEmulator() (string, error) {
	return p.build("..", "emulator", "cloud.google.com/go/bigtable/cmd/emulator")
}

// buildPrometheus builds prometheus and, beside it, promtool. The tag leaves
// out the service discoveries, which are most of its dependencies.
func (p *programSet) buildPrometheus() (string, error) {
	version, err := prometheusVersion()
	if err != nil {
		return "", err
	}
	ldflags := "-X github.com/prometheus/common/version.Version=" + version
	const commands = "github.com/prometheus/prometheus/cmd/"
	return p.build("prometheus", "prometheus", "-tags", "remove_all_sd", "-ldflags", ldflags,
		commands+"prometheus", commands+"promtool")
}

// build runs go build in dir for packages that give a binary called name, and
// returns its path.
func (p *programSet) build(dir, name string, args ...string) (string, error) {
	out, err := p.dir()
	if err != nil {
		return "", err
	}
	if err := watchSources(); err != nil {
		return "", err
	}
	args = append([]string{"build", "-trimpath", "-o", out + string(filepath.Separator)}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with (cd e2e && cd %s && CGO_ENABLED=0 go %s): %w\n%s", name, dir, quoteArgs(args), err, output)
	}
	return filepath.Join(out, name), nil
}

// watchSources looks at every source file of the module. The go command notes
// what a test looks at, and takes its result from the cache only while none of
// that has changed; it does not know what the go command in here compiles.
func watchSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since its directory was read
		case err != nil:
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (name == ".git" || name == "data"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go"), name == "go.mod", name == "go.sum":
			os.Stat(path)
		}
		return nil
	})
}

// quoteArgs joins arguments so that a shell takes them apart again.
func quoteArgs(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.Contains(a, " ") {
			quoted[i] = "'" + a + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// prometheusVersion is the version that the sources of the pinned Prometheus
// give themselves.
func prometheusVersion() (string, error) {
	dir, err := goOutput("prometheus", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus")
	if err != nil {
		return "", err
	}
	version, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "VERSION"))
	return strings.TrimSpace(string(version)), err
}

// goOutput returns what the go command prints when it is run in dir.
func goOutput(dir string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("(cd e2e && cd %s && go %s): %w\n%s", dir, quoteArgs(args), err, stderr.Bytes())
	}
	return out, nil
}

// built returns the path of a program or fails the test with the command that
// builds it.
func built(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

package harness

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// AdapterVersion is the version that the tests build into the adapter.
const AdapterVersion = "9.8.7-e2e"

// ModuleRoot is the folder of the adapter's go.mod, seen from where tests and e2e/bench run.
const ModuleRoot = "../.."

// buildPatience bounds the wait for a build by another test process. A cold build
// of Prometheus takes minutes.
const buildPatience = 20 * time.Minute

// programs is the one variable of the package: a test process builds each program
// when a test first asks for it.
var programs = newProgramSet()

// A programSet builds programs once in a process.
type programSet struct {
	adapter, emulator, prometheus, compliance func() (string, error)
}

func newProgramSet() *programSet {
	return &programSet{
		adapter:    sync.OnceValues(BuildAdapter),
		emulator:   sync.OnceValues(BuildEmulator),
		prometheus: sync.OnceValues(BuildPrometheus),
		compliance: sync.OnceValues(buildCompliance),
	}
}

// AdapterProgram returns the path of the adapter, built from this module.
func AdapterProgram(t testing.TB) string {
	t.Helper()
	return built(t, programs.adapter)
}

// emulatorProgram returns the path of Google's emulator of Bigtable.
func emulatorProgram(t testing.TB) string {
	t.Helper()
	return built(t, programs.emulator)
}

// prometheusProgram returns the path of Prometheus, of the version that the module
// e2e/prometheus pins.
func prometheusProgram(t testing.TB) string {
	t.Helper()
	return built(t, programs.prometheus)
}

// PromtoolProgram returns the path of Prometheus' own tool, of the version of
// Prometheus that the tests run.
func PromtoolProgram(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(prometheusProgram(t)), "promtool")
}

// ComplianceProgram returns the path of the receiver half of Prometheus' own
// suite for remote write. The suite has tests and nothing else, so that it cannot
// be imported.
func ComplianceProgram(t testing.TB) string {
	t.Helper()
	return built(t, programs.compliance)
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

// BuildAdapter builds the adapter with the tag of deploy/Dockerfile, and returns its path.
func BuildAdapter() (string, error) {
	ldflags := "-X github.com/prometheus/common/version.Version=" + AdapterVersion
	return buildProgram(".", "adapter", "build", "-tags", "disable_grpc_modules", "-ldflags", ldflags, "./cmd/adapter")
}

// BuildEmulator builds Google's emulator of Bigtable.
func BuildEmulator() (string, error) {
	return buildProgram(".", "emulator", "build", "cloud.google.com/go/bigtable/cmd/emulator")
}

// BuildPrometheus builds prometheus and, beside it, promtool. The tag leaves
// out the service discoveries, which are most of its dependencies.
func BuildPrometheus() (string, error) {
	version, err := PrometheusVersion()
	if err != nil {
		return "", err
	}
	ldflags := "-X github.com/prometheus/common/version.Version=" + version
	const commands = "github.com/prometheus/prometheus/cmd/"
	return buildProgram("e2e/prometheus", "prometheus", "build", "-tags", "remove_all_sd", "-ldflags", ldflags,
		commands+"prometheus", commands+"promtool")
}

// BuildVictoria builds VictoriaMetrics of the version that the module e2e/victoriametrics pins.
func BuildVictoria() (string, error) {
	return buildProgram("e2e/victoriametrics", "victoria-metrics", "build", victoriaModule+"/app/victoria-metrics")
}

func buildCompliance() (string, error) {
	return buildProgram("e2e/compliance", "receiver.test", "test", "-c", "github.com/prometheus/compliance/remotewrite/receiver")
}

// buildProgram runs a go command in a folder of the module that gives a program
// called name, and returns the path of the program. Programs stay in one folder
// for all test processes: the go command links only what has changed.
func buildProgram(dir, name, verb string, args ...string) (string, error) {
	if err := watchSources(); err != nil {
		return "", err
	}
	out, unlock, err := lockPrograms()
	if err != nil {
		return "", err
	}
	defer unlock()
	args = append([]string{verb, "-o", out + string(filepath.Separator)}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(ModuleRoot, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with (cd %s && CGO_ENABLED=0 go %s): %w\n%s", name, dir, quoteArgs(args), err, output)
	}
	return filepath.Join(out, name), nil
}

// cacheDir returns a directory on the disk, for files that the next run may need, or that are too large for a file system in memory.
func cacheDir() string {
	if cache, err := os.UserCacheDir(); err == nil {
		return cache
	}
	return os.TempDir() // there is no home
}

// lockPrograms returns the folder for the programs of this checkout, outside of
// it, and keeps other test processes from building there until unlock is called.
func lockPrograms() (dir string, unlock func(), err error) {
	root, err := filepath.Abs(ModuleRoot)
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(cacheDir(), "promtable-e2e", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:12])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	deadline := time.Now().Add(buildPatience)
	for {
		lock, _, err := fileutil.Flock(filepath.Join(dir, "lock"))
		if err == nil {
			return dir, func() { lock.Release() }, nil
		}
		if time.Now().After(deadline) {
			return "", nil, fmt.Errorf("wait for another build in %s: %w", dir, err)
		}
		time.Sleep(pollLast)
	}
}

// watchSources opens every source file of the module. The go command records the files that
// a test opens, and caches its result only while these do not change; it does not see what
// the go command in here compiles.
func watchSources() error {
	return filepath.WalkDir(ModuleRoot, func(path string, d fs.DirEntry, err error) error {
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

// PrometheusVersion is the version that the sources of the pinned Prometheus
// give themselves.
func PrometheusVersion() (string, error) {
	dir, err := GoOutput("e2e/prometheus", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus")
	if err != nil {
		return "", err
	}
	version, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "VERSION"))
	return strings.TrimSpace(string(version)), err
}

// victoriaModule is the module of VictoriaMetrics.
const victoriaModule = "github.com/VictoriaMetrics/VictoriaMetrics"

// VictoriaVersion is the version of VictoriaMetrics that BuildVictoria builds.
func VictoriaVersion() (string, error) {
	version, err := GoOutput("e2e/victoriametrics", "list", "-m", "-f", "{{.Version}}", victoriaModule)
	return strings.TrimSpace(string(version)), err
}

// GoOutput returns the output of the go command in a folder of the module. The result of a
// test that uses it is cached until a source changes.
func GoOutput(dir string, args ...string) ([]byte, error) {
	if err := watchSources(); err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = filepath.Join(ModuleRoot, dir), &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("(cd %s && go %s): %w\n%s", dir, quoteArgs(args), err, stderr.Bytes())
	}
	return out, nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errMissing says that a peer is not installed.
var errMissing = errors.New("victoria-metrics is not in PATH; on Debian: apt-get install victoria-metrics")

// A builder puts programs into a directory. Nothing is kept between runs but Go's
// own build cache.
type builder struct {
	module string // directory of the adapter's module
	out    string
}

// A program is an executable and its version.
type program struct{ path, version string }

// newBuilder finds the module that the current directory belongs to.
func newBuilder(ctx context.Context, out string) (*builder, error) {
	const path = "github.com/promtable/promtable"
	dir, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", path)
	if err != nil {
		return nil, fmt.Errorf("find the module %s: %w", path, err)
	}
	return &builder{module: dir, out: out}, nil
}

// adapter builds the adapter from this tree. Its version is that of the tree.
func (b *builder) adapter(ctx context.Context) (program, error) {
	version, err := output(ctx, b.module, "git", "--no-optional-locks", "describe", "--always", "--dirty=, with changes")
	if err != nil {
		version = "of an unknown version"
	}
	path, err := b.build(ctx, b.module, "adapter", "-tags", "disable_grpc_modules", "./cmd/adapter")
	return program{path, version}, err
}

// emulator builds the Bigtable emulator.
func (b *builder) emulator(ctx context.Context) (program, error) {
	const module = "cloud.google.com/go/bigtable"
	version, err := output(ctx, b.module, "go", "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return program{}, err
	}
	path, err := b.build(ctx, b.module, "emulator", module+"/cmd/emulator")
	return program{path, version}, err
}

// prometheus builds the Prometheus that the tests use, without its service
// discoveries, which are most of its dependencies.
func (b *builder) prometheus(ctx context.Context) (program, error) {
	const module = "github.com/prometheus/prometheus"
	dir := filepath.Join(b.module, "e2e", "prometheus")
	sources, err := output(ctx, dir, "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return program{}, err
	}
	version, err := os.ReadFile(filepath.Join(sources, "VERSION"))
	if err != nil {
		return program{}, err
	}
	path, err := b.build(ctx, dir, "prometheus", "-tags", "remove_all_sd", module+"/cmd/prometheus")
	return program{path, strings.TrimSpace(string(version))}, err
}

// victoria looks for VictoriaMetrics in PATH. Its error is errMissing if there is
// none.
func (b *builder) victoria(ctx context.Context) (program, error) {
	path, err := exec.LookPath("victoria-metrics")
	if err != nil {
		return program{}, errMissing
	}
	// Debian's says nothing when it is asked for its version.
	version, err := output(ctx, "", path, "-version")
	if err != nil || version == "" {
		version, err = output(ctx, "", "dpkg-query", "-W", "-f", "${Version}", "victoria-metrics")
	}
	if err != nil {
		version = "of an unknown version"
	}
	return program{path, version}, nil
}

// build runs go build in dir, without cgo, as releases are built.
func (b *builder) build(ctx context.Context, dir, name string, args ...string) (string, error) {
	path := filepath.Join(b.out, name)
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", path}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, text)
	}
	return path, nil
}

// output returns what a command prints, without space around it.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

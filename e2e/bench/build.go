package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/promtable/promtable/e2e/harness"
)

// A program is an executable and its version.
type program struct{ path, version string }

// buildAdapter builds the adapter from this tree. Its version is that of the tree.
func buildAdapter(ctx context.Context) (program, error) {
	version, err := output(ctx, "git", "--no-optional-locks", "describe", "--always", "--dirty=, with changes")
	if err != nil {
		version = "of an unknown version"
	}
	path, err := harness.BuildAdapter()
	return program{path, version}, err
}

// buildEmulator builds the Bigtable emulator.
func buildEmulator(ctx context.Context) (program, error) {
	version, err := output(ctx, "go", "list", "-m", "-f", "{{.Version}}", "cloud.google.com/go/bigtable")
	if err != nil {
		return program{}, err
	}
	path, err := harness.BuildEmulator()
	return program{path, version}, err
}

// buildPrometheus builds the Prometheus that the tests use.
func buildPrometheus() (program, error) {
	version, err := harness.PrometheusVersion()
	if err != nil {
		return program{}, err
	}
	path, err := harness.BuildPrometheus()
	return program{path, version}, err
}

// buildVictoria builds the pinned VictoriaMetrics.
func buildVictoria() (program, error) {
	version, err := harness.VictoriaVersion()
	if err != nil {
		return program{}, err
	}
	path, err := harness.BuildVictoria()
	return program{path, version}, err
}

// output returns what a command prints in the adapter's module, without space around it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = harness.ModuleRoot, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

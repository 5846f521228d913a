package project

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestFused compiles for arm64, where Go may round x*y+z once and not twice, and wants no such instruction in
// what is stored and read back. So the bytes of codecs and rollups are those of amd64. An explicit
// conversion, float64(x*y)+z, keeps the compiler from it.
//
// The evaluator is compared with upstream's engine on one machine, and upstream lets the compiler fuse: it has
// fused instructions only in the expressions that upstream has, too.
func TestFused(t *testing.T) {
	if !*releases {
		return // it compiles all that it looks at for another processor
	}
	for _, tt := range []struct {
		name     string
		packages []string
		want     []string
	}{
		{"what is stored", []string{"./series/...", "./remote/jobs/...", "./remote/engine/backfill", "./remote/engine/reader", "./bucketstore/buffer"}, nil},
		{"the evaluator", []string{"./remote/engine/eval"}, []string{"remote/engine/eval/aggregate.go"}},
		// It shows that the pattern finds them.
		{"upstream's engine", []string{"github.com/prometheus/prometheus/promql"}, []string{"promql/engine.go", "promql/functions.go", "promql/quantile.go"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fusedIn(t, tt.packages); !slices.Equal(got, tt.want) {
				t.Errorf("files with fused instructions: %q, want %q", got, tt.want)
			}
		})
	}
}

// fusedIn returns the files of packages in which Go fuses for arm64, without the directory of the module.
func fusedIn(t *testing.T, packages []string) (files []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-gcflags=-S"}, packages...)...)
	cmd.Dir, cmd.Env = harness.ModuleRoot, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	listing, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, listing[:min(len(listing), 10_000)])
	}
	if !strings.Contains(string(listing), "FMOVD") {
		t.Fatalf("%v: the listing has no instruction of floats", cmd.Args)
	}
	fused := regexp.MustCompile(`(?m)\(\S*?((?:remote|series|bucketstore|promql)/\S+\.go):\d+\)\tFN?M(?:ADD|SUB)[SD]\t`)
	for _, m := range fused.FindAllStringSubmatch(string(listing), -1) {
		if !strings.Contains(m[1], "test/") { // what only tests use
			files = append(files, m[1])
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

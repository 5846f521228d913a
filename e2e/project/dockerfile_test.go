package project

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// A dockerfile is a Dockerfile, as far as the tests look into it.
type dockerfile struct {
	path   string
	stages []dockerStage
}

// A dockerStage is one FROM and what follows it.
type dockerStage struct {
	name, from string
	lines      [][]string // instruction and its words
}

func (d dockerfile) stage(name string) *dockerStage {
	i := slices.IndexFunc(d.stages, func(s dockerStage) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &d.stages[i]
}

// readDockerfile parses deploy/Dockerfile. It does not support continued lines.
func readDockerfile(t testing.TB, c composition) dockerfile {
	t.Helper()
	d := dockerfile{path: filepath.Join(c.root, "deploy", "Dockerfile")}
	for line := range strings.Lines(mustReadFile(t, d.path)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "FROM":
			if len(words) != 4 || words[2] != "AS" {
				t.Fatalf("%q: want FROM image AS name", line)
			}
			d.stages = append(d.stages, dockerStage{name: words[3], from: words[1]})
		case len(d.stages) == 0 || words[len(words)-1] == `\`:
			t.Fatalf("the test cannot read %q", line)
		default:
			last := &d.stages[len(d.stages)-1]
			last.lines = append(last.lines, words)
		}
	}
	return d
}

func mustReadFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDockerfile(t *testing.T) {
	d := readDockerfile(t, loadComposition(t))
	for _, name := range []string{"adapter", "emulator"} {
		t.Run(name, func(t *testing.T) {
			s := d.stage(name)
			if s == nil {
				t.Fatal("no such target")
			}
			s.checkFinal(t, d)
		})
	}
	builds := 0
	for _, s := range d.stages {
		if s.from != "scratch" && d.stage(s.from) == nil {
			checkGoImage(t, s.from)
		}
		for _, words := range s.lines {
			if words[0] == "RUN" && slices.Contains(words, "build") {
				builds++
				checkGoBuild(t, words)
			}
		}
	}
	if builds != 2 {
		t.Errorf("%d programs are built, not 2", builds)
	}
}

// checkFinal wants an image with nothing but what earlier stages built, that
// does not run as root.
func (s dockerStage) checkFinal(t testing.TB, d dockerfile) {
	t.Helper()
	var user, entry string
	var files []string
	for _, words := range s.lines {
		last := words[len(words)-1]
		switch words[0] {
		case "USER":
			user = last
		case "ENTRYPOINT":
			entry = strings.Trim(last, `[]"`)
		case "COPY":
			files = append(files, last)
			if from := strings.TrimPrefix(words[1], "--from="); d.stage(from) == nil {
				t.Errorf("%q copies from no stage", words)
			}
		}
	}
	if s.from != "scratch" {
		t.Errorf("made from %s", s.from)
	}
	if !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("user %q is not a numeric one other than root", user)
	}
	if !slices.Contains(files, entry) {
		t.Errorf("entry point %q is not among the files %q", entry, files)
	}
}

// checkGoImage wants Go at a fixed version that go.mod is content with.
func checkGoImage(t testing.TB, image string) {
	t.Helper()
	minimum, err := harness.GoOutput(".", "list", "-m", "-f", "{{.GoVersion}}")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor, patch, wantMajor, wantMinor, wantPatch int
	if _, err := fmt.Sscanf(image, "golang:%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatalf("%s: not a fixed version of golang: %v", image, err)
	}
	if _, err := fmt.Sscanf(string(minimum), "%d.%d.%d", &wantMajor, &wantMinor, &wantPatch); err != nil {
		t.Fatalf("go.mod: %q: %v", minimum, err)
	}
	if major != wantMajor || minor != wantMinor || patch < wantPatch {
		t.Errorf("%s does not fit go %s of go.mod", image, bytes.TrimSpace(minimum))
	}
}

// checkGoBuild wants a static program from a package that there is.
func checkGoBuild(t testing.TB, words []string) {
	t.Helper()
	if !slices.Contains(words, "CGO_ENABLED=0") || !slices.Contains(words, "-trimpath") {
		t.Errorf("%q builds no static program", words)
	}
	pkg := words[len(words)-1]
	name, err := harness.GoOutput(".", "list", "-f", "{{.Name}}", pkg)
	if err != nil {
		t.Error(err)
	} else if got := strings.TrimSpace(string(name)); got != "main" {
		t.Errorf("%s is package %s", pkg, got)
	}
}

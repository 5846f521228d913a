package move

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDocumentedCommands runs every command of docs/migrate.md, in order, on what it names, and wants samples to come in, or to go out.
func TestDocumentedCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	p := startSource(t)
	first := fill(t, p)
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.enable-admin-api")
	b := harness.StartAdapter(t, harness.Embedded(t), "--web.enable-admin-api")
	victoria := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"metric":{"__name__":"v"},"values":[1],"timestamps":[%s]}`, r.FormValue("start"))
	}))
	defer victoria.Close()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(harness.AdapterProgram(t), filepath.Join(dir, "adapter")))
	must(os.WriteFile(filepath.Join(dir, "samples.txt"), fmt.Appendf(nil, "# TYPE s gauge\ns 1 %d\n# EOF\n", first/1000), 0o600))
	must(os.WriteFile(filepath.Join(dir, "samples.lp"), fmt.Appendf(nil, "s,of=influx value=1 %d000000\n", first), 0o600))
	must(os.Mkdir(filepath.Join(dir, "blocks"), 0o700))
	blocks := snapshot(t, p)
	must(os.CopyFS(filepath.Join(dir, "mimir"), os.DirFS(blocks)))
	must(os.CopyFS(filepath.Join(dir, "thanos"), os.DirFS(blocks)))
	must(os.RemoveAll(blocks))
	metas, err := filepath.Glob(filepath.Join(dir, "thanos", "*", "meta.json"))
	must(err)
	for _, meta := range metas {
		text, err := os.ReadFile(meta)
		must(err)
		must(os.WriteFile(meta, []byte(strings.TrimSuffix(strings.TrimSpace(string(text)), "}")+`,"thanos":{"labels":{"replica":"a"}}}`), 0o600))
	}
	replace := strings.NewReplacer(
		"/prometheus/data/snapshots", filepath.Join(p.Data(), "snapshots"), "/thanos", filepath.Join(dir, "thanos"), "/mimir/tenant", filepath.Join(dir, "mimir"),
		"http://localhost:9090", p.URL(""), "http://localhost:8080/prometheus", p.URL(""), "http://localhost:9201", a.URL(""), "http://localhost:9301", b.URL(""), "http://localhost:8428", victoria.URL,
		"2026-01-01T00:00:00Z", harness.FormatSeconds(first), "--match=up", "--match=requests_total",
	)
	commands := regexp.MustCompile(`(?m)^    (.+)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) < 10 {
		t.Fatalf("%d commands", len(commands))
	}
	for i, command := range commands {
		line := command[1]
		if strings.HasSuffix(line, "/prometheus/data") { // a snapshot stands for a data directory of older blocks
			line = strings.ReplaceAll(line, "/prometheus/data", snapshot(t, p))
		}
		// Each command has a store of its own.
		line = strings.ReplaceAll(replace.Replace(line), "./data", filepath.Join(dir, fmt.Sprint("store", i)))
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		output, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(line, "adapter") && !regexp.MustCompile(`import(ed)? [1-9]\d* samples|msg=exported series=[1-9]|msg=copied parts=[1-9]|[0-9] samples (of|were)`).Match(output) {
			t.Errorf("%s: %v\n%s", line, err, output)
		}
	}
}

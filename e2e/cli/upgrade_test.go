package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestUpgradeCommands runs the commands of docs/upgrade.md in order, and wants the samples that were there before.
func TestUpgradeCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(harness.ModuleRoot, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(harness.AdapterProgram(t), filepath.Join(dir, "adapter")); err != nil {
		t.Fatal(err)
	}
	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + filepath.Join(dir, "data"), "--self-scrape-interval=0s", "--web.enable-admin-api"}}
	a := harness.StartAdapter(t, b)
	now := time.Now().UnixMilli()
	send := func(name string) {
		t.Helper()
		series := harness.SeriesOf(labels.FromStrings("__name__", name), harness.PointAt(now, 1))
		if resp, err := harness.RemoteWrite2().Send(t.Context(), a.URL("/write"), []harness.SentSeries{series}); err != nil || resp.Status/100 != 2 {
			t.Fatal(resp, err)
		}
	}
	send("before")
	url, running := a.URL(""), true
	commands := regexp.MustCompile(`(?m)^    (.+)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) != 6 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, command := range commands {
		line := strings.ReplaceAll(command[1], "http://localhost:9201", url)
		if strings.HasPrefix(line, "adapter check") && running {
			send("after") // the copy does not have it
			a.Terminate(t)
			running = false
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, output)
		}
	}
	if running {
		t.Fatal("the page has no adapter check")
	}
	a = harness.StartAdapter(t, b)
	resp := harness.MustGet(t, a.URL("/api/v1/label/__name__/values"), nil)
	if want := `"data":["before"]`; !strings.Contains(resp.Body, want) {
		t.Errorf("after the restore there is %s, want %s", resp.Body, want)
	}
}

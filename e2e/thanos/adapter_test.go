package thanos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// buildAdapter builds the adapter of this source.
func buildAdapter(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "adapter")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/adapter")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// run runs a command of the adapter, and returns what it prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("adapter %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// An adapter is one that serves a store of which samples are kept for 30 days.
type adapter struct {
	program, url string
	// storage is the flag with its directory.
	storage string
	process *exec.Cmd
	logs    *bufio.Scanner
}

// open starts an adapter, and waits until it only takes rollups up to end, in milliseconds: it has made rollups, and closes days at its next start.
func open(t *testing.T, program string, end int64) *adapter {
	t.Helper()
	dir := t.TempDir()
	text, now := filepath.Join(dir, "now.txt"), time.Now().Unix()
	if err := os.WriteFile(text, fmt.Appendf(nil, "now 1 %d\nnow 1 %d\n# EOF\n", now-3*day/1000, now), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &adapter{program: program, storage: "--storage.path=" + filepath.Join(dir, "data")}
	run(t, program, "import", "openmetrics", a.storage, text)
	a.serve(t)
	a.waitLine(t, `msg="made rollups"`)
	a.stop()
	a.serve(t)
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var found struct{ Rolled int64 }
		if a.get(t, "/api/v1/admin/import", nil, &found); found.Rolled >= end {
			return a
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatal("the days whose samples are not kept are not closed")
		}
	}
}

// serve runs the adapter until stop.
func (a *adapter) serve(t *testing.T) {
	t.Helper()
	a.process = exec.Command(a.program, a.storage, "--web.listen-address=127.0.0.1:0", "--web.enable-admin-api",
		"--retention.resolution-raw=30d", "--retention.resolution-5m=1y", "--retention.resolution-1h=5y")
	logs, err := a.process.StderrPipe()
	if err == nil {
		err = a.process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.stop)
	a.logs = bufio.NewScanner(logs)
	a.url = "http://" + a.waitLine(t, `msg="ready to serve" address=(\S+)`)[1]
}

// stop ends the adapter, if it runs.
func (a *adapter) stop() {
	if a.process.ProcessState != nil {
		return
	}
	_ = a.process.Process.Signal(syscall.SIGTERM)
	_ = a.process.Wait()
}

// waitLine waits for a line of the log, and returns what matches the groups of a pattern.
func (a *adapter) waitLine(t *testing.T, pattern string) []string {
	t.Helper()
	for wanted := regexp.MustCompile(pattern); a.logs.Scan(); {
		if found := wanted.FindStringSubmatch(a.logs.Text()); found != nil {
			return found
		}
	}
	t.Fatalf("the adapter logs nothing like %s", pattern)
	return nil
}

// get asks the adapter, and decodes its answer.
func (a *adapter) get(t *testing.T, path string, params url.Values, to any) {
	t.Helper()
	resp, err := http.Get(a.url + path + "?" + params.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v: %s, %v: %s", path, params, resp.Status, err, body)
	}
	if err := json.Unmarshal(body, to); err != nil {
		t.Fatal(err)
	}
}

// ask runs a range query.
func (a *adapter) ask(t *testing.T, expr string, start, end, step int64) matrix {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric labels.Labels
				Values [][2]any
			}
		}
		Warnings []string
	}
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
	a.get(t, "/api/v1/query_range", url.Values{"query": {expr}, "start": {seconds(start)}, "end": {seconds(end)}, "step": {seconds(step)}}, &answer)
	m := matrix{of: make(map[string]map[int64]float64), warnings: answer.Warnings}
	for _, s := range answer.Data.Result {
		values := make(map[int64]float64)
		for _, p := range s.Values {
			v, err := strconv.ParseFloat(p[1].(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			values[int64(p[0].(float64)*1000)] = v
		}
		m.of[nameOf(s.Metric)] = values
	}
	return m
}

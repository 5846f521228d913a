package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// runAdapter runs the adapter to its end and returns what it printed.
func runAdapter(t testing.TB, b backend, args ...string) (code int, output string) {
	t.Helper()
	args = append(adapterArgs(b.args, args), "--web.listen-address=127.0.0.1:0")
	p := start(t, "adapter", command{path: adapterProgram(t), args: args, env: b.env})
	code = p.wait(t)
	return code, p.log.text()
}

func TestVersion(t *testing.T) {
	out, err := exec.Command(adapterProgram(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"adapter", adapterVersion, "go1."} {
		if !strings.Contains(string(out), want) {
			t.Errorf("--version prints %q, without %q", out, want)
		}
	}
}

// TestCompletion: a shell asks about a line that is not finished, such as a flag
// without its value.
func TestCompletion(t *testing.T) {
	out, err := exec.Command(adapterProgram(t), "--completion-bash", "--log.level", "").Output()
	if want := "debug info warn error"; err != nil || strings.Join(strings.Fields(string(out)), " ") != want {
		t.Errorf("%q, %v, want %s", out, err, want)
	}
}

// TestRefusedFlags wants a message that says what to change.
func TestRefusedFlags(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"unknown flag", []string{"--storage.pth=x"}, 2, "storage.pth"},
		{"unknown backend", []string{"--storage.backend=tape"}, 2, "bigtable"},
		{"no project", bigtable[:1], 2, "--bigtable.project"},
		{"no instance", bigtable[:2], 2, "--bigtable.instance"},
		{"path with Bigtable", append(bigtable[:3:3], "--storage.path=x"), 2, "--storage.path"},
		{"project with embedded", []string{"--bigtable.project=p"}, 2, "--storage.backend=bigtable"},
		{"prefix with embedded", []string{"--bigtable.table-prefix=p"}, 2, "--storage.backend=bigtable"},
		{"an empty path", []string{"--storage.path="}, 2, "--storage.path is empty"},
		{"no path", []string{"--storage.path"}, 2, "--storage.path needs a value"}, // another flag follows
		{"no writes", []string{"--write.max-concurrent=0"}, 2, "--write.max-concurrent"},
		{"fewer than no reads", []string{"--read.max-concurrent=-1"}, 2, "--read.max-concurrent"},
		{"no time to write", []string{"--write.timeout=0s"}, 2, "--write.timeout"},
		{"no time to stop", []string{"--shutdown.timeout=0s"}, 2, "--shutdown.timeout"},
		{"negative limit", []string{"--read.max-samples=-1"}, 2, "--read.max-samples"},
		{"no such web config", []string{"--storage.path=" + t.TempDir(), "--web.config.file=/no/such/file"}, 1, "/no/such/file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, output := runAdapter(t, backend{}, tt.args...)
			if code != tt.code || !strings.Contains(output, tt.want) {
				t.Errorf("code %d, want %d with %q in the output:\n%s", code, tt.code, tt.want, output)
			}
		})
	}
}

func TestSecondStart(t *testing.T) {
	b := embedded(t)
	a := startAdapter(t, b)
	code, output := runAdapter(t, b)
	if want := fmt.Sprint(a.pid()); code == 0 || !strings.Contains(output, want) {
		t.Errorf("code %d, output without the pid %s of the holder:\n%s", code, want, output)
	}
	remoteWrite2().mustSend(t, a.url("/write"), someSeries())
	a.terminate(t)
	a.rerun(t) // the directory is free again
	a.kill(t)
	a.rerun(t) // and after a kill too
}

// TestSchemaMismatch starts on data that another set of resource labels wrote.
func TestSchemaMismatch(t *testing.T) {
	for _, open := range openBackends() {
		b := open(t)
		t.Run(b.name, func(t *testing.T) {
			startAdapter(t, b, "--schema.resource-label=host").terminate(t)
			code, output := runAdapter(t, b)
			if code == 0 || !strings.Contains(output, "--schema.resource-label") {
				t.Errorf("code %d, output without the flag to change:\n%s", code, output)
			}
			startAdapter(t, b, "--schema.resource-label=host").terminate(t)
		})
	}
}

// TestTablePrefix keeps two adapters apart in one instance.
func TestTablePrefix(t *testing.T) {
	b := emulator(t)
	first := startAdapter(t, b, "--bigtable.table-prefix=first-")
	second := startAdapter(t, b, "--bigtable.table-prefix=second.")
	remoteWrite1().mustSend(t, first.url("/write"), someSeries())
	q := query{0, nowMillis(), mustMatchers(t, "__name__", "=", "some")}
	for _, tt := range []struct {
		a    *adapter
		want int
	}{{first, 1}, {second, 0}} {
		if got := mustRead(t, tt.a.url("/read"), samples, q); len(got) != tt.want {
			t.Errorf("%v has %d series, want %d", tt.a, len(got), tt.want)
		}
	}
}

// TestEndpoints wants the paths that operators and Prometheus use.
func TestEndpoints(t *testing.T) {
	a := startAdapter(t, embedded(t))
	remoteWrite1().mustSend(t, a.url("/write"), someSeries())
	for _, tt := range []struct{ path, want string }{
		{"/-/healthy", ""},
		{"/-/ready", ""},
		{"/metrics", "adapter_build_info"},
		{"/metrics", adapterVersion},
		{"/debug/pprof/cmdline", "adapter"},
		{"/federate?match[]=some", "some{"},
		{"/api/v1/explain?match[]=some", `"status":"success"`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			resp := mustGet(t, a.url(tt.path), nil)
			if resp.status != http.StatusOK || !strings.Contains(resp.body, tt.want) {
				t.Errorf("want 200 with %q, got %v", tt.want, resp)
			}
		})
	}
	t.Run("promtool accepts the metrics", func(t *testing.T) {
		cmd := exec.Command(promtool(t), "check", "metrics")
		body := mustGet(t, a.url("/metrics"), nil).body
		// This name is given by Prometheus' query engine, whose metrics keep the
		// names that dashboards and people know.
		cmd.Stdin = strings.NewReader(withoutFamily(body, "prometheus_engine_query_duration_histogram_seconds"))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// withoutFamily returns metrics in the text format without a family.
func withoutFamily(text, family string) string {
	return regexp.MustCompile(`(?m)^(# [A-Z]+ )?`+family+`.*\n`).ReplaceAllString(text, "")
}

// TestSelfScrape reads on a fresh start what nobody sent.
func TestSelfScrape(t *testing.T) {
	a := startAdapter(t, embedded(t), "--self-scrape-interval=1s")
	for _, name := range []string{"adapter_build_info", "process_resident_memory_bytes"} {
		q := query{0, nowMillis() + 3_600_000, mustMatchers(t, "__name__", "=", name, "job", "=", "adapter", "instance", "=", a.addr)}
		eventually(t, name+" can be read", func() error {
			found, err := read(a.url("/api/v1/read"), streamed, q)
			if err == nil && len(found[0]) != 1 {
				err = fmt.Errorf("%d series", len(found[0]))
			}
			return err
		})
	}
}

// someSeries is a series with one sample of now.
func someSeries() sentSeries {
	return sentSeries{labels: []string{"__name__", "some"}, points: []point{at(nowMillis(), 1)}}
}

func mustGet(t testing.TB, url string, header map[string]string) response {
	t.Helper()
	resp, err := roundTrip(context.Background(), http.MethodGet, url, header, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

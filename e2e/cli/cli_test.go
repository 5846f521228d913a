package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

func TestVersion(t *testing.T) {
	out, err := exec.Command(harness.AdapterProgram(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"adapter", harness.AdapterVersion, "go1."} {
		if !strings.Contains(string(out), want) {
			t.Errorf("--version prints %q, without %q", out, want)
		}
	}
}

// TestCommandHelp: both forms of help show what belongs to a command, and only names the server's flags that matter to it.
func TestCommandHelp(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    []string // in this order
	}{
		{[]string{"import"}, []string{"usage: adapter import [<flags>] <command>", "Import samples", "Flags:", "--match=", "--url=", "Subcommands:", "import blocks [<flags>] <dir>", "import victoriametrics", "Flags of the server", "--storage.*"}},
		{[]string{"export", "blocks"}, []string{"usage: adapter export blocks --start=START [<flags>] <dir>", "Args:", "<dir>", "Flags:", "--start=", "--block-duration=", "Flags of the server", "--storage.*"}},
		{[]string{"buffer", "list"}, []string{"usage: adapter buffer list", "List the logs", "Flags of the server", "--storage.*"}},
	} {
		t.Run(strings.Join(tt.command, " "), func(t *testing.T) {
			var texts []string
			for _, args := range [][]string{append([]string{"help"}, tt.command...), append(tt.command[:len(tt.command):len(tt.command)], "--help")} {
				out, err := exec.Command(harness.AdapterProgram(t), args...).Output()
				if err != nil {
					t.Fatalf("%q: %v", args, err)
				}
				texts = append(texts, string(out))
			}
			if texts[0] != texts[1] {
				t.Errorf("the two forms differ:\n%s\n%s", texts[0], texts[1])
			}
			rest := texts[0]
			for _, want := range tt.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("no %q, in this order, in\n%s", want, texts[0])
				}
				rest = after
			}
			if strings.Contains(texts[0], "--storage.path=") || strings.Contains(texts[0], "--web.listen-address") {
				t.Errorf("flags of the server are described:\n%s", texts[0])
			}
		})
	}
}

// TestCompletion: a shell asks about a line that is not finished, such as a flag
// without its value.
func TestCompletion(t *testing.T) {
	out, err := exec.Command(harness.AdapterProgram(t), "--completion-bash", "--log.level", "").Output()
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
		{"unknown flag", []string{"--storage.pth=x"}, 2, "unknown long flag '--storage.pth': did you mean --storage.path?"},
		{"unknown flag of a command", []string{"import", "--strat=5", "blocks", "."}, 2, "unknown long flag '--strat': did you mean --start?"},
		{"unknown command", []string{"improt"}, 2, "unexpected improt: did you mean import?"},
		{"unknown subcommand", []string{"import", "bloks"}, 2, `expected command but got "bloks": did you mean blocks?`},
		{"help on an unknown command", []string{"help", "improt"}, 1, "unexpected improt: did you mean import?"},
		{"help on an unknown subcommand", []string{"help", "import", "bloks"}, 1, `expected command but got "bloks": did you mean blocks?`},
		{"unknown backend", []string{"--storage.backend=tape"}, 2, "bigtable"},
		{"no project", bigtable[:1], 2, "--bigtable.project"},
		{"no instance", bigtable[:2], 2, "--bigtable.instance"},
		{"direct access in a program without it", append(bigtable[:3:3], "--bigtable.direct-access"), 2, "disable_grpc_modules"},
		{"direct access with embedded", []string{"--bigtable.direct-access"}, 2, "--storage.backend=bigtable"},
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
		{"a demonstration elsewhere", []string{"demo", "--storage.path=x"}, 2, "--dir"},
		{"a demonstration with a log", []string{"demo", "--buffer.path=x"}, 2, "--buffer.path"},
		{"a demonstration on Bigtable", append([]string{"demo"}, bigtable...), 2, "--storage.backend"},
		{"a demonstration of nothing", []string{"demo", "--years=0"}, 2, "--years=0"},
		{"no such web config", []string{"--storage.path=" + t.TempDir(), "--web.config.file=/no/such/file"}, 1, "/no/such/file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, output := harness.RunAdapter(t, harness.Backend{}, tt.args...)
			if code != tt.code || !strings.Contains(output, tt.want) {
				t.Errorf("code %d, want %d with %q in the output:\n%s", code, tt.code, tt.want, output)
			}
		})
	}
}

func TestSecondStart(t *testing.T) {
	b := harness.Embedded(t)
	a := harness.StartAdapter(t, b)
	code, output := harness.RunAdapter(t, b)
	if want := fmt.Sprint(a.PID()); code == 0 || !strings.Contains(output, want) {
		t.Errorf("code %d, output without the pid %s of the holder:\n%s", code, want, output)
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SomeSeries())
	a.Terminate(t)
	a.Rerun(t) // the directory is free again
	a.Kill(t)
	a.Rerun(t) // and after a kill too
}

// TestSchemaMismatch starts on data that another set of resource labels wrote.
func TestSchemaMismatch(t *testing.T) {
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			harness.StartAdapter(t, b, "--schema.resource-label=host").Terminate(t)
			code, output := harness.RunAdapter(t, b)
			if code == 0 || !strings.Contains(output, "--schema.resource-label") {
				t.Errorf("code %d, output without the flag to change:\n%s", code, output)
			}
			harness.StartAdapter(t, b, "--schema.resource-label=host").Terminate(t)
		})
	}
}

// TestTablePrefix keeps two adapters apart in one instance.
func TestTablePrefix(t *testing.T) {
	b := harness.Emulator(t)
	first := harness.StartAdapter(t, b, "--bigtable.table-prefix=first-")
	second := harness.StartAdapter(t, b, "--bigtable.table-prefix=second.")
	harness.RemoteWrite1().MustSend(t, first.URL("/write"), harness.SomeSeries())
	q := harness.Query{Mint: 0, Maxt: harness.NowMillis(), Matchers: harness.MustMatchers(t, "__name__", "=", "some")}
	for _, tt := range []struct {
		a    *harness.Adapter
		want int
	}{{first, 1}, {second, 0}} {
		if got := harness.MustRead(t, tt.a.URL("/read"), harness.Samples, q); len(got) != tt.want {
			t.Errorf("%v has %d series, want %d", tt.a, len(got), tt.want)
		}
	}
}

// TestEndpoints wants the paths that operators and Prometheus use.
func TestEndpoints(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	harness.RemoteWrite1().MustSend(t, a.URL("/write"), harness.SomeSeries())
	for _, tt := range []struct{ path, want string }{
		{"/-/healthy", ""},
		{"/-/ready", ""},
		{"/metrics", "adapter_build_info"},
		{"/metrics", harness.AdapterVersion},
		{"/debug/pprof/cmdline", "adapter"},
		{"/federate?match[]=some", "some{"},
		{"/api/v1/explain?match[]=some", `"status":"success"`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			resp := harness.MustGet(t, a.URL(tt.path), nil)
			if resp.Status != http.StatusOK || !strings.Contains(resp.Body, tt.want) {
				t.Errorf("want 200 with %q, got %v", tt.want, resp)
			}
		})
	}
	t.Run("promtool accepts the metrics", func(t *testing.T) {
		cmd := exec.Command(harness.PromtoolProgram(t), "check", "metrics")
		body := harness.MustGet(t, a.URL("/metrics"), nil).Body
		// This name is given by Prometheus' query engine, whose metrics keep the
		// names that dashboards ask for.
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

// TestSelfScrape reads on a fresh start samples that no sender wrote, and what they are.
func TestSelfScrape(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s")
	for _, name := range []string{"adapter_build_info", "process_resident_memory_bytes"} {
		q := harness.Query{Mint: 0, Maxt: harness.NowMillis() + 3_600_000, Matchers: harness.MustMatchers(t, "__name__", "=", name, "job", "=", "adapter", "instance", "=", a.Addr)}
		harness.Eventually(t, name+" can be read", func() error {
			found, err := harness.Read(a.URL("/api/v1/read"), harness.Streamed, q)
			if err == nil && len(found[0]) != 1 {
				err = fmt.Errorf("%d series", len(found[0]))
			}
			return err
		})
	}
	for name, want := range map[string]string{"adapter_build_info": "gauge", "adapter_http_requests_total": "counter", "adapter_http_request_duration_seconds": "histogram"} {
		harness.Eventually(t, name+" has metadata", func() error { return hasType(a.URL("/api/v1/metadata"), name, want) })
	}
}

// hasType returns an error unless there are metadata of a metric family, of this type and with a text.
func hasType(url, family, want string) error {
	data, err := harness.GetAPI(url, map[string][]string{"metric": {family}})
	if err != nil {
		return err
	}
	var found map[string][]struct{ Type, Help string }
	if err := json.Unmarshal(data, &found); err != nil {
		return err
	}
	if m := found[family]; len(m) != 1 || m[0].Type != want || m[0].Help == "" {
		return fmt.Errorf("the metadata of %s are %v", family, m)
	}
	return nil
}

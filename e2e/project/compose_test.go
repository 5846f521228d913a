package project

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"

	"github.com/promtable/promtable/e2e/harness"
)

// A composition is docker-compose.yml, read as the compose specification says.
type composition struct {
	root    string // of the repository, absolute
	project *types.Project
}

// loadComposition checks docker-compose.yml against the schema and returns it.
func loadComposition(t testing.TB) composition {
	t.Helper()
	root, err := filepath.Abs(harness.ModuleRoot)
	if err != nil {
		t.Fatal(err)
	}
	details := types.ConfigDetails{
		WorkingDir:  root,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(root, "docker-compose.yml")}},
		Environment: types.Mapping{},
	}
	project, err := loader.LoadWithContext(t.Context(), details)
	if err != nil {
		t.Fatal(err)
	}
	return composition{root, project}
}

func (c composition) service(t testing.TB, name string) types.ServiceConfig {
	t.Helper()
	s, err := c.project.GetService(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mounted returns the file or directory of the repository that a container
// sees at a path.
func (c composition) mounted(t testing.TB, service, inside string) string {
	t.Helper()
	for _, v := range c.service(t, service).Volumes {
		rel, err := filepath.Rel(v.Target, inside)
		if v.Type == types.VolumeTypeBind && err == nil && filepath.IsLocal(rel) {
			return filepath.Join(v.Source, rel)
		}
	}
	t.Fatalf("nothing of the repository is mounted at %s of %s", inside, service)
	return ""
}

// checkEndpoint wants a host:port to be a service and a port it listens on.
func (c composition) checkEndpoint(t testing.TB, hostport string) {
	t.Helper()
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		t.Errorf("endpoint %q: %v", hostport, err)
		return
	}
	s := c.service(t, host)
	if !slices.ContainsFunc(s.Ports, func(p types.ServicePortConfig) bool { return fmt.Sprint(p.Target) == port }) {
		t.Errorf("%s: service %s has the ports %v", hostport, host, s.Ports)
	}
	listens := func(arg string) bool { return strings.HasSuffix(arg, ":"+port) }
	if s.Build != nil && !slices.ContainsFunc(s.Command, listens) {
		t.Errorf("%s: service %s is told to listen elsewhere: %q", hostport, host, s.Command)
	}
}

// checkURL wants a plain HTTP URL of a service.
func (c composition) checkURL(t testing.TB, text string) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		t.Errorf("URL %q: scheme is not http (%v)", text, err)
		return
	}
	c.checkEndpoint(t, u.Host)
}

func TestCompose(t *testing.T) {
	c := loadComposition(t)
	dockerfile := readDockerfile(t, c)
	for name, s := range c.project.Services {
		t.Run(name, func(t *testing.T) {
			c.checkImage(t, s, dockerfile)
			c.checkMounts(t, s)
			if len(s.Ports) == 0 {
				t.Error("no port is published")
			}
			for _, p := range s.Ports {
				if p.HostIP != "127.0.0.1" {
					t.Errorf("port %d is published on %q", p.Target, p.HostIP)
				}
			}
		})
	}
	emulator := c.service(t, "adapter").Environment["BIGTABLE_EMULATOR_HOST"]
	if emulator == nil {
		t.Fatal("the adapter is not told where the emulator is")
	}
	c.checkEndpoint(t, *emulator)
}

// checkImage wants a target of our Dockerfile or an image with a fixed version.
func (c composition) checkImage(t testing.TB, s types.ServiceConfig, d dockerfile) {
	t.Helper()
	if s.Build == nil {
		if !regexp.MustCompile(`^[a-z/]+:v?[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(s.Image) {
			t.Errorf("image %q has no fixed version", s.Image)
		}
		return
	}
	if s.Build.Context != c.root || filepath.Join(c.root, s.Build.Dockerfile) != d.path {
		t.Errorf("built from %s in %s", s.Build.Dockerfile, s.Build.Context)
	}
	if d.stage(s.Build.Target) == nil {
		t.Errorf("the Dockerfile has no target %q", s.Build.Target)
	}
}

// checkMounts wants every mounted path of the host to be in the repository, and
// read only.
func (c composition) checkMounts(t testing.TB, s types.ServiceConfig) {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		rel, err := filepath.Rel(c.root, v.Source)
		if err != nil || !filepath.IsLocal(rel) {
			t.Errorf("mount %s is outside of the repository", v.Source)
		}
		if _, err := os.Stat(v.Source); err != nil {
			t.Errorf("mount: %v", err)
		}
		if !v.ReadOnly {
			t.Errorf("mount %s is writable", v.Source)
		}
	}
}

// prometheusConfig returns the path of prometheus.yml in the repository, and
// what Prometheus itself reads there.
func (c composition) prometheusConfig(t testing.TB) (string, *config.Config) {
	t.Helper()
	var inside string
	for _, arg := range c.service(t, "prometheus").Command {
		if file, ok := strings.CutPrefix(arg, "--config.file="); ok {
			inside = file
		}
	}
	file := c.mounted(t, "prometheus", inside)
	cfg, err := config.LoadFile(file, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return file, cfg
}

func TestComposePrometheus(t *testing.T) {
	c := loadComposition(t)
	_, cfg := c.prometheusConfig(t)
	if len(cfg.RemoteWriteConfigs) != 1 || len(cfg.RemoteReadConfigs) != 1 {
		t.Fatalf("%d remote_write, %d remote_read", len(cfg.RemoteWriteConfigs), len(cfg.RemoteReadConfigs))
	}
	c.checkURL(t, cfg.RemoteWriteConfigs[0].URL.String())
	c.checkURL(t, cfg.RemoteReadConfigs[0].URL.String())
	if !cfg.RemoteReadConfigs[0].ReadRecent {
		t.Error("remote_read without read_recent: new rows would not be shown")
	}
	for _, file := range cfg.RuleFiles { // beside prometheus.yml there as here
		inside := path.Join("/etc/prometheus", filepath.Base(file))
		if mounted := c.mounted(t, "prometheus", inside); mounted != file {
			t.Errorf("rule file %s: %s is mounted", file, mounted)
		}
		mustReadFile(t, file)
	}
	jobs := scrapeTargets(t, cfg)
	for _, name := range c.project.ServiceNames() {
		if name == "bigtable" { // has no metrics
			continue
		}
		if len(jobs[name]) == 0 {
			t.Errorf("service %s is not scraped", name)
		}
	}
	for _, targets := range jobs {
		for _, target := range targets {
			c.checkEndpoint(t, target)
		}
	}
}

// scrapeTargets returns the host:ports that each job scrapes.
func scrapeTargets(t testing.TB, cfg *config.Config) map[string][]string {
	t.Helper()
	jobs := make(map[string][]string)
	for _, job := range cfg.ScrapeConfigs {
		for _, d := range job.ServiceDiscoveryConfigs {
			groups, ok := d.(discovery.StaticConfig)
			if !ok {
				t.Fatalf("job %s discovers its targets by %s", job.JobName, d.Name())
			}
			for _, g := range groups {
				for _, target := range g.Targets {
					jobs[job.JobName] = append(jobs[job.JobName], string(target[model.AddressLabel]))
				}
			}
		}
	}
	return jobs
}

// TestComposeRuns runs what docker-compose.yml runs, with its own flags and
// configuration, as processes: only names, ports and paths are others. Grafana
// is not here; its queries are, and each must give something.
func TestComposeRuns(t *testing.T) {
	c := loadComposition(t)
	rows := harness.StartEmulatorWithFlags(t, replaceOnce(t, strings.Join(c.service(t, "bigtable").Command, " "), "0.0.0.0:8086", "127.0.0.1:0"))
	a := harness.StartWithFlags(t, harness.Backend{
		Args: without(t, c.service(t, "adapter").Command, "--web.listen-address="),
		Env:  []string{"BIGTABLE_EMULATOR_HOST=" + rows},
	})
	args := without(t, c.service(t, "prometheus").Command, "--config.file=")
	p := harness.StartPrometheus(t, without(t, args, "--storage.tsdb.path=")...)

	file, cfg := c.prometheusConfig(t)
	text := mustReadFile(t, file)
	text = replaceOnce(t, text, "scrape_interval: 15s", "scrape_interval: 1s")
	text = replaceOnce(t, text, "evaluation_interval: 15s", "evaluation_interval: 1s")
	queries := c.loadDashboard(t).queries()
	for _, rules := range cfg.RuleFiles {
		text = replaceOnce(t, text, "- "+filepath.Base(rules), "- "+rules)
		for _, rule := range readRules(t, filepath.Base(rules)) {
			if strings.HasPrefix(rule.Record, "job_instance:adapter_write") {
				queries["rule "+rule.Record] = rule.Record
			}
		}
	}
	text = strings.NewReplacer("adapter:9201", a.Addr, "prometheus:9090", p.Addr, "grafana:3000", a.Addr).Replace(text)
	ready := a.WaitLine(t, `msg="ready to serve"`)
	for _, field := range []string{
		"remote_write=" + a.URL(cfg.RemoteWriteConfigs[0].URL.Path),
		"remote_read=" + a.URL(cfg.RemoteReadConfigs[0].URL.Path),
	} {
		if !slices.Contains(strings.Fields(ready), field) {
			t.Errorf("prometheus.yml has %s, the adapter says %s", field, ready)
		}
	}
	p.Configure(t, text)
	for name, query := range queries {
		harness.Eventually(t, fmt.Sprintf("%s gives something: %s", name, query), func() error {
			found, err := p.Instant(query, harness.NowMillis())
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("no series")
			}
			return err
		})
	}
	p.Terminate(t)
	a.Terminate(t)
}

// without returns flags without the one that begins with prefix, which must be
// there.
func without(t testing.TB, args []string, prefix string) []string {
	t.Helper()
	rest := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return strings.HasPrefix(s, prefix) })
	if len(rest) != len(args)-1 {
		t.Fatalf("want one flag %s in %q", prefix, args)
	}
	return rest
}

// replaceOnce replaces what must occur in text once.
func replaceOnce(t testing.TB, text, old, with string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q occurs %d times in:\n%s", old, n, text)
	}
	return strings.Replace(text, old, with, 1)
}

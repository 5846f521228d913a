package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
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
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"
)

// A composition is docker-compose.yml, read as the compose specification says.
type composition struct {
	root    string // of the repository, absolute
	project *types.Project
}

// loadComposition checks docker-compose.yml against the schema and returns it.
func loadComposition(t testing.TB) composition {
	t.Helper()
	root, err := filepath.Abs("..")
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

// readDockerfile takes deploy/Dockerfile apart. It knows no continued lines.
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
	minimum, err := goOutput("..", "list", "-m", "-f", "{{.GoVersion}}")
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
	name, err := goOutput("..", "list", "-f", "{{.Name}}", pkg)
	if err != nil {
		t.Error(err)
	} else if got := strings.TrimSpace(string(name)); got != "main" {
		t.Errorf("%s is package %s", pkg, got)
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

// A dashboard is what the tests know of Grafana's format.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		Title, Type string
		Datasource  struct{ Type, UID string }
		Targets     []struct {
			Expr       string
			Datasource struct{ Type, UID string }
		}
	}
}

// loadDashboard returns the dashboard that Grafana shows first.
func (c composition) loadDashboard(t testing.TB) dashboard {
	t.Helper()
	home := c.service(t, "grafana").Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if home == nil {
		t.Fatal("Grafana has no home dashboard")
	}
	var d dashboard
	if err := json.Unmarshal([]byte(mustReadFile(t, c.mounted(t, "grafana", *home))), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// queries returns what the panels ask, by panel and place in it, with Grafana's
// variables replaced as Grafana would for this scrape interval.
func (d dashboard) queries() map[string]string {
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "15s", "$__range", "1h")
	queries := make(map[string]string)
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			queries[fmt.Sprintf("%s %d", p.Title, i)] = variables.Replace(target.Expr)
		}
	}
	return queries
}

// grafanaSource is a file of Grafana's data source provisioning.
type grafanaSource struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, UID, Type, Access, URL string
		IsDefault                    bool           `yaml:"isDefault"`
		Editable                     bool           `yaml:"editable"`
		JSONData                     map[string]any `yaml:"jsonData"`
	}
}

// grafanaProvider is a file of Grafana's dashboard provisioning.
type grafanaProvider struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name, Type      string
		DisableDeletion bool              `yaml:"disableDeletion"`
		AllowUIUpdates  bool              `yaml:"allowUiUpdates"`
		Options         map[string]string `yaml:"options"`
	}
}

// provisioned decodes the one file of a provisioning directory of Grafana. A
// field that v does not know is an error.
func (c composition) provisioned(t testing.TB, kind string, v any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.mounted(t, "grafana", "/etc/grafana/provisioning/"+kind), "*.yml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: files %q, %v", kind, files, err)
	}
	if err := yaml.UnmarshalStrict([]byte(mustReadFile(t, files[0])), v); err != nil {
		t.Fatalf("%s: %v", files[0], err)
	}
}

func TestComposeGrafana(t *testing.T) {
	c := loadComposition(t)
	var sources grafanaSource
	c.provisioned(t, "datasources", &sources)
	if sources.APIVersion != 1 || len(sources.Datasources) != 1 {
		t.Fatalf("data sources: %+v", sources)
	}
	source := sources.Datasources[0]
	if source.Type != "prometheus" || source.Access != "proxy" || source.UID == "" || !source.IsDefault {
		t.Errorf("data source: %+v", source)
	}
	c.checkURL(t, source.URL)

	var providers grafanaProvider
	c.provisioned(t, "dashboards", &providers)
	if providers.APIVersion != 1 || len(providers.Providers) != 1 || providers.Providers[0].Type != "file" {
		t.Fatalf("dashboards: %+v", providers)
	}
	boards, err := filepath.Glob(filepath.Join(c.mounted(t, "grafana", providers.Providers[0].Options["path"]), "*.json"))
	if err != nil || len(boards) != 1 {
		t.Errorf("dashboards: files %q, %v", boards, err)
	}
	c.loadDashboard(t).check(t, source.UID)
}

// check wants every panel to have a place, a kind, and queries for the data
// source called uid.
func (d dashboard) check(t testing.TB, uid string) {
	t.Helper()
	if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
		t.Errorf("dashboard uid %q, title %q, %d panels", d.UID, d.Title, len(d.Panels))
	}
	for _, p := range d.Panels {
		if p.Title == "" || p.Type == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q of type %q has %d queries", p.Title, p.Type, len(p.Targets))
		}
		if p.Datasource.UID != uid || p.Datasource.Type != "prometheus" {
			t.Errorf("panel %q: data source %+v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != p.Datasource {
				t.Errorf("panel %q: query to %+v", p.Title, target.Datasource)
			}
		}
	}
}

func TestComposeQueries(t *testing.T) {
	c := loadComposition(t)
	_, cfg := c.prometheusConfig(t)
	jobs := scrapeTargets(t, cfg)
	for name, query := range c.loadDashboard(t).queries() {
		t.Run(name, func(t *testing.T) {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			for _, selector := range parser.ExtractSelectors(expr) {
				for _, m := range selector {
					if m.Name == model.JobLabel && m.Type == labels.MatchEqual && jobs[m.Value] == nil {
						t.Errorf("%s: no job %q is scraped", query, m.Value)
					}
				}
			}
		})
	}
}

// TestComposeRuns runs what docker-compose.yml runs, with its own flags and
// configuration, as processes: only names, ports and paths are others. Grafana
// is not here; its queries are, and each must give something.
func TestComposeRuns(t *testing.T) {
	c := loadComposition(t)
	e := start(t, "emulator", command{
		path: built(t, programs.emulator),
		args: []string{replaceOnce(t, strings.Join(c.service(t, "bigtable").Command, " "), "0.0.0.0:8086", "127.0.0.1:0")},
	})
	rows := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(e.waitLine(t, "emulator running on"))
	a := &adapter{command: command{
		path: built(t, programs.adapter),
		args: without(t, c.service(t, "adapter").Command, "--web.listen-address="),
		env:  []string{"BIGTABLE_EMULATOR_HOST=" + rows},
	}}
	a.run(t, "127.0.0.1:0")
	args := without(t, c.service(t, "prometheus").Command, "--config.file=")
	p := startPrometheus(t, without(t, args, "--storage.tsdb.path=")...)

	file, cfg := c.prometheusConfig(t)
	text := mustReadFile(t, file)
	text = replaceOnce(t, text, "scrape_interval: 15s", "scrape_interval: 1s")
	text = strings.NewReplacer("adapter:9201", a.addr, "prometheus:9090", p.addr, "grafana:3000", a.addr).Replace(text)
	ready := a.waitLine(t, `msg="ready to serve"`)
	for _, field := range []string{
		"remote_write=" + a.url(cfg.RemoteWriteConfigs[0].URL.Path),
		"remote_read=" + a.url(cfg.RemoteReadConfigs[0].URL.Path),
	} {
		if !slices.Contains(strings.Fields(ready), field) {
			t.Errorf("prometheus.yml has %s, the adapter says %s", field, ready)
		}
	}
	p.configure(t, text)
	for name, query := range c.loadDashboard(t).queries() {
		eventually(t, fmt.Sprintf("%s gives something: %s", name, query), func() error {
			found, err := p.instant(query, nowMillis())
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("no series")
			}
			return err
		})
	}
	p.terminate(t)
	a.terminate(t)
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

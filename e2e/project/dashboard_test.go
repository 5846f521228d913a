package project

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"
)

// A dashboard is the part of Grafana's format that the tests read.
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

// queries returns the queries of the panels, by panel and position, with Grafana's
// variables replaced as Grafana does for this scrape interval.
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
	if err != nil || len(boards) < 2 {
		t.Errorf("dashboards: files %q, %v", boards, err)
	}
	c.loadDashboard(t).check(t, source.UID)
}

// check wants every panel to have a position, a kind, and queries for the data source
// called uid.
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

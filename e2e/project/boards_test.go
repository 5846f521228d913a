package project

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var update = flag.Bool("update", false, "write deploy/grafana/dashboards anew")

// A board is a dashboard of Grafana for adapters that a Prometheus scrapes.
type board struct {
	name, title string
	// bigtable says that its metrics are those of adapters on Bigtable.
	bigtable bool
	// tenants adds a variable with the tenants.
	tenants  bool
	sections []section
}

// A section is a row of a board, with the panels under it.
type section struct {
	title  string
	panels []panel
}

// A panel shows queries. Its kind is timeseries if it is empty. In expressions $a stands for the selected adapters.
type panel struct {
	title, kind, unit, description string
	queries                        []boardQuery
}

type boardQuery struct{ expr, legend string }

// q returns a query.
func q(expr, legend string) boardQuery { return boardQuery{expr, legend} }

// selected are the matchers of the adapters that the variables of a board select.
const selected = `job=~"$job", instance=~"$instance"`

// object is one of JSON, whose keys encoding/json sorts.
type object = map[string]any

// source is the data source that a board selects.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// encode returns the board in Grafana's format.
func (b board) encode(t testing.TB) []byte {
	t.Helper()
	variables := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		b.variable("job", "Job", "label_values(adapter_build_info, job)"),
		b.variable("instance", "Adapter", `label_values(adapter_build_info{job=~"$job"}, instance)`),
	}
	if b.tenants {
		variables = append(variables, b.variable("tenant", "Tenant", "label_values(adapter_limit_used_ratio{"+selected+"}, tenant)"))
	}
	var panels []object
	x, y, height := 0, 0, 0
	place := func(w, h int) object {
		if x+w > 24 {
			x, y, height = 0, y+height, 0
		}
		at := object{"x": x, "y": y, "w": w, "h": h}
		x, height = x+w, max(height, h)
		return at
	}
	for _, s := range b.sections {
		panels = append(panels, object{"id": len(panels) + 1, "type": "row", "title": s.title, "collapsed": false, "panels": []object{}, "gridPos": place(24, 1)})
		for _, p := range s.panels {
			panels = append(panels, p.encode(len(panels)+1, place))
		}
		x, y, height = 0, y+height, 0
	}
	text, err := json.MarshalIndent(object{
		"uid": "promtable-" + b.name, "title": "Promtable / " + b.title, "tags": []string{"promtable"},
		"schemaVersion": 41, "version": 1, "editable": true, "timezone": "browser", "refresh": "30s", "graphTooltip": 1,
		"time":        object{"from": "now-3h", "to": "now"},
		"templating":  object{"list": variables},
		"annotations": object{"list": []object{}},
		"links":       []object{{"title": "Promtable", "type": "dashboards", "tags": []string{"promtable"}, "asDropdown": true, "includeVars": true, "keepTime": true}},
		"panels":      panels,
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// variable returns a variable with the values that a query finds.
func (b board) variable(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source, "query": object{"query": query, "refId": name},
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
	}
}

// encode returns the panel in Grafana's format, with the place that it is given for its width and height.
func (p panel) encode(id int, place func(w, h int) object) object {
	stat := p.kind == "stat"
	o := object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.description, "datasource": source,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
	if stat {
		o["type"], o["gridPos"] = "stat", place(6, 4)
		o["fieldConfig"] = object{"defaults": object{"unit": p.unit}, "overrides": []object{}}
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "area"}
	} else {
		o["gridPos"] = place(12, 8)
	}
	var targets []object
	for i, query := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "range": true,
			"expr": strings.ReplaceAll(query.expr, "$a", selected), "legendFormat": query.legend,
		})
	}
	o["targets"] = targets
	return o
}

// boardFile returns the path of a board.
func boardFile(name string) string {
	return filepath.Join(harness.ModuleRoot, "deploy", "grafana", "dashboards", name+".json")
}

// TestBoards: the files of deploy/grafana/dashboards are the boards. -update writes them.
func TestBoards(t *testing.T) {
	expected := []string{"adapter.json"} // that of the demonstration, written by hand
	for _, b := range boards() {
		want := b.encode(t)
		path := boardFile(b.name)
		expected = append(expected, filepath.Base(path))
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not that of boardlist_test.go (%v): write it with go test ./e2e/project -run TestBoards -update", path, err)
		}
	}
	files, err := os.ReadDir(filepath.Dir(boardFile("")))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(expected, f.Name()) {
			t.Errorf("%s is no board", f.Name())
		}
	}
	monitoring := mustReadFile(t, filepath.Join(harness.ModuleRoot, "docs", "monitoring.md"))
	for _, name := range expected {
		if !strings.Contains(monitoring, "(../deploy/grafana/dashboards/"+name+")") {
			t.Errorf("docs/monitoring.md has no link to %s", name)
		}
	}
}

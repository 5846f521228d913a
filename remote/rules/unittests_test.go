//go:build !race

package rules

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"

	"github.com/promtable/promtable/remote/ingest"
)

// A unitTests is a file that promtool test rules takes.
type unitTests struct {
	Files    []string       `yaml:"rule_files"`
	Interval model.Duration `yaml:"evaluation_interval"`
	Tests    []unitTest     `yaml:"tests"`
}

type unitTest struct {
	Name     string                            `yaml:"name"`
	Interval model.Duration                    `yaml:"interval"`
	Start    string                            `yaml:"start_timestamp"`
	Series   []struct{ Series, Values string } `yaml:"input_series"`
	Alerts   []struct {
		At    model.Duration `yaml:"eval_time"`
		Name  string         `yaml:"alertname"`
		Wants []struct {
			Labels      map[string]string `yaml:"exp_labels"`
			Annotations map[string]string `yaml:"exp_annotations"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
	Exprs []struct {
		Expr  string         `yaml:"expr"`
		At    model.Duration `yaml:"eval_time"`
		Wants []struct {
			Labels    string  `yaml:"labels"`
			Value     float64 `yaml:"value"`
			Histogram string  `yaml:"histogram"`
		} `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

// start returns the time of the first step.
func (u *unitTest) start(t *testing.T) time.Time {
	t.Helper()
	if u.Start == "" {
		return time.UnixMilli(0)
	}
	var seconds int64
	if n, err := fmt.Sscanf(u.Start, "%d", &seconds); err == nil && n == 1 && !strings.Contains(u.Start, "-") {
		return time.Unix(seconds, 0)
	}
	at, err := time.Parse(time.RFC3339, u.Start)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// upstreamTests returns the directory of the tests of upstream's promtool.
func upstreamTests(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "cmd", "promtool", "testdata")
}

// TestUnitTests: what promtool test rules finds in upstream's unit tests of rules, in those of our alerts and in our own, is found here, where recording rules are
// recorded by range queries, and alerts by upstream's manager. Our own are run with restarts, too.
func TestUnitTests(t *testing.T) {
	upstream := upstreamTests(t)
	for _, path := range []string{
		filepath.Join(upstream, "unittest.yml"), filepath.Join(upstream, "at-modifier-test.yml"), filepath.Join(upstream, "negative-offset-test.yml"),
		filepath.Join(upstream, "no-test-group-interval.yml"), filepath.Join(upstream, "start-time-test.yml"),
		filepath.Join("..", "..", "deploy", "prometheus", "alerts_test.yml"), filepath.Join("testdata", "alerts_test.yml"),
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file unitTests
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for i := range file.Files {
			file.Files[i] = filepath.Join(filepath.Dir(path), file.Files[i])
		}
		if file.Interval == 0 {
			file.Interval = model.Duration(time.Minute)
		}
		for i, test := range file.Tests {
			name := fmt.Sprintf("%s/%d %s", filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), i, test.Name)
			t.Run(name, func(t *testing.T) { test.run(t, file, 0) })
			if strings.HasPrefix(path, "testdata") {
				t.Run(name+" with a restart", func(t *testing.T) { test.run(t, file, 30*time.Minute) })
			}
		}
	}
}

// run evaluates the rules step by step. If restart is not 0, another process goes on after that time.
func (u *unitTest) run(t *testing.T, file unitTests, restart time.Duration) {
	w, start, step := newWorld(t, file.Files...), u.start(t), time.Duration(file.Interval)
	w.cfg.Interval = step
	u.fill(w, start)
	end := start
	for _, a := range u.Alerts {
		end = later(end, start.Add(time.Duration(a.At)))
	}
	for _, e := range u.Exprs {
		end = later(end, start.Add(time.Duration(e.At)))
	}
	var groups []*group
	isNew := false
	for at := start; !at.After(end); at = at.Add(step) {
		w.now.Store(at.UnixMilli())
		if at.Equal(start) || restart > 0 && at.Equal(start.Add(restart)) {
			groups, isNew = w.groups(), true
			for _, g := range groups {
				for i := range g.recordings {
					g.recordings[i].done = timestamp.FromTime(at.Add(-step))
				}
			}
		}
		for _, g := range groups {
			if !at.Equal(start) && isNew {
				if err := g.begin(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if len(g.recordings) > 0 {
				if err := g.advance(t.Context(), at.UnixMilli()); err != nil {
					t.Fatal(err)
				}
			}
			w.runner.current.iterate(t.Context(), g.of, at)
			if isNew {
				g.of.RestoreForState(at)
			}
		}
		isNew = false
		u.check(w, groups, start, at.Sub(start), step)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// fill writes the series.
func (u *unitTest) fill(w *world, start time.Time) {
	w.Helper()
	interval := time.Duration(u.Interval)
	if interval == 0 {
		interval = time.Minute
	}
	for _, of := range u.Series {
		ls, values, err := w.cfg.Parser.ParseSeriesDesc(of.Series + " " + of.Values)
		if err != nil {
			w.Fatal(err)
		}
		s := ingest.Series{Labels: ls}
		for i, v := range values {
			switch at := start.Add(time.Duration(i) * interval).UnixMilli(); {
			case v.Omitted:
			case v.Histogram != nil:
				s.Histograms = append(s.Histograms, ingest.Histogram{T: at, FH: v.Histogram})
			default:
				s.Samples = append(s.Samples, ingest.Sample{T: at, V: v.Value})
			}
		}
		w.write([]ingest.Series{s})
	}
}

// check compares what is wanted at a time, or between it and the next step.
func (u *unitTest) check(w *world, groups []*group, start time.Time, at, step time.Duration) {
	w.Helper()
	for _, a := range u.Alerts {
		if d := time.Duration(a.At); d < at || d >= at+step {
			continue
		}
		var got, want []string
		for _, g := range groups {
			for _, rule := range g.of.AlertingRules() {
				for _, alert := range rule.ActiveAlerts() {
					if rule.Name() == a.Name && alert.State == rules.StateFiring {
						got = append(got, alert.Labels.String()+alert.Annotations.String())
					}
				}
			}
		}
		for _, of := range a.Wants {
			b := labels.NewBuilder(labels.FromMap(of.Labels))
			b.Set("alertname", a.Name)
			want = append(want, b.Labels().String()+labels.FromMap(of.Annotations).String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			w.Errorf("alert %s after %v:\n got %q\nwant %q", a.Name, d(a.At), got, want)
		}
	}
	for _, e := range u.Exprs {
		if d := time.Duration(e.At); d < at || d >= at+step {
			continue
		}
		vector, err := instant(w.Context(), w.cfg, e.Expr, start.Add(time.Duration(e.At)))
		if err != nil {
			w.Errorf("%s: %v", e.Expr, err)
		}
		var got, want []string
		for _, s := range vector {
			got = append(got, sampleText(s))
		}
		for _, of := range e.Wants {
			s := promql.Sample{F: of.Value}
			if of.Labels != "" {
				if s.Metric, err = w.cfg.Parser.ParseMetric(of.Labels); err != nil {
					w.Fatal(err)
				}
			}
			if of.Histogram != "" {
				_, values, err := w.cfg.Parser.ParseSeriesDesc("{} " + of.Histogram)
				if err != nil {
					w.Fatal(err)
				}
				s.H = values[0].Histogram
			}
			want = append(want, sampleText(s))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			w.Errorf("%s after %v:\n got %q\nwant %q", e.Expr, d(e.At), got, want)
		}
	}
}

func d(of model.Duration) time.Duration { return time.Duration(of) }

func sampleText(s promql.Sample) string {
	if s.H != nil {
		return s.Metric.String() + " " + s.H.TestExpression()
	}
	return fmt.Sprintf("%s %v", s.Metric, s.F)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"

	alerts "github.com/promtable/promtable/deploy/prometheus"
	"github.com/promtable/promtable/series/expr"
)

// commandDoctor is the subcommand that says what is wrong with a running adapter, or will be.
const commandDoctor = "doctor"

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	url, metrics string
}

func (o *options) doctorCommand(app *kingpin.Application) {
	c := app.Command(commandDoctor, "Ask a running adapter what is wrong with it, or will be, by the alerts of deploy/prometheus over its own metrics. The exit status is 0 if nothing is.")
	c.Flag("url", "URL of the adapter.").Default("http://localhost:9201").StringVar(&o.doctor.url)
	c.Flag("metrics-url", "URL of a server with the API of Prometheus that has the adapter's metrics. Default: the adapter, which stores its own unless --self-scrape-interval=0s.").StringVar(&o.doctor.metrics)
	o.asks(c, "the adapter")
}

// errIll says that something is wrong with an adapter. The command has printed what.
var errIll = errors.New("something is wrong with the adapter")

// examine runs doctor.
func examine(ctx context.Context, o *options, _ log.Logger) error {
	d, err := newDoctor(o)
	if err != nil {
		return err
	}
	if err := d.state(ctx); err != nil {
		return err
	}
	if err := d.alerts(ctx); err != nil {
		return err
	}
	if d.wrong > 0 {
		return fmt.Errorf("%w: %d findings", errIll, d.wrong)
	}
	d.say("Nothing is wrong.")
	return nil
}

// A doctor asks an adapter, and a server with its metrics.
type doctor struct {
	adapter, metrics promv1.API
	out              io.Writer
	now              time.Time
	wrong            int
}

func newDoctor(o *options) (*doctor, error) {
	client := func(flag, address string) (promv1.API, error) {
		c, err := o.apiClient(flag, address)
		return promv1.NewAPI(c), err
	}
	d := &doctor{out: o.out, now: o.now()}
	var err error
	if d.adapter, err = client("url", o.doctor.url); err != nil {
		return nil, err
	}
	d.metrics = d.adapter
	if o.doctor.metrics != "" {
		d.metrics, err = client("metrics-url", o.doctor.metrics)
	}
	return d, err
}

func (d *doctor) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// find says what is wrong.
func (d *doctor) find(format string, args ...any) {
	d.wrong++
	d.say("WRONG: "+format, args...)
}

// state says what the adapter is, and what its metrics tell of the days to come.
func (d *doctor) state(ctx context.Context) error {
	flags, err := d.adapter.Flags(ctx)
	if err != nil {
		return fmt.Errorf("ask the adapter for its flags: %w", err)
	}
	found, err := d.query(ctx, "adapter_build_info")
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("there are no metrics of an adapter: with --self-scrape-interval=0s give a Prometheus that scrapes it by --metrics-url, and just after a start wait for a minute")
	}
	for _, sample := range found {
		d.say("%s has version %s, revision %s.", sample.Metric["instance"], sample.Metric["version"], sample.Metric["revision"])
	}
	for _, s := range []struct {
		query string
		say   func(of model.Metric, v float64)
	}{
		{"sum by (instance) (adapter_buffer_series)", func(of model.Metric, v float64) { d.say("%s has %.0f series in its buffer.", of["instance"], v) }},
		{"100 * (sum by (instance) (adapter_buffer_series) / sum by (instance) (adapter_buffer_series offset 1d) - 1)", func(of model.Metric, v float64) {
			d.say("%s has %+.0f %% series than a day ago.", of["instance"], v)
		}},
		{"adapter_disk_free_bytes", func(of model.Metric, v float64) {
			d.say("The disk of %s on %s has %.1f GiB free.", of["path"], of["instance"], v/(1<<30))
		}},
		{"(adapter_disk_free_bytes - adapter_disk_min_free_bytes) / -(deriv(adapter_disk_free_bytes[6h]) < 0) / 86400 and adapter_disk_free_bytes offset 3h", d.diskFull},
		{"adapter_rollup_lag_seconds", func(of model.Metric, v float64) {
			if v <= 0 {
				d.say("All rollups that are due are made on %s.", of["instance"])
			} else {
				d.say("The first day without rollups on %s ended %s ago.", of["instance"], model.Duration(time.Duration(v)*time.Second))
			}
		}},
		{"time() - (adapter_snapshot_last_success_timestamp_seconds > 0)", func(of model.Metric, v float64) {
			d.say("The last snapshot of %s is %.0f hours old.", of["instance"], v/3600)
		}},
		{"(adapter_web_certificate_expiry_timestamp_seconds - time()) / 86400", func(of model.Metric, v float64) {
			d.say("The certificate of %s ends in %.0f days.", of["instance"], v)
		}},
		{"max by (instance, tenant, limit) (adapter_limit_used_ratio) > 0.5", func(of model.Metric, v float64) {
			d.say("Tenant %q uses %.0f %% of its limit %s.", string(of["tenant"]), 100*v, of["limit"])
		}},
	} {
		found, err := d.query(ctx, s.query)
		if err != nil {
			return err
		}
		for _, sample := range found {
			if !math.IsNaN(float64(sample.Value)) && !math.IsInf(float64(sample.Value), 0) {
				s.say(sample.Metric, float64(sample.Value))
			}
		}
	}
	d.contradictions(flags)
	return nil
}

// soonFull is within how many days the disk must not be full.
const soonFull = 14

func (d *doctor) diskFull(of model.Metric, days float64) {
	if days > soonFull {
		d.say("At the rate of the last 6 hours the disk of %s on %s is full in %.0f days.", of["path"], of["instance"], days)
		return
	}
	d.find("at the rate of the last 6 hours the disk of %s on %s is full in %.1f days: keep samples for less long, or take a larger disk (docs/retention.md, docs/sizing.md)", of["path"], of["instance"], max(0, days))
}

// contradictions says which flags do not go together, though a start takes them.
func (d *doctor) contradictions(flags promv1.FlagsResult) {
	if fsync := flags["buffer.fsync"]; fsync != "" && fsync != "always" {
		d.say("Samples of the last %s may be lost with the power of the machine, as --buffer.fsync says.", fsync)
	}
	if flags["web.enable-admin-api"] == "true" && flags["web.config.file"] == "" && flags["web.users-file"] == "" && flags["web.admin-listen-address"] == "" &&
		slices.ContainsFunc([]string{":", "0.0.0.0:", "[::]:"}, func(all string) bool { return strings.HasPrefix(flags["web.listen-address"], all) }) {
		d.find("--web.enable-admin-api lets every client that reaches %s delete samples: give it --web.config.file, --web.users-file or --web.admin-listen-address (docs/security.md)", flags["web.listen-address"])
	}
}

func (d *doctor) query(ctx context.Context, query string) (model.Vector, error) {
	found, _, _, err := d.metrics.Query(ctx, query, d.now)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", query, err)
	}
	vector, _ := found.(model.Vector) // which each of our queries returns
	return vector, nil
}

// alerts says which alerts fire: whose expression has been true for as long as they say.
func (d *doctor) alerts(ctx context.Context) error {
	recorded, errs := rulefmt.Parse(alerts.Rules, false, model.UTF8Validation, expr.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	groups, more := rulefmt.Parse(alerts.Alerts, false, model.UTF8Validation, expr.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if err := errors.Join(append(errs, more...)...); err != nil {
		return err
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if err := d.alert(ctx, rule, inline(rule.Expr, recorded)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inline puts the expressions of recording rules in place of their names.
func inline(expr string, recorded *rulefmt.RuleGroups) string {
	for before := ""; before != expr; {
		before = expr
		for _, group := range recorded.Groups {
			for _, rule := range group.Rules {
				expr = strings.ReplaceAll(expr, rule.Record, "("+strings.TrimSpace(rule.Expr)+")")
			}
		}
	}
	return expr
}

// alert says whether an alert fires.
func (d *doctor) alert(ctx context.Context, rule rulefmt.Rule, expr string) error {
	const steps = 8
	lasts := time.Duration(rule.For)
	at := promv1.Range{Start: d.now.Add(-lasts), End: d.now, Step: max(lasts/steps, time.Second)}
	found, _, _, err := d.metrics.QueryRange(ctx, expr, at)
	if err != nil {
		return fmt.Errorf("ask for alert %s: %w", rule.Alert, err)
	}
	matrix, _ := found.(model.Matrix)
	for _, series := range matrix {
		if len(series.Values) <= int(at.End.Sub(at.Start)/at.Step) { // not all of the time
			continue
		}
		labels := make(map[string]string, len(series.Metric))
		for name, value := range series.Metric {
			labels[string(name)] = string(value)
		}
		data := template.AlertTemplateData(labels, nil, "", promql.Sample{F: float64(series.Values[len(series.Values)-1].Value)})
		text := func(name string) string {
			const given = "{{$labels := .Labels}}{{$value := .Value}}"
			e := template.NewTemplateExpander(ctx, given+rule.Annotations[name], rule.Alert, data, model.TimeFromUnixNano(d.now.UnixNano()), nil, &url.URL{}, nil)
			text, err := e.Expand()
			if err != nil {
				return err.Error()
			}
			return text
		}
		d.find("%s %s (docs/runbooks/%s)", text("summary"), text("description"), path.Base(rule.Annotations["runbook_url"]))
	}
	return nil
}

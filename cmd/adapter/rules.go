package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/expr"
	"github.com/promtable/promtable/series/rollup"
)

const commandRetentionExplain = "retention explain"

// readRules reads the file of rules of a store with or without tenants.
func (r *retentionOptions) readRules(flags bucketstore.Retention, tenancy bool) error {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return fmt.Errorf("--retention.rules: %w", err)
	}
	if r.rules, err = retention.ParseRules(r.file, text, flags); err != nil {
		return fmt.Errorf("--retention.rules: %w", err)
	}
	for i := range r.rules {
		isOfTenant := func(m *labels.Matcher) bool { return m.Name == series.TenantLabel }
		if !tenancy && slices.ContainsFunc(r.rules[i].Matchers, isOfTenant) {
			return fmt.Errorf("--retention.rules: file %s, rule %d %s: the store has no tenants, which --tenancy says", r.file, i+1, r.rules[i].Selector)
		}
	}
	return nil
}

// rulesConfig returns what rules know of a store.
func (o *options) rulesConfig(about *meta.Store, schema series.Schema, logger log.Logger) retention.RulesConfig {
	cfg := retention.RulesConfig{
		Meta: about, Schema: schema, Tenants: jobs.TenantsOf(about, schema), Now: o.now, Longest: o.retention.keep(), Rollups: len(o.resolutions()) > 0, Logger: logger,
	}
	if o.retention.rules != nil {
		cfg.FileRules = retention.WithRest(o.retention.rules, o.retention.flags())
	}
	return cfg
}

// newWalker returns what removes what rules cut from rows, the store beneath all others.
func (a *adapter) newWalker(rows bucketstore.Store, appender bucketstore.Appender) *retention.Walker {
	cfg := retention.WalkerConfig{
		Rules: a.rules, Store: rows, Timeline: a.retention, Holder: processName(), Registerer: a.reg,
	}
	if store, ok := rows.(expirer); ok {
		cfg.Newest = func() (int64, error) {
			usage, err := store.Usage()
			return retention.Newest(usage.Days), err
		}
	}
	if a.maker != nil {
		cfg.Make = a.maker.MakeSeries
	}
	own := ""
	if a.clock != nil {
		cfg.Waits = func(ctx context.Context) error { return errors.Join(a.clock.Err(), a.noOtherLogs(ctx, own)) }
	}
	if b, ok := appender.(*buffer.Buffer); ok {
		own = b.ID()
		cfg.Flush = func(ctx context.Context) error { return flushAll(ctx, b) }
	}
	return retention.NewWalker(cfg)
}

// noOtherLogs returns an error if a log but the own one may have samples that are not in the store: they would be missing in the last rollups
// of what a rule cuts. The mark of a process that has died, see seal.Clock, stays for an hour only.
func (a *adapter) noOtherLogs(ctx context.Context, own string) error {
	logs, err := otherLogs(ctx, a.meta, own)
	if err == nil && len(logs) > 0 {
		err = fmt.Errorf("%w: %s", seal.ErrBuffer, logs[0])
	}
	return err
}

func (o *options) retentionCommand(app *kingpin.Application) {
	c := app.Command("retention", "How long samples are kept.").Command("explain", "Say which rules of --retention.rules may hold for the series of a selector, and what of them goes when. Opens no store.")
	c.Arg("selector", "Selector of the series, such as '{job=\"x\"}'.").Required().StringVar(&o.retention.selector)
}

// explainRetention runs retention explain.
func explainRetention(_ context.Context, o *options, _ log.Logger) error {
	return o.retention.explain(o.out, time.Now())
}

// explain says what of the series of a selector goes when.
func (r *retentionOptions) explain(out io.Writer, now time.Time) error {
	ms, err := expr.NewParser(parser.Options{}).ParseMetricSelector(r.selector)
	if err != nil {
		return fmt.Errorf("selector %s: %w", r.selector, err)
	}
	rules := retention.WithRest(r.rules, r.flags())
	isDecided := false
	for i := range rules {
		rule, name := &rules[i], fmt.Sprintf("rule %d %s", i+1, rules[i].Selector)
		does := retention.Covers(rule.Matchers, ms)
		if i == len(rules)-1 {
			name = "the flags, of series that no rule matches"
		}
		switch {
		case isDecided:
			fmt.Fprintf(out, "%s: not reached\n", name)
			continue
		case does == retention.Never:
			fmt.Fprintf(out, "%s: cannot match\n", name)
			continue
		case does == retention.Always:
			isDecided = true
			fmt.Fprintf(out, "%s: holds for all that is left\n", name)
		default:
			fmt.Fprintf(out, "%s: may match\n", name)
		}
		if err := r.explainRule(out, rule, now); err != nil {
			return err
		}
	}
	return nil
}

// explainRule says what of the series goes when for which a rule holds.
func (r *retentionOptions) explainRule(out io.Writer, rule *retention.Rule, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	ages := timeline.Ages(rule.Keep)
	for of, age := range ages {
		of := rollup.Resolution(of)
		kept := "kept for ever"
		switch {
		case rule.Keep[of] == timeline.Off:
			kept = "off, none are made"
		case age > 0:
			before, today := retention.Dates(now, age)
			how := "dropped by whole days"
			if _, ok := rule.Walked(of, r.keep()); ok {
				how = "removed series by series, which rewrites days"
			}
			kept = fmt.Sprintf("%s\tbefore %s goes now, samples of today from %s on\t%s", model.Duration(age), before.Format(time.RFC3339), today.Format(time.RFC3339), how)
		}
		fmt.Fprintf(table, "  %s\t%s\n", of, kept)
	}
	return table.Flush()
}

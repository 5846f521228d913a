package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/notifier"
	promrules "github.com/prometheus/prometheus/rules"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	sloggokit "github.com/tjhop/slog-gokit"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/rules"
	"github.com/promtable/promtable/remote/scope"
)

// ruleFileOptions are the flags about recording and alerting rules.
type ruleFileOptions struct {
	files         []string
	interval      time.Duration
	queryOffset   time.Duration
	reevaluate    time.Duration
	alertmanagers []string
	alerting      string
	// byTenant has the patterns of files by tenant, which is empty in a store without tenants.
	byTenant map[string][]string
}

func (o *options) ruleFileFlags(app *kingpin.Application) {
	r := &o.ruleFiles
	app.Flag("rules.file", "Pattern of files with recording and alerting rules, in the format of Prometheus. In a store with tenants, of a tenant: TENANT:PATTERN. Repeatable. They are read again at SIGHUP and POST /-/reload.").StringsVar(&r.files)
	app.Flag("rules.evaluation-interval", "Interval of groups of rules that have none.").Default("1m").DurationVar(&r.interval)
	app.Flag("rules.query-offset", "How much earlier than its time a group of rules is evaluated that has no query_offset: as long as samples may come late. On Bigtable without --fleet.listen-address the default is --index.refresh.").Default("0s").DurationVar(&r.queryOffset)
	app.Flag("rules.reevaluate", "For how long samples that come after a recording rule was evaluated change what it has recorded. 0s: they do not.").Default("1h").DurationVar(&r.reevaluate)
	app.Flag("alertmanager.url", "Base URL of an Alertmanager that gets the alerts of rules. Repeatable.").StringsVar(&r.alertmanagers)
	app.Flag("alertmanager.config.file", "File with the block alerting of a configuration of Prometheus, and no other, whose Alertmanagers are static_configs.").StringVar(&r.alerting)
}

// checkRuleFiles divides the patterns of files by tenant.
func (o *options) checkRuleFiles() error {
	r := &o.ruleFiles
	r.byTenant = make(map[string][]string)
	for _, file := range r.files {
		tenant, pattern := "", file
		if o.tenancy.enabled {
			var ok bool
			if tenant, pattern, ok = strings.Cut(file, ":"); !ok || tenant == "" {
				return fmt.Errorf("--rules.file=%s: in a store with tenants give it as TENANT:PATTERN", file)
			}
		}
		if _, err := filepath.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("--rules.file=%s: it is no pattern of files", file)
		}
		r.byTenant[tenant] = append(r.byTenant[tenant], pattern)
	}
	if len(r.files) > 0 && o.readOnly {
		return errors.New("--rules.file is for an adapter that writes: leave it out, or --mode=read")
	}
	if r.interval < time.Millisecond || r.queryOffset < 0 || r.reevaluate < 0 {
		return errors.New("--rules.evaluation-interval has to be 1ms or more, and --rules.query-offset and --rules.reevaluate 0 or more")
	}
	if !o.given["rules.query-offset"] && o.traits().Shared && o.fleet.listen == "" {
		r.queryOffset = o.engine.IndexRefresh
	}
	for _, text := range r.alertmanagers {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--alertmanager.url=%s: it is no URL such as http://localhost:9093", withoutPassword(text))
		} else if u.User != nil {
			return fmt.Errorf("--alertmanager.url=%s: credentials are given in --alertmanager.config.file", u.Redacted())
		}
	}
	return nil
}

// alertingConfig returns where alerts are sent, and the targets of each of its parts.
func (r *ruleFileOptions) alertingConfig() (cfg config.AlertingConfig, targets map[string][]*targetgroup.Group, err error) {
	if r.alerting != "" {
		text, err := os.ReadFile(r.alerting)
		if err != nil {
			return cfg, nil, err
		}
		var file struct {
			Alerting *config.AlertingConfig `yaml:"alerting"`
		}
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			return cfg, nil, fmt.Errorf("%s: %w", r.alerting, err)
		}
		if file.Alerting == nil {
			return cfg, nil, fmt.Errorf("%s has no block alerting", r.alerting)
		}
		cfg = *file.Alerting
		cfg.SetDirectory(filepath.Dir(r.alerting))
	}
	for _, text := range r.alertmanagers {
		u, err := url.Parse(text)
		if err != nil {
			return cfg, nil, err
		}
		am := config.DefaultAlertmanagerConfig
		am.Scheme, am.PathPrefix = u.Scheme, u.Path
		if am.PathPrefix == "" {
			am.PathPrefix = "/"
		}
		am.ServiceDiscoveryConfigs = discovery.Configs{discovery.StaticConfig{{Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(u.Host)}}, Source: text}}}
		cfg.AlertmanagerConfigs = append(cfg.AlertmanagerConfigs, &am)
	}
	targets = make(map[string][]*targetgroup.Group)
	for name, am := range cfg.AlertmanagerConfigs.ToMap() {
		for _, sd := range am.ServiceDiscoveryConfigs {
			static, ok := sd.(discovery.StaticConfig)
			if !ok {
				return cfg, nil, fmt.Errorf("%s: Alertmanagers by %s_sd_configs are not supported, give static_configs", r.alerting, sd.Name())
			}
			targets[name] = append(targets[name], static...)
		}
	}
	return cfg, targets, nil
}

// ruleFiles evaluate the rules of each tenant that has some.
type ruleFiles struct {
	// byTenant is complete when others see the ruleFiles.
	byTenant map[string]*rules.Runner
	sender   *notifier.Manager
}

// ruleFiles returns the rules that are evaluated. They are nil without files, before the store is open, and in commands.
func (a *adapter) ruleFiles() *ruleFiles {
	if a.server == nil {
		return nil
	}
	return a.server.ruleFiles.Load()
}

// of returns the rules of the tenant of a context.
func (r *ruleFiles) of(ctx context.Context) v1.RulesRetriever {
	if r != nil {
		if found := r.byTenant[scope.Of(ctx)]; found != nil {
			return found
		}
	}
	return api.NoRules{}
}

// alertmanagers returns those that get the alerts. It is nil without rules.
func (r *ruleFiles) alertmanagers() v1.AlertmanagerRetriever {
	if r == nil {
		return nil
	}
	return r.sender
}

// written tells the rules of a tenant of samples.
func (r *ruleFiles) written(tenant string, samples []bucketstore.Sample) {
	if r != nil && r.byTenant[tenant] != nil {
		r.byTenant[tenant].Written(samples)
	}
}

// writtenBetween tells the rules of a tenant of samples of history, or at other adapters.
func (r *ruleFiles) writtenBetween(tenant string, mint, maxt int64) {
	if r != nil && r.byTenant[tenant] != nil {
		r.byTenant[tenant].WrittenBetween(mint, maxt)
	}
}

// lost tells the rules of all that samples at other adapters are not known.
func (r *ruleFiles) lost() {
	if r != nil {
		for _, runner := range r.byTenant {
			runner.WrittenBetween(math.MinInt64, math.MaxInt64)
		}
	}
}

// reload reads the files of all again.
func (r *ruleFiles) reload(ctx context.Context) (err error) {
	for _, runner := range r.byTenant {
		err = errors.Join(err, runner.Reload(ctx))
	}
	return err
}

// openRuleFiles opens the rules, and evaluates them until close. It is nil without --rules.file.
func (a *adapter) openRuleFiles(ctx context.Context, rows bucketstore.Store, e engines, answers *api.API) (*ruleFiles, error) {
	o := a.o
	if len(o.ruleFiles.files) == 0 {
		return nil, nil
	}
	logger := slog.New(sloggokit.NewGoKitHandler(a.logger, slog.LevelWarn))
	cfg, targets, err := o.ruleFiles.alertingConfig()
	if err != nil {
		return nil, fmt.Errorf("--alertmanager.config.file: %w", err)
	}
	all := &ruleFiles{byTenant: make(map[string]*rules.Runner)}
	all.sender = notifier.NewManager(&notifier.Options{QueueCapacity: 10_000, DrainOnShutdown: true, Registerer: a.reg}, model.UTF8Validation, logger)
	if err := all.sender.ApplyConfig(&config.Config{AlertingConfig: cfg}); err != nil {
		return nil, fmt.Errorf("--alertmanager.config.file: %w", err)
	}
	external := o.web.external
	if external.Host == "" {
		external.Scheme, external.Host = "http", a.server.instance()
	}
	ctx, stop := context.WithCancel(ctx)
	var running, sending sync.WaitGroup
	sets := make(chan map[string][]*targetgroup.Group, 1)
	sets <- targets
	sending.Go(func() { all.sender.Run(sets) })
	a.onClose("", func() error {
		stop()
		running.Wait()
		all.sender.Stop() // when it has sent what is left
		sending.Wait()
		return nil
	})
	queries, storage, parser := answers.Evaluator()
	for _, tenant := range slices.Sorted(maps.Keys(o.ruleFiles.byTenant)) {
		of, schema, reg := ctx, a.schema, prometheus.Registerer(a.reg)
		if tenant != "" {
			reg = prometheus.WrapRegistererWith(prometheus.Labels{"tenant": tenant}, a.reg)
			if of = scope.With(ctx, []string{tenant}); err == nil {
				schema, err = a.schema.ForTenant(tenant)
			}
			if err == nil {
				err = a.ensureTenant(ctx, e, tenant)
			}
			if err != nil {
				return nil, fmt.Errorf("--rules.file=%s:…: %w", tenant, err)
			}
		}
		runner, err := rules.New(of, rules.Config{
			Files: o.ruleFiles.byTenant[tenant], Interval: o.ruleFiles.interval, QueryOffset: o.ruleFiles.queryOffset,
			Reevaluate: o.ruleFiles.reevaluate, Lookback: o.api.Lookback,
			Engine: queries, Queryable: storage, Parser: parser, StoreFailed: api.StoreFailed,
			Append: func(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error) {
				return e.Append(ctx, batch, rejected)
			},
			Store: rows, Schema: schema, Holder: processName(), Notify: promrules.SendAlerts(all.sender, external.String()), ExternalURL: &external,
			Metrics: promrules.NewGroupMetrics(reg), Now: o.now, Logger: a.logger, Slog: logger, Registerer: reg,
		})
		if err != nil {
			return nil, fmt.Errorf("--rules.file: %w", err)
		}
		all.byTenant[tenant] = runner
		running.Go(func() { runner.Run(of) })
	}
	groups, alerts := 0, 0
	for _, runner := range all.byTenant {
		groups += len(runner.RuleGroups())
		alerts += len(runner.AlertingRules())
	}
	level.Info(a.logger).Log("msg", "rules are loaded", "groups", groups)
	if len(targets) == 0 && alerts > 0 {
		level.Warn(a.logger).Log("msg", "there are alerting rules and no --alertmanager.url: alerts are shown on the page and in the API, and are not sent")
	}
	return all, nil
}

// ensureTenant returns an error unless there is a tenant, or it may be made.
func (a *adapter) ensureTenant(ctx context.Context, e engines, tenant string) error {
	if a.o.tenancy.create {
		return e.tenants.Create(ctx, tenant)
	}
	exists, err := e.tenants.Exists(ctx, tenant)
	if err == nil && !exists {
		err = errors.New("there is no such tenant")
	}
	return err
}

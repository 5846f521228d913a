package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series/expr"
)

// healingConfigFlag is the flag with how senders are asked.
const healingConfigFlag = "heal.http.config.file"

// healingOptions are the flags about senders from which a serving adapter reads what they have not sent.
type healingOptions struct {
	from       []string
	last       time.Duration
	interval   time.Duration
	probe      string
	matches    []string
	httpConfig string

	senders  []healedSender
	probed   []*labels.Matcher
	selected [][]*labels.Matcher
}

// A healedSender is one of --heal.from. The tenant is empty in a store without tenants.
type healedSender struct {
	tenant string
	server history.Server
}

func (o *options) healingFlags(app *kingpin.Application) {
	h := &o.healing
	app.Flag("heal.from", "URL of a Prometheus that writes to this adapter, such as http://localhost:9090. What it has scraped and not sent, after an outage or a start, is read from it and stored. In a store with tenants, of a tenant: TENANT=URL. Repeatable.").StringsVar(&h.from)
	app.Flag("heal.last", "How far back a start of the adapter looks for such gaps.").Default("6h").DurationVar(&h.last)
	app.Flag("heal.interval", "How often they are looked for, and how old a sample is at least that may be missing.").Default("5m").DurationVar(&h.interval)
	app.Flag("heal.probe", "Selector of the series that show a gap: those of which each scrape makes a sample.").Default("up").StringVar(&h.probe)
	app.Flag("heal.match", "Selector of the series that are read of a gap. Repeatable. Default: all that the Prometheus has, also what its write_relabel_configs do not send.").StringsVar(&h.matches)
	app.Flag(healingConfigFlag, "File with how these Prometheus servers are asked: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&h.httpConfig)
}

// checkHealing reads the flags.
func (o *options) checkHealing() (err error) {
	h := &o.healing
	if len(h.from) == 0 {
		return nil
	}
	if o.readOnly {
		return errors.New("--heal.from is for an adapter that writes: leave it out, or --mode=read")
	}
	if h.last < time.Minute || h.interval < time.Second {
		return errors.New("--heal.last has to be 1m or more, and --heal.interval 1s or more")
	}
	p := expr.NewParser(parser.Options{})
	if h.probed, err = p.ParseMetricSelector(h.probe); err != nil {
		return fmt.Errorf("--heal.probe=%s: %w", h.probe, err)
	}
	if h.selected, err = p.ParseMetricSelectors(h.matches); err != nil {
		return fmt.Errorf("--heal.match: %w", err)
	}
	client, err := loadHTTPConfig(healingConfigFlag, h.httpConfig)
	if err != nil {
		return err
	}
	for _, text := range h.from {
		tenant, from := "", text
		if o.tenancy.enabled {
			var ok bool
			if tenant, from, ok = strings.Cut(text, "="); !ok || tenant == "" {
				return fmt.Errorf("--heal.from=%s: in a store with tenants give it as TENANT=URL", withoutPassword(text))
			}
		}
		u, err := url.Parse(from)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--heal.from=%s: give a URL such as http://localhost:9090", withoutPassword(from))
		}
		if u.User != nil {
			return fmt.Errorf("--heal.from=%s: credentials are given in --%s", u.Redacted(), healingConfigFlag)
		}
		if !strings.HasSuffix(u.Path, "/read") {
			from = readURL(from)
		}
		if slices.ContainsFunc(h.senders, func(s healedSender) bool { return s.tenant == tenant && s.server.URL == from }) {
			return fmt.Errorf("--heal.from=%s is given twice", text)
		}
		h.senders = append(h.senders, healedSender{tenant, history.Server{URL: from, HTTP: client}})
	}
	return nil
}

// startHealing reads from senders what they have not sent, until close.
func (a *adapter) startHealing(ctx context.Context, e engines) error {
	h := &a.o.healing
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	a.onClose("", func() error {
		stop()
		running.Wait()
		return nil
	})
	for _, s := range h.senders {
		of, named := ctx, prometheus.Labels{"from": s.server.URL}
		if s.tenant != "" {
			if err := a.ensureTenant(ctx, e, s.tenant); err != nil {
				return fmt.Errorf("--heal.from=%s=…: %w", s.tenant, err)
			}
			of, named["tenant"] = scope.With(ctx, []string{s.tenant}), s.tenant
		}
		store, err := e.history(of)
		if err != nil {
			return fmt.Errorf("--heal.from: %w", err)
		}
		read := engineSource(store.Engine)
		healer, err := history.NewHealer(history.HealerConfig{
			From: s.server, Probe: h.probed, Matchers: h.selected, Last: h.last, Interval: h.interval, Target: store,
			Read: func(ctx context.Context, sel history.Selection, u history.Unit) (storage.ChunkSeriesSet, error) {
				return readUnit(ctx, read, sel, u)
			},
			Elected: func(ls labels.Labels) bool {
				ha := a.o.engine.HA
				return ha.ClusterLabel != "" && ls.Has(ha.ClusterLabel) && ls.Has(ha.ReplicaLabel)
			},
			Report:  func(_ context.Context, t history.Transfer) bool { return a.transfers.Report(s.tenant, t) },
			Missing: missingIn, Now: a.o.now, Logger: a.logger, Registerer: prometheus.WrapRegistererWith(named, a.reg),
		})
		if err != nil {
			return fmt.Errorf("--heal.from=%s: %w", s.server.URL, err)
		}
		running.Go(func() { healer.Run(of) })
	}
	return nil
}

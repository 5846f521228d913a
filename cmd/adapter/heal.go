package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/export"
	"github.com/promtable/promtable/remote/history"
)

// commandHeal is the subcommand that brings what a sender has and has not sent.
const commandHeal = "heal"

// healOptions are the flags of heal.
type healOptions struct {
	deleteOptions // --match, --start, --end
	from          string
	httpConfig    string
	headers       map[string]string
	last          model.Duration
	perSecond     float64
	isDry         bool
}

// healAge is how old samples are at least that heal looks at by default: younger ones are on their way.
const healAge = 2 * time.Minute

func (o *options) healCommand(app *kingpin.Application) {
	h := &o.heal
	h.headers = make(map[string]string)
	c := app.Command(commandHeal, "Bring samples that a Prometheus has and the store lacks, after an outage that was longer than what the sender keeps to send. Compares both by remote read, writes only what is missing, and compares again; nothing is overwritten. Ends with 0 if nothing is missing any more.")
	c.Flag("from", "URL of the Prometheus, such as http://localhost:9090, or of the remote read of another server.").Required().StringVar(&h.from)
	c.Flag("last", "How far to look back, such as 6h.").SetValue(&h.last)
	c.Flag("start", "From this time on, in place of --last: RFC 3339, or seconds since 1970.").StringVar(&h.start)
	c.Flag("end", "Up to this time, inclusive. Default: two minutes ago.").StringVar(&h.end)
	c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable. Default: all that the Prometheus has, also what its write_relabel_configs do not send.").StringsVar(&h.matches)
	c.Flag("header", "Header of requests to the Prometheus. Repeatable.").StringMapVar(&h.headers)
	c.Flag(sourceConfigFlag, "File with how the Prometheus is asked: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&h.httpConfig)
	c.Flag("url", "URL of the adapter, with --web.enable-admin-api. Default: this process opens the store itself.").StringVar(&o.imports.url)
	o.asks(c, "the adapter")
	c.Flag("samples-per-second", "Maximum number of samples a second that are written. 0 is no limit.").Default("0").Float64Var(&h.perSecond)
	c.Flag("dry-run", "Say how many samples are missing, and of how many series, which count in each part of 37 hours, and write nothing.").BoolVar(&h.isDry)
}

// selection returns what is compared.
func (h *healOptions) selection(now time.Time) (sel history.Selection, err error) {
	switch {
	case (h.last > 0) == (h.start != ""):
		return sel, errors.New("give either --last, such as 6h, or --start")
	case !(h.perSecond >= 0):
		return sel, fmt.Errorf("--samples-per-second=%g: give it 0 or more", h.perSecond)
	}
	if sel.Matchers, sel.Mint, sel.Maxt, err = h.parse(); err != nil {
		return sel, err
	}
	if h.last > 0 {
		sel.Mint = now.Add(-time.Duration(h.last)).UnixMilli()
	}
	if h.end == "" {
		sel.Maxt = now.Add(-healAge).UnixMilli()
	}
	if sel.Mint > min(sel.Maxt, math.MaxInt64-1) {
		return sel, errors.New("the start is after the end, which is two minutes ago by default")
	}
	return sel, nil
}

// server returns how the source is asked.
func (h *healOptions) server() (s history.Server, err error) {
	u, err := url.Parse(h.from)
	if err != nil || u.Host == "" {
		return s, fmt.Errorf("--from=%s: give a URL such as http://localhost:9090", withoutPassword(h.from))
	}
	s = history.Server{URL: h.from, Headers: h.headers}
	if !strings.HasSuffix(u.Path, "/read") {
		s.URL = readURL(h.from)
	}
	s.HTTP, err = loadHTTPConfig(sourceConfigFlag, h.httpConfig)
	return s, err
}

// missingIn returns the samples that one series has in a unit at times at which another one has none, or nil.
func missingIn(one, other storage.ChunkSeries, u history.Unit) (storage.ChunkSeries, error) {
	missing, _, err := export.Missing(one, other, u.Start, u.Limit-1)
	return missing, err
}

// healStore runs heal.
func healStore(ctx context.Context, o *options, logger log.Logger) (err error) {
	h := &o.heal
	sel, err := h.selection(o.now())
	if err != nil {
		return err
	}
	server, err := h.server()
	if err != nil {
		return err
	}
	source, err := history.NewRemoteRead(server, sel)
	if err != nil {
		return fmt.Errorf("--from=%s: %w", h.from, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, closeTarget, err := openTarget(ctx, o, logger)
	defer func() { err = errors.Join(err, closeTarget()) }()
	if err != nil {
		return err
	}
	rolled, err := target.Rolled(ctx)
	if err != nil {
		return fmt.Errorf("read which samples the store keeps: %w", err)
	}
	if rolled >= sel.Mint {
		return fmt.Errorf("up to %s the store takes only rollups, which are not compared: begin after that, or use adapter import remote-read", time.UnixMilli(rolled).UTC().Format(time.RFC3339))
	}
	to, err := o.targetSource(o.imports.url, target)
	if err != nil {
		return err
	}
	cfg := history.CopyConfig{
		Source: source, Selection: sel, Target: target, Logger: logger, SamplesPerSecond: h.perSecond, ID: history.Digest(append([]string{commandHeal, h.from}, h.matches...)...),
		Read: func(ctx context.Context, u history.Unit) (*history.Reading, error) {
			set, err := readUnit(ctx, to, sel, u)
			return history.ReadingOf(set), err
		},
		Lacking: func(target, source storage.ChunkSeries, u history.Unit) (storage.ChunkSeries, error) {
			return missingIn(source, target, u)
		},
	}
	if h.isDry {
		series, samples, err := history.CountLacking(ctx, cfg)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%d samples of %d series are missing; nothing is written\n", samples, series)
		return nil
	}
	report := newReporter(logger)
	healed, err := copyReported(ctx, cfg, history.Transfer{Kind: commandHeal, Source: withoutPassword(h.from)}, report)
	if err != nil {
		return fmt.Errorf("heal: %w; the same command goes on", err)
	}
	fmt.Fprintf(o.out, "%d samples were missing and are written, in %d of %d parts of up to 37 hours\n", healed.Samples, healed.Written, healed.Units)
	if healed.Different > 0 {
		return fmt.Errorf("in %d parts samples are still missing, see above", healed.Different)
	}
	return nil
}

// readURL returns the URL of the remote read of a server.
func readURL(base string) string { return strings.TrimSuffix(base, "/") + "/api/v1/read" }

// targetSource returns what reads a target.
func (o *options) targetSource(to string, target history.Target) (export.Source, error) {
	if to != "" {
		server, err := o.askedAdapter(readURL(to), o.tenancy.of)
		if err != nil {
			return nil, err
		}
		return remoteSource(server)
	}
	return engineSource(target.(*history.Store).Engine), nil
}

// readUnit returns the series of a selection in a unit.
func readUnit(ctx context.Context, from export.Source, sel history.Selection, u history.Unit) (storage.ChunkSeriesSet, error) {
	return export.Selection{Selectors: selectorsOf(sel), Mint: u.Start, Maxt: u.Limit - 1}.Read(ctx, from)
}

// selectorsOf returns the selectors of what is compared, at least one.
func selectorsOf(sel history.Selection) [][]*labels.Matcher {
	if len(sel.Matchers) == 0 {
		return allSeries()
	}
	return sel.Matchers
}

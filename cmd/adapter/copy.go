package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/remote/export"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/series/rollup"
)

const commandCopy = "copy"

// copyOptions are the flags of copy.
type copyOptions struct {
	deleteOptions // --match, --start, --end
	from, to      string
	fromTenant    string
	concurrency   int
	perSecond     float64
}

// copyAge is how old samples are at least that copy compares by default: senders have brought them to both.
const copyAge = 10 * time.Minute

func (o *options) copyCommand(app *kingpin.Application) {
	c := app.Command(commandCopy, "Bring what an adapter has to another store, by rows: samples with start timestamps, exemplars, and rollups of days whose samples are gone. Compares both, and writes what differs. Can be stopped and repeated at any time; ends with 0 if both have the same. --to is an adapter that serves; without it this process opens the store, which must be closed if it is embedded.")
	v := &o.copy
	c.Flag("from", "URL of the adapter that has the samples, such as http://localhost:9201.").Required().StringVar(&v.from)
	c.Flag("to", "URL of the adapter that is to have them, with --web.enable-admin-api.").StringVar(&v.to)
	o.asks(c, "each adapter")
	c.Flag("from-tenant", "Tenant of the samples at --from, if that has tenants.").StringVar(&v.fromTenant)
	c.Flag("into-tenant", "Tenant that is to have them: --tenant by another name.").StringVar(&o.tenancy.of)
	c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable. Default: all.").StringsVar(&v.matches)
	c.Flag("start", "From this time on: RFC 3339, or seconds since 1970.").Required().StringVar(&v.start)
	c.Flag("end", "Up to this time, inclusive. Default: ten minutes ago.").StringVar(&v.end)
	c.Flag("samples-per-second", "Maximum number of samples a second that are read of the source to compare it, and that each part writes. 0 is no limit.").Default("0").Float64Var(&v.perSecond)
	c.Flag("concurrency", "How many parts of 37 hours are compared at the same time. 0 is the number of CPUs.").Default("0").IntVar(&v.concurrency)
}

// copySamples runs copy.
func copySamples(ctx context.Context, o *options, logger log.Logger) (err error) {
	v := &o.copy
	switch {
	case v.concurrency < 0:
		return errors.New("--concurrency is negative")
	case !(v.perSecond >= 0):
		return fmt.Errorf("--samples-per-second=%g: give it 0 or more", v.perSecond)
	case v.concurrency == 0:
		v.concurrency = runtime.GOMAXPROCS(0)
	}
	var sel history.Selection
	if sel.Matchers, sel.Mint, sel.Maxt, err = v.parse(); err != nil {
		return err
	}
	if v.end == "" {
		sel.Maxt = time.Now().Add(-copyAge).UnixMilli()
	}
	shown, err := o.shownAtSource(ctx)
	if err != nil {
		return err
	}
	o.imports.url = v.to
	target, closeTarget, err := openTarget(ctx, o, logger)
	defer func() { err = errors.Join(err, closeTarget()) }()
	if err != nil {
		return err
	}
	from, to, err := o.rowsOf(ctx, sel, shown, target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close(), to.Close()) }()
	report := newReporter(logger)
	pace := export.NewPace(v.perSecond)
	cfg := history.CopyConfig{
		Source: from, Selection: sel, RolledBefore: shown[rollup.Raw], Target: target, Logger: logger,
		Same: func(ctx context.Context, u history.Unit) (bool, error) {
			return history.SameRows(ctx, from, to, u, pace.Set)
		},
		Read: to.Open, Lacking: history.LackingRows,
		Workers: v.concurrency, SamplesPerSecond: v.perSecond, ID: history.Digest(append([]string{commandCopy, v.from, v.start, v.end}, v.matches...)...),
	}
	copied, err := copyReported(ctx, cfg, history.Transfer{Kind: commandCopy, Source: withoutPassword(v.from)}, report)
	if err != nil {
		return fmt.Errorf("copy: %w; the same command goes on", err)
	}
	current, err := o.copyCurrent(ctx, from, target, sel)
	if err != nil {
		return fmt.Errorf("copy current samples: %w", err)
	}
	families, err := o.copyMetadata(ctx, target)
	if err != nil {
		return fmt.Errorf("copy metadata: %w", err)
	}
	level.Info(logger).Log("msg", "copied", "parts", copied.Units, "same", copied.Same, "written", copied.Written, "different", copied.Different, "samples", copied.Samples, "current", current, "metadata", families, "duration", time.Since(report.started))
	if copied.Different > 0 {
		return fmt.Errorf("%d of %d parts differ; adapter digest --by-series, for both, says where", copied.Different, copied.Units)
	}
	return nil
}

// copyReported copies, and says how far it is, see reported.
func copyReported(ctx context.Context, cfg history.CopyConfig, t history.Transfer, report *reporter) (history.Copied, error) {
	if client, ok := cfg.Target.(*history.Client); ok {
		return history.ReportedCopy(ctx, cfg, t, client.Report, report.copied)
	}
	return history.Copy(ctx, cfg, report.copied)
}

// rowsOf returns the rows of the source, which shows samples and rollups from these times on, and of the target.
func (o *options) rowsOf(ctx context.Context, sel history.Selection, shown [rollup.NumResolutions]int64, target history.Target) (from, to *history.Rows, err error) {
	v := &o.copy
	kept := shown
	var ofTarget [rollup.NumResolutions]int64
	store, isHere := target.(*history.Store)
	if isHere {
		ofTarget = store.Engine.Shown(ctx)
	} else if ofTarget, err = target.(*history.Client).Shown(ctx, history.SendAttempts); err != nil {
		return nil, nil, fmt.Errorf("ask the target which rollups it has: %w", err)
	}
	for _, r := range rollup.Downsampled {
		kept[r] = max(shown[r], ofTarget[r])
	}
	server, err := o.askedAdapter(v.from, v.fromTenant)
	if err == nil {
		from, err = history.NewRows(server, sel, kept)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--from=%s: %w", withoutPassword(v.from), err)
	}
	if isHere {
		return from, history.NewEngineRows(store.Engine, sel, kept), nil
	}
	if server, err = o.askedAdapter(v.to, o.tenancy.of); err == nil {
		to, err = history.NewRows(server, sel, kept)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--to=%s: %w", withoutPassword(v.to), err)
	}
	return from, to, nil
}

// shownAtSource asks the source before which times it shows no samples, and no rollups of a resolution, in milliseconds.
func (o *options) shownAtSource(ctx context.Context) (shown [rollup.NumResolutions]int64, err error) {
	v := &o.copy
	if u, err := url.Parse(v.from); err != nil || u.Host == "" {
		return shown, fmt.Errorf("--from=%s: give the URL of an adapter, such as http://localhost:9201", withoutPassword(v.from))
	}
	server, err := o.askedAdapter(v.from, v.fromTenant)
	if err != nil {
		return shown, err
	}
	client, err := history.NewClient(server)
	if err != nil {
		return shown, fmt.Errorf("--%s: %w", httpConfigFlag, err)
	}
	defer client.Close()
	if shown, err = client.Shown(ctx, 1); err != nil {
		return shown, fmt.Errorf("ask the source from when on it has samples: %w; if it is no adapter, there is adapter import", err)
	}
	return shown, nil
}

func (r *reporter) copied(c history.Copied) {
	if done := c.Same + c.Written; r.isDue() {
		level.Info(r.logger).Log("msg", "copying", "parts", done, "of", c.Units, "same", c.Same, "written", c.Written, "samples", c.Samples, "left", r.left(int64(done), int64(c.Units)))
	}
}

// reportInterval is the time between two log lines about how far a copy or an export is.
const reportInterval = 5 * time.Second

// A reporter says when a long command logs how far it is. It is not safe for concurrent use.
type reporter struct {
	logger            log.Logger
	started, reported time.Time
}

func newReporter(logger log.Logger) *reporter {
	now := time.Now()
	return &reporter{logger: logger, started: now, reported: now}
}

// isDue says whether the next log line is due, and takes it for written then.
func (r *reporter) isDue() bool {
	if time.Since(r.reported) < reportInterval {
		return false
	}
	r.reported = time.Now()
	return true
}

// perSecond returns the rate at which something was done since the start.
func (r *reporter) perSecond(done int64) int64 {
	return int64(float64(done) / max(time.Since(r.started).Seconds(), 0.001))
}

// left returns about how long the rest takes, or 0 if nothing is done yet.
func (r *reporter) left(done, all int64) time.Duration {
	if done <= 0 {
		return 0
	}
	return time.Duration(float64(time.Since(r.started)) * float64(max(0, all-done)) / float64(done)).Round(time.Second)
}

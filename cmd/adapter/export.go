package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	storageremote "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/export"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/series/rollup"
)

const (
	commandExportBlocks      = "export blocks"
	commandExportOpenMetrics = "export openmetrics"
	commandDigest            = "digest"
)

// exportOptions are the flags and arguments of export.
type exportOptions struct {
	deleteOptions // --match, --start, --end
	url           string
	blockSpan     model.Duration
	dir, file     string
	bySeries      bool
	perSecond     float64
}

func (o *options) exportCommand(app *kingpin.Application) {
	e := &o.exports
	selection := func(c *kingpin.CmdClause) {
		c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable. Default: all.").StringsVar(&e.matches)
		c.Flag("start", "From this time on: RFC 3339, or seconds since 1970.").Required().StringVar(&e.start)
		c.Flag("end", "Up to this time, inclusive. Default: now.").StringVar(&e.end)
		c.Flag("samples-per-second", "Maximum number of samples a second that are read. 0 is no limit.").Default("0").Float64Var(&e.perSecond)
		c.Flag("url", "URL of remote read, such as http://localhost:9201/api/v1/read.").StringVar(&e.url)
		o.asks(c, "the server of --url")
	}
	const source = " The embedded store must be closed; --url reads from an adapter that serves, or from another server with remote read."
	digest := app.Command(commandDigest, "Print what tells whether two stores have the same samples: for each day of UTC the number of series, of samples, and a digest of both."+source)
	selection(digest)
	digest.Flag("by-series", "Print a line for each series and day.").BoolVar(&e.bySeries)
	c := app.Command("export", "Write samples for other systems."+source)
	selection(c)
	blocks := c.Command("blocks", "Write blocks of a TSDB, which Prometheus, Thanos and Mimir read. An export that was stopped goes on.")
	e.blockSpan = model.Duration(export.DefaultBlockSpan) * model.Duration(time.Millisecond)
	blocks.Flag("block-duration", "How long a block is, such as 2h or 1d.").Default(e.blockSpan.String()).SetValue(&e.blockSpan)
	blocks.Arg("dir", "Directory of the blocks. It is made if it is missing, but not the one above it.").Required().StringVar(&e.dir)
	text := c.Command("openmetrics", "Write OpenMetrics text, without what it cannot hold: native histograms, staleness markers, and series without a name.")
	text.Arg("file", "The file, or - for standard output.").Required().StringVar(&e.file)
}

// exportSamples runs export.
func exportSamples(ctx context.Context, o *options, logger log.Logger) (err error) {
	sel, err := o.exports.selection(time.Now())
	if err != nil {
		return err
	}
	from, cut, closeSource, err := o.exportSource(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	if cut > sel.Mint {
		level.Warn(logger).Log("msg", "samples before this time are gone: of that time the export has those that rollups keep, which are true samples, but not all", "time", timeOf(cut))
	}
	report := exportReport{newReporter(logger), sel}
	var p export.Progress
	if o.command == commandExportBlocks {
		if err := os.Mkdir(o.exports.dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		b := export.Blocks{From: from, Selection: sel, Dir: o.exports.dir, Span: time.Duration(o.exports.blockSpan).Milliseconds(), Name: o.exportName(), Report: report.progress}
		p, err = b.Run(ctx)
	} else {
		p, err = o.exportText(ctx, from, sel, report.progress)
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	level.Info(logger).Log("msg", "exported", "series", p.Series, "samples", p.Samples, "left_out", p.Left, "duration", time.Since(report.started))
	return nil
}

// printDigest runs digest.
func printDigest(ctx context.Context, o *options, logger log.Logger) (err error) {
	sel, err := o.exports.selection(time.Now())
	if err != nil {
		return err
	}
	from, _, closeSource, err := o.exportSource(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	line := func(d export.DayDigest, of string) {
		fmt.Fprintln(o.out, time.UnixMilli(d.Start).UTC().Format(time.DateOnly), d.Series, d.Samples, d, of)
	}
	var each func(labels.Labels, export.DayDigest)
	if o.exports.bySeries {
		each = func(ls labels.Labels, d export.DayDigest) { line(d, ls.String()) }
	}
	days, err := export.Digest(ctx, from, sel, each)
	for _, d := range days {
		if !o.exports.bySeries {
			line(d, "")
		}
	}
	return err
}

func (o *options) exportText(ctx context.Context, from export.Source, sel export.Selection, report func(export.Progress)) (p export.Progress, err error) {
	if o.exports.file == "-" {
		return export.OpenMetrics(ctx, from, sel, o.out, report)
	}
	dir, name := filepath.Split(o.exports.file)
	err = durable.Create(durable.OS(dir), name, os.O_EXCL, func(w io.Writer) (err error) { // a part of it would look like all
		p, err = export.OpenMetrics(ctx, from, sel, w, report)
		return err
	})
	return p, err
}

// selection returns what is to be exported.
func (e *exportOptions) selection(now time.Time) (sel export.Selection, err error) {
	if span := time.Duration(e.blockSpan); span < time.Minute || span%time.Minute != 0 {
		return sel, fmt.Errorf("--block-duration=%s: give it whole minutes", e.blockSpan)
	}
	if !(e.perSecond >= 0) {
		return sel, fmt.Errorf("--samples-per-second=%g: give it 0 or more", e.perSecond)
	}
	if sel.Selectors, sel.Mint, sel.Maxt, err = e.parse(); err != nil {
		return sel, err
	}
	if sel.Maxt == math.MaxInt64 {
		sel.Maxt = now.UnixMilli()
	}
	if len(sel.Selectors) == 0 {
		sel.Selectors = allSeries()
	}
	return sel, nil
}

// allSeries returns selectors of all series.
func allSeries() [][]*labels.Matcher {
	return [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".*")}}
}

// exportName tells exports apart, but for their times.
func (o *options) exportName() string {
	from := o.exports.url
	if from == "" {
		from = o.location()
	}
	return history.Digest(append([]string{from}, o.exports.matches...)...)
}

// exportSource returns where the samples come from, and the time before which only rollups are kept, in milliseconds. 0 is none, or unknown.
func (o *options) exportSource(ctx context.Context, logger log.Logger) (from export.Source, cut int64, closeSource func() error, err error) {
	if o.exports.url != "" {
		server, err := o.askedAdapter(o.exports.url, o.tenancy.of)
		if err == nil {
			from, err = remoteSource(server)
		}
		return export.Paced(from, o.exports.perSecond), 0, func() error { return nil }, err
	}
	existing := o.forExisting()
	existing.engine.Limits.MaxSeries = unboundedSeries
	a, err := newAdapter(existing, logger)
	if err != nil {
		return nil, 0, nil, err
	}
	at, err := a.openEngine(ctx, opening{readOnly: true})
	if err != nil {
		return nil, 0, nil, errors.Join(err, a.close())
	}
	return export.Paced(engineSource(at.engine), o.exports.perSecond), a.retention.Shown(rollup.Raw, time.Now()), a.close, nil
}

// engineSource reads all that an engine has.
func engineSource(e *engine.Engine) export.Source {
	return func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
		return e.Select(ctx, reader.Query{Matchers: ms, Mint: mint, Maxt: maxt, Kept: true, Decoded: true, Passing: true})
	}
}

// unboundedSeries is more series than a store has.
const unboundedSeries = math.MaxInt32

// remoteTimeout bounds one request for the samples of a block, or of all of a text.
const remoteTimeout = time.Hour

// maxFrame is the largest frame that is taken of a server, in bytes, as in Prometheus.
const maxFrame = 50_000_000

// remoteSource reads from a server with remote read.
func remoteSource(s history.Server) (export.Source, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("--url=%s: give the URL of remote read, such as http://localhost:9201/api/v1/read", s.URL)
	}
	client, err := storageremote.NewReadClient("export", &storageremote.ClientConfig{
		URL: &config.URL{URL: u}, Timeout: model.Duration(remoteTimeout), ChunkedReadLimit: maxFrame, Headers: s.Headers, HTTPClientConfig: s.HTTP,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
		queryable := storageremote.NewSampleAndChunkQueryableClient(client, labels.EmptyLabels(), nil, true, nil)
		q, err := queryable.ChunkQuerier(mint, maxt)
		if err != nil {
			return nil, err
		}
		return history.Joined(q.Select(ctx, true, nil, ms...)), nil
	}, nil
}

// An exportReport logs how far an export is.
type exportReport struct {
	*reporter
	sel export.Selection
}

func (r exportReport) progress(p export.Progress) {
	if !r.isDue() {
		return
	}
	pairs := []any{"msg", "exporting", "series", p.Series, "samples", p.Samples, "samples_per_second", r.perSecond(p.Samples)}
	if p.Upto > r.sel.Mint {
		pairs = append(pairs, "upto", timeOf(p.Upto), "left", r.left(p.Upto-r.sel.Mint, r.sel.Maxt-r.sel.Mint))
	}
	level.Info(r.logger).Log(pairs...)
}

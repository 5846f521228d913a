package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/jobs/deletion"
)

const (
	commandImport       = "import"
	commandImportBlocks = "import blocks"
	commandImportText   = "import openmetrics"
	commandImportInflux = "import influx"
	commandImportRead   = "import remote-read"
	commandImportExport = "import victoriametrics"
)

// importOptions are the flags of import.
type importOptions struct {
	deleteOptions // --match, --start, --end
	dryRun, again bool
	perSecond     float64
	concurrency   int
	// url is that of a running adapter, or empty.
	url  string
	dirs []string
	// workDir has the blocks of object storage that are being read.
	workDir string
	// file is a text, or - for the standard input, from the URL of a source, headers those of requests to it, and httpConfig a file with TLS and credentials.
	file, from, httpConfig string
	// precision is the unit of timestamps of line protocol, one of history.Precisions.
	precision string
	headers   map[string]string
}

// importInterval is how often an import logs how far it is, terminalInterval how often it writes that to a terminal.
const (
	importInterval   = 10 * time.Second
	terminalInterval = 500 * time.Millisecond
)

// sourceConfigFlag is the flag with how the source of an import is asked.
const sourceConfigFlag = "source.http.config.file"

func (o *options) importCommand(app *kingpin.Application) {
	c := app.Command(commandImport, "Import samples of another system. What was imported before is left out, so an import that was stopped, by Ctrl-C or otherwise, goes on where it was. The embedded store must be closed, or its adapter be given by --url.")
	i := &o.imports
	c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable. Default: all.").StringsVar(&i.matches)
	c.Flag("start", "Import from this time on: RFC 3339, or seconds since 1970. Default: the first sample.").StringVar(&i.start)
	c.Flag("end", "Import up to this time, inclusive. Default: the last sample.").StringVar(&i.end)
	c.Flag("dry-run", "Import nothing, but say how many series, samples, bytes and row mutations it would be.").BoolVar(&i.dryRun)
	c.Flag("again", "Import also what was imported before. To write the same samples again changes nothing.").BoolVar(&i.again)
	c.Flag("url", "URL of a running adapter with --web.enable-admin-api, which stores the samples. Default: this process opens the store itself.").StringVar(&i.url)
	o.asks(c, "the adapter")
	c.Flag("samples-per-second", "Maximum number of samples a second that are read. 0 is no limit.").Default("0").Float64Var(&i.perSecond)
	c.Flag("concurrency", "How many series, or parts of a slow source, are imported at the same time. 0 is the number of CPUs.").Default("0").IntVar(&i.concurrency)
	blocks := c.Command("blocks", "Import TSDB blocks of Prometheus, Thanos or Mimir.")
	blocks.Flag("work-dir", "Directory with room for the blocks of 37 hours, if they come from object storage. Default: that for temporary files.").StringVar(&i.workDir)
	blocks.Arg("dir", "A block, or a directory with blocks: that of --storage.tsdb.path of Prometheus, or a snapshot of it. Or those of Thanos or Mimir in object storage, such as s3://bucket/tenant or gs://bucket.").Required().StringsVar(&i.dirs)
	text := c.Command("openmetrics", "Import OpenMetrics text with timestamps.")
	text.Arg("file", "File with the text, or - for the standard input.").Required().StringVar(&i.file)
	influx := c.Command("influx", "Import a text in the line protocol of InfluxDB, as influxd inspect export-lp writes it.")
	influx.Arg("file", "File with the text, or - for the standard input.").Required().StringVar(&i.file)
	influx.Flag("precision", "Unit of its timestamps: ns, us, ms or s.").Default("ns").EnumVar(&i.precision, "ns", "us", "ms", "s")
	i.headers = make(map[string]string)
	for _, of := range []struct{ name, help, example string }{
		{"remote-read", "Import from a server with remote read, such as Prometheus, Mimir or another adapter. It needs --start.", "http://localhost:9090/api/v1/read"},
		{"victoriametrics", "Import from VictoriaMetrics by its export. It needs --start.", "http://localhost:8428"},
	} {
		from := c.Command(of.name, of.help)
		from.Arg("url", "URL of the source, such as "+of.example+".").Required().StringVar(&i.from)
		from.Flag("header", "Header of requests to the source, such as X-Scope-OrgID=tenant. Repeatable.").StringMapVar(&i.headers)
		from.Flag(sourceConfigFlag, "File with how the source is asked: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&i.httpConfig)
	}
}

// checkImport checks the flags of import.
func (o *options) checkImport() error {
	if !strings.HasPrefix(o.command, commandImport+" ") {
		return nil
	}
	i := &o.imports
	switch {
	case !(i.perSecond >= 0):
		return fmt.Errorf("--samples-per-second=%g: give it 0 or more", i.perSecond)
	case i.url != "" && i.dryRun:
		return errors.New("--dry-run counts what a store of its own would take: leave --url out")
	case i.concurrency < 0:
		return errors.New("--concurrency is negative")
	case i.concurrency == 0:
		i.concurrency = runtime.GOMAXPROCS(0)
	}
	for _, dir := range i.dirs {
		if info, err := os.Stat(dir); !isBucket(dir) && (err != nil || !info.IsDir()) {
			return fmt.Errorf("%s is no directory", dir)
		}
	}
	_, _, _, err := i.parse()
	return err
}

// source returns what is imported, and a name of it and of the options that choose its samples.
func (o *options) source(ctx context.Context, logger log.Logger) (source history.Source, id string, err error) {
	i := &o.imports
	var sel history.Selection
	if sel.Matchers, sel.Mint, sel.Maxt, err = i.parse(); err != nil {
		return nil, "", err
	}
	sel.Maxt = min(sel.Maxt, math.MaxInt64-1)
	server := history.Server{URL: i.from, Headers: i.headers}
	if server.HTTP, err = loadHTTPConfig(sourceConfigFlag, i.httpConfig); err != nil {
		return nil, "", err
	}
	texts := append([]string{o.command, i.start, i.end}, i.matches...)
	switch o.command {
	case commandImportBlocks:
		// Blocks have names of their own, so that those of another directory go on with the same import.
		source, err = o.blocks(ctx, sel, logger)
	case commandImportText:
		source, err = history.NewOpenMetrics(cmp.Or(i.file, "-"), o.in, sel, logger) // kingpin makes "" of "-"
	case commandImportInflux:
		source, err = history.NewInflux(cmp.Or(i.file, "-"), o.in, history.Precisions[i.precision], sel, logger)
		texts = append(texts, i.precision)
	case commandImportRead:
		source, err = history.NewRemoteRead(server, sel)
		texts = append(append(texts, i.from), i.headerTexts()...)
	case commandImportExport:
		source, err = history.NewVictoriaMetrics(server, sel)
		texts = append(append(texts, i.from), i.headerTexts()...)
	}
	return source, history.Digest(texts...), err
}

// name returns the source as it was given, without a password.
func (i *importOptions) name() string {
	if u, err := url.Parse(i.from); i.from != "" && err == nil {
		return u.Redacted()
	}
	return cmp.Or(i.file, strings.Join(i.dirs, " "))
}

// headerTexts returns the headers of requests to the source, sorted: one of them may choose the tenant.
func (i *importOptions) headerTexts() (texts []string) {
	for name, value := range i.headers {
		texts = append(texts, http.CanonicalHeaderKey(name)+"="+value)
	}
	slices.Sort(texts)
	return texts
}

// importSamples runs import.
func importSamples(ctx context.Context, o *options, logger log.Logger) (err error) {
	source, id, err := o.source(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, closeTarget, err := openTarget(ctx, o, logger)
	defer func() { err = errors.Join(err, closeTarget()) }()
	if err != nil {
		return err
	}
	i := history.New(history.Config{
		Source: source, Target: target, ID: id, Again: o.imports.again, Name: o.imports.name(), Workers: o.imports.concurrency, SamplesPerSecond: o.imports.perSecond, Logger: logger,
	})
	began := time.Now()
	err = watchImport(i, logger, o.out, func() error {
		return reported(ctx, target, history.Transfer{Kind: commandImport, Source: o.imports.name()}, func(t *history.Transfer) { i.Progress().Show(t) }, i.Run)
	})
	if err != nil && ctx.Err() != nil {
		err = errStopped
	}
	err = reportImport(i.Progress(), o.imports.dryRun, time.Since(began), err, o.out)
	if err == nil && source.Parallel() {
		// Notes of times do not say which samples the source had, and it may get older ones. They are for an import that was stopped.
		err = target.SetDone(ctx, id)
	}
	return err
}

// reported calls do, and tells the adapter that takes the samples how far it is, if that is another process, which may stop it.
func reported(ctx context.Context, target history.Target, t history.Transfer, look func(*history.Transfer), do func(context.Context) error) error {
	client, ok := target.(*history.Client)
	if !ok {
		return do(ctx)
	}
	return history.Reported(ctx, t, look, client.Report, do)
}

// watchImport calls do, and says how far it is.
func watchImport(i *history.Import, logger log.Logger, out io.Writer, do func() error) error {
	isTerminal, every := isTerminal(out), importInterval
	if isTerminal {
		every = terminalInterval
		defer fmt.Fprint(out, clearLine)
	}
	began := time.Now()
	return watch(every, func() {
		p, took := i.Progress(), time.Since(began)
		rate, left := float64(p.Read)/took.Seconds(), "unknown"
		if p.Expected > 0 && p.Read > 0 {
			left = time.Duration(max(0, float64(p.Expected-p.Read)/rate) * float64(time.Second)).Round(time.Second).String()
		}
		if isTerminal {
			const width = 30
			full := width * p.Finished / max(1, p.Units)
			if p.Expected > 0 {
				full = int(min(width, width*p.Read/p.Expected))
			}
			fmt.Fprintf(out, clearLine+"[%s%s] %d samples, %.2g M/s, %s, left %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), p.Read, rate/1e6, megabytes(p.Bytes), left)
			return
		}
		level.Info(logger).Log("msg", "importing", "parts", p.Finished, "of", p.Units, "samples", p.Read, "expected", p.Expected, "per_second", int64(rate), "bytes", p.Bytes, "left", left)
	}, do)
}

// watch calls do, and show at an interval until do ends.
func watch(every time.Duration, show func(), do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			show()
		}
	}
}

// isTerminal says whether a stream is a file that is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// clearLine goes to the start of the line of a terminal, and clears it.
const clearLine = "\r\x1b[K"

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// errStopped is the error of an import that was stopped.
var errStopped = errors.New("stopped before all is imported")

// reportImport says what became of an import that ended with err. The error says that not all is imported.
func reportImport(p history.Progress, dryRun bool, took time.Duration, err error, out io.Writer) error {
	if p.Units == 0 && p.Skipped > 0 && err == nil && p.Damaged == 0 {
		fmt.Fprintf(out, "nothing to do: all %d parts are imported already\n", p.Skipped)
		return nil
	}
	what := "imported"
	if dryRun {
		what = "would import"
	}
	fmt.Fprintf(out, "%s %d samples (%d histograms) in %d parts of up to %d series: %s in %d row mutations, %.1f s, %.3g M samples/s\n",
		what, p.Samples, p.Histograms, p.Finished, p.Series, megabytes(p.Bytes), p.Mutations, took.Seconds(), float64(p.Read)/1e6/took.Seconds())
	for _, of := range []struct {
		n    int64
		text string
	}{
		{int64(p.Skipped), "parts were imported before"},
		{p.Rolled, "samples are of days whose samples are not kept (--retention.resolution-raw): they are there as rollups"},
		{p.Kept, "days of rows, of whose samples only rollups are kept, had rollups already, which stay"},
		{p.Old, "samples are before what is kept (--retention), or are histograms where only rollups are kept, and are left out"},
		{p.Future, "samples are further ahead of the clock than --write.max-future, and are left out"},
		{p.Invalid, "samples have a time or a value that can never be stored, and are left out"},
		{int64(p.Refused), "series can never be stored, and are left out"},
		{int64(p.Empty), "parts have no samples in the source that are selected"},
	} {
		if of.n > 0 {
			fmt.Fprintf(out, "%d %s\n", of.n, of.text)
		}
	}
	if p.TooLarge > 0 {
		seconds := time.UnixMilli(p.TooLarge / 1000).UTC().Format(time.RFC3339)
		fmt.Fprintf(out, "the times look like milliseconds where seconds are expected: divided by 1000, the first is about %s\n", seconds)
	}
	if errors.Is(err, errStopped) {
		return fmt.Errorf("%w: what is imported stays, and the same command goes on with the rest", err)
	}
	if err != nil {
		return fmt.Errorf("%w; what is imported stays, and the same command goes on with the rest", err)
	}
	if p.Damaged > 0 {
		return fmt.Errorf("%d parts of the source could not be read, see above; all else is imported", p.Damaged)
	}
	if p.Refused > 0 {
		return fmt.Errorf("%d series can never be stored, see above; all else is imported", p.Refused)
	}
	if p.Samples == 0 && p.Skipped == 0 {
		return fmt.Errorf("nothing is imported: of %d samples that were read in %d parts none is stored", p.Read, p.Finished)
	}
	return nil
}

// openTarget opens where samples go. close is to be called in any case.
func openTarget(ctx context.Context, o *options, logger log.Logger) (target history.Target, close func() error, err error) {
	own := *o
	close = func() error { return nil }
	if o.imports.url != "" {
		server, err := o.askedAdapter(o.imports.url, o.tenancy.of)
		if err != nil {
			return nil, close, err
		}
		client, err := history.NewClient(server)
		if err != nil {
			return nil, close, fmt.Errorf("--%s: %w", httpConfigFlag, err)
		}
		return client, func() error { client.Close(); return nil }, nil
	}
	if o.imports.dryRun {
		if _, err := os.Stat(o.path); o.traits().OnDisk && errors.Is(err, os.ErrNotExist) {
			dir, err := os.MkdirTemp("", "promtable-dry-run-")
			if err != nil {
				return nil, close, err
			}
			close = func() error { return os.RemoveAll(dir) }
			own.path, own.bufferPath = dir, filepath.Join(dir, "buffer")
		}
	}
	a, err := newAdapter(&own, logger)
	if err != nil {
		return nil, close, err
	}
	removeDir := close
	close = func() error { return errors.Join(a.close(), removeDir()) }
	at, err := a.openEngine(ctx, opening{dry: o.imports.dryRun})
	if errors.As(err, new(errStore)) && !o.traits().Shared {
		err = fmt.Errorf("%w; if an adapter with --web.enable-admin-api serves this store, give its --url=http://%s", err, localAddress(o.adminAddress()))
	}
	if err != nil {
		return nil, close, err
	}
	into := &history.Store{Engine: at.engine, Meta: a.meta.Of(at.engine.Schema())}
	if o.imports.dryRun {
		return dryTarget{into}, close, nil
	}
	if !o.traits().Shared { // no other process removes what is deleted, and new samples of its times with it
		if err := a.newExecutor(at.store, at.engines).Advance(ctx); err != nil && !deletion.IsWaiting(err) {
			return nil, close, fmt.Errorf("finish deletions: %w", err)
		}
	}
	// The days that are written to after their rollups were made are noted, so that these are made again.
	noting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var noted sync.WaitGroup
	noted.Go(func() { a.days.Run(noting) })
	a.onClose("", func() error {
		stop()
		noted.Wait()
		return nil
	})
	return into, close, nil
}

// A dryStore stores no samples.
type dryStore struct{ bucketstore.Store }

func (s dryStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric || table == bucketstore.Index {
		return nil
	}
	return s.Store.Apply(ctx, table, muts)
}

// A dryTarget notes nothing.
type dryTarget struct{ *history.Store }

// SetDone implements history.Target.
func (dryTarget) SetDone(context.Context, string, ...meta.Part) error { return nil }

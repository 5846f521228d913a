package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/series/expr"
)

const commandDelete = "delete"

// deleteOptions are the flags of delete.
type deleteOptions struct {
	matches    []string
	start, end string
	yes        bool
}

func (o *options) deleteCommand(app *kingpin.Application) {
	c := app.Command(commandDelete, "Delete samples. Says first what would go, and asks. The embedded store must be closed: a running adapter deletes by its HTTP API.")
	c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable.").Required().StringsVar(&o.delete.matches)
	c.Flag("start", "Delete from this time on: RFC 3339, or seconds since 1970. Default: the first sample.").StringVar(&o.delete.start)
	c.Flag("end", "Delete up to this time, inclusive. Default: the last sample.").StringVar(&o.delete.end)
	c.Flag("yes", "Do not ask.").BoolVar(&o.delete.yes)
}

// deleter is the engine and the executor as the HTTP API wants them.
type deleter struct {
	engines
	*deletion.Executor
}

// openRemoval reads from when on samples are kept, and which are deleted. The store has its schema.
func (a *adapter) openRemoval(ctx context.Context, rows bucketstore.Store) error {
	if err := a.openRetention(ctx, rows); err != nil {
		return err
	}
	cfg := deletion.Config{Meta: a.meta, Schema: a.schema, Now: a.o.now, Logger: a.logger, Registerer: a.reg}
	if a.results != nil {
		cfg.Changed = a.results.Drop
	}
	var err error
	a.records, err = deletion.Open(ctx, cfg)
	return err
}

// newExecutor returns what removes deleted samples from store, which is that of the engine.
func (a *adapter) newExecutor(store bucketstore.Store, e engines) *deletion.Executor {
	return deletion.NewExecutor(deletion.ExecutorConfig{
		Records: a.records, Store: store, Admit: a.admit, Find: e.find, Timeline: a.retention, Flush: e.FlushCurrent, Holder: processName(), Logger: a.logger,
	})
}

// deleteSamples deletes samples without serving.
func deleteSamples(ctx context.Context, o *options, logger log.Logger) (err error) {
	selectors, mint, maxt, err := o.delete.parse()
	if err != nil {
		return err
	}
	a, err := newAdapter(o.forExisting(), logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	at, err := a.openEngine(ctx, opening{})
	if errors.As(err, new(errStore)) && !o.traits().Shared {
		err = fmt.Errorf("%w; if an adapter with --web.enable-admin-api serves this store: %s", err, o.delete.curl(o.adminAddress()))
	}
	if err != nil {
		return err
	}
	executor := a.newExecutor(at.store, at.engines)
	widened, err := executor.Widened(ctx, mint, min(maxt, math.MaxInt64-1)+1)
	if err != nil {
		return err
	}
	if widened != "" {
		fmt.Fprintln(o.out, widened)
	}
	wanted := deletionOf{o.tenancy.of, selectors, mint, maxt}
	return wanted.run(ctx, deleter{at.engines, executor}, o)
}

// A deletionOf is what delete deletes: the samples of selectors from mint to maxt, in milliseconds and inclusive.
type deletionOf struct {
	tenant     string
	selectors  [][]*labels.Matcher
	mint, maxt int64
}

// run says what goes, asks, unless --yes is given, and deletes it.
func (w deletionOf) run(ctx context.Context, d deleter, o *options) error {
	out := o.out
	for _, ms := range w.selectors {
		p, err := d.Plan(ctx, w.tenant, ms, max(w.mint, 0), min(w.maxt, math.MaxInt64-1)+1)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d series, %d rows, %d samples, %d exemplars, %d bytes\n", reader.SelectorName(ms), p.Series, p.Rows, p.Samples, p.Exemplars, p.Bytes)
	}
	if !o.delete.yes {
		fmt.Fprint(out, "Delete them? Type yes: ")
		answer, err := bufio.NewReader(o.in).ReadString('\n')
		if strings.TrimSpace(answer) != "yes" {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			fmt.Fprintln(out, "nothing is deleted")
			return err
		}
	}
	for _, ms := range w.selectors {
		if err := d.Delete(ctx, w.mint, w.maxt, ms); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "no adapter finds them any more, in a minute at most; removing them from the store")
	if err := d.Finish(ctx); err != nil {
		return fmt.Errorf("the samples are hidden, and an adapter that serves, or the next delete, removes them: %w", err)
	}
	fmt.Fprintln(out, "removed")
	return nil
}

// parse returns the selectors and the range, in milliseconds, inclusive.
func (o *deleteOptions) parse() (selectors [][]*labels.Matcher, mint, maxt int64, err error) {
	p := expr.NewParser(parser.Options{})
	for _, text := range o.matches {
		ms, err := p.ParseMetricSelector(text)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("--match=%s: %w", text, err)
		}
		selectors = append(selectors, ms)
	}
	if mint, err = parseMillis(o.start, math.MinInt64); err != nil {
		return nil, 0, 0, fmt.Errorf("--start=%s: %w", o.start, err)
	}
	if maxt, err = parseMillis(o.end, math.MaxInt64); err != nil {
		return nil, 0, 0, fmt.Errorf("--end=%s: %w", o.end, err)
	}
	if mint > maxt {
		return nil, 0, 0, errors.New("--start is after --end")
	}
	return selectors, mint, maxt, nil
}

// parseMillis parses a time as the HTTP API does, in milliseconds.
func parseMillis(text string, missing int64) (int64, error) {
	if text == "" {
		return missing, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.UnixMilli(), nil
	}
	var t model.Time
	if err := t.UnmarshalJSON([]byte(text)); err != nil {
		return 0, errors.New("it is no time: give it as 2026-01-02T15:04:05Z, or as seconds since 1970")
	}
	return int64(t), nil
}

// curl returns the commands that delete the same in an adapter that listens on one of these
// addresses.
func (o *deleteOptions) curl(listen string) string {
	form := url.Values{"match[]": o.matches}
	if o.start != "" {
		form.Set("start", o.start)
	}
	if o.end != "" {
		form.Set("end", o.end)
	}
	address := localAddress(listen)
	const path = "/api/v1/admin/tsdb/"
	return fmt.Sprintf("curl -X POST 'http://%s%sdelete_series?%s' && curl -X POST http://%s%sclean_tombstones", address, path, form.Encode(), address, path)
}

// localAddress returns an address to listen on as this machine reaches it.
func localAddress(listen string) string {
	if host, port, err := net.SplitHostPort(listen); err == nil && host == "" {
		return net.JoinHostPort("localhost", port)
	}
	return listen
}

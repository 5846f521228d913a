package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// The subcommands about logs.
const (
	commandBufferList   = "buffer list"
	commandBufferForget = "buffer forget"
)

// logCommands adds the subcommands about logs.
func (o *options) logCommands(app *kingpin.Application) {
	logs := app.Command("buffer", "Logs with samples that are not in the store yet.")
	logs.Command("list", "List the logs with samples that are not in the store yet: ID, host, directory, last seen, bytes.")
	forget := logs.Command("forget", "Make the store forget a lost log and the samples in it. The adapter of the log must have ended.")
	forget.Arg("id", "ID of the log, from buffer list.").Required().StringVar(&o.forgetLog)
}

// newTerms reads META and says how a log is bound to the store. It fails if the store has
// another schema.
func newTerms(ctx context.Context, o *options, schema series.Schema, rows bucketstore.Store, logger log.Logger) (t buffer.Terms, err error) {
	store, err := meta.Open(ctx, rows, schema, o.now)
	return buffer.Terms{
		Store:     store,
		Location:  o.location(),
		Exclusive: o.backend == backendEmbedded,
		Discard:   o.discardLog,
		Now:       o.now,
		Logger:    logger,
	}, err
}

// location says where the store is, for messages.
func (o *options) location() string {
	if o.backend == backendBigtable {
		return fmt.Sprintf("--bigtable.project=%s --bigtable.instance=%s --bigtable.table-prefix=%s", o.project, o.instance, o.tablePrefix)
	}
	path, err := filepath.Abs(o.path)
	if err != nil {
		path = o.path
	}
	return "--storage.path=" + path
}

// bindLog opens the directory of the log and binds it to the store.
func bindLog(ctx context.Context, o *options, terms buffer.Terms) (*buffer.Dir, error) {
	dir, err := buffer.OpenDir(o.bufferPath, o.now())
	if err != nil {
		return nil, adviseLog(o, err)
	}
	if err := dir.Bind(ctx, terms); err != nil {
		return nil, errors.Join(adviseLog(o, err), dir.Close())
	}
	return dir, nil
}

// checkNoLog checks that an adapter without a buffer leaves no log behind.
func checkNoLog(ctx context.Context, o *options, terms buffer.Terms) error {
	err := buffer.CheckUnused(ctx, o.bufferPath, terms)
	if errors.Is(err, buffer.ErrInUse) {
		return fmt.Errorf("%w: start once with --buffer.enabled, and stop", err)
	}
	return adviseLog(o, err)
}

// adviseLog adds the flags to change to an error about a log.
func adviseLog(o *options, err error) error {
	var lost *buffer.LostLogError
	switch {
	case errors.As(err, &lost):
		return fmt.Errorf("%w: start with --buffer.enabled --buffer.path=%s; if that log is lost, start with --buffer.discard-lost-log=%s", err, lost.Log.Path, lost.Log.ID)
	case errors.Is(err, series.ErrCorrupt):
		return fmt.Errorf("%w: adapter check says what is damaged, and what adapter check --repair=log would do", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: a new log needs some kilobytes on the disk of --buffer.path=%s: free some space and start again; until then --no-buffer.enabled serves reads", err, o.bufferPath)
	case errors.Is(err, buffer.ErrForeignLog):
		return fmt.Errorf("%w: start with the flags of its store, or with another --buffer.path than %s", err, o.bufferPath)
	}
	return err
}

// A logWatch counts the logs of other adapters.
type logWatch struct {
	store *meta.Store
	// own is the ID of the log of this adapter, or empty.
	own    string
	logger log.Logger
	others prometheus.Gauge
	// seen are the IDs that were logged.
	seen map[string]bool
}

// startWatchingLogs counts the logs of other adapters, and logs new ones, until ctx ends.
// On the embedded store there are none.
func (a *adapter) startWatchingLogs(ctx context.Context, appender bucketstore.Appender) *sync.WaitGroup {
	var running sync.WaitGroup
	if a.o.backend != backendBigtable {
		return &running
	}
	w := logWatch{store: a.meta, logger: a.logger, seen: make(map[string]bool)}
	if b, ok := appender.(*buffer.Buffer); ok {
		w.own = b.ID()
	}
	w.others = promauto.With(a.reg).NewGauge(prometheus.GaugeOpts{
		Name: "adapter_buffer_other_logs",
		Help: "Logs of other adapters on the store, whose samples are not all in the store yet.",
	})
	running.Go(func() { w.run(ctx) })
	return &running
}

// logWatchInterval is how often logs are counted.
const logWatchInterval = time.Minute

func (w *logWatch) run(ctx context.Context) {
	ticker := time.NewTicker(logWatchInterval)
	defer ticker.Stop()
	for {
		if err := w.count(ctx); err != nil && ctx.Err() == nil {
			level.Warn(w.logger).Log("msg", "logs of other adapters not counted", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *logWatch) count(ctx context.Context) error {
	logs, err := otherLogs(ctx, w.store, w.own)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if !w.seen[l.ID] {
			level.Info(w.logger).Log(append([]any{"msg", "another adapter has samples in its log that are not in the store yet"}, describeLog(l)...)...)
		}
		w.seen[l.ID] = true
	}
	w.others.Set(float64(len(logs)))
	return nil
}

// otherLogs returns the logs in META without that of this adapter, which may have none.
func otherLogs(ctx context.Context, store *meta.Store, own string) ([]meta.Log, error) {
	logs, err := store.Logs(ctx)
	return slices.DeleteFunc(logs, func(l meta.Log) bool { return l.ID == own }), err
}

// describeLog returns pairs for a line of the logger.
func describeLog(l meta.Log) []any {
	return []any{"log", l.ID, "host", l.Host, "path", l.Path, "last_seen", time.UnixMilli(l.Seen).UTC(), "bytes", l.Bytes}
}

// listLogs prints the logs that META lists.
func listLogs(ctx context.Context, o *options, logger log.Logger) error {
	return withMeta(ctx, o, logger, func(store *meta.Store) error {
		logs, err := store.Logs(ctx)
		if err != nil {
			return err
		}
		return printLogs(os.Stdout, logs)
	})
}

func printLogs(w io.Writer, logs []meta.Log) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tHOST\tPATH\tLAST SEEN\tBYTES")
	for _, l := range logs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", l.ID, l.Host, l.Path, time.UnixMilli(l.Seen).UTC().Format(time.RFC3339), l.Bytes)
	}
	return table.Flush()
}

// forgetLog removes a log from META.
func forgetLog(ctx context.Context, o *options, logger log.Logger) error {
	return withMeta(ctx, o, logger, func(store *meta.Store) error {
		logs, err := store.Logs(ctx)
		if err != nil {
			return err
		}
		for _, l := range logs {
			if l.ID != o.forgetLog {
				continue
			}
			if err := store.RemoveLog(ctx, l.ID); err != nil {
				return err
			}
			level.Warn(logger).Log(append([]any{"msg", "the store has forgotten a log; samples that are only in it are lost"}, describeLog(l)...)...)
			return nil
		}
		return fmt.Errorf("the store has no log %s: adapter buffer list shows its logs", o.forgetLog)
	})
}

// withMeta opens the store, which must exist, calls fn with its META, and closes it.
func withMeta(ctx context.Context, o *options, logger log.Logger, fn func(*meta.Store) error) error {
	schema, err := newSchema(o)
	if err != nil {
		return err
	}
	existing := *o
	existing.createTables, existing.existing = false, true
	rows, err := openStore(ctx, &existing, logger, nil, nil)
	if err != nil {
		return err
	}
	store, err := meta.Open(ctx, rows, schema, time.Now)
	if err == nil {
		err = fn(store)
	}
	return errors.Join(err, closing("close the store", rows.Close()))
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/bucketstore/rowfiles"
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
		Store:    store,
		Location: o.location(),
		Discard:  o.discardLog,
		Now:      o.now,
		Logger:   logger,
	}, err
}

// bindLog opens the directory of the log, or a new log in rows, and binds it to the store.
func bindLog(ctx context.Context, o *options, terms buffer.Terms, rows bucketstore.Store) (dir *buffer.Dir, err error) {
	if o.hasRowLog() {
		dir, err = buffer.OpenRows(rowfiles.New(rows, rand.Text(), o.now), o.now())
	} else {
		dir, err = buffer.OpenDir(o.bufferPath, o.now())
	}
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

// A logWatch knows the logs of other adapters. Missing is safe for concurrent use.
type logWatch struct {
	store *meta.Store
	// own is the log of this adapter. Its ID is empty if there is none.
	own meta.Log
	// settings are those of a member, in which all have to agree. They are empty if this adapter is none.
	settings string
	logger   log.Logger
	metrics  logMetrics
	// seen are the IDs that were logged.
	seen map[string]bool
	// logs are those of other adapters when META was last read.
	logs atomic.Pointer[[]meta.Log]
}

// logMetrics are of the logs of other adapters.
type logMetrics struct {
	count                     prometheus.Gauge
	seen, bytes, oldest, lost *prometheus.GaugeVec
}

// newLogWatch returns the watch over the logs of other adapters, or nil on the embedded store, where there are none.
func (a *adapter) newLogWatch(appender bucketstore.Appender) *logWatch {
	if !a.o.traits().Shared {
		return nil
	}
	w := &logWatch{store: a.meta, logger: a.logger, seen: make(map[string]bool)}
	if b, ok := appender.(*buffer.Buffer); ok {
		w.own = b.Log()
	}
	if a.fleetAddress != "" {
		w.settings = a.o.fleetSettings()
	}
	f := metricset.New(a.reg)
	of := func(name, help string) *prometheus.GaugeVec {
		return f.GaugeVec("adapter_buffer_other_log_"+name, help, "log", "host", "path")
	}
	w.metrics = logMetrics{
		count:  f.Gauge("adapter_buffer_other_logs", "Logs of other adapters on the store, whose samples are not all in the store yet."),
		seen:   of("last_seen_timestamp_seconds", "When the adapter of another log last wrote what is in it to META."),
		bytes:  of("bytes", "Size of the log of another adapter when it was last seen."),
		oldest: of("oldest_sample_timestamp_seconds", "At most the time of the oldest sample of another log that is not in the store. 0 if there was none when it was last seen, or if it was not written yet."),
		lost:   of("lost", "1 for a log that was in the directory of the log of this adapter, on a host of the same name, and is not there now."),
	}
	return w
}

// logWatchInterval is how often logs are read from META: as often as adapters write there what is in theirs.
const logWatchInterval = 15 * time.Second

// run reads the logs of other adapters until ctx ends. w may be nil.
func (w *logWatch) run(ctx context.Context) {
	if w == nil {
		return
	}
	ticker := time.NewTicker(logWatchInterval)
	defer ticker.Stop()
	for {
		if err := w.read(ctx); err != nil && ctx.Err() == nil {
			level.Warn(w.logger).Log("msg", "cannot read from META which other adapters have logs, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// read reads the logs of other adapters, and says what is new.
func (w *logWatch) read(ctx context.Context) error {
	logs, err := otherLogs(ctx, w.store, w.own.ID)
	if err != nil {
		return err
	}
	m := &w.metrics
	for _, vec := range []*prometheus.GaugeVec{m.seen, m.bytes, m.oldest, m.lost} {
		vec.Reset()
	}
	for _, l := range logs {
		isLost := l.Host == w.own.Host && l.Path == w.own.Path
		switch {
		case w.seen[l.ID]:
		case isLost:
			level.Error(w.logger).Log(append([]any{"msg", "the directory of the log held another log before, which is not there: samples in it that were not in the store are lost, unless it comes back. " +
				"If it does not, adapter buffer forget lets deletions and retention go on", "forget", l.ID}, describeLog(l)...)...)
		default:
			level.Info(w.logger).Log(append([]any{"msg", "another adapter has samples in its log that are not in the store yet"}, describeLog(l)...)...)
		}
		if w.settings != "" && l.Address != "" && l.Settings != w.settings && !w.seen[l.ID] { // both started at once
			level.Error(w.logger).Log("msg", "another member of the fleet has other settings than this one, and all need the same: stop all of them first, and start them with the same", "address", l.Address, "its", l.Settings, "ours", w.settings)
		}
		w.seen[l.ID] = true
		m.seen.WithLabelValues(l.ID, l.Host, l.Path).Set(float64(l.Seen) / 1000)
		m.bytes.WithLabelValues(l.ID, l.Host, l.Path).Set(float64(l.Bytes))
		m.oldest.WithLabelValues(l.ID, l.Host, l.Path).Set(float64(l.Oldest) / 1000)
		if isLost {
			m.lost.WithLabelValues(l.ID, l.Host, l.Path).Set(1)
		}
	}
	m.count.Set(float64(len(logs)))
	w.logs.Store(&logs)
	return nil
}

// missing says which samples up to maxt, in milliseconds, a read may lack because other adapters have them in their logs. w may be nil.
func (w *logWatch) missing(maxt int64) (warnings []error) {
	if w == nil || w.logs.Load() == nil {
		return nil
	}
	for _, l := range *w.logs.Load() {
		if l.Address != "" || l.IsPast(maxt) { // a member is asked
			continue
		}
		from := "which have not been told yet"
		if l.Oldest > 0 {
			from = "from " + time.UnixMilli(l.Oldest).UTC().Format(time.RFC3339) + " on"
		}
		warnings = append(warnings, fmt.Errorf("%w: the adapter on %s has samples in its log %s, %s, that are not in the store yet, and this answer may lack them: ask that adapter", annotations.PromQLWarning, l.Host, l.ID, from))
	}
	return warnings
}

// otherLogs returns the logs in META without that of this adapter, which may have none.
func otherLogs(ctx context.Context, store *meta.Store, own string) ([]meta.Log, error) {
	logs, err := store.Logs(ctx)
	return slices.DeleteFunc(logs, func(l meta.Log) bool { return l.ID == own }), err
}

// describeLog returns pairs for a line of the logger.
func describeLog(l meta.Log) []any {
	return []any{"log", l.ID, "host", l.Host, "path", l.Path, "last_seen", time.UnixMilli(l.Seen).UTC(), "bytes", l.Bytes, "oldest_sample", oldestSample(l)}
}

// listLogs prints the logs that META lists.
func listLogs(ctx context.Context, o *options, logger log.Logger) error {
	existing := o.forExisting()
	existing.readOnly = true
	return existing.withMeta(ctx, logger, func(store *meta.Store) error {
		logs, err := store.Logs(ctx)
		if err != nil {
			return err
		}
		return printLogs(o.out, logs)
	})
}

func printLogs(w io.Writer, logs []meta.Log) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tHOST\tPATH\tLAST SEEN\tBYTES\tOLDEST SAMPLE")
	for _, l := range logs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", l.ID, l.Host, l.Path, time.UnixMilli(l.Seen).UTC().Format(time.RFC3339), l.Bytes, oldestSample(l))
	}
	return table.Flush()
}

// oldestSample says from when on a log has samples that are not in the store.
func oldestSample(l meta.Log) string {
	switch {
	case l.Oldest > 0:
		return time.UnixMilli(l.Oldest).UTC().Format(time.RFC3339)
	case l.Closed == 0:
		return "unknown"
	}
	return "none"
}

// forgetLog removes a log from META.
func forgetLog(ctx context.Context, o *options, logger log.Logger) error {
	return o.forExisting().withMeta(ctx, logger, func(store *meta.Store) error {
		logs, err := store.Logs(ctx)
		if err != nil {
			return err
		}
		for _, l := range logs {
			if l.ID != o.forgetLog {
				continue
			}
			if silent := o.now().Sub(time.UnixMilli(l.Seen)); l.Address != "" && silent < buffer.ForgetAfter {
				return fmt.Errorf("the adapter of log %s, at %s, was there %s ago: it may take samples. A log is forgotten when its adapter was silent for %s", l.ID, l.Address, silent.Round(time.Second), buffer.ForgetAfter)
			}
			if err := store.ForgetLog(ctx, l.ID); err != nil {
				return err
			}
			level.Warn(logger).Log(append([]any{"msg", "the store has forgotten a log; samples that are only in it are lost. If its disk comes back, its adapter sets them aside"}, describeLog(l)...)...)
			return nil
		}
		return fmt.Errorf("the store has no log %s: adapter buffer list shows its logs", o.forgetLog)
	})
}

// withMeta opens the store, calls fn with its META, and closes it. It refuses a store of another schema.
func (o *options) withMeta(ctx context.Context, logger log.Logger, fn func(*meta.Store) error) error {
	return o.withRows(ctx, logger, func(rows bucketstore.Store, schema series.Schema) error {
		store, err := meta.Open(ctx, rows, schema, o.now)
		if err != nil {
			return err
		}
		return fn(store)
	})
}

// withRows opens the store, calls fn, and closes it.
func (o *options) withRows(ctx context.Context, logger log.Logger, fn func(bucketstore.Store, series.Schema) error) error {
	schema, err := newSchema(o)
	if err != nil {
		return err
	}
	rows, err := openStore(ctx, o, logger, nil, nil)
	if err != nil {
		return err
	}
	return errors.Join(fn(rows, schema), closing("close the store", rows.Close()))
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/bucketstore/snapshot"
)

// The subcommands about snapshots.
const (
	commandSnapshot       = "snapshot"
	commandSnapshotTake   = "snapshot take"
	commandSnapshotList   = "snapshot list"
	commandSnapshotVerify = "snapshot verify"
	commandRestore        = "restore"
)

// snapshotsDir is the directory of the snapshots that were asked for by HTTP, in the data directory.
const snapshotsDir = "snapshots"

// snapshotOptions are the flags and arguments of both.
type snapshotOptions struct {
	// url is that of an adapter that serves the store. Empty is none.
	url string
	// into is the place of the snapshots. keep is how many stay there, 0 is all.
	into string
	keep int
	// from is the snapshot to restore, or a place of some.
	from string
	// objects is the file with how object storage is asked, bucket the place that the adapter watches.
	objects, bucket string
	// workDir, days and since are those of verify.
	workDir string
	days    int
	since   model.Duration
}

func (o *options) snapshotCommands(app *kingpin.Application) {
	o.bucketFlags(app)
	all := app.Command(commandSnapshot, "Copy the embedded store, with the log of its buffer, and look at such copies.")
	take := all.Command("take", "Copy the embedded store, with the log of its buffer. Beside an earlier snapshot only what is new takes room, and is sent.").Default()
	take.Flag("url", "Adapter that serves the store, with --web.enable-admin-api, on this machine. Without it the store must be closed.").StringVar(&o.snapshot.url)
	o.asks(take, "the adapter")
	take.Flag("keep", "How many snapshots stay there, of those that are whole; the oldest others are removed. 0 keeps all.").Default("0").IntVar(&o.snapshot.keep)
	take.Arg("to", "Directory of the snapshots, which exists: in it the snapshot is a directory whose name is its time. Or a place in object storage, such as s3://bucket/directory or gs://bucket/directory.").Required().StringVar(&o.snapshot.into)
	const from = "The snapshot, such as /backup/20260102T033000.000Z or s3://bucket/directory/20260102T033000.000Z"
	list := all.Command("list", "Print the snapshots in object storage: their names, bytes, and when they were verified.")
	list.Arg("from", "Where they are, such as s3://bucket/directory.").Required().StringVar(&o.snapshot.from)
	verify := all.Command("verify", "Try whether a snapshot can be restored: restore it elsewhere, compare every file with its sum, check the store, and compare some days with the adapter of --url. Ends with 0 if all is well.")
	verify.Flag("url", "Adapter that has the same samples, such as http://localhost:9201.").StringVar(&o.snapshot.url)
	o.asks(verify, "the adapter")
	verify.Flag("days", "How many days, drawn at random, are compared with the adapter.").Default("3").IntVar(&o.snapshot.days)
	verify.Flag("since", "How far back these days are at most.").Default("30d").SetValue(&o.snapshot.since)
	verify.Flag("work-dir", "Directory with room for the store, in which it is restored and removed. Default: that for temporary files.").StringVar(&o.snapshot.workDir)
	verify.Arg("from", from+"; or where there are some, for the newest.").Required().StringVar(&o.snapshot.from)
	restore := app.Command(commandRestore, "Copy a snapshot to --storage.path, which must be empty or missing.")
	restore.Arg("from", from+"; in object storage, without a name, the newest one.").Required().StringVar(&o.snapshot.from)
}

// snapshots takes snapshots of a store that is in use.
type snapshots struct {
	store    snapshot.Store
	log      snapshot.Log
	logger   log.Logger
	time     prometheus.Gauge
	failures prometheus.Counter
	// mu is for last, the manifest of the last snapshot since the start, whose tables are not read again.
	mu   sync.Mutex
	last *snapshot.Manifest
}

// newSnapshots returns nil if the store cannot be copied.
func newSnapshots(rows bucketstore.Store, appender bucketstore.Appender, logger log.Logger, reg prometheus.Registerer) *snapshots {
	store, ok := rows.(snapshot.Store)
	if !ok {
		return nil
	}
	f := metricset.New(reg)
	s := &snapshots{store: store, logger: logger,
		time: f.Gauge("adapter_snapshot_last_success_timestamp_seconds",
			"When the last snapshot was taken, since the start. 0 if none was."),
		failures: f.Counter("adapter_snapshot_failures_total", "Snapshots that failed."),
	}
	s.log, _ = appender.(snapshot.Log)
	return s
}

// Snapshot implements api.Snapshots.
func (s *snapshots) Snapshot(ctx context.Context, dir string) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := snapshot.Take(ctx, snapshot.Source{Store: s.store, Log: s.log}, dir, now, s.last)
	if err != nil {
		s.failures.Inc()
		return err
	}
	s.last = m
	s.time.Set(float64(now.Unix()))
	level.Info(s.logger).Log("msg", "a snapshot was taken", "directory", dir, "files", len(m.Files), "bytes", m.Bytes(), "duration", time.Since(now))
	return nil
}

// takeSnapshot takes a snapshot of a closed store, or lets the adapter that serves it take one.
func takeSnapshot(ctx context.Context, o *options, logger log.Logger) (err error) {
	if !o.traits().OnDisk {
		return errors.New("snapshot is for the embedded store: for Bigtable use its own backups, see docs/bigtable.md")
	}
	if o.snapshot.keep < 0 {
		return errors.New("--keep is negative")
	}
	if isBucket(o.snapshot.into) {
		return pushSnapshot(ctx, o, logger)
	}
	into, err := filepath.Abs(localPlace(o.snapshot.into))
	if err != nil {
		return err
	}
	if _, err := os.ReadDir(into); err != nil {
		return fmt.Errorf("the directory of the snapshots: %w", err)
	}
	unlock, err := snapshot.Lock(into)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	target := filepath.Join(into, time.Now().UTC().Format("20060102T150405.000Z"))
	if err := beside(ctx, o, into, logger, func(dir string) error { return moveAway(ctx, dir, target, logger) }); err != nil {
		return err
	}
	level.Info(logger).Log("msg", "a snapshot is finished", "directory", target)
	if o.snapshot.keep == 0 {
		return nil
	}
	removed, err := snapshot.Prune(into, o.snapshot.keep, target)
	for _, path := range removed {
		level.Info(logger).Log("msg", "an old snapshot is removed", "directory", path)
	}
	return err
}

// beside takes a snapshot on the disk of the store, lets use copy or move it, and removes it. locked is a directory of snapshots that this process has locked, or empty.
func beside(ctx context.Context, o *options, locked string, logger log.Logger, use func(dir string) error) (err error) {
	take, closeTaker, err := o.snapshotTaker(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTaker()) }()
	dir, err := filepath.Abs(filepath.Join(o.path, snapshotsDir))
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return err
	}
	if dir != locked {
		unlock, err := snapshot.Lock(dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	taken := filepath.Join(dir, "copying")
	if err := os.RemoveAll(taken); err != nil { // of a process that died
		return err
	}
	if err := take(taken); err != nil {
		return err
	}
	return errors.Join(use(taken), os.RemoveAll(taken))
}

// snapshotTaker returns what takes a snapshot to a directory on the disk of the store.
func (o *options) snapshotTaker(ctx context.Context, logger log.Logger) (take func(dir string) error, closeTaker func() error, err error) {
	if o.snapshot.url != "" {
		take, err = o.snapshotByURL(ctx)
		return take, func() error { return nil }, err
	}
	// What a log holds is stored first, as at a start.
	a, err := newAdapter(o.forExisting(), logger)
	if err != nil {
		return nil, nil, err
	}
	at, err := a.openEngine(ctx, opening{noEngine: true})
	if errors.As(err, new(errStore)) {
		err = fmt.Errorf("%w; if an adapter with --web.enable-admin-api serves this store, give its --url", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.close())
	}
	s := newSnapshots(at.rows, at.appender, logger, a.reg)
	return func(dir string) error { return s.Snapshot(ctx, dir) }, a.close, nil
}

// snapshotByURL lets an adapter take a snapshot, and returns what moves it.
func (o *options) snapshotByURL(ctx context.Context) (take func(dir string) error, err error) {
	base, err := url.Parse(o.snapshot.url)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("--url=%s: give the URL of an adapter, such as http://localhost:9201", o.snapshot.url)
	}
	name, err := o.askSnapshot(ctx, base.JoinPath("/api/v1/admin/tsdb/snapshot").String())
	if err != nil {
		return nil, err
	}
	taken := filepath.Join(o.path, snapshotsDir, name)
	if _, err := snapshot.Read(taken); err != nil {
		return nil, fmt.Errorf("the adapter has taken a snapshot %s; is --storage.path=%s its directory? %w", name, o.path, err)
	}
	return func(dir string) error { return snapshot.Rename(taken, dir) }, nil
}

// moveAway makes the snapshot target of one that may be on another disk.
func moveAway(ctx context.Context, taken, target string, logger log.Logger) error {
	if err := snapshot.Rename(taken, target); !errors.Is(err, syscall.EXDEV) { // the same disk
		return err
	}
	like, err := snapshot.Latest(filepath.Dir(target))
	if err == nil {
		err = snapshot.Adopt(target)
	}
	if err == nil {
		_, err = snapshot.Copy(ctx, taken, target, like, newReporter(logger).bytesCopied)
	}
	return err
}

// askSnapshot returns the name of the snapshot that an adapter has taken.
func (o *options) askSnapshot(ctx context.Context, address string) (name string, err error) {
	client, err := o.serverClient("")
	if err != nil {
		return "", err
	}
	var answer struct{ Data struct{ Name string } }
	_, err = askAdapter(ctx, client, http.MethodPost, address, &answer)
	if name = answer.Data.Name; err == nil && !filepath.IsLocal(name) {
		err = fmt.Errorf("it answers with the name %q", name)
	}
	if err != nil {
		return "", fmt.Errorf("ask the adapter for a snapshot: %w", err)
	}
	return name, nil
}

// maxAdapterAnswer bounds what is read of an answer, in bytes.
const maxAdapterAnswer = 64 << 20

// askAdapter sends a request to an adapter, and decodes the JSON that it answers with. The response, whose body is read, is nil if it does not answer.
func askAdapter(ctx context.Context, client *http.Client, method, address string, result any) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAdapterAnswer))
	if err == nil && (resp.StatusCode != http.StatusOK || json.Unmarshal(text, result) != nil) {
		err = fmt.Errorf("%s: %s: %.200s", req.URL.Redacted(), resp.Status, text)
	}
	return resp, err
}

// restoreSnapshot makes a data directory of a snapshot.
func restoreSnapshot(ctx context.Context, o *options, logger log.Logger) error {
	if !o.traits().OnDisk {
		return errors.New("restore is for the embedded store: for Bigtable use its own backups, see docs/bigtable.md")
	}
	dataDir, err := filepath.Abs(o.path)
	if err != nil {
		return err
	}
	logDir, err := filepath.Abs(o.bufferPath)
	if err != nil {
		return err
	}
	var taken time.Time
	if isBucket(o.snapshot.from) {
		taken, err = restoreFromBucket(ctx, o, o.snapshot.from, dataDir, logDir, logger)
	} else {
		var m *snapshot.Manifest
		if m, err = snapshot.Restore(ctx, localPlace(o.snapshot.from), dataDir, logDir, newReporter(logger).bytesCopied); err == nil {
			taken = m.Time
		}
	}
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "restored", "directory", dataDir, "snapshot", o.snapshot.from, "of", taken.Format(time.RFC3339))
	return nil
}

// bytesCopied logs how far a copy is, and that it is finished: then there is no next file.
func (r *reporter) bytesCopied(done, all int64, next string) {
	if r.isDue() || next == "" {
		level.Info(r.logger).Log("msg", "copying", "bytes", done, "of", all, "bytes_per_second", r.perSecond(done), "left", r.left(done, all))
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/gcs"
	"github.com/thanos-io/objstore/providers/s3"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/bucketstore/snapshot/objects"
)

// objectsFlag is the flag of what uses object storage.
const objectsFlag = "objstore.config.file"

// bucketFlags adds the flags about object storage.
func (o *options) bucketFlags(app *kingpin.Application) {
	app.Flag("snapshot.bucket", "Where snapshots of the embedded store are in object storage, such as s3://bucket/directory: metrics say when the newest one was taken, and when one was verified.").StringVar(&o.snapshot.bucket)
	app.Flag(objectsFlag, "File with how object storage is asked, in the format of Thanos: endpoint, credentials, encryption. Without one they come from the environment, as for the tools of the provider.").StringVar(&o.snapshot.objects)
}

// isBucket says whether a place of snapshots is in object storage.
func isBucket(place string) bool {
	scheme, _, ok := strings.Cut(place, "://")
	return ok && scheme != "file"
}

// localPlace returns the directory that a place names which is not in object storage.
func localPlace(place string) string { return strings.TrimPrefix(place, "file://") }

// objectsFile is what Thanos' file says.
type objectsFile struct {
	Type   objstore.ObjProvider `yaml:"type"`
	Config yaml.MapSlice        `yaml:"config"`
	Prefix string               `yaml:"prefix"`
}

// openBucket opens the snapshots at a URL such as s3://bucket/directory. If it ends with the name of one, that is returned.
func (o *options) openBucket(place string, logger log.Logger) (b *objects.Bucket, name string, closeBucket func() error, err error) {
	bucket, dir, err := o.openObjects(place, logger)
	if err != nil {
		return nil, "", nil, err
	}
	if _, err := time.Parse(objects.NameFormat, path.Base(dir)); err == nil {
		dir, name = path.Split(dir)
	}
	return objects.New(objects.Config{Objects: objstore.NewPrefixedBucket(bucket, dir), Name: place, Holder: processName(), Logger: logger}), name, bucket.Close, nil
}

// openObjects opens the bucket of a URL such as s3://bucket/directory, and returns the directory.
func (o *options) openObjects(place string, logger log.Logger) (bucket objstore.Bucket, dir string, err error) {
	u, err := url.Parse(place)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, "", fmt.Errorf("%s: give a directory, or a URL such as s3://bucket/directory or gs://bucket/directory", place)
	}
	file := objectsFile{}
	if o.snapshot.objects != "" {
		text, err := os.ReadFile(o.snapshot.objects)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &file)
		}
		if err != nil {
			return nil, "", fmt.Errorf("--%s: %w", objectsFlag, err)
		}
	}
	provider := map[string]objstore.ObjProvider{"s3": objstore.S3, "gs": objstore.GCS}[u.Scheme]
	if provider == "" {
		return nil, "", fmt.Errorf("%s: give a directory, s3://… or gs://…", place)
	}
	if file.Type != "" && !strings.EqualFold(string(file.Type), string(provider)) {
		return nil, "", fmt.Errorf("--%s: its type is %s, not that of %s", objectsFlag, file.Type, place)
	}
	bucket, err = file.open(provider, u.Host, logger)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", place, err)
	}
	return bucket, path.Join(file.Prefix, strings.Trim(u.Path, "/")), nil
}

// setDefault returns what the file has for a key, which is value if it had nothing.
func (f *objectsFile) setDefault(key string, value any) any {
	for _, item := range f.Config {
		if item.Key == key {
			return item.Value
		}
	}
	f.Config = append(f.Config, yaml.MapItem{Key: key, Value: value})
	return value
}

// partSize is how much of an object is sent at once, in bytes.
const partSize = 16 << 20

// open opens a bucket.
func (f *objectsFile) open(provider objstore.ObjProvider, bucket string, logger log.Logger) (objstore.Bucket, error) {
	if named := f.setDefault("bucket", bucket); named != bucket {
		return nil, fmt.Errorf("--%s names another bucket, %v", objectsFlag, named)
	}
	if provider == objstore.S3 {
		f.setDefault("part_size", partSize)
		if err := f.setEndpoint(); err != nil {
			return nil, err
		}
	}
	text, err := yaml.Marshal(f.Config)
	if err != nil {
		return nil, err
	}
	if provider == objstore.GCS {
		return gcs.NewBucket(context.Background(), logger, text, "promtable", nil)
	}
	return s3.NewBucket(logger, text, "promtable", nil)
}

// setEndpoint sets what the environment says as the tools of AWS take it, unless the file has an endpoint.
func (f *objectsFile) setEndpoint() error {
	region := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	endpoint, insecure := "s3.amazonaws.com", false
	if region != "" {
		endpoint = "s3." + region + ".amazonaws.com"
	}
	if other := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); other != "" {
		u, err := url.Parse(other)
		if err != nil || u.Host == "" {
			return fmt.Errorf("AWS_ENDPOINT_URL=%s: give a URL", other)
		}
		endpoint, insecure = u.Host, u.Scheme == "http"
	}
	if f.setDefault("endpoint", endpoint) == endpoint {
		f.setDefault("region", region)
		f.setDefault("insecure", insecure)
	}
	return nil
}

// pushSnapshot takes a snapshot beside the store, copies it to object storage, and removes it.
func pushSnapshot(ctx context.Context, o *options, logger log.Logger) (err error) {
	b, name, closeBucket, err := o.openBucket(o.snapshot.into, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	if name != "" {
		return fmt.Errorf("%s: leave the name of the snapshot out", o.snapshot.into)
	}
	session, err := b.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.End()) }()
	var pushed objects.Push
	err = beside(ctx, o, "", logger, func(dir string) (err error) {
		pushed, err = session.Push(dir, newReporter(logger).bytesCopied)
		return err
	})
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "a snapshot is finished", "in", o.snapshot.into, "name", pushed.Name, "files", pushed.Files, "bytes", pushed.Bytes, "sent", pushed.Sent)
	if o.snapshot.keep == 0 {
		return nil
	}
	removed, err := session.Prune(o.snapshot.keep)
	for _, name := range removed {
		level.Info(logger).Log("msg", "an old snapshot is removed", "name", name)
	}
	return err
}

// restoreFromBucket makes a data directory of a snapshot in object storage.
func restoreFromBucket(ctx context.Context, o *options, from, dataDir, logDir string, logger log.Logger) (taken time.Time, err error) {
	b, name, closeBucket, err := o.openBucket(from, logger)
	if err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	s, err := b.Find(ctx, name)
	if err != nil {
		return taken, err
	}
	return s.Time, b.Restore(ctx, s, dataDir, logDir, newReporter(logger).bytesCopied)
}

// listSnapshots prints the snapshots in object storage.
func listSnapshots(ctx context.Context, o *options, logger log.Logger) (err error) {
	b, _, closeBucket, err := o.openBucket(o.snapshot.from, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	all, err := b.Snapshots(ctx)
	for _, s := range all {
		state := "not verified"
		switch {
		case s.Missing != "":
			state = "not whole: " + s.Missing + " is missing"
		case !s.Verified.IsZero():
			state = "verified " + s.Verified.UTC().Format(time.RFC3339)
		}
		fmt.Fprintln(o.out, s.Name, s.Bytes(), state)
	}
	return err
}

// bucketInterval is how often the adapter looks at the snapshots in object storage.
const bucketInterval = 5 * time.Minute

// openBucketWatch begins to keep gauges about the snapshots of --snapshot.bucket, until close.
func (a *adapter) openBucketWatch(ctx context.Context) error {
	b, _, closeBucket, err := a.o.openBucket(a.o.snapshot.bucket, a.logger)
	if err != nil {
		return fmt.Errorf("--snapshot.bucket: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watchBucket(ctx, b) })
	a.onClose("", func() error {
		stop()
		watching.Wait()
		return closeBucket()
	})
	return nil
}

// watchBucket sets the gauges at an interval until ctx ends.
func (a *adapter) watchBucket(ctx context.Context, b *objects.Bucket) {
	f := metricset.New(a.reg)
	newest := f.Gauge("adapter_snapshot_bucket_last_success_timestamp_seconds", "When the newest whole snapshot in object storage was taken. 0 if there is none.")
	verified := f.Gauge("adapter_snapshot_bucket_verified_timestamp_seconds", "When a snapshot in object storage was last verified. 0 if none was.")
	failures := f.Counter("adapter_snapshot_bucket_failures_total", "How often object storage could not be read.")
	for {
		all, err := b.Snapshots(ctx)
		if err == nil {
			var taken, checked time.Time
			for _, s := range all {
				if s.Missing == "" {
					taken = s.Time
				}
				if s.Verified.After(checked) {
					checked = s.Verified
				}
			}
			setTime(newest, taken)
			setTime(verified, checked)
		} else if ctx.Err() == nil {
			failures.Inc()
			level.Warn(a.logger).Log("msg", "the snapshots in object storage cannot be read", "err", err)
		}
		if bucketstore.Sleep(ctx, bucketInterval) != nil {
			return
		}
	}
}

// setTime sets a gauge to a time, or 0.
func setTime(g prometheus.Gauge, t time.Time) {
	if t.IsZero() {
		g.Set(0)
		return
	}
	g.Set(float64(t.Unix()))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/version"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/disk"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/write"
	"github.com/promtable/promtable/series"
)

// options are the flags of the adapter.
type options struct {
	listen          []string
	webConfig       string
	web             webOptions
	shutdownTimeout time.Duration
	// shutdownDelay is how long requests are answered after a stop is asked for.
	shutdownDelay time.Duration

	backend string
	path    string
	minFree byteSize

	project, instance, appProfile, tablePrefix string
	sealAppProfile                             string
	connections                                int
	createTables, directAccess, clientMetrics  bool

	resourceLabels []string
	indexMemory    byteSize
	fleet          fleetOptions
	doctor         doctorOptions
	// httpConfig is --http.config.file of commands that ask a server.
	httpConfig string
	backfill   backfillOptions
	// tracingConfig is --tracing.config.file.
	tracingConfig string
	// dryRelabel is --dry-run of relabel.
	dryRelabel bool
	memory     memoryOptions
	ruleFiles  ruleFileOptions
	healing    healingOptions
	// queryMemory and totalMemory bound what queries hold, resultsCache what is kept of them.
	queryMemory, totalMemory, resultsCache byteSize

	buffered      bool
	bufferPath    string
	bufferFsync   string
	logPlace      string        // logOnDisk or logInRows
	fsyncInterval time.Duration // of bufferFsync, 0 is always
	bufferLog     byteSize
	bufferMemory  byteSize

	tenancy   tenancyOptions
	retention retentionOptions
	schema    schemaOptions
	estimate  estimateOptions
	demo      demoOptions
	snapshot  snapshotOptions
	exports   exportOptions
	dump      dumpOptions
	copy      copyOptions
	heal      healOptions
	exemplars exemplarOptions

	command string
	seal    sealOptions
	// rollups says that they are made while serving.
	rollups bool
	// rollupRows is how many rows a second are read to make them.
	rollupRows float64
	// adminAPI turns on the requests that delete and import samples.
	adminAPI bool
	delete   deleteOptions
	imports  importOptions
	// discardLog is the ID of a lost log that a start discards, forgetLog the argument of
	// buffer forget.
	discardLog, forgetLog string
	// repairs are the kinds of repairs of check.
	repairs []string

	engine     engine.Config // limits, intervals and HA only
	remote     remote.Config // limits only
	api        api.Config    // limits only
	slowerThan time.Duration
	// blockFile has rules of queries that are blocked.
	blockFile string
	// otlpFile has the block otlp of a configuration of Prometheus.
	otlpFile string
	// limitsFile has what each tenant may write.
	limitsFile string
	// features are names of --enable-feature.
	features   []string
	maxBody    units.Base2Bytes
	selfScrape time.Duration
	logLevel   string
	logFormat  string

	// prepare, if set, is called before the store is opened, onReady when requests are answered, with the URL of the
	// adapter for this machine, and that for others. Both end early when ctx does.
	prepare func(ctx context.Context) error
	onReady func(ctx context.Context, own, link string)

	// in and out are the standard streams of commands.
	in  io.Reader
	out io.Writer

	// existing says that a command needs an existing store: it creates none. Tests replace
	// now, netListen, storeTimeout, reachTimeout and diskUsage.
	existing bool
	// readOnly says that the embedded store is opened to be read only: no file of it changes.
	readOnly     bool
	now          func() time.Time
	netListen    func(network, address string) (net.Listener, error)
	storeTimeout time.Duration
	reachTimeout time.Duration
	diskUsage    func(path string) (disk.Usage, error)

	// given says which flags are on the command line.
	given map[string]bool
}

// parseFlags parses the command line and checks it.
func parseFlags(args []string) (*options, error) {
	return parseFlagsOn(args, memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem))
}

// parseFlagsOn is parseFlags where memory returns how many bytes of it the container has, or else the machine.
func parseFlagsOn(args []string, memory func() (uint64, error)) (*options, error) {
	o := &options{memory: memoryOptions{there: memory}, in: os.Stdin, out: os.Stdout, now: time.Now, netListen: net.Listen, storeTimeout: storeTimeout, diskUsage: pebble.DiskUsage}
	o.remote, o.engine, o.api = o.remote.WithDefaults(), o.engine.WithDefaults(), o.api.WithDefaults()
	app := o.newApplication()
	args, err := expandFiles(args)
	if err != nil {
		return nil, err
	}
	if o.given, err = checkValues(app.Model(), args); err != nil {
		return nil, err
	}
	if o.command, err = app.Parse(args); err != nil {
		return nil, suggest(app, args, err)
	}
	o.remote.MaxBodyBytes = int(o.maxBody)
	o.remote.OTLP.Lookback = o.api.Lookback
	// check fills in defaults that depend on other flags, so it comes before the API gets
	// their values.
	err = o.check()
	o.api.Flags = make(map[string]string)
	for _, flag := range app.Model().Flags {
		if !flag.Hidden && flag.Name != "help" && flag.Name != "version" {
			o.api.Flags[flag.Name] = flag.Value.String()
		}
	}
	return o, err
}

// newApplication returns the command line, whose values become those of o.
func (o *options) newApplication() *kingpin.Application {
	app := kingpin.New("adapter", "Remote storage for Prometheus: keeps samples in Google Bigtable or in an embedded store, and gives them back.")
	app.Version(version.Print("adapter")).UsageWriter(os.Stdout)
	app.HelpFlag.Short('h')
	setUsage(app)
	app.PreAction(func(at *kingpin.ParseContext) error {
		if at.SelectedCommand == app.HelpCommand && o.given != nil { // it is nil while a shell completes the line
			app.FatalIfError(suggestHelp(app, at), "")
		}
		return nil
	})
	o.webFlags(app)
	o.storageFlags(app)
	o.tenancyFlags(app)
	o.retentionFlags(app)
	o.bufferFlags(app)
	o.sealFlags(app)
	o.rollupFlags(app)
	o.limitFlags(app)
	o.haFlags(app)
	o.fleetFlags(app)
	o.queryFlags(app)
	o.otlpFlags(app)
	o.ruleFileFlags(app)
	o.healingFlags(app)
	o.memoryFlags(app)
	app.Flag("self-scrape-interval", "How often the adapter stores its own metrics, with job=\"adapter\". 0 is never.").
		Default("15s").DurationVar(&o.selfScrape)
	app.Flag("log.level", "Only log lines of this severity and above.").Default("info").EnumVar(&o.logLevel, "debug", "info", "warn", "error")
	app.Flag("log.format", "Format of log lines.").Default("logfmt").EnumVar(&o.logFormat, "logfmt", "json")
	o.commands(app)
	return app
}

func (o *options) webFlags(app *kingpin.Application) {
	app.Flag("web.listen-address", "Address to listen on; host:0 takes a free port. Repeatable.").Default(":9201").StringsVar(&o.listen)
	app.Flag("web.config.file", "File that turns on TLS or basic auth, in the format of Prometheus' exporter-toolkit.").StringVar(&o.webConfig)
	app.Flag("web.users-file", "File, as YAML, of the users who may send requests, with their roles, tenants and tokens. Default: all clients may send all requests. It is read again at SIGHUP and POST /-/reload.").StringVar(&o.web.usersFile)
	app.Flag("web.admin-listen-address", "Address to listen on for operators: /metrics, /debug/pprof/, /-/reload and the admin API are served there only. Default: at --web.listen-address.").StringVar(&o.web.adminListen)
	app.Flag("web.health-without-credentials", "Answer /-/healthy and /-/ready to clients without credentials, too.").BoolVar(&o.web.freeHealth)
	app.Flag("web.external-url", "URL under which the adapter is reachable, such as behind a reverse proxy, for the links that it prints. Its path is the default of --web.route-prefix.").StringVar(&o.web.externalURL)
	app.Flag("web.route-prefix", "Prefix of the paths of all endpoints. Default: the path of --web.external-url. With / a proxy has to remove that path.").StringVar(&o.web.routePrefix)
	app.Flag("web.cors.origin", "Regular expression, fully anchored, of the origins whose pages may ask the HTTP API, such as https?://(one|two)\\.example. Default: none.").StringVar(&o.web.corsOrigin)
	app.Flag("web.read-only-boards", "Refuse changes of the boards of the page.").BoolVar(&o.web.readOnlyBoards)
	app.Flag("web.trace-url", "URL of a trace, in which the names of labels of exemplars stand in braces, such as https://traces.example/trace/{trace_id}. Exemplars lead there from graphs of the page.").StringVar(&o.web.traceURL)
	app.Flag("web.allowed-hosts", "With --web.enable-admin-api: names of this adapter, with commas between them, beside localhost, that of --web.external-url, and IP addresses. "+
		"A request to the admin API at another name is refused, and so is one of a browser that changes the store. Repeatable.").SetValue(&o.web.allowedHosts)
	app.Flag("web.enable-admin-api", "Serve /api/v1/admin/: tsdb/delete_series and tsdb/clean_tombstones, which delete samples, tsdb/snapshot, which copies the embedded store, and import, which takes samples of earlier times. And DELETE of /api/v1/status/active_queries/ID, which cancels a query.").BoolVar(&o.adminAPI)
	app.Flag("shutdown.delay", "How long a stop goes on answering, while /-/ready is 503: until balancers send no more.").Default("0s").DurationVar(&o.shutdownDelay)
	app.Flag("shutdown.timeout", "How long a stop waits for running requests.").Default("30s").DurationVar(&o.shutdownTimeout)
}

func (o *options) storageFlags(app *kingpin.Application) {
	var names []string
	for _, b := range backends() {
		names = append(names, b.name)
	}
	app.Flag("storage.backend", "Store of the samples: embedded (on the local disk) or bigtable.").Default(names[0]).EnumVar(&o.backend, names...)
	for _, b := range backends() {
		b.flags(o, app)
	}
	app.Flag("schema.resource-label", "Label whose value is at the end of the row key. Repeatable. It cannot be changed after the first start.").
		StringsVar(&o.resourceLabels)
}

func (o *options) bufferFlags(app *kingpin.Application) {
	app.Flag("buffer.enabled", "Keep new samples in a log and in memory, and write them as chunks later. "+
		"With Bigtable it is off by default; several adapters with buffers need --fleet.listen-address.").
		Default("true").BoolVar(&o.buffered)
	app.Flag("buffer.path", "Directory of the log. Default: buffer in the directory of the embedded store, or ./buffer with Bigtable.").StringVar(&o.bufferPath)
	app.Flag("buffer.log", "Where the log is: on the disk, or in rows of Bigtable, for members of a fleet. Such a member needs no disk: when it dies another one takes its log.").
		Default(logOnDisk).EnumVar(&o.logPlace, logOnDisk, logInRows)
	app.Flag("buffer.fsync", "When the log is synced to the disk: always is before each answer; otherwise an interval such as 1s. "+
		"With an interval, loss of power loses the samples acknowledged since the last sync; a crash of the process loses none.").
		Default("always").StringVar(&o.bufferFsync)
	app.Flag("buffer.discard-lost-log", "ID of a lost log that the store waits for: start without the samples in it, or with those that are left of it.").StringVar(&o.discardLog)
	size := func(value *byteSize, name, help string) {
		value.flag = name
		app.Flag(name, help).Default(embeddedBufferBytes.String()).SetValue(value)
	}
	size(&o.bufferLog, "buffer.max-log", fmt.Sprintf("Maximum size of the log; above it chunks are written early. With Bigtable the default is %s.", bigtableMaxLog))
	size(&o.bufferMemory, "buffer.max-memory", fmt.Sprintf("Maximum bytes of samples in memory; above it chunks are written early. "+
		"The process needs about three times as much. With Bigtable the default is %s.", bigtableMaxMemory))
}

// The values of --buffer.log.
const (
	logOnDisk = "disk"
	logInRows = "bigtable"
)

// groupInterval is the least time between two rows of a log in Bigtable. Requests of that time share a row.
const groupInterval = 50 * time.Millisecond

// hasDiskLog says whether there is a buffer with its log on the disk.
func (o *options) hasDiskLog() bool { return o.buffered && o.logPlace != logInRows }

// hasRowLog says whether there is a buffer with its log in Bigtable.
func (o *options) hasRowLog() bool { return o.buffered && o.logPlace == logInRows }

// A byteSize is a flag such as 4GiB.
type byteSize struct {
	units.Base2Bytes
	flag string
}

// Set implements kingpin.Value.
func (s *byteSize) Set(text string) (err error) {
	s.Base2Bytes, err = units.ParseBase2Bytes(text)
	if err != nil || s.Base2Bytes < 0 { // also on overflow
		return errors.New("give a size such as 4GiB")
	}
	return nil
}

// The limits of the buffer. An embedded store accepts chunks that are written early. With
// Bigtable each costs a row mutation. So there the limits are what a million series at 15 s
// need for chunks of whole windows; TestMillionSeries measures it. They need two windows,
// because one is written while the next is open. That is 1,118 samples a series in the log,
// at 8.6 bytes with the keys, and half of them, at up to 3 bytes, in memory.
const (
	embeddedBufferBytes = units.Base2Bytes(buffer.DefaultMaxBytes)
	bigtableMaxLog      = 12 * units.GiB
	bigtableMaxMemory   = 2 * units.GiB
	// leastBufferBytes is the least sensible limit.
	leastBufferBytes = 8 * units.MiB
)

// checkBufferSizes sets the defaults that depend on the backend, and checks the limits.
func (o *options) checkBufferSizes() error {
	for _, limit := range []struct {
		size      *byteSize
		byDefault units.Base2Bytes
	}{
		{&o.bufferLog, o.kind().maxLog},
		{&o.bufferMemory, o.kind().maxMemory},
	} {
		size := limit.size
		if !o.given[size.flag] {
			size.Base2Bytes = limit.byDefault
		}
		if size.Base2Bytes < leastBufferBytes {
			return fmt.Errorf("--%s=%s is too little: give it %s or more, or leave it out for the default", size.flag, size, leastBufferBytes)
		}
	}
	return nil
}

// bufferedCurrentInterval is the default of --current.flush-interval with the buffer.
const bufferedCurrentInterval = 15 * time.Minute

// fleetCurrentInterval is that of members of a fleet: others ask them for what is newer.
const fleetCurrentInterval = time.Duration(series.Window) * time.Millisecond

// checkBuffer sets the defaults of the buffer that depend on the backend.
func (o *options) checkBuffer() error {
	if !o.given["buffer.enabled"] {
		o.buffered = o.kind().isBuffered
	}
	if o.buffered && !o.given["current.flush-interval"] {
		o.engine.CurrentInterval = bufferedCurrentInterval
		if o.fleet.listen != "" {
			o.engine.CurrentInterval = fleetCurrentInterval
		}
	}
	if o.bufferPath == "" {
		o.bufferPath = "buffer"
		if o.traits().OnDisk {
			o.bufferPath = filepath.Join(o.path, "buffer")
		}
	}
	if err := o.checkBufferSizes(); err != nil {
		return err
	}
	if o.bufferFsync == "always" {
		return nil
	}
	interval, err := time.ParseDuration(o.bufferFsync)
	if err != nil || interval <= 0 {
		return fmt.Errorf("--buffer.fsync=%s: give always, or an interval such as 1s", o.bufferFsync)
	}
	o.fsyncInterval = interval
	return nil
}

// durationFlag defines a flag whose default is the value that v has.
func durationFlag(f *kingpin.FlagClause, v *time.Duration) {
	f.Default(model.Duration(*v).String()).DurationVar(v)
}

// intFlag defines a flag whose default is the value that v has.
func intFlag(f *kingpin.FlagClause, v *int) { f.Default(strconv.Itoa(*v)).IntVar(v) }

func (o *options) limitFlags(app *kingpin.Application) {
	limits := &o.engine.Limits
	durationFlag(app.Flag("write.max-future", "Refuse samples that are further ahead of the adapter's clock. 0 is no limit."), &o.engine.MaxFuture)
	durationFlag(app.Flag("write.timeout", "Maximum time of one remote write. Prometheus gives up after 30s."), &o.remote.WriteTimeout)
	intFlag(app.Flag("write.max-concurrent", "Maximum number of concurrent remote writes; others wait."), &o.remote.MaxConcurrentWrites)
	app.Flag("write.max-body-bytes", "Maximum size of a request body, both compressed and decompressed.").
		Default(units.Base2Bytes(o.remote.MaxBodyBytes).String()).BytesVar(&o.maxBody)
	intFlag(app.Flag("write.cached-series", "How many series are found by the bytes in which senders write their labels, at up to 1 KiB each; for the others labels are decoded again with each sample. CURRENT gets the last samples of as many."), &o.engine.CachedSeries)
	intFlag(app.Flag("index.written-series", "How many series the adapter remembers as written to the index, at up to 65 bytes each. The others are looked up when they come, by point reads."), &o.engine.WrittenSeries)
	o.indexMemory.flag = "index.max-memory"
	app.Flag(o.indexMemory.flag, "Maximum bytes of the index that are kept in memory for queries. What was not used for longest is dropped first, and read again when it is used.").
		Default(units.Base2Bytes(o.engine.IndexMemory).String()).SetValue(&o.indexMemory)
	app.Flag("index.refresh", "How long after another adapter has written a new series to Bigtable queries find it at the latest: a part of the index in memory that is older is read again when it is used. 0 keeps no index in memory.").
		Default("15s").DurationVar(&o.engine.IndexRefresh)
	intFlag(app.Flag("read.max-series", "Maximum number of series that one selector may match. 0 is no limit."), &limits.MaxSeries)
	intFlag(app.Flag("read.max-samples", "Maximum number of samples that one selector may read, where they are held: in a remote read that is not streamed, and where PromQL keeps them. 0 is no limit."), &limits.MaxSamples)
	intFlag(app.Flag("read.max-frame-bytes", "Maximum bytes of one series in a remote read answer, like chunked_read_limit of Prometheus. 0 is no limit."), &o.remote.MaxFrameBytes)
	intFlag(app.Flag("read.max-concurrent", "Maximum number of concurrent remote reads, federations and explanations; others wait."), &o.remote.MaxConcurrentReads)
	durationFlag(app.Flag("read.timeout", "Maximum time of one read."), &o.remote.ReadTimeout)
	durationFlag(app.Flag("current.lookback", "/federate leaves out a series whose last sample is older than this."), &o.remote.CurrentLookback)
	durationFlag(app.Flag("current.flush-interval", "How often the last sample of each series is written to CURRENT. With the buffer the default is 15m: its log has them after a crash."), &o.engine.CurrentInterval)
}

func (o *options) queryFlags(app *kingpin.Application) {
	durationFlag(app.Flag("query.timeout", "Maximum time of one PromQL query, or of another request to the HTTP API."), &o.api.Timeout)
	intFlag(app.Flag("query.max-samples", "Maximum number of samples that one PromQL query may hold in memory."), &o.api.MaxSamples)
	size := func(value *byteSize, name string, bytes int, help string) {
		value.flag = name
		app.Flag(name, help).Default(units.Base2Bytes(bytes).String()).SetValue(value)
	}
	size(&o.queryMemory, "query.max-memory-bytes", o.api.MaxMemory, "Maximum bytes of samples and results that one PromQL query may hold. 0 is no limit.")
	size(&o.totalMemory, "query.max-total-memory-bytes", o.api.MaxTotalMemory, "Maximum bytes that all PromQL queries together may hold; others are answered 503. 0 is no limit.")
	size(&o.resultsCache, "query.results-cache-bytes", resultcache.DefaultBytes, "Maximum bytes of results of range queries that are kept in memory, so that a query that is sent again is evaluated only where it is new. "+
		"0 is none. On Bigtable only in a fleet, and with --mode=read.")
	intFlag(app.Flag("query.max-concurrency", "Maximum number of concurrent PromQL queries; others wait."), &o.api.MaxConcurrent)
	durationFlag(app.Flag("query.lookback-delta", "Maximum age of the last sample of a series that PromQL takes as its value."), &o.api.Lookback)
	durationFlag(app.Flag("query.default-evaluation-interval", "Default step of subqueries, like evaluation_interval of Prometheus."), &o.api.EvaluationInterval)
	o.slowerThan = request.DefaultSlowerThan
	durationFlag(app.Flag("query.log-slower-than", "Log PromQL queries and remote reads that take this time or longer, with what they read. 0 is never."), &o.slowerThan)
	app.Flag("query.block-file", "File of rules of queries that are answered 422, a line each: =~ and a pattern of whole expressions, or = and an expression. It is read again when it changes.").
		StringVar(&o.blockFile)
	app.Flag("enable-feature", "Features of PromQL and of OTLP that are off by default, with commas between them, named as in Prometheus. Repeatable.").
		SetValue((*commaList)(&o.features))
}

func (o *options) otlpFlags(app *kingpin.Application) {
	otlp := &o.remote.OTLP
	app.Flag("limits.file", "File with what senders may write, of each tenant: samples and requests a second, series, and how many and how long labels are. It is read again when it changes.").
		StringVar(&o.limitsFile)
	app.Flag("tracing.config.file", "File with the block tracing of a configuration of Prometheus, and no other: where traces of requests are sent.").StringVar(&o.tracingConfig)
	app.Flag("otlp.config-file", "File with the block otlp of a configuration of Prometheus, and no other: how OTLP metrics become series. It is read again when it changes.").
		StringVar(&o.otlpFile)
	durationFlag(app.Flag("otlp.delta.max-stale", "With the feature otlp-deltatocumulative: how long the sum of a stream of deltas is kept after its last data point. Longer than the interval of the senders."), &otlp.MaxStale)
	intFlag(app.Flag("otlp.delta.max-streams", "With the feature otlp-deltatocumulative: maximum number of streams of deltas, of each tenant, whose sums are kept; data points of others are refused. 0 is no limit."), &otlp.MaxStreams)
}

func (o *options) haFlags(app *kingpin.Application) {
	ha := &o.engine.HA
	app.Flag("ha.cluster-label", "Label that the replicas of one Prometheus share. Only one replica of each cluster is stored. Without this flag all are.").StringVar(&ha.ClusterLabel)
	app.Flag("ha.replica-label", "Label in which the replicas of a cluster differ. It is not stored, and matchers on it are ignored.").StringVar(&ha.ReplicaLabel)
	durationFlag(app.Flag("ha.failover", "How long the elected replica may be silent before another one takes over. At least twice the interval of its requests."), &ha.Failover)
}

// check refuses flags that do not go together. The error says what to change.
func (o *options) check() error {
	for _, check := range []func() error{
		o.checkMode, o.checkNumbers, o.web.check, o.checkTenancy, o.checkRetention, o.checkSchema, o.checkEstimate, o.checkDemo, o.checkImport,
		o.checkBuffer, o.checkSeal, o.checkRollups, o.engine.HA.Validate, o.checkFeatures, o.checkModes, o.checkCache, o.checkFleet, o.checkRuleFiles, o.checkHealing, o.checkMemory,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return o.kind().check(o)
}

func (o *options) checkFeatures() error {
	otlp := slices.Sorted(maps.Keys(write.DeltaFeatures))
	for _, name := range o.features {
		deltas, isOTLP := write.DeltaFeatures[name]
		switch {
		case !isOTLP:
			o.api.Features = append(o.api.Features, name)
		case o.remote.OTLP.Deltas != write.RejectDeltas && o.remote.OTLP.Deltas != deltas:
			return fmt.Errorf("--enable-feature: %s do not go together", strings.Join(otlp, " and "))
		default:
			o.remote.OTLP.Deltas = deltas
		}
	}
	if err := api.CheckFeatures(o.api.Features); err != nil {
		return fmt.Errorf("--enable-feature: %w, %s", err, strings.Join(otlp, ", "))
	}
	return nil
}

// checkCache turns the cache of results off where adapters may write that do not tell this one.
func (o *options) checkCache() error {
	if !o.traits().Shared || o.readOnly || o.fleet.listen != "" {
		return nil
	}
	if o.given[o.resultsCache.flag] && o.resultsCache.Base2Bytes != 0 {
		return errors.New("--query.results-cache-bytes is for the embedded store and for fleets: other adapters may write to Bigtable; leave it out, or add --buffer.enabled --fleet.listen-address or --mode=read")
	}
	o.resultsCache.Base2Bytes = 0
	return nil
}

// A commaList is a flag that takes several values at once, and may be repeated.
type commaList []string

func (l *commaList) Set(text string) error {
	*l = append(*l, strings.Split(text, ",")...)
	return nil
}
func (l *commaList) String() string   { return strings.Join(*l, ",") }
func (*commaList) IsCumulative() bool { return true }

// checkNumbers refuses numbers that make no sense.
func (o *options) checkNumbers() error {
	limits := o.engine.Limits
	for _, flag := range []struct {
		name  string
		value int64
		least int64
	}{
		{"shutdown.timeout", int64(o.shutdownTimeout), 1},
		{"shutdown.delay", int64(o.shutdownDelay), 0},
		{"bigtable.connections", int64(o.connections), 0},
		{"seal.workers", int64(o.seal.workers), 1},
		{"write.max-future", int64(o.engine.MaxFuture), 0},
		{"write.timeout", int64(o.remote.WriteTimeout), 1},
		{"write.max-concurrent", int64(o.remote.MaxConcurrentWrites), 1},
		{"write.max-body-bytes", int64(o.maxBody), 1},
		{"write.cached-series", int64(o.engine.CachedSeries), 1},
		{"index.written-series", int64(o.engine.WrittenSeries), 1},
		{o.indexMemory.flag, int64(o.indexMemory.Base2Bytes), 1},
		{"index.refresh", int64(o.engine.IndexRefresh), 0},
		{"read.max-series", int64(limits.MaxSeries), 0},
		{"read.max-samples", int64(limits.MaxSamples), 0},
		{"read.max-frame-bytes", int64(o.remote.MaxFrameBytes), 0},
		{"read.max-concurrent", int64(o.remote.MaxConcurrentReads), 1},
		{"read.timeout", int64(o.remote.ReadTimeout), 1},
		{"query.timeout", int64(o.api.Timeout), 1},
		{"query.max-samples", int64(o.api.MaxSamples), 1},
		{"query.max-concurrency", int64(o.api.MaxConcurrent), 1},
		{"query.lookback-delta", int64(o.api.Lookback), 1},
		{"query.log-slower-than", int64(o.slowerThan), 0},
		{"query.default-evaluation-interval", int64(o.api.EvaluationInterval), 1},
		{"current.lookback", int64(o.remote.CurrentLookback), 1},
		{"current.flush-interval", int64(o.engine.CurrentInterval), 1},
		{"ha.failover", int64(o.engine.HA.Failover), 1},
		{"otlp.delta.max-stale", int64(o.remote.OTLP.MaxStale), 1},
		{"otlp.delta.max-streams", int64(o.remote.OTLP.MaxStreams), 0},
		{"self-scrape-interval", int64(o.selfScrape), 0},
	} {
		switch {
		case flag.value < 0:
			return fmt.Errorf("--%s is negative", flag.name)
		case flag.value < flag.least:
			return fmt.Errorf("--%s is 0: give it a value, or leave it out for the default", flag.name)
		}
	}
	if step := o.api.EvaluationInterval; step%time.Millisecond != 0 { // PromQL counts in milliseconds
		return fmt.Errorf("--query.default-evaluation-interval=%s: give it whole milliseconds", step)
	}
	return nil
}

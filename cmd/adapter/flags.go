package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/prometheus/common/version"

	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
)

// The backends.
const (
	backendEmbedded = "embedded"
	backendBigtable = "bigtable"
)

// options are the flags of the adapter.
type options struct {
	listen          []string
	webConfig       string
	shutdownTimeout time.Duration

	backend string
	path    string

	project, instance, appProfile, tablePrefix string
	connections                                int
	createTables, directAccess, clientMetrics  bool

	resourceLabels []string

	buffered      bool
	bufferPath    string
	bufferFsync   string
	fsyncInterval time.Duration // of bufferFsync, 0 is always
	bufferLog     byteSize
	bufferMemory  byteSize

	command string
	seal    sealOptions
	// discardLog is the ID of a lost log that a start discards, forgetLog the one
	// that buffer forget is about.
	discardLog, forgetLog string

	engine     engine.Config // limits, intervals and HA only
	remote     remote.Config // limits only
	api        api.Config    // limits only
	maxBody    units.Base2Bytes
	selfScrape time.Duration
	logLevel   string
	logFormat  string

	// netListen takes an address: net.Listen, but for tests. storeTimeout is the
	// constant, and reachTimeout 0, the default of the store, but for tests.
	// existing says that a command is about a store that exists: none is made.
	existing     bool
	netListen    func(network, address string) (net.Listener, error)
	storeTimeout time.Duration
	reachTimeout time.Duration

	// given says of the flags that make sense only beside others whether they
	// stand on the command line.
	given map[string]*bool
}

// parseFlags reads the command line and checks that its parts go together.
func parseFlags(args []string) (*options, error) {
	o := &options{netListen: net.Listen, storeTimeout: storeTimeout, given: make(map[string]*bool)}
	app := kingpin.New("adapter", "Remote storage for Prometheus: keeps samples in Google Bigtable or in an embedded store, and gives them back.")
	app.Version(version.Print("adapter")).UsageWriter(os.Stdout)
	app.HelpFlag.Short('h')
	o.webFlags(app)
	o.storageFlags(app)
	o.bufferFlags(app)
	o.sealFlags(app)
	o.limitFlags(app)
	o.haFlags(app)
	o.queryFlags(app)
	app.Flag("self-scrape-interval", "How often the adapter stores its own metrics, with job=\"adapter\". 0 is never.").
		Default("15s").DurationVar(&o.selfScrape)
	app.Flag("log.level", "Log lines of this severity and above.").Default("info").EnumVar(&o.logLevel, "debug", "info", "warn", "error")
	app.Flag("log.format", "Format of log lines.").Default("logfmt").EnumVar(&o.logFormat, "logfmt", "json")
	o.commands(app)
	args, err := expandFiles(args)
	if err != nil {
		return nil, err
	}
	if err := checkValues(app.Model(), args); err != nil {
		return nil, err
	}
	if o.command, err = app.Parse(args); err != nil {
		return nil, err
	}
	o.remote.MaxBodyBytes = int(o.maxBody)
	// Before it is asked what the flags are, check fills in what they depend on.
	err = o.check()
	o.api.Flags = make(map[string]string)
	for _, flag := range app.Model().Flags {
		if !flag.Hidden && flag.Name != "help" && flag.Name != "version" {
			o.api.Flags[flag.Name] = flag.Value.String()
		}
	}
	return o, err
}

func (o *options) webFlags(app *kingpin.Application) {
	app.Flag("web.listen-address", "Address to listen on; host:0 takes a free port. Repeatable.").Default(":9201").StringsVar(&o.listen)
	app.Flag("web.config.file", "File that turns on TLS or basic auth, in the format of Prometheus' exporter-toolkit.").StringVar(&o.webConfig)
	app.Flag("shutdown.timeout", "How long a stop waits for requests under way.").Default("30s").DurationVar(&o.shutdownTimeout)
}

func (o *options) storageFlags(app *kingpin.Application) {
	app.Flag("storage.backend", "Where rows are kept: embedded (on the local disk) or bigtable.").
		Default(backendEmbedded).EnumVar(&o.backend, backendEmbedded, backendBigtable)
	flag := func(name, help string) *kingpin.FlagClause {
		o.given[name] = new(bool)
		return app.Flag(name, help).IsSetByUser(o.given[name])
	}
	flag("storage.path", "Directory of the embedded store.").Default("./data").StringVar(&o.path)
	flag("bigtable.project", "Google Cloud project of the Bigtable instance.").StringVar(&o.project)
	flag("bigtable.instance", "Bigtable instance.").StringVar(&o.instance)
	flag("bigtable.app-profile", "App profile, one with single-cluster routing. Unless it is given, the default profile.").StringVar(&o.appProfile)
	flag("bigtable.table-prefix", "Text in front of the names of the tables METRIC, CURRENT, INDEX and META.").StringVar(&o.tablePrefix)
	flag("bigtable.connections", "Connections to Bigtable for rows. 0 is the default of Google's client, 10. An emulator gets one.").Default("0").IntVar(&o.connections)
	flag("bigtable.create-tables", "Create tables and column families that are missing.").Default("true").BoolVar(&o.createTables)
	flag("bigtable.direct-access", "Let Google's client use its direct path, inside Google Cloud. "+
		"Refused by programs that are built with -tags disable_grpc_modules, as the image is.").BoolVar(&o.directAccess)
	flag("bigtable.client-metrics", "Let Google's client send its own metrics to Cloud Monitoring, which needs the right to write them.").BoolVar(&o.clientMetrics)
	app.Flag("schema.resource-label", "Label whose value stands at the end of the row key. Repeatable. Chosen once, before the first start.").
		StringsVar(&o.resourceLabels)
}

func (o *options) bufferFlags(app *kingpin.Application) {
	o.given["buffer.enabled"] = new(bool)
	app.Flag("buffer.enabled", "Keep new samples in a log and in memory, and write them as chunks later; each series then belongs to one adapter. "+
		"Unless it is given, off with Bigtable.").
		Default("true").IsSetByUser(o.given["buffer.enabled"]).BoolVar(&o.buffered)
	app.Flag("buffer.path", "Directory of the log. Unless it is given, buffer in the directory of the embedded store, or ./buffer with Bigtable.").StringVar(&o.bufferPath)
	app.Flag("buffer.fsync", "When the log is made durable: always, before each answer, or at an interval such as 1s. "+
		"With an interval the loss of power may cost what was acknowledged since then; the death of the process costs nothing.").
		Default("always").StringVar(&o.bufferFsync)
	app.Flag("buffer.discard-lost-log", "ID of a log that the store waits for and that is lost: start without the samples in it.").StringVar(&o.discardLog)
	size := func(value *byteSize, name, help string) {
		o.given[name], value.flag = new(bool), name
		app.Flag(name, help).Default(embeddedBufferBytes.String()).IsSetByUser(o.given[name]).SetValue(value)
	}
	size(&o.bufferLog, "buffer.max-log", fmt.Sprintf("How large the log may become; beyond, chunks are written early. With Bigtable %s unless it is given.", bigtableMaxLog))
	size(&o.bufferMemory, "buffer.max-memory", fmt.Sprintf("Bytes of samples that may be in memory; beyond, chunks are written early. "+
		"The process needs some three times that. With Bigtable %s unless it is given.", bigtableMaxMemory))
}

// A byteSize is a flag such as 4GiB.
type byteSize struct {
	units.Base2Bytes
	flag string
}

// Set implements kingpin.Value.
func (s *byteSize) Set(text string) (err error) {
	s.Base2Bytes, err = units.ParseBase2Bytes(text)
	if err != nil || s.Base2Bytes < 0 { // also what is too much for 64 bits
		return errors.New("give a size such as 4GiB")
	}
	return nil
}

// The limits of the buffer. An embedded store does not mind chunks that are written
// early. With Bigtable each costs a row mutation, and so the limits are what a
// million series at 15 s need for chunks of whole windows, which TestMillionSeries
// shows: of two windows, as what is open of one is written over the next, 1,118
// samples a series in the log, at 8.6 bytes with the keys, and half of them, at up to
// 3, in memory.
const (
	embeddedBufferBytes = 512 * units.MiB
	bigtableMaxLog      = 12 * units.GiB
	bigtableMaxMemory   = 2 * units.GiB
	// leastBufferBytes is the least that can be meant.
	leastBufferBytes = 8 * units.MiB
)

// checkBufferSizes fills in what the backend decides about the limits, and checks
// them.
func (o *options) checkBufferSizes() error {
	for _, limit := range []struct {
		size       *byteSize
		onBigtable units.Base2Bytes
	}{
		{&o.bufferLog, bigtableMaxLog},
		{&o.bufferMemory, bigtableMaxMemory},
	} {
		size := limit.size
		if !*o.given[size.flag] && o.backend == backendBigtable {
			size.Base2Bytes = limit.onBigtable
		}
		if size.Base2Bytes < leastBufferBytes {
			return fmt.Errorf("--%s=%s is too little: give it %s or more, or leave it out for the default", size.flag, size, leastBufferBytes)
		}
	}
	return nil
}

// bufferedCurrentInterval is how often the newest samples go to CURRENT with the
// buffer.
const bufferedCurrentInterval = 15 * time.Minute

// checkBuffer fills in what the backend decides about the buffer.
func (o *options) checkBuffer() error {
	if !*o.given["buffer.enabled"] {
		o.buffered = o.backend == backendEmbedded
	}
	if o.buffered && !*o.given["current.flush-interval"] {
		o.engine.CurrentInterval = bufferedCurrentInterval
	}
	if o.bufferPath == "" {
		o.bufferPath = "buffer"
		if o.backend == backendEmbedded {
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

func (o *options) limitFlags(app *kingpin.Application) {
	limits := &o.engine.Limits
	app.Flag("write.max-future", "Refuse samples further ahead of the clock. 0 is no bound.").Default("10m").DurationVar(&o.engine.MaxFuture)
	app.Flag("write.timeout", "How long one remote write may take. Prometheus gives up after 30s.").Default("25s").DurationVar(&o.remote.WriteTimeout)
	app.Flag("write.max-concurrent", "Remote writes under way at once; others wait.").Default("64").IntVar(&o.remote.MaxConcurrentWrites)
	app.Flag("write.max-body-bytes", "Largest body of a request, compressed or not.").Default("32MiB").BytesVar(&o.maxBody)
	app.Flag("read.max-series", "Series that one selector may match. 0 is no bound.").Default("500000").IntVar(&limits.MaxSeries)
	app.Flag("read.max-samples", "Samples that one selector may read. 0 is no bound.").Default("50000000").IntVar(&limits.MaxSamples)
	app.Flag("read.max-frame-bytes", "Bytes that one series may take in an answer; chunked_read_limit of Prometheus. 0 is no bound.").
		Default("50000000").IntVar(&o.remote.MaxFrameBytes)
	app.Flag("read.max-concurrent", "Remote reads, federations and explanations under way at once; others wait.").Default("20").IntVar(&o.remote.MaxConcurrentReads)
	app.Flag("read.timeout", "How long one read may take.").Default("2m").DurationVar(&o.remote.ReadTimeout)
	app.Flag("current.lookback", "Age of the newest sample at which /federate leaves a series out.").Default("5m").DurationVar(&o.remote.CurrentLookback)
	o.given["current.flush-interval"] = new(bool)
	app.Flag("current.flush-interval", "How often the newest samples are written to CURRENT. With the buffer, which knows them after a restart, 15m unless it is given.").
		Default("1m").IsSetByUser(o.given["current.flush-interval"]).DurationVar(&o.engine.CurrentInterval)
}

func (o *options) queryFlags(app *kingpin.Application) {
	app.Flag("query.timeout", "How long one PromQL query, or another request to the HTTP API, may take.").Default("2m").DurationVar(&o.api.Timeout)
	app.Flag("query.max-samples", "Samples that one PromQL query may hold in memory at once.").Default("50000000").IntVar(&o.api.MaxSamples)
	app.Flag("query.max-concurrency", "PromQL queries under way at once; others wait.").Default("20").IntVar(&o.api.MaxConcurrent)
	app.Flag("query.lookback-delta", "Age up to which the newest sample of a series counts as its value.").Default("5m").DurationVar(&o.api.Lookback)
	app.Flag("query.default-evaluation-interval", "Step of a subquery that names none; evaluation_interval of Prometheus.").Default("1m").DurationVar(&o.api.EvaluationInterval)
}

func (o *options) haFlags(app *kingpin.Application) {
	ha := &o.engine.HA
	app.Flag("ha.cluster-label", "Label that replicas of one Prometheus share. Of each cluster one replica is stored. Without this flag all of them are.").StringVar(&ha.ClusterLabel)
	app.Flag("ha.replica-label", "Label in which the replicas of a cluster differ. It is not stored, and matchers on it are ignored.").StringVar(&ha.ReplicaLabel)
	o.given["ha.failover"] = new(bool)
	app.Flag("ha.failover", "How long the elected replica may be silent until another one takes over: at least twice the time between its requests.").
		Default("30s").IsSetByUser(o.given["ha.failover"]).DurationVar(&ha.Failover)
}

// check refuses flags that make no sense, or do not go together, and says what
// to change.
func (o *options) check() error {
	if err := o.checkNumbers(); err != nil {
		return err
	}
	if err := o.checkBuffer(); err != nil {
		return err
	}
	if err := o.checkSeal(); err != nil {
		return err
	}
	if err := o.engine.HA.Validate(); err != nil {
		return err
	}
	if *o.given["ha.failover"] && o.engine.HA.ClusterLabel == "" {
		return errors.New("--ha.failover needs --ha.cluster-label and --ha.replica-label")
	}
	if o.backend == backendEmbedded {
		for _, name := range []string{
			"bigtable.project", "bigtable.instance", "bigtable.app-profile",
			"bigtable.table-prefix", "bigtable.connections", "bigtable.create-tables",
			"bigtable.direct-access", "bigtable.client-metrics",
		} {
			if *o.given[name] {
				return fmt.Errorf("--%s is for Bigtable: add --storage.backend=bigtable, or leave it out", name)
			}
		}
		return nil
	}
	switch {
	case *o.given["storage.path"]:
		return errors.New("--storage.path is for the embedded store: leave it out, or use --storage.backend=embedded")
	case o.project == "":
		return errors.New("--storage.backend=bigtable needs --bigtable.project=PROJECT; with an emulator any name will do")
	case o.instance == "":
		return errors.New("--storage.backend=bigtable needs --bigtable.instance=INSTANCE; with an emulator any name will do")
	case o.directAccess && !bigtable.DirectAccessBuilt:
		return errors.New("--bigtable.direct-access is not in this program: it was built with -tags disable_grpc_modules, as the image is; build it without the tag, or leave the flag out")
	}
	return nil
}

// checkNumbers refuses numbers that cannot be meant.
func (o *options) checkNumbers() error {
	limits := o.engine.Limits
	for _, flag := range []struct {
		name  string
		value int64
		least int64
	}{
		{"shutdown.timeout", int64(o.shutdownTimeout), 1},
		{"bigtable.connections", int64(o.connections), 0},
		{"write.max-future", int64(o.engine.MaxFuture), 0},
		{"write.timeout", int64(o.remote.WriteTimeout), 1},
		{"write.max-concurrent", int64(o.remote.MaxConcurrentWrites), 1},
		{"write.max-body-bytes", int64(o.maxBody), 1},
		{"read.max-series", int64(limits.MaxSeries), 0},
		{"read.max-samples", int64(limits.MaxSamples), 0},
		{"read.max-frame-bytes", int64(o.remote.MaxFrameBytes), 0},
		{"read.max-concurrent", int64(o.remote.MaxConcurrentReads), 1},
		{"read.timeout", int64(o.remote.ReadTimeout), 1},
		{"query.timeout", int64(o.api.Timeout), 1},
		{"query.max-samples", int64(o.api.MaxSamples), 1},
		{"query.max-concurrency", int64(o.api.MaxConcurrent), 1},
		{"query.lookback-delta", int64(o.api.Lookback), 1},
		{"query.default-evaluation-interval", int64(o.api.EvaluationInterval), 1},
		{"current.lookback", int64(o.remote.CurrentLookback), 1},
		{"current.flush-interval", int64(o.engine.CurrentInterval), 1},
		{"ha.failover", int64(o.engine.HA.Failover), 1},
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

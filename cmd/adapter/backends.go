package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/remote/api"
)

// A backend is a kind of store that --storage.backend names. What else the adapter does
// differently depends on the traits alone.
type backend struct {
	name   string
	traits bucketstore.Traits
	flags  func(o *options, app *kingpin.Application)
	// check checks the flags of the backend, after all others.
	check func(o *options) error
	// location says where the store is, for messages.
	location func(o *options) string
	// open opens the store. Its error is a bucketstore.ErrUnreachable if a later try may succeed.
	open func(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer) (bucketstore.Store, error)
	// status adds what the page shows of the backend.
	status func(o *options, s *api.Status)
	// nodeSeconds estimates the work of a query on the servers of the store. It is nil without servers.
	nodeSeconds func(rows, indexRows, bytes int64) float64

	// isBuffered is the default of --buffer.enabled, maxLog and maxMemory are those of its limits.
	isBuffered        bool
	maxLog, maxMemory units.Base2Bytes
	// sealSpread is the time after a window over which a buffer writes the chunks of it. 0 is a whole window.
	sealSpread time.Duration
}

// The names of the backends.
const (
	backendEmbedded = "embedded"
	backendBigtable = "bigtable"
)

// backends returns all backends. The first is the default.
func backends() []backend {
	return []backend{
		{
			name:       backendEmbedded,
			traits:     (*pebble.Store)(nil).Traits(),
			flags:      (*options).embeddedFlags,
			check:      func(*options) error { return nil },
			location:   (*options).embeddedLocation,
			open:       openEmbedded,
			status:     func(o *options, s *api.Status) { s.DirectoryFormat, s.Location = pebble.Format, o.path },
			isBuffered: true,
			maxLog:     embeddedBufferBytes,
			maxMemory:  embeddedBufferBytes,
			// An embedded store can take the load, and needs less memory with a short time.
			sealSpread: 15 * time.Minute,
		},
		{
			name:     backendBigtable,
			traits:   (*bigtable.Store)(nil).Traits(),
			flags:    (*options).bigtableFlags,
			check:    (*options).checkBigtable,
			location: (*options).bigtableLocation,
			open:     openBigtable,
			status: func(o *options, s *api.Status) {
				s.Wanted, s.Location = o.tables(), o.project+"/"+o.instance
			},
			nodeSeconds: bigtable.NodeSeconds,
			maxLog:      bigtableMaxLog,
			maxMemory:   bigtableMaxMemory,
			// Bigtable is paid for its peak load, so chunks are written over the whole window.
		},
	}
}

// kind returns the chosen backend.
func (o *options) kind() backend {
	for _, b := range backends() {
		if b.name == o.backend {
			return b
		}
	}
	return backends()[0] // not parsed yet
}

// traits returns those of the chosen backend.
func (o *options) traits() bucketstore.Traits { return o.kind().traits }

// location says where the store is, for messages.
func (o *options) location() string { return o.kind().location(o) }

func (o *options) embeddedFlags(app *kingpin.Application) {
	app.Flag("storage.path", "Directory of the embedded store.").Default("./data").StringVar(&o.path)
	o.minFree.flag = "storage.min-free-space"
	app.Flag(o.minFree.flag, "Refuse writes while the file system of the embedded store, or of the buffer's log, has less free space; reads go on. At most 5% of the file system. 0 is never.").
		Default(units.GiB.String()).SetValue(&o.minFree)
}

func (o *options) embeddedLocation() string {
	path, err := filepath.Abs(o.path)
	if err != nil {
		path = o.path
	}
	return "--storage.path=" + path
}

func openEmbedded(_ context.Context, o *options, logger log.Logger, reg prometheus.Registerer) (bucketstore.Store, error) {
	if err := snapshot.CheckRestored(o.path); err != nil {
		return nil, err
	}
	return pebble.Open(pebble.Config{
		Dir: o.path, Existing: o.existing, ReadOnly: o.readOnly, Tables: o.tables(), Now: time.Now, Logger: logger, Registerer: reg,
		MinFree: uint64(o.minFree.Base2Bytes),
	})
}

func (o *options) bigtableFlags(app *kingpin.Application) {
	app.Flag("bigtable.project", "Google Cloud project of the Bigtable instance.").StringVar(&o.project)
	app.Flag("bigtable.instance", "Bigtable instance.").StringVar(&o.instance)
	app.Flag("bigtable.app-profile", "App profile with single-cluster routing. Default: the default profile of the instance.").StringVar(&o.appProfile)
	app.Flag("bigtable.seal-app-profile", "App profile of sealing, with the same cluster and a low priority. Default: that of --bigtable.app-profile.").StringVar(&o.sealAppProfile)
	app.Flag("bigtable.table-prefix", "Prefix of the table names METRIC, CURRENT, INDEX and META.").StringVar(&o.tablePrefix)
	app.Flag("bigtable.connections", "Connections to Bigtable at the start; Google's client adapts the number. 0 is its default, 10. An emulator gets one.").Default("0").IntVar(&o.connections)
	app.Flag("bigtable.create-tables", "Create missing tables and column families.").Default("true").BoolVar(&o.createTables)
	app.Flag("bigtable.direct-access", "Let Google's client use its direct path, inside Google Cloud. "+
		"Refused by programs that are built with -tags disable_grpc_modules, as the image is.").BoolVar(&o.directAccess)
	app.Flag("bigtable.client-metrics", "Let Google's client send its own metrics to Cloud Monitoring, which needs the right to write them.").BoolVar(&o.clientMetrics)
}

func (o *options) checkBigtable() error {
	switch {
	case o.project == "":
		return errors.New("--storage.backend=bigtable needs --bigtable.project=PROJECT; with an emulator any name will do")
	case o.instance == "":
		return errors.New("--storage.backend=bigtable needs --bigtable.instance=INSTANCE; with an emulator any name will do")
	case o.directAccess && !bigtable.DirectAccessBuilt:
		return errors.New("--bigtable.direct-access is not in this program: it was built with -tags disable_grpc_modules, as the image is; build it without the tag, or leave the flag out")
	}
	return nil
}

func (o *options) bigtableLocation() string {
	return fmt.Sprintf("--bigtable.project=%s --bigtable.instance=%s --bigtable.table-prefix=%s", o.project, o.instance, o.tablePrefix)
}

// openBigtable opens the store on Bigtable, once.
func openBigtable(ctx context.Context, o *options, logger log.Logger, reg prometheus.Registerer) (bucketstore.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, o.storeTimeout)
	defer cancel()
	cfg := bigtableConfig(o)
	cfg.Logger, cfg.Registerer = logger, reg
	store, err := bigtable.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return store, nil
}

// bigtableConfig returns the configuration of the store on Bigtable from flags.
func bigtableConfig(o *options) bigtable.Config {
	return bigtable.Config{
		Project:       o.project,
		Instance:      o.instance,
		AppProfile:    o.appProfile,
		TablePrefix:   o.tablePrefix,
		Connections:   o.connections,
		CreateTables:  o.createTables,
		DirectAccess:  o.directAccess,
		ClientMetrics: o.clientMetrics,
		UserAgent:     "promtable/" + version.Version,
		Tables:        o.tables(),
		ReachTimeout:  o.reachTimeout,
	}
}

// Package engine stores and finds samples: it wires the index, the store and the
// packages beneath it into one Engine, without HTTP. Handlers, subcommands
// and the adapter's own metrics all go through it.
//
//	New, Close        build the parts, start and stop them            engine.go, index.go
//	Append            deduplicate, validate, index, store             append.go, accept.go, histogram.go, exemplars.go
//	                  what the store refuses                          refused.go
//	Lookup            the series cache, and what it has of a series   cached.go, indexed.go
//	Select, Current   what the packages beneath read                  read.go
//	Delete            samples, and what that needs of the index         delete.go
//	History           chunks of earlier times                           history.go
//	Querier           and other interfaces of package storage         storage.go
//	Check             everything stored, and the index against it      check.go
//
// The packages beneath depend neither on the engine nor on each other:
//
//	seriescache   wire text of a sender -> series
//	current       the latest sample of each series, in CURRENT
//	ha            which replica of a cluster is stored
//	metadata      of metric families, in META
//	reader        from a selector to chunks
package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/ha"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
)

// Config says what an Engine is made of. Store, Appender and Now are required.
type Config struct {
	Store    bucketstore.Store
	Appender bucketstore.Appender
	Schema   series.Schema
	// Now is the clock.
	Now func() time.Time
	// LastTime is a time that this clock, or that of another adapter on the store, has
	// reached before the start, as far as that is known. Behind it the clock is taken to be
	// set back.
	LastTime time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Admit, if set, is asked before anything is stored. Its error refuses the whole
	// batch, and the sender should send it again.
	Admit func() error
	// WriteLimits, if set, are those of the senders: a *limits.Tenant.
	WriteLimits WriteLimits

	// MaxFuture is how far ahead of the clock a sample may lie. 0 is 10 minutes.
	// Unbounded is as far as series.MaxTime, whatever the clock says.
	MaxFuture time.Duration
	// Timeline says what is shown, taken and rolled up. Nil is that all samples are kept, and no rollups made.
	Timeline timeline.Func
	Limits   reader.Limits

	// BatchBytes bounds what a query reads at once, in bytes. It holds two such batches, of up to twice as much. 0 is 8 MiB,
	// which is the most.
	BatchBytes int

	// WrittenSeries is how many series the index remembers as written. 0 is 2,000,000.
	WrittenSeries int
	// IndexMemory is how many bytes of the index are kept in memory. 0 is 1 GiB.
	IndexMemory int
	// IndexRefresh is how old a part of the index in memory may be if other processes
	// write: after that time their new series are found. 0 is that nothing is kept.
	IndexRefresh time.Duration

	// CachedSeries is how many series are kept to find them by the bytes in which senders
	// write their labels, where SeriesCache does not say it. Of as many series the current
	// sample is kept until it is in CURRENT. For others CURRENT lags until a later sample finds
	// room. The samples themselves are stored all the same. 0 is 2,000,000.
	CachedSeries int

	// HA stores the samples of one replica of each cluster. The engine sets its
	// Store, Schema, Now, Logger and Registerer.
	HA ha.Config

	// CurrentInterval is how often current samples go to CURRENT. 0 is a
	// minute.
	CurrentInterval time.Duration
	// Written, if set, is called with samples when Append has stored them, or some of them, before
	// it returns. Reads find them by then. It must not keep them.
	Written func([]bucketstore.Sample)
	// Deletions, if set, are the samples that are deleted: a *deletion.Records.
	Deletions Deletions
	// Days, if set, are the days of which samples are taken, for History: a *downsample.Days.
	Days Days
	// Fleet is what connects the index to those of other adapters.
	Fleet Fleet
	// WrittenBetween, if set, is called when a batch of history is stored, or some of it, and reads may find it, before that is said to
	// be done: it has samples at some of the times from mint to maxt, in milliseconds, inclusive.
	WrittenBetween func(mint, maxt int64)

	// SeriesCache bounds what is kept of series to find them by the bytes in which
	// senders write their labels.
	SeriesCache seriescache.Config
}

// A Fleet connects an index to those of other adapters on the store. Its functions may be nil. The first two are those of index.Config; Join is
// called with the index of a tenant, which is empty in a store without tenants, and with what returns its rows that are not in CURRENT yet.
type Fleet struct {
	Indexed func(period int64, seriesKey []byte)
	Sync    func(ctx context.Context, limit int64) error
	Told    func() bool
	Join    func(tenant string, x *index.Index, pending func([]series.RowRange) []bucketstore.Row)
}

// Deletions are the deletions that an Engine applies.
type Deletions interface {
	// Begin notes that a write begins. The caller calls end when it has ended.
	Begin() (end func())
	// Pending returns what returns an error if a deletion that is not finished covers samples of a series in [start, limit).
	Pending(ctx context.Context) (func(seriesKey []byte, start, limit int64) error, error)
	// Filter returns store for readers: its Scan leaves out what is deleted.
	Filter(store bucketstore.Store) bucketstore.Store
	// Delete deletes the samples in [start, limit), in milliseconds, of the series that
	// match. On success that is durable, and Scan leaves them out.
	Delete(ctx context.Context, matchers []*labels.Matcher, start, limit int64) error
}

// noDeletions is an adapter without deletions.
type noDeletions struct{}

func (noDeletions) Begin() (end func()) { return func() {} }
func (noDeletions) Pending(context.Context) (func([]byte, int64, int64) error, error) {
	return func([]byte, int64, int64) error { return nil }, nil
}
func (noDeletions) Filter(store bucketstore.Store) bucketstore.Store { return store }
func (noDeletions) Delete(context.Context, []*labels.Matcher, int64, int64) error {
	return errors.New("the engine has no deletions")
}

// defaultCachedSeries and cachedBytes are how many series are cached, and how many bytes each
// may take on average.
const (
	defaultCachedSeries = 2_000_000
	cachedBytes         = 1 << 10
)

// Unbounded is a MaxFuture that allows every time that can be stored.
const Unbounded time.Duration = math.MaxInt64

// WithDefaults returns cfg with a value for each setting of operators that is zero.
func (cfg Config) WithDefaults() Config {
	cfg.MaxFuture = cmp.Or(cfg.MaxFuture, 10*time.Minute)
	cfg.WrittenSeries = cmp.Or(cfg.WrittenSeries, index.DefaultWrittenSeries)
	cfg.CachedSeries = cmp.Or(cfg.CachedSeries, defaultCachedSeries)
	cfg.IndexMemory = cmp.Or(cfg.IndexMemory, index.DefaultMemory)
	cfg.CurrentInterval = cmp.Or(cfg.CurrentInterval, current.DefaultInterval)
	cfg.HA.Failover = cmp.Or(cfg.HA.Failover, ha.DefaultFailover)
	cfg.Limits = cfg.Limits.WithDefaults()
	return cfg
}

// Engine stores and finds samples. It is safe for concurrent use.
type Engine struct {
	cfg Config
	// rows is the store for live writes.
	rows    bucketstore.Store
	index   *index.Index
	current *current.Table
	metrics metrics
	latest  latestBound
	cache   *seriescache.Cache
	// rules are those that the series of cache come from.
	rules atomic.Pointer[ingest.Relabelling]
	// accepted are *accepted to be used again.
	accepted sync.Pool

	// stop ends what runs in the background.
	stop       context.CancelFunc
	background sync.WaitGroup

	metadata *metadata.Store
	// elections is nil if HA is off.
	elections *ha.Elections
	reader    *reader.Reader
}

// New returns an engine and starts its work in the background. The store must hold
// rows of this schema: its META says so, see package meta.
func New(cfg Config) (*Engine, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Admit == nil {
		cfg.Admit = func() error { return nil }
	}
	if cfg.WriteLimits == nil {
		cfg.WriteLimits = noLimits{}
	}
	if cfg.Written == nil {
		cfg.Written = func([]bucketstore.Sample) {}
	}
	if cfg.WrittenBetween == nil {
		cfg.WrittenBetween = func(int64, int64) {}
	}
	if cfg.Deletions == nil {
		cfg.Deletions = noDeletions{}
	}
	if cfg.Timeline == nil {
		cfg.Timeline = timeline.Unbounded
	}
	cfg = cfg.WithDefaults()
	cfg.SeriesCache.MaxSeries = cmp.Or(cfg.SeriesCache.MaxSeries, cfg.CachedSeries)
	cfg.SeriesCache.MaxBytes = cmp.Or(cfg.SeriesCache.MaxBytes, cachedBytes*cfg.CachedSeries)
	if err := cfg.HA.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:     cfg,
		rows:    bucketstore.Isolate(cfg.Store, cfg.Now),
		index:   newIndex(cfg),
		metrics: newMetrics(cfg.Registerer),
		cache:   seriescache.New(cfg.SeriesCache),

		metadata: metadata.New(cfg.Store, cfg.Schema, cfg.Now, cfg.Registerer),
	}
	e.latest.raise(cfg.timeBound(cfg.Timeline(cfg.LastTime)).t)
	e.elections = newElections(cfg)
	shown := cfg.Deletions.Filter(cfg.Store)
	e.reader = reader.New(reader.Config{
		Store:          shown,
		Index:          e.index,
		Schema:         cfg.Schema,
		Registerer:     cfg.Registerer,
		Limits:         cfg.Limits,
		BatchBytes:     cfg.BatchBytes,
		StoredMatchers: e.elections.StoredMatchers,
		Timeline:       cfg.Timeline,
		Now:            cfg.Now,
	})
	e.current = current.New(current.Config{
		Store:      shown,
		Schema:     cfg.Schema,
		Logger:     cfg.Logger,
		Registerer: cfg.Registerer,
		Interval:   cfg.CurrentInterval,
		MaxPending: cfg.CachedSeries,
	})
	if cfg.Fleet.Join != nil {
		cfg.Fleet.Join(cfg.Schema.Tenant(), e.index, e.current.Pending)
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.background.Go(func() { e.runPrewrite(ctx) })
	metricset.New(cfg.Registerer).GaugeFunc("adapter_engine_known_series",
		"Series remembered by the bytes in which senders write their labels, so that those need no decoding.", func() float64 { return float64(e.cache.Len()) })
	return e, nil
}

// newElections returns nil if HA is off in cfg.
func newElections(cfg Config) *ha.Elections {
	h := cfg.HA
	h.Store, h.Schema, h.Now, h.Logger, h.Registerer = cfg.Store, cfg.Schema, cfg.Now, cfg.Logger, cfg.Registerer
	if tenant := cfg.Schema.Tenant(); tenant != "" && h.Registerer != nil { // tenants may have clusters of the same name
		h.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"tenant": tenant}, h.Registerer)
	}
	return ha.New(h)
}

// Schema returns the schema of the keys, which may be that of a tenant.
func (e *Engine) Schema() series.Schema { return e.cfg.Schema }

// Retire stops all that e writes by itself, and flushes the current samples: after it nothing is written but by calls of Append. Reads that
// run go on. It may be called again, and Close after it.
func (e *Engine) Retire(ctx context.Context) error {
	e.stop()
	e.background.Wait()
	return e.current.Close(ctx)
}

// Close stops the work in the background and flushes what is in memory. No
// other call may be running or follow. The store stays open.
func (e *Engine) Close(ctx context.Context) error {
	e.stop()
	e.background.Wait()
	e.reader.Close()
	return errors.Join(e.index.Prewrite(ctx), e.current.Close(ctx))
}

// Package engine is the middle of the adapter, without HTTP: it puts the index
// and the store together. Handlers, subcommands and the adapter's own metrics
// all go through it.
//
//	Append     validate, index, store, remember the newest   append.go, histogram.go, rejected.go
//	Lookup     a series by the bytes that a sender sends     known.go, knowntable.go, knownsymbols.go
//	Select     plan, read rows in batches, encode chunks     select.go, batch.go, scan.go, parts.go, row.go, chunks.go, before.go
//	Current    the newest sample of each series              current.go, newest.go
//	Inventory  the same of everything, in one pass           inventory.go
//	Exemplars  beside the samples of a series                exemplars.go
//	Metadata   of metric families, in META                   metadata.go
//	HA         one of several replicas is stored             ha.go, election.go
//	Explain    which rows a selector reads                   explain.go
//
// [Engine.Querier], [Engine.ChunkQuerier] and [Engine.AppenderV2] are the same
// things as the interfaces of Prometheus know them: storage.go.
package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/ha"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/series"
)

// Config says what an Engine is made of. Store, Appender and Now are required.
type Config struct {
	Store    bucketstore.Store
	Appender bucketstore.Appender
	Schema   series.Schema
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer

	// MaxFuture is how far ahead of the clock a sample may lie. 0 is no bound.
	MaxFuture time.Duration
	Limits    Limits

	// ParallelScans is how many scans of METRIC a query may have under way at a
	// time. They share what the limits allow. 0 is 1: more pays where a scan waits for
	// a network. On the embedded store 2 make large answers a fifth faster if a
	// processor is idle, and all of them take 5% more processor time.
	ParallelScans int
	// ParallelLists is the same for the index, where each scan reads another list. 0
	// is 1: more pays only where a scan waits for a network, as of every list a page is
	// read that the first one to end may have made needless.
	ParallelLists int
	// AtomicApply says that Store carries out all mutations of an Apply together or
	// none, and makes them visible at one instant, as the embedded store does.
	AtomicApply bool

	// HA leaves out what all replicas of a sender but one send. The engine sets its
	// Store, Schema, Now, Logger and Registerer.
	HA ha.Config

	// CurrentInterval is how often the newest samples go to CURRENT. 0 is a
	// minute.
	CurrentInterval time.Duration
	// MaxPending is of how many series the newest sample is kept until it is in
	// CURRENT. 0 is 2,000,000. When so many wait, because CURRENT takes no writes
	// or too few, the newest samples of others are not kept: for those CURRENT
	// lags, and with it Current, until their next sample finds room. The samples
	// themselves are stored all the same.
	MaxPending int

	// SeriesCache bounds what is kept of series to find them by the bytes in which
	// senders write their labels.
	SeriesCache seriescache.Config
}

// Engine stores and finds samples. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	index   *index.Index
	current *current.Table
	metrics metrics
	cache   *seriescache.Cache[SeriesState]
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
	if err := cfg.HA.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:     cfg,
		index:   newIndex(cfg),
		metrics: newMetrics(cfg.Registerer),
		cache:   seriescache.New[SeriesState](cfg.SeriesCache),

		metadata: metadata.New(cfg.Store, cfg.Schema, cfg.Now, cfg.Registerer),
	}
	e.elections = newElections(cfg)
	e.reader = reader.New(reader.Config{
		Store:          cfg.Store,
		Index:          e.index,
		Schema:         cfg.Schema,
		Registerer:     cfg.Registerer,
		Limits:         cfg.Limits,
		ParallelScans:  cfg.ParallelScans,
		StoredMatchers: e.elections.StoredMatchers,
	})
	e.current = current.New(current.Config{
		Store:      cfg.Store,
		Schema:     cfg.Schema,
		Logger:     cfg.Logger,
		Registerer: cfg.Registerer,
		Interval:   cfg.CurrentInterval,
		MaxPending: cfg.MaxPending,
	})
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.background.Go(func() { e.runAhead(ctx) })
	promauto.With(cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_index_known_series",
		Help: "Series and index periods remembered as written to the index.",
	}, func() float64 { return float64(e.index.Known()) })
	promauto.With(cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adapter_engine_known_series",
		Help: "Series remembered by the bytes in which senders write their labels, so that those need no decoding.",
	}, func() float64 { return float64(e.cache.Len()) })
	return e, nil
}

// newElections returns nil if HA is off in cfg.
func newElections(cfg Config) *ha.Elections {
	h := cfg.HA
	h.Store, h.Schema, h.Now, h.Logger, h.Registerer = cfg.Store, cfg.Schema, cfg.Now, cfg.Logger, cfg.Registerer
	return ha.New(h)
}

// Close stops the work in the background and flushes what is in memory. No
// other call may be running or follow. The store stays open.
func (e *Engine) Close(ctx context.Context) error {
	e.stop()
	e.background.Wait()
	e.reader.Close()
	return errors.Join(e.index.WriteAhead(ctx), e.current.Close(ctx))
}

const (
	// aheadInterval is how often series are written to the next index period,
	// which is hours away.
	aheadInterval = time.Minute
	// aheadTimeout bounds that.
	aheadTimeout = 5 * time.Minute
)

// runAhead writes what the index has to write ahead until ctx ends.
func (e *Engine) runAhead(ctx context.Context) {
	ticker := time.NewTicker(aheadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := e.writeAhead(ctx); err != nil && ctx.Err() == nil {
			level.Warn(e.cfg.Logger).Log("msg", "series not written to the next index period, trying again", "err", err)
		}
	}
}

func (e *Engine) writeAhead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	return e.index.WriteAhead(ctx)
}

func newIndex(cfg Config) *index.Index {
	return index.New(index.Config{
		Schema:        cfg.Schema,
		ParallelLists: cfg.ParallelLists,
		AtomicPuts:    cfg.AtomicApply,
	}, newIndexRows(cfg.Store))
}

// indexRows is the INDEX table of a store, as package index wants it.
type indexRows struct {
	store bucketstore.Store
	// spaces are *indexSpace. New series come many at a time, with many rows each.
	spaces *sync.Pool
}

type indexSpace struct {
	muts []bucketstore.Mutation
	ops  []bucketstore.Op
}

func newIndexRows(store bucketstore.Store) indexRows {
	return indexRows{store, &sync.Pool{New: func() any { return new(indexSpace) }}}
}

func (r indexRows) PutRows(ctx context.Context, rows []index.Row) error {
	space := r.spaces.Get().(*indexSpace)
	muts, ops := slices.Grow(space.muts[:0], len(rows)), slices.Grow(space.ops[:0], len(rows))
	qualifier := []byte(series.QualifierIndex)
	for i, row := range rows {
		ops = append(ops, bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyIndex,
			Qualifier: qualifier,
			Time:      row.Time,
			Value:     row.Value,
		})
		muts = append(muts, bucketstore.Mutation{Key: row.Key, Ops: ops[i : i+1 : i+1]})
	}
	err := r.store.Apply(ctx, bucketstore.Index, muts)
	clear(muts)
	clear(ops)
	space.muts, space.ops = muts, ops
	r.spaces.Put(space)
	return err
}

func (r indexRows) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
	req := bucketstore.ScanRequest{
		Table:    bucketstore.Index,
		Rows:     ranges,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyIndex}},
		Limit:    limit,
	}
	return r.store.Scan(ctx, req, func(row bucketstore.Row) error {
		return fn(row.Key, row.Cells[0].Value)
	})
}

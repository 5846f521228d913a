package ha

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/series"
)

// Elections decides for all clusters which replica is stored. It is safe for
// concurrent use.
type Elections struct {
	store        bucketstore.Store
	schema       series.Schema
	now          func() time.Time
	logger       log.Logger
	metrics      metrics
	replicaLabel string
	// failover is in milliseconds.
	failover    int64
	maxClusters int

	mu sync.Mutex
	// clusters are by name.
	clusters map[string]*cluster
}

// cluster is what this adapter caches of one cluster.
type cluster struct {
	name string
	// key is that of its row of META.
	key string
	// deduplicated counts what was left out.
	deduplicated prometheus.Counter
	// lock holds a token while META is read or written. The next holder looks first
	// at what the one before has cached.
	lock chan struct{}

	// cached is nil if the row must be read. It is guarded by Elections.mu.
	cached *row
}

// New returns nil if HA is off in cfg.
func New(cfg Config) *Elections {
	if cfg.ClusterLabel == "" {
		return nil
	}
	if cfg.Failover == 0 {
		cfg.Failover = DefaultFailover
	}
	if cfg.MaxClusters == 0 {
		cfg.MaxClusters = defaultMaxClusters
	}
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	e := &Elections{
		store:        cfg.Store,
		schema:       cfg.Schema,
		now:          cfg.Now,
		logger:       cfg.Logger,
		metrics:      newMetrics(cfg.Registerer),
		replicaLabel: cfg.ReplicaLabel,
		failover:     cfg.Failover.Milliseconds(),
		maxClusters:  cfg.MaxClusters,
		clusters:     make(map[string]*cluster),
	}
	metricset.New(cfg.Registerer).Collect(newElectedReplicas(e))
	return e
}

// cluster returns a cluster from the cache, or adds it.
func (e *Elections) cluster(name string) (*cluster, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.clusters[name]; ok {
		return c, nil
	}
	key, err := e.schema.AppendMetaKey(nil, series.MetaHA, name)
	if err != nil {
		return nil, err
	}
	for other := range e.clusters {
		if len(e.clusters) < e.maxClusters {
			break
		}
		delete(e.clusters, other)
		e.metrics.deduplicated.DeleteLabelValues(other)
	}
	name = strings.Clone(name) // it lies in the labels of a series
	c := &cluster{
		name:         name,
		key:          string(key),
		deduplicated: e.metrics.deduplicated.WithLabelValues(name),
		lock:         make(chan struct{}, 1),
	}
	e.clusters[name] = c
	return c, nil
}

// elected says whether the samples of a replica are to be stored, after an election
// or a heartbeat if it takes one. Calls for the same cluster share the requests to
// META.
func (e *Elections) elected(ctx context.Context, c *cluster, replica string) (bool, error) {
	if r := e.cachedRow(c); r != nil {
		if a := e.action(r, replica); a != write {
			return a == store, nil
		}
	}
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		e.metrics.failures.Inc()
		return false, fmt.Errorf("wait for the election in cluster %q: %w", c.name, ctx.Err())
	}
	elected, err := e.elect(ctx, c, replica)
	if err != nil {
		e.metrics.failures.Inc()
		return false, fmt.Errorf("election in cluster %q: %w", c.name, err)
	}
	return elected, nil
}

// cachedRow returns the row of c, or nil if it must be read.
func (e *Elections) cachedRow(c *cluster) *row {
	now := e.now().UnixMilli()
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := c.cached; r != nil && r.at <= now && now < r.at+e.failover/6 {
		return r
	}
	return nil
}

// cacheRow makes r, which may be nil, the cached row of c.
func (e *Elections) cacheRow(c *cluster, r *row) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.cached = r
}

// recent returns the elections that were read or written within the fail-over
// time. Others may have changed since.
func (e *Elections) recent() map[string]election {
	now := e.now().UnixMilli()
	e.mu.Lock()
	defer e.mu.Unlock()
	recent := make(map[string]election, len(e.clusters))
	for name, c := range e.clusters {
		if r := c.cached; r != nil && r.cell.Value != nil && now-r.at <= e.failover {
			recent[name] = r.election
		}
	}
	return recent
}

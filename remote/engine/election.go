package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// An election is the row of META that says which replica of a cluster is
// elected, as JSON. Times are milliseconds by the clock of the adapter that
// wrote it. Every write is conditional on what was read, so that of several
// adapters that write at once one wins, and the others read again.
//
// With F for the fail-over time, an adapter that gets samples of
//
//   - the elected replica keeps them, and first renews the heartbeat if it is
//     F/3 or further from the adapter's clock, either way;
//   - another replica leaves them out, unless the heartbeat is further than F
//     from the clock. Then it elects that replica.
//
// It knows a row for F/6, and then reads it again. A sample is kept only under
// a heartbeat less than F/3 old, and another replica is elected only over one
// more than F old. It follows, if the clocks of the adapters differ by s:
//
//   - fail-over is between 2F/3 - s and F + s after the last sample of the
//     elected replica, at the next sample of another;
//   - while s < 2F/3 there are never two replicas whose samples are kept;
//   - a replica that pauses no longer than 2F/3 - s keeps its election.
//
// Where s is larger the replicas take turns: samples may be stored twice, or
// neither for a while, but a clock that is wrong cannot keep a dead replica
// elected, since a heartbeat from the future is as bad as an old one.
type election struct {
	Replica   string `json:"replica"`
	Elected   int64  `json:"elected"`
	Heartbeat int64  `json:"heartbeat"`
}

// seen is what was read of a row, or written to it.
type seen struct {
	election
	// value is the cell, nil if there is none; written is its time. at is by our
	// clock when it was asked for.
	value       []byte
	written, at int64
}

// cluster is what an adapter knows of one cluster.
type cluster struct {
	id  clusterName
	key []byte
	// deduplicated counts what was left out.
	deduplicated prometheus.Counter
	// asking holds a token while META is asked. Who waits for it looks first at
	// what the one before has learnt.
	asking chan struct{}

	// known is nil if the row must be read. It is guarded by elections.mu.
	known *seen
}

// clusterName is a cluster of a tenant.
type clusterName struct{ tenant, name string }

// maxClusters is how many clusters are remembered. One more and another is
// forgotten, with its metrics; when it sends again its row is read.
const maxClusters = 10_000

// elections decides for all clusters. It is safe for concurrent use.
type elections struct {
	store   bucketstore.Store
	schema  series.Schema
	now     func() time.Time
	logger  log.Logger
	metrics haMetrics
	// failover is in milliseconds.
	failover int64

	mu       sync.Mutex
	clusters map[clusterName]*cluster
	// limit is maxClusters, but for tests.
	limit int
}

func newElections(cfg Config, failover time.Duration, m haMetrics) *elections {
	return &elections{
		store:    cfg.Store,
		schema:   cfg.Schema,
		now:      cfg.Now,
		logger:   cfg.Logger,
		metrics:  m,
		failover: failover.Milliseconds(),
		clusters: make(map[clusterName]*cluster),
		limit:    maxClusters,
	}
}

// cluster returns what is known of a cluster.
func (e *elections) cluster(tenant, name string) (*cluster, error) {
	id := clusterName{tenant, name}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.clusters[id]; ok {
		return c, nil
	}
	key, err := e.schema.AppendMetaKey(nil, tenant, series.MetaHA, name)
	if err != nil {
		return nil, err
	}
	for other, c := range e.clusters {
		if len(e.clusters) < e.limit {
			break
		}
		delete(e.clusters, other)
		e.metrics.deduplicated.DeleteLabelValues(c.id.name)
	}
	id.name = strings.Clone(name) // it lies in the labels of a series
	c := &cluster{
		id:           id,
		key:          key,
		deduplicated: e.metrics.deduplicated.WithLabelValues(id.name),
		asking:       make(chan struct{}, 1),
	}
	e.clusters[id] = c
	return c, nil
}

// elected says whether the samples of a replica are to be kept, after an
// election or a heartbeat if it takes one. Calls for the same cluster share the
// requests to META. After an error nobody may rely on anything.
func (e *elections) elected(ctx context.Context, c *cluster, replica string) (bool, error) {
	if s := e.recall(c); s != nil {
		if r := e.rule(s, replica); r.isFinal() {
			return r == rulingKeep, nil
		}
	}
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		e.metrics.failures.Inc()
		return false, fmt.Errorf("wait for the election in cluster %q: %w", c.id.name, ctx.Err())
	}
	elected, err := e.ask(ctx, c, replica)
	if err != nil {
		e.metrics.failures.Inc()
		return false, fmt.Errorf("election in cluster %q: %w", c.id.name, err)
	}
	return elected, nil
}

// maxRounds is how often ask begins anew because another adapter was faster:
// once is enough, unless clocks differ or rows vanish.
const maxRounds = 5

// ask finds out with the help of META whether a replica is elected. The caller
// holds the token of c.
func (e *elections) ask(ctx context.Context, c *cluster, replica string) (bool, error) {
	for range maxRounds {
		s := e.recall(c)
		if s == nil {
			var err error
			if s, err = e.read(ctx, c); err != nil {
				return false, err
			}
			e.learn(c, s)
		}
		r := e.rule(s, replica)
		if r.isFinal() {
			return r == rulingKeep, nil
		}
		won, err := e.write(ctx, c, s, replica)
		if err != nil || won {
			return won, err
		}
	}
	return false, fmt.Errorf("other adapters have changed row %q of META %d times", c.key, maxRounds)
}

// ruling is what to do with the samples of a replica.
type ruling uint8

const (
	rulingKeep ruling = iota
	rulingLeaveOut
	// rulingWrite means to keep them once the row says that the replica is
	// elected, as of now.
	rulingWrite
)

// isFinal says whether nothing needs to be written.
func (r ruling) isFinal() bool { return r != rulingWrite }

// rule says what to do with the samples of a replica that come now.
func (e *elections) rule(s *seen, replica string) ruling {
	age := e.now().UnixMilli() - s.Heartbeat
	age = max(age, -age)
	switch {
	case s.value == nil:
		return rulingWrite
	case s.Replica == replica && age < e.failover/3:
		return rulingKeep
	case s.Replica != replica && age <= e.failover:
		return rulingLeaveOut
	}
	return rulingWrite
}

// recall returns what is known of the row of c, or nil if it must be read.
func (e *elections) recall(c *cluster) *seen {
	now := e.now().UnixMilli()
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := c.known; s != nil && s.at <= now && now < s.at+e.failover/6 {
		return s
	}
	return nil
}

// learn remembers s, which may be nil.
func (e *elections) learn(c *cluster, s *seen) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.known = s
}

// shown returns the elections that were seen within the fail-over time. Who was
// elected in others may not be any more.
func (e *elections) shown() map[clusterName]election {
	now := e.now().UnixMilli()
	e.mu.Lock()
	defer e.mu.Unlock()
	shown := make(map[clusterName]election, len(e.clusters))
	for id, c := range e.clusters {
		if s := c.known; s != nil && s.value != nil && now-s.at <= e.failover {
			shown[id] = s.election
		}
	}
	return shown
}

// read reads the row of c.
func (e *elections) read(ctx context.Context, c *cluster) (*seen, error) {
	s := &seen{at: e.now().UnixMilli()}
	err := e.store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow(c.key)},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		s.value, s.written = bytes.Clone(row.Cells[0].Value), row.Cells[0].Time
		if err := json.Unmarshal(s.value, &s.election); err != nil {
			return fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, row.Key, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read META: %w", err)
	}
	return s, nil
}

// write makes the row say that a replica is elected, if it is still as old says,
// and returns whether it was.
func (e *elections) write(ctx context.Context, c *cluster, old *seen, replica string) (bool, error) {
	now := e.now().UnixMilli()
	next := &seen{election: election{Replica: replica, Elected: now, Heartbeat: now}, at: now}
	if replica == old.Replica {
		next.Elected = old.Elected
	}
	// An older cell would not be seen, should the clock of who wrote it be ahead.
	next.written = max(now, old.written)
	var err error
	if next.value, err = json.Marshal(next.election); err != nil {
		return false, err
	}
	qualifier := []byte(series.QualifierMeta)
	won, err := e.store.CheckAndApply(ctx, bucketstore.Meta,
		bucketstore.Condition{Family: series.FamilyMeta, Qualifier: qualifier, Value: old.value, Absent: old.value == nil},
		bucketstore.Mutation{Key: c.key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: qualifier, Time: next.written, Value: next.value,
		}}})
	if err != nil || !won {
		e.learn(c, nil)
		return false, err
	}
	e.learn(c, next)
	if replica != old.Replica {
		e.metrics.elections.Inc()
		level.Info(e.logger).Log("msg", "replica elected", "cluster", c.id.name, "replica", replica, "before", old.Replica)
	}
	return true, nil
}

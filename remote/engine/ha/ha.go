// Package ha elects one replica of each cluster of senders that all send the same
// series, so that only its samples are stored.
//
//	Config       which labels name cluster and replica            ha.go
//	Elections    the elections of all clusters, cached            elections.go
//	election     the row of META, and when it is written          election.go
package ha

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Config says whether there are clusters of replicas, and how one is elected. The
// labels of the zero value are empty: HA is off. Store and Now are required if it is
// on.
type Config struct {
	// ClusterLabel is the label that says which cluster a series comes from. A
	// series without it, or without the replica label, is stored in any case.
	ClusterLabel string
	// ReplicaLabel is the label in which the replicas of a cluster differ. It is not
	// stored, and matchers on it are ignored.
	ReplicaLabel string
	// Failover is how old the heartbeat of the elected replica may grow until
	// another one that sends takes over. 0 is 30 s, less than a second is refused.
	// It should be at least twice the time between two requests of one sender.
	Failover time.Duration
	// MaxClusters is how many clusters are cached. 0 is 10,000. One more, and another
	// leaves the cache with its metrics; the next sample of that one reads its row
	// again.
	MaxClusters int

	Store  bucketstore.Store
	Schema series.Schema
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
}

const (
	// DefaultFailover is six times as long as Prometheus waits until it sends what
	// it has.
	DefaultFailover    = 30 * time.Second
	defaultMaxClusters = 10_000
)

// MaxName bounds the names of clusters and of replicas, in bytes: both stand in
// META, and a replica in the condition of a write.
const MaxName = 256

// Validate returns an error, which names the flag to change, unless c makes
// sense.
func (c Config) Validate() error {
	switch {
	case c.ClusterLabel == "" && c.ReplicaLabel == "":
		return nil
	case c.ClusterLabel == "":
		return fmt.Errorf("--ha.replica-label=%s needs --ha.cluster-label", c.ReplicaLabel)
	case c.ReplicaLabel == "":
		return fmt.Errorf("--ha.cluster-label=%s needs --ha.replica-label", c.ClusterLabel)
	case c.ClusterLabel == c.ReplicaLabel:
		return fmt.Errorf("--ha.cluster-label and --ha.replica-label are both %s: they must be two labels", c.ClusterLabel)
	case c.ReplicaLabel == labels.MetricName:
		return fmt.Errorf("--ha.replica-label=%s would leave series without a name", c.ReplicaLabel)
	case c.Failover != 0 && c.Failover < time.Second:
		return fmt.Errorf("--ha.failover=%s is less than a second", c.Failover)
	}
	return nil
}

// Verdict says whether a replica of a cluster is elected. The zero value is no
// verdict.
type Verdict struct {
	Elected bool
	cluster *cluster
	replica string
}

// CountDeduplicated counts n samples, histograms and exemplars that are not stored
// because of v.
func (v Verdict) CountDeduplicated(n int) { v.cluster.deduplicated.Add(float64(n)) }

// Elect says whether a replica is elected, after an election or a heartbeat if it
// takes one. The clock decides, not the times of samples. last is the verdict before
// in the same request, where mostly all series come from one replica. An error says
// that META could not be read or written: then no sample may be acknowledged.
func (e *Elections) Elect(ctx context.Context, clusterName, replica string, last Verdict) (Verdict, error) {
	if last.cluster != nil && last.cluster.name == clusterName && last.replica == replica {
		return last, nil
	}
	c, err := e.cluster(clusterName)
	if err != nil {
		return Verdict{}, err
	}
	elected, err := e.elected(ctx, c, replica)
	return Verdict{elected, c, replica}, err
}

// StoredMatchers returns ms without the matchers on the replica label, which is
// not stored. ms stays as it is. A nil e leaves out none.
func (e *Elections) StoredMatchers(ms []*labels.Matcher) []*labels.Matcher {
	if e == nil {
		return ms
	}
	isReplica := func(m *labels.Matcher) bool { return m.Name == e.replicaLabel }
	if !slices.ContainsFunc(ms, isReplica) {
		return ms
	}
	return slices.DeleteFunc(slices.Clone(ms), isReplica)
}

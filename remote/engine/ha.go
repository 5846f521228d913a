package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/model/labels"
)

// HA is for clusters of senders that all send the same series: of each cluster
// one replica is elected, and only what it sends is stored, without the replica
// label. Matchers on that label are left out of what is asked. The zero value is
// off. See election for how one is elected.
type HA struct {
	// ClusterLabel is the label that says which cluster a series comes from. A
	// series without it, or without the replica label, is stored in any case.
	ClusterLabel string
	// ReplicaLabel is the label in which the replicas of a cluster differ.
	ReplicaLabel string
	// Failover is how old the heartbeat of the elected replica may grow until
	// another one that sends takes over. 0 is 30 s, less than a second is refused.
	// It should be at least twice the time between two requests of one sender.
	Failover time.Duration
}

// defaultFailover is six times as long as Prometheus waits until it sends what
// it has.
const defaultFailover = 30 * time.Second

// maxHAName bounds the names of clusters and of replicas, in bytes: both stand
// in META, and a replica in the condition of a write.
const maxHAName = 256

// Validate returns an error, which names the flag to change, unless h makes
// sense.
func (h HA) Validate() error {
	switch {
	case h.ClusterLabel == "" && h.ReplicaLabel == "":
		return nil
	case h.ClusterLabel == "":
		return fmt.Errorf("--ha.replica-label=%s needs --ha.cluster-label", h.ReplicaLabel)
	case h.ReplicaLabel == "":
		return fmt.Errorf("--ha.cluster-label=%s needs --ha.replica-label", h.ClusterLabel)
	case h.ClusterLabel == h.ReplicaLabel:
		return fmt.Errorf("--ha.cluster-label and --ha.replica-label are both %s: they must be two labels", h.ClusterLabel)
	case h.ReplicaLabel == labels.MetricName:
		return fmt.Errorf("--ha.replica-label=%s would leave series without a name", h.ReplicaLabel)
	case h.Failover != 0 && h.Failover < time.Second:
		return fmt.Errorf("--ha.failover=%s is less than a second", h.Failover)
	}
	return nil
}

// deduper leaves out what comes from replicas that are not elected. A nil
// deduper does nothing. It is safe for concurrent use.
type deduper struct {
	HA
	elections *elections
}

// newDeduper returns nil if HA is off in cfg.
func newDeduper(cfg Config) *deduper {
	h := cfg.HA
	if h.ClusterLabel == "" {
		return nil
	}
	if h.Failover == 0 {
		h.Failover = defaultFailover
	}
	e := newElections(cfg, h.Failover, newHAMetrics(cfg.Registerer))
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(newElectedReplicas(e))
	}
	return &deduper{HA: h, elections: e}
}

// filter returns the part of batch that is to be stored, without the replica
// label, and counts what is not, because it comes from a replica that is not
// elected. The clock decides, not the times of samples. A series whose labels
// are invalid is rejected. batch stays as it is. An error says that META could
// not be asked who is elected: then nothing may be acknowledged.
func (d *deduper) filter(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (kept []Series, deduplicated Stored, err error) {
	if d == nil {
		return batch, deduplicated, nil
	}
	kept = make([]Series, 0, len(batch))
	builder := labels.NewBuilder(labels.EmptyLabels())
	var last verdict
	for i := range batch {
		s := batch[i]
		s.Labels = s.Labels.WithoutEmpty()
		replica := s.Labels.Get(d.ReplicaLabel)
		if replica == "" {
			kept = append(kept, s)
			continue
		}
		cluster := s.Labels.Get(d.ClusterLabel)
		if err := checkReplica(s.Labels, cluster, replica); err != nil {
			rejected.Add(ReasonLabels, s.size(), err)
			continue
		}
		if cluster != "" {
			if last, err = d.judge(ctx, tenant, cluster, replica, last); err != nil {
				return nil, Stored{}, err
			}
			if !last.elected {
				deduplicated = deduplicated.plus(s.counts())
				last.cluster.deduplicated.Add(float64(s.size()))
				continue
			}
		}
		builder.Reset(s.Labels)
		s.Labels = builder.Del(d.ReplicaLabel).Labels()
		kept = append(kept, s)
	}
	return kept, deduplicated, nil
}

// verdict says whether a replica of a cluster is elected.
type verdict struct {
	cluster *cluster
	replica string
	elected bool
}

// judge says whether a replica is elected. last is what it has said before in
// the same request, where mostly all series come from one replica.
func (d *deduper) judge(ctx context.Context, tenant, name, replica string, last verdict) (verdict, error) {
	if last.cluster != nil && last.cluster.id.name == name && last.replica == replica {
		return last, nil
	}
	c, err := d.elections.cluster(tenant, name)
	if err != nil {
		return verdict{}, err
	}
	elected, err := d.elections.elected(ctx, c, replica)
	return verdict{c, replica, elected}, err
}

// checkReplica says what is wrong with the labels of a series that a replica
// has sent, if anything is.
func checkReplica(ls labels.Labels, cluster, replica string) error {
	if _, err := checkLabels(ls); err != nil {
		return err
	}
	if n := max(len(cluster), len(replica)); n > maxHAName {
		return labelsError{ls, fmt.Sprintf("the name of its cluster or replica has %d bytes, the limit is %d", n, maxHAName)}
	}
	return nil
}

// readMatchers returns ms without the matchers on the replica label, which is
// not stored. ms stays as it is.
func (d *deduper) readMatchers(ms []*labels.Matcher) []*labels.Matcher {
	isReplica := func(m *labels.Matcher) bool { return m.Name == d.ReplicaLabel }
	if d == nil || !slices.ContainsFunc(ms, isReplica) {
		return ms
	}
	return slices.DeleteFunc(slices.Clone(ms), isReplica)
}

// counts returns what s has as if it were stored.
func (s *Series) counts() Stored {
	return Stored{Samples: len(s.Samples), Histograms: len(s.Histograms), Exemplars: len(s.Exemplars)}
}

// plus returns the sums of s and t.
func (s Stored) plus(t Stored) Stored {
	return Stored{s.Samples + t.Samples, s.Histograms + t.Histograms, s.Exemplars + t.Exemplars}
}

// haMetrics are those of a deduper. Their clusters are as many as an adapter
// remembers.
type haMetrics struct {
	deduplicated *prometheus.CounterVec
	elections    prometheus.Counter
	failures     prometheus.Counter
}

func newHAMetrics(reg prometheus.Registerer) haMetrics {
	f := promauto.With(reg)
	return haMetrics{
		deduplicated: f.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_ha_deduplicated_samples_total",
			Help: "Samples, histograms and exemplars acknowledged and not stored, because another replica of their cluster is elected.",
		}, []string{"cluster"}),
		elections: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_ha_elections_total",
			Help: "Replicas that this adapter has elected, the first of a cluster included.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_ha_failures_total",
			Help: "Times that it could not be found out who is elected. Those requests are refused, and sent again.",
		}),
	}
}

// electedReplicas is a metric: who is elected, of the clusters that have sent
// something lately.
type electedReplicas struct {
	elections *elections
	desc      *prometheus.Desc
}

func newElectedReplicas(e *elections) electedReplicas {
	return electedReplicas{e, prometheus.NewDesc("adapter_ha_elected_replica",
		"1 for the replica of a cluster that is elected, if a sample of the cluster has come to this adapter within the fail-over time.",
		[]string{"cluster", "replica"}, nil)}
}

// Describe implements prometheus.Collector.
func (m electedReplicas) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

// Collect implements prometheus.Collector.
func (m electedReplicas) Collect(ch chan<- prometheus.Metric) {
	// Two tenants may have equal names, but a metric may come only once.
	sent := make(map[[2]string]bool)
	for id, elected := range m.elections.shown() {
		pair := [2]string{id.name, elected.Replica}
		if !sent[pair] {
			sent[pair] = true
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, pair[:]...)
		}
	}
}

package ha

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics are those of Elections. They name as many clusters as are cached.
type metrics struct {
	deduplicated *prometheus.CounterVec
	elections    prometheus.Counter
	failures     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := metricset.New(reg)
	return metrics{
		deduplicated: f.CounterVec("adapter_ha_deduplicated_samples_total",
			"Samples, histograms and exemplars acknowledged and not stored, because another replica of their cluster is elected.", "cluster"),
		elections: f.Counter("adapter_ha_elections_total", "Replicas that this adapter has elected, the first of a cluster included."),
		failures: f.Counter("adapter_ha_failures_total",
			"Times that the elected replica could not be read or written. Those requests are refused, and sent again."),
	}
}

// electedReplicas is a metric: the elected replicas of the clusters that have sent
// something lately.
type electedReplicas struct {
	elections *Elections
	desc      *prometheus.Desc
}

func newElectedReplicas(e *Elections) electedReplicas {
	return electedReplicas{e, prometheus.NewDesc("adapter_ha_elected_replica",
		"1 for the replica of a cluster that is elected, if a sample of the cluster has come to this adapter within the fail-over time.",
		[]string{"cluster", "replica"}, nil)}
}

// Describe implements prometheus.Collector.
func (m electedReplicas) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

func (m electedReplicas) Collect(ch chan<- prometheus.Metric) {
	for name, elected := range m.elections.recent() {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, name, elected.Replica)
	}
}

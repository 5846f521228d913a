package limits

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

const (
	// maxLabels is how many tenants have a name of their own in metrics: the first that are asked for.
	maxLabels = 100
	// otherTenants is the name of the others.
	otherTenants = "(others)"
)

// metrics count what exceeds a limit.
type metrics struct {
	total, dropped *prometheus.CounterVec
	mu             *sync.Mutex
	named          map[string]bool
}

func newMetrics(reg prometheus.Registerer) metrics {
	return metrics{
		total: metricset.New(reg).CounterVec("adapter_limit_exceeded_total",
			"Writes, series and queries that exceeded a limit of --limits.file, by limit, tenant, and whether they were refused, or only counted as track says.", "limit", "tenant", "result"),
		dropped: metricset.New(reg).CounterVec("adapter_relabel_dropped_samples_total", "Samples of series that the rules of --limits.file drop, by tenant.", "tenant"),
		mu:      new(sync.Mutex), named: make(map[string]bool),
	}
}

// label returns the name of a tenant in metrics.
func (m metrics) label(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.named[tenant] && len(m.named) >= maxLabels {
		return otherTenants
	}
	m.named[tenant] = true
	return tenant
}

func (m metrics) exceeded(limit, tenant string, tracked bool) {
	result := "refused"
	if tracked {
		result = "tracked"
	}
	m.total.WithLabelValues(limit, tenant, result).Inc()
}

// nearness collects how near tenants are to their rates. Of the others the nearest is shown.
type nearness struct{ file *File }

var nearnessDesc = prometheus.NewDesc("adapter_limit_used_ratio",
	"Which part of a limit of --limits.file is used, by limit and tenant: of series, of queries at once, or of the burst of a rate. At 1 writes, new series, or queries are refused.", []string{"limit", "tenant"}, nil)

// Describe implements prometheus.Collector.
func (nearness) Describe(ch chan<- *prometheus.Desc) { ch <- nearnessDesc }

// Collect implements prometheus.Collector.
func (n nearness) Collect(ch chan<- prometheus.Metric) {
	f := n.file
	f.mu.Lock()
	tenants := slices.SortedFunc(maps.Values(f.tenants), func(a, b *Tenant) int { return cmp.Compare(a.name, b.name) })
	f.mu.Unlock()
	now := f.now()
	type key struct{ limit, tenant string }
	used := map[key]float64{}
	for _, t := range tenants {
		for limit, part := range t.Used(now) {
			used[key{limit, t.label}] = max(used[key{limit, t.label}], part)
		}
	}
	for k, v := range used {
		ch <- prometheus.MustNewConstMetric(nearnessDesc, prometheus.GaugeValue, v, k.limit, k.tenant)
	}
}

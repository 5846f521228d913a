package rules

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

type metrics struct {
	evaluates              prometheus.Gauge
	behind                 *prometheus.GaugeVec
	steps, failures        *prometheus.CounterVec
	reevaluated, corrected *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := metricset.New(reg)
	return &metrics{
		evaluates:   m.Gauge("adapter_rules_evaluating", "Whether this adapter evaluates the rules, 1 or 0; in a store with tenants those of a tenant."),
		behind:      m.GaugeVec("adapter_rules_behind_seconds", "How much later than the last due step the first one is that a group has not recorded.", "rule_group"),
		steps:       m.CounterVec("adapter_rules_recorded_steps_total", "Steps of recording rules that were evaluated and stored.", "rule_group"),
		reevaluated: m.CounterVec("adapter_rules_reevaluated_steps_total", "Steps of recording rules that were evaluated anew after late samples.", "rule_group"),
		corrected:   m.CounterVec("adapter_rules_corrected_samples_total", "Samples of recording rules that were stored anew after late samples, since they differed.", "rule_group"),
		failures:    m.CounterVec("adapter_rules_failures_total", "Evaluations of recording rules that failed: by their expression, which is skipped, or by the store, which are repeated; and samples that are rejected.", "rule_group", "reason"),
	}
}

// The values of reason.
const (
	failedExpression = "expression"
	failedStore      = "store"
	failedRejected   = "rejected"
)

// add exposes the counters of a group before it counts, so that the first failure is an increase.
func (m *metrics) add(group string) {
	for _, c := range []*prometheus.CounterVec{m.steps, m.reevaluated, m.corrected} {
		c.WithLabelValues(group)
	}
	for _, reason := range []string{failedExpression, failedStore, failedRejected} {
		m.failures.WithLabelValues(group, reason)
	}
}

// remove is called when a group is evaluated no more.
func (m *metrics) remove(group string) { m.behind.DeleteLabelValues(group) }

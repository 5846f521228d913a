package rules

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

type metrics struct {
	evaluates       prometheus.Gauge
	behind          *prometheus.GaugeVec
	steps, failures *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := metricset.New(reg)
	return &metrics{
		evaluates: m.Gauge("adapter_rules_evaluating", "Of how many tenants this adapter evaluates the rules, 1 in a store without tenants; 0 while another adapter does."),
		behind:    m.GaugeVec("adapter_rules_behind_seconds", "How much later than the last due step the first one is that a group has not recorded.", "rule_group"),
		steps:     m.CounterVec("adapter_rules_recorded_steps_total", "Steps of recording rules that were evaluated and stored.", "rule_group"),
		failures:  m.CounterVec("adapter_rules_failures_total", "Evaluations of recording rules that failed: by their expression, which is skipped, or by the store, which are repeated; and samples that are rejected.", "rule_group", "reason"),
	}
}

// The values of reason.
const (
	failedExpression = "expression"
	failedStore      = "store"
	failedRejected   = "rejected"
)

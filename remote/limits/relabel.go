package limits

import (
	"fmt"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/promtable/promtable/remote/ingest"
)

// A relabelling is rules.
type relabelling struct{ rules []*relabel.Config }

// apply returns what rules make of labels, or the number of the rule that drops them, which is at least 1.
func apply(rules []*relabel.Config, ls labels.Labels) (_ labels.Labels, dropped int) {
	b := labels.NewBuilder(ls)
	for i, rule := range rules {
		if !relabel.ProcessBuilder(b, rule) {
			return labels.EmptyLabels(), i + 1
		}
	}
	return b.Labels(), 0
}

// Relabelling implements engine.WriteLimits.
func (t *Tenant) Relabelling() *ingest.Relabelling {
	l := t.limits()
	if l.relabelling == nil {
		return nil
	}
	t.relabel.Lock()
	defer t.relabel.Unlock()
	if t.relabelledBy != l.relabelling {
		rules, metrics, label := l.relabelling.rules, t.file.metrics, t.label
		t.relabelledBy = l.relabelling
		t.relabelling = &ingest.Relabelling{Apply: func(ls labels.Labels, samples int) (labels.Labels, bool) {
			made, dropped := apply(rules, ls)
			if dropped > 0 {
				metrics.dropped.WithLabelValues(label).Add(float64(samples))
			}
			return made, dropped == 0
		}}
	}
	return t.relabelling
}

// Relabel returns what the rules that a file has for a tenant make of labels, or the number of the rule that drops them.
type Relabel func(ls labels.Labels) (_ labels.Labels, dropped int)

// ReadRelabel reads the rules of a file for a tenant, which is empty in a store without tenants.
func ReadRelabel(path, tenant string) (Relabel, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all, err := parse(text, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rules := all.of(tenant).Relabel
	return func(ls labels.Labels) (labels.Labels, int) { return apply(rules, ls) }, nil
}

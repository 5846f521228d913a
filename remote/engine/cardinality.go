package engine

import (
	"context"

	"github.com/promtable/promtable/index"
)

// Count and Cardinality are those of package index.
type (
	Count       = index.Count
	Cardinality = index.Cardinality
)

// Cardinality says how many series the running index period has, and which
// metrics and labels make them so many: the top largest counts of each kind. It
// reads every posting of the period.
func (e *Engine) Cardinality(ctx context.Context, tenant string, top int) (*Cardinality, error) {
	return e.index.Cardinality(ctx, tenant, e.cfg.Now().UnixMilli(), top)
}

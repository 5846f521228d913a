package engine

import (
	"context"

	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/reader"
)

// What package reader asks and answers.
type (
	Query       = reader.Query
	Limits      = reader.Limits
	Explanation = reader.Explanation
)

// ErrLimit marks a query that asks for more than the limits allow: the fault of
// its sender.
var ErrLimit = reader.ErrLimit

// Count and Cardinality are those of package index.
type (
	Count       = index.Count
	Cardinality = index.Cardinality
)

// Select is that of reader.Reader.
func (e *Engine) Select(ctx context.Context, q Query) (storage.ChunkSeriesSet, error) {
	return e.reader.Select(ctx, q)
}

// Explain answers q like Select, but counts the rows and cells instead of
// returning them.
func (e *Engine) Explain(ctx context.Context, q Query) (*Explanation, error) {
	return e.reader.Explain(ctx, q)
}

// Cardinality says how many series the running index period has, and which
// metrics and labels make them so many: the top largest counts of each kind. It
// reads every posting of the period.
func (e *Engine) Cardinality(ctx context.Context, tenant string, top int) (*Cardinality, error) {
	return e.index.Cardinality(ctx, tenant, e.cfg.Now().UnixMilli(), top)
}

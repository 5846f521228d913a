package eval

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A Report says how queries were evaluated. It is safe for concurrent use.
type Report struct {
	mu     sync.Mutex
	parts  []*part
	gaveUp int
}

// reportKey is the key of a *Report in a context.
type reportKey struct{}

// WithReport returns a context in which the Exec of a query adds to r, before it returns.
func WithReport(ctx context.Context, r *Report) context.Context {
	return context.WithValue(ctx, reportKey{}, r)
}

// report adds to the report of ctx, if there is one.
func (q *query) report(ctx context.Context) {
	r, ok := ctx.Value(reportKey{}).(*Report)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	added := slices.Collect(maps.Values(q.parts.bySelector))
	slices.SortFunc(added, func(a, b *part) int { return int(a.place.Start - b.place.Start) })
	r.parts = append(r.parts, added...)
	r.gaveUp += len(q.unknown)
}

// GaveUp returns how many parts met samples that they cannot evaluate. They were left to
// upstream's engine, over smaller parts.
func (r *Report) GaveUp() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaveUp
}

// Streamed names what was evaluated while series were read, such as "sum by (job) of rate", in
// the order of the expression.
func (r *Report) Streamed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, len(r.parts))
	for i, p := range r.parts {
		names[i] = p.describe()
	}
	return names
}

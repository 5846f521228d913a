package eval

import (
	"context"
	"slices"
)

// A Report says how a query was evaluated.
type Report struct {
	parts *parts
	// GaveUp is how many parts met samples that they cannot evaluate. They were left to
	// upstream's engine.
	GaveUp int
}

// reportKey is the key of a *Report in a context.
type reportKey struct{}

// WithReport returns a context in which the Exec of a query fills r, before it returns.
func WithReport(ctx context.Context, r *Report) context.Context {
	return context.WithValue(ctx, reportKey{}, r)
}

// report fills the report of ctx, if there is one.
func (q *query) report(ctx context.Context) {
	if r, ok := ctx.Value(reportKey{}).(*Report); ok {
		r.parts, r.GaveUp = q.parts, len(q.unknown)
	}
}

// Streamed names what was evaluated while series were read, such as "sum by (job) of rate", in
// the order of the expression.
func (r *Report) Streamed() []string {
	if r.parts == nil {
		return nil
	}
	var streamed []*part
	for _, p := range r.parts.bySelector {
		streamed = append(streamed, p)
	}
	slices.SortFunc(streamed, func(a, b *part) int { return int(a.place.Start - b.place.Start) })
	names := make([]string, len(streamed))
	for i, p := range streamed {
		names[i] = p.describe()
	}
	return names
}

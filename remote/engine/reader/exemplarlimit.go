package reader

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"

	"github.com/promtable/promtable/index"
)

// An ExemplarLimit bounds the exemplars that a read holds. It divides the time that is asked for into as many equal parts, and keeps of each
// part the exemplar with the greatest value: so those that are kept are spread over the time, and the greatest of all is among them.
type ExemplarLimit struct {
	// Max is how many are held at most, more than 0.
	Max int
	// Found is how many there are, after the read.
	Found int
}

type exemplarLimitKey struct{}

// WithExemplarLimit returns a context in which Exemplars obeys l. It is for one request.
func WithExemplarLimit(ctx context.Context, l *ExemplarLimit) context.Context {
	return context.WithValue(ctx, exemplarLimitKey{}, l)
}

// exemplarParts are the exemplars that a limit keeps so far, by their part of the time.
type exemplarParts struct {
	*ExemplarLimit
	start, limit int64
	best         []bestExemplar
}

type bestExemplar struct {
	series *index.Series // nil if the part has none
	exemplar.Exemplar
}

// newExemplarParts returns nil if the context has no limit.
func newExemplarParts(ctx context.Context, start, limit int64) *exemplarParts {
	l, _ := ctx.Value(exemplarLimitKey{}).(*ExemplarLimit)
	if l == nil {
		return nil
	}
	return &exemplarParts{l, start, limit, make([]bestExemplar, l.Max)}
}

// add takes an exemplar whose time is in [start, limit). Of equal values the first one stays, and any is greater than NaN.
func (p *exemplarParts) add(s *index.Series, x exemplar.Exemplar) {
	p.Found++
	part := float64(x.Ts-p.start) / float64(p.limit-p.start) * float64(p.Max)
	b := &p.best[min(int(part), p.Max-1)]
	if b.series == nil || x.Value > b.Value || b.Value != b.Value && x.Value == x.Value {
		*b = bestExemplar{s, x}
	}
}

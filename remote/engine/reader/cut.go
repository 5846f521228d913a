package reader

import (
	"context"
	"sync"
	"time"
)

// A requestCut is the cut of a request, of which all queries have the same.
type requestCut struct {
	now  time.Time
	once sync.Once
	cut  int64
}

type requestCutKey struct{}

// WithOneCut returns the context of a request that came at now. All that is read with it has
// the cut of that time, also where it is read later.
func WithOneCut(ctx context.Context, now time.Time) context.Context {
	return context.WithValue(ctx, requestCutKey{}, &requestCut{now: now})
}

// Cut returns the time, in milliseconds, before which nothing is read with ctx: that of its
// request if there is one, else that of now.
func (r *Reader) Cut(ctx context.Context) int64 {
	if r.cfg.Cut == nil {
		return 0
	}
	request, ok := ctx.Value(requestCutKey{}).(*requestCut)
	if !ok {
		return r.cfg.Cut(r.cfg.Now())
	}
	request.once.Do(func() { request.cut = r.cfg.Cut(request.now) })
	return request.cut
}

// nowOf returns when the request of ctx came, or now.
func (r *Reader) nowOf(ctx context.Context) time.Time {
	if request, ok := ctx.Value(requestCutKey{}).(*requestCut); ok {
		return request.now
	}
	return r.cfg.Now()
}

// indexCut returns the time before which no series is found, which is cut if none is configured.
func (r *Reader) indexCut(ctx context.Context, cut int64) int64 {
	if r.cfg.IndexCut == nil {
		return cut
	}
	return r.cfg.IndexCut(r.nowOf(ctx))
}

// RollupsOnly returns the time before which rollups are kept and samples are not, if a query from mint on asks for such a
// time.
func (r *Reader) RollupsOnly(ctx context.Context, mint int64) (before int64, ok bool) {
	if r.cfg.IndexCut == nil {
		return 0, false
	}
	cut := r.Cut(ctx)
	return cut, max(mint, r.indexCut(ctx, cut)) < cut
}

// withCut returns q with the cut of ctx, unless it has one.
func (r *Reader) withCut(ctx context.Context, q Query) Query {
	if !q.hasCut {
		q.cut, q.hasCut = r.Cut(ctx), true
	}
	return q
}

package reader

import (
	"context"
	"sync"
	"time"

	"github.com/promtable/promtable/series/rollup"
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

// sources says of which times there are rollups, for the request of ctx.
func (r *Reader) sources(ctx context.Context) rollup.Sources {
	now := r.cfg.Now()
	if request, ok := ctx.Value(requestCutKey{}).(*requestCut); ok {
		now = request.now
	}
	return r.cfg.Sources(now)
}

// withCut returns q with the cut of ctx, unless it has one.
func (r *Reader) withCut(ctx context.Context, q Query) Query {
	if !q.hasCut {
		q.cut, q.hasCut = r.Cut(ctx), true
	}
	return q
}

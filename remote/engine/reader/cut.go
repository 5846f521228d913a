package reader

import (
	"context"

	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/timeline"
)

// view returns the timeline of the request of ctx, if there is one, else that of now.
func (r *Reader) view(ctx context.Context) *timeline.View { return r.cfg.Timeline.Of(ctx, r.cfg.Now) }

// RollupsOnly returns the latest time before which rollups of some series of a set are kept and samples are not, if a query from mint on
// asks for such a time. The set is one that Select returned.
func (r *Reader) RollupsOnly(ctx context.Context, mint int64, set storage.ChunkSeriesSet) (before int64, ok bool) {
	v := r.view(ctx)
	cut := v.Raw()
	if cuts, ok := set.(interface{ latestCut() int64 }); ok {
		cut = max(cut, cuts.latestCut())
	}
	return cut, max(mint, v.Found()) < cut
}

// withCut returns q with the cut of ctx, unless it has one.
func (r *Reader) withCut(ctx context.Context, q Query) Query {
	if !q.hasCut {
		q.cut, q.hasCut = r.view(ctx).Raw(), true
	}
	return q
}

package reader

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
)

// A requestCut is the cut of a request, of which all queries have the same.
type requestCut struct {
	now  time.Time
	once sync.Once
	cut  int64

	// mu guards seriesCuts, which are nil until they cut anything.
	mu         sync.Mutex
	seriesCuts SeriesCuts
}

// SeriesCuts are the cuts of series that are kept for less long than others.
type SeriesCuts interface {
	// Latest is the latest cut of any series and resolution, in milliseconds, or 0.
	Latest() int64
	// Of returns the times before which nothing of a series is shown, by resolution, in milliseconds.
	Of(ls labels.Labels) [bucketstore.NumResolutions]int64
}

// SeriesCuts returns those of the request of ctx, if there is one, else those of now, for a read of times from one on, in milliseconds.
func (r *Reader) SeriesCuts(ctx context.Context, from int64) (SeriesCuts, error) {
	if r.cfg.SeriesCuts == nil {
		return noSeriesCuts{}, nil
	}
	request, ok := ctx.Value(requestCutKey{}).(*requestCut)
	if !ok {
		return r.cfg.SeriesCuts(ctx, r.cfg.Now(), from)
	}
	request.mu.Lock()
	defer request.mu.Unlock()
	if request.seriesCuts != nil {
		return request.seriesCuts, nil
	}
	cuts, err := r.cfg.SeriesCuts(ctx, request.now, from)
	if err == nil && from < cuts.Latest() {
		request.seriesCuts = cuts
	}
	return cuts, err
}

// noSeriesCuts cut nothing.
type noSeriesCuts struct{}

func (noSeriesCuts) Latest() int64                                             { return 0 }
func (noSeriesCuts) Of(labels.Labels) (none [bucketstore.NumResolutions]int64) { return none }

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

// RollupsOnly returns the latest time before which rollups of some series of a set are kept and samples are not, if a query from mint on
// asks for such a time. The set is one that Select returned.
func (r *Reader) RollupsOnly(ctx context.Context, mint int64, set storage.ChunkSeriesSet) (before int64, ok bool) {
	if r.cfg.IndexCut == nil {
		return 0, false
	}
	cut := r.Cut(ctx)
	if cuts, ok := set.(interface{ latestCut() int64 }); ok {
		cut = max(cut, cuts.latestCut())
	}
	return cut, max(mint, r.indexCut(ctx, cut)) < cut
}

// withCut returns q with the cut of ctx, unless it has one.
func (r *Reader) withCut(ctx context.Context, q Query) Query {
	if !q.hasCut {
		q.cut, q.hasCut = r.Cut(ctx), true
	}
	return q
}

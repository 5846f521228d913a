package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// Admin deletes samples.
type Admin interface {
	// Delete deletes the samples in [mint, maxt], in milliseconds, of the series that match.
	// On success that is durable, and no query finds them.
	Delete(ctx context.Context, mint, maxt int64, matchers []*labels.Matcher) error
	// Finish removes what is deleted from the store.
	Finish(ctx context.Context) error
}

// adminPatterns are the requests that Config.Admin answers.
func adminPatterns() (patterns []string) {
	for _, method := range []string{"POST ", "PUT "} {
		patterns = append(patterns, method+deleteSeriesPath, method+cleanTombstonesPath)
	}
	return patterns
}

const (
	deleteSeriesPath    = "/api/v1/admin/tsdb/delete_series"
	cleanTombstonesPath = "/api/v1/admin/tsdb/clean_tombstones"
)

// admin is Config.Admin as upstream's API wants it.
type admin struct {
	Admin
	// cleaning holds a token while a request runs CleanTombstones, and ctx is the context of
	// that request: upstream does not pass it.
	cleaning chan struct{}
	ctx      context.Context
}

var _ v1.TSDBAdminStats = (*admin)(nil)

// withContext gives CleanTombstones the context of its request.
func (a *admin) withContext(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == cleanTombstonesPath {
			select {
			case a.cleaning <- struct{}{}:
				defer func() { <-a.cleaning }()
				a.ctx = r.Context()
			case <-r.Context().Done():
				respond(w, nil, fmt.Errorf("wait for another request: %w", r.Context().Err()))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Delete implements v1.TSDBAdminStats.
func (a *admin) Delete(ctx context.Context, mint, maxt int64, ms ...*labels.Matcher) error {
	return markAll(a.Admin.Delete(ctx, mint, maxt, ms))
}

// CleanTombstones implements v1.TSDBAdminStats.
func (a *admin) CleanTombstones() error { return markAll(a.Finish(a.ctx)) }

// markAll marks every error as one that says when to come back: what is not done goes on.
func markAll(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}

// errNotServed is the answer to what this API does not serve.
var errNotServed = errors.New("not served")

// Snapshot implements v1.TSDBAdminStats.
func (*admin) Snapshot(string, bool) error { return errNotServed }

// Stats implements v1.TSDBAdminStats.
func (*admin) Stats(string, int) (*tsdb.Stats, error) { return nil, errNotServed }

// WALReplayStatus implements v1.TSDBAdminStats.
func (*admin) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	return tsdb.WALReplayStatus{}, errNotServed
}

// BlockMetas implements v1.TSDBAdminStats.
func (*admin) BlockMetas() ([]tsdb.BlockMeta, error) { return nil, errNotServed }

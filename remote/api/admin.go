package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
)

// Admin deletes samples.
type Admin interface {
	// Delete deletes the samples in [mint, maxt], in milliseconds, of the series that match.
	// On success that is durable, and no query finds them.
	Delete(ctx context.Context, mint, maxt int64, matchers []*labels.Matcher) error
	// Widened says in a sentence what a deletion of [start, limit), in milliseconds, removes beside these times. It is empty if that is nothing.
	Widened(ctx context.Context, start, limit int64) (string, error)
	// Finish removes what is deleted from the store.
	Finish(ctx context.Context) error
}

// Snapshots copies the store while it is in use.
type Snapshots interface {
	// Snapshot writes a copy to a directory, which is there and empty. After an error nothing is in it.
	Snapshot(ctx context.Context, dir string) error
}

// adminPatterns are the requests that Config.Admin and Config.Snapshots answer.
func adminPatterns() (patterns []string) {
	for _, method := range []string{"POST ", "PUT "} {
		patterns = append(patterns, method+deleteSeriesPath, method+cleanTombstonesPath, method+snapshotPath)
	}
	return patterns
}

// IsOfStore says whether a pattern of AdminPatterns is about the whole store, in one with tenants too.
func IsOfStore(pattern string) bool {
	return strings.HasSuffix(pattern, cleanTombstonesPath) || strings.HasSuffix(pattern, snapshotPath)
}

const (
	deleteSeriesPath    = "/api/v1/admin/tsdb/delete_series"
	cleanTombstonesPath = "/api/v1/admin/tsdb/clean_tombstones"
	snapshotPath        = "/api/v1/admin/tsdb/snapshot"
)

// admin is Config.Admin and Config.Snapshots as upstream's API wants them.
type admin struct {
	Admin
	snapshots Snapshots
	// one holds a token while a request runs CleanTombstones or Snapshot, and ctx is the context of
	// that request: upstream does not pass it.
	one chan struct{}
	ctx context.Context
}

var _ v1.TSDBAdminStats = (*admin)(nil)

// errNoSnapshots is the answer to a request for a snapshot of a store that makes none.
var errNoSnapshots = errors.New("snapshots are of the embedded store: for Bigtable use its own backups")

// withContext gives CleanTombstones and Snapshot the context of their request.
func (a *admin) withContext(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Admin != nil && a.snapshots == nil && r.URL.Path == snapshotPath {
			write(w, http.StatusBadRequest, response{Status: "error", ErrorType: "bad_data", Error: errNoSnapshots.Error()})
			return
		}
		if r.URL.Path == deleteSeriesPath {
			asked := &deletion{}
			r = r.WithContext(context.WithValue(r.Context(), deletionKey{}, asked))
			w = &deletionAnswer{ResponseWriter: w, asked: asked}
		} else {
			select {
			case a.one <- struct{}{}:
				defer func() { <-a.one }()
				a.ctx = r.Context()
			case <-r.Context().Done():
				respond(w, nil, fmt.Errorf("wait for another request: %w", r.Context().Err()))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// deletionKey is the key of a *deletion in the context of its request.
type deletionKey struct{}

// A deletion is a request that deletes samples.
type deletion struct {
	// warning says what is deleted beside what was asked for, if anything is.
	warning string
}

// A deletionAnswer answers a deletion that has a warning with it, and others as upstream does: without a body.
type deletionAnswer struct {
	http.ResponseWriter
	asked *deletion
	// isWritten says that the answer is written: upstream ends a compressed body, also of no bytes.
	isWritten bool
}

func (w *deletionAnswer) WriteHeader(status int) {
	if status != http.StatusNoContent || w.asked.warning == "" {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.isWritten = true
	w.Header().Del("Content-Encoding")
	write(w.ResponseWriter, http.StatusOK, response{Status: "success", Warnings: []string{w.asked.warning}})
}

func (w *deletionAnswer) Write(body []byte) (int, error) {
	if w.isWritten {
		return len(body), nil
	}
	return w.ResponseWriter.Write(body)
}

// Delete implements v1.TSDBAdminStats. It notes for the log what was deleted.
func (a *admin) Delete(ctx context.Context, mint, maxt int64, ms ...*labels.Matcher) error {
	warning, err := a.Admin.Widened(ctx, mint, min(maxt, math.MaxInt64-1)+1)
	if err == nil {
		err = a.Admin.Delete(ctx, mint, maxt, ms)
	}
	if asked, ok := ctx.Value(deletionKey{}).(*deletion); ok {
		asked.warning = warning
	}
	request.Note(ctx, "selector", reader.SelectorName(ms))
	request.Note(ctx, "start", deletionTime(mint))
	request.Note(ctx, "end", deletionTime(maxt))
	if err != nil {
		request.Note(ctx, "err", err.Error())
	}
	return markAll(err)
}

// deletionTime returns an end of the range of a deletion for a log line. Upstream's API stands for no end by a time far away.
func deletionTime(t int64) string {
	if t <= v1.MinTime.UnixMilli() || t >= v1.MaxTime.UnixMilli() {
		return "none"
	}
	return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.999Z07:00")
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

// Snapshot implements v1.TSDBAdminStats. It always copies all there is, what is in memory included.
func (a *admin) Snapshot(dir string, _ bool) error {
	request.Note(a.ctx, "snapshot", dir)
	if err := a.snapshots.Snapshot(a.ctx, dir); err != nil {
		request.Note(a.ctx, "err", err.Error())
		_ = os.Remove(dir) // upstream has made it, and it is empty, if it is there
		return err
	}
	return nil
}

func (*admin) Stats(string, int) (*tsdb.Stats, error) { return nil, errNotServed }

func (*admin) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	return tsdb.WALReplayStatus{}, errNotServed
}

func (*admin) BlockMetas() ([]tsdb.BlockMeta, error) { return nil, errNotServed }

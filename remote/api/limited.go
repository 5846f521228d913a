package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
)

// limitKinds are what limits bound, as a metric names them: the series and samples that one query reads, the samples that
// PromQL holds, the bytes of one query and of all, and the time with that in which a query waits for its turn.
var limitKinds = []string{"read", "samples", "memory", "total_memory", "time"}

// A reachedLimit says which limit a request has met. It is safe for concurrent use.
type reachedLimit struct{ kind atomic.Pointer[string] }

type reachedLimitKey struct{}

// noteLimit notes for the request of a context that err is that of a limit, if it is.
func noteLimit(ctx context.Context, err error) {
	reached, _ := ctx.Value(reachedLimitKey{}).(*reachedLimit)
	if kind := limitKind(ctx, err); reached != nil && kind != "" {
		reached.kind.Store(&kind)
	}
}

// limitKind returns which of limitKinds has ended a query with err, or nothing if none has: the expression is wrong, the store has
// failed, or its client has left.
func limitKind(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, reader.ErrLimit):
		return "read"
	case errors.As(err, new(promql.ErrTooManySamples)):
		return "samples"
	case errors.Is(err, eval.ErrMemory):
		return "memory"
	case errors.Is(err, eval.ErrBusy):
		return "total_memory"
	case errors.As(err, new(promql.ErrQueryTimeout)), errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return "time"
	}
	return ""
}

// withReachedLimit counts the requests that next answers with an error because of a limit.
func withReachedLimit(counts *prometheus.CounterVec, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached := &reachedLimit{}
		status := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(status, r.WithContext(context.WithValue(r.Context(), reachedLimitKey{}, reached)))
		if kind := reached.kind.Load(); kind != nil && status.code >= http.StatusBadRequest {
			counts.WithLabelValues(*kind).Inc()
		}
	})
}

// A statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

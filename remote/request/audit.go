package request

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// auditKey is the key of an *audit in a context.
type auditKey struct{}

// An audit is what is to be logged of a request, as pairs of texts.
type audit struct{ keys, values []string }

// WithAudit logs one line for each request that next answers: what was asked for, its status, and for which client. It has what Note added.
func WithAudit(logger log.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &audit{}
		rec := &statusRecorder{ResponseWriter: w}
		status := any("aborted") // what remains if next panics
		defer func() {
			pairs := []any{"msg", "admin request", "action", r.Method + " " + AbbreviateQuery(r.URL.Path), "status", status}
			for i, key := range a.keys {
				pairs = append(pairs, key, AbbreviateQuery(a.values[i]))
			}
			level.Info(logger).Log(append(pairs, ClientOf(r).LogPairs()...)...)
		}()
		next.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), auditKey{}, a)))
		status = rec.code()
	})
}

// Note adds a pair to the log line of the request of a context, if there is to be one. Values of equal keys stand in one pair, each once. The
// goroutine of the request calls it.
func Note(ctx context.Context, key, value string) {
	a, ok := ctx.Value(auditKey{}).(*audit)
	if !ok {
		return
	}
	i := slices.Index(a.keys, key)
	switch {
	case i < 0:
		a.keys, a.values = append(a.keys, key), append(a.values, value)
	case !slices.Contains(strings.Split(a.values[i], "; "), value):
		a.values[i] += "; " + value
	}
}

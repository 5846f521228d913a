package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
)

// cancelPattern is the request that cancels a query, which is only served with Config.Admin.
const cancelPattern = "DELETE /api/v1/status/active_queries/{id}"

// serveActive answers /api/v1/status/active_queries: the queries that run, the oldest first.
func (a *API) serveActive(w http.ResponseWriter, r *http.Request) {
	respond(w, a.cfg.Active.List(r.Context()), nil)
}

// serveCancel cancels a query, and answers what it was. Its own client is told that an operator has cancelled it.
func (a *API) serveCancel(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Admin == nil { // as upstream answers the other requests of an admin
		write(w, http.StatusInternalServerError, response{Status: "error", ErrorType: "unavailable", Error: "admin APIs disabled: a query is cancelled with --web.enable-admin-api"})
		return
	}
	id := r.PathValue("id")
	q, ok := a.cfg.Active.Cancel(r.Context(), id)
	if !ok {
		write(w, http.StatusNotFound, response{Status: "error", ErrorType: "not_found", Error: fmt.Sprintf("no query %s runs here", request.Abbreviate(id))})
		return
	}
	for _, pair := range [][2]string{{"id", q.ID}, {"kind", q.Kind}, {"query", q.Query}, {"of", q.Client}} {
		request.Note(r.Context(), pair[0], pair[1])
	}
	respond(w, q, nil)
}

// activeKind returns as what kind of query the requests of a pattern are listed while they run, or nothing.
func activeKind(pattern string) string {
	_, path, _ := strings.Cut(pattern, "/api/v1/")
	switch {
	case path == "query":
		return request.QueryInstant
	case path == "query_range":
		return request.QueryRange
	case path == "query_exemplars":
		return queries.Exemplars
	case path == "series":
		return queries.Series
	case path == "labels", strings.HasPrefix(path, "label/"):
		return queries.Labels
	}
	return ""
}

// withActive lists requests while next answers them, those included that wait for others.
func (a *API) withActive(kind string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end, err := a.cfg.Active.Begin(r.Context(), a.asked(kind, r))
		if err != nil {
			respond(w, nil, err)
			return
		}
		defer end()
		queries.Answer(w, r.WithContext(ctx), next, func(err error) { respond(w, nil, err) })
	})
}

// asked returns what a request asks for.
func (a *API) asked(kind string, r *http.Request) queries.Query {
	q := queries.Query{Kind: kind, Exprs: r.Form["query"], Start: formTime(r, "start"), End: formTime(r, "end"), Client: request.ClientOf(r)}
	switch kind {
	case request.QueryInstant:
		q.Start = formTime(r, "time")
		if q.Start.IsZero() {
			q.Start = a.cfg.Now()
		}
		q.End = q.Start
	case request.QueryRange:
		q.Step = formDuration(r, "step")
	case queries.Series, queries.Labels:
		q.Exprs = r.Form["match[]"]
	}
	return q
}

// formTime reads a parameter that is a time, as Prometheus does. It is zero if it is missing or wrong.
func formTime(r *http.Request, name string) time.Time {
	text := r.FormValue(name)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) < maxSeconds {
		return time.UnixMilli(int64(math.Round(seconds * 1000)))
	}
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}

// formDuration reads a parameter that is a duration likewise.
func formDuration(r *http.Request, name string) time.Duration {
	text := r.FormValue(name)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) < maxSeconds {
		return time.Duration(seconds * float64(time.Second))
	}
	d, _ := model.ParseDuration(text)
	return time.Duration(d)
}

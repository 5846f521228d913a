// Package explain serves /api/v1/explain, as JSON.
//
//	explain.go  what the engine reads to answer a selector
//	query.go    how an expression is evaluated, and what its selectors read
package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series/expr"
)

// explainRange is the range of an explanation without the parameter start.
const explainRange = time.Hour

// Engine explains queries: an *engine.Engine.
type Engine interface {
	Explain(ctx context.Context, q reader.Query) (*reader.Explanation, error)
	Measure(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error)
	PlanRead(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error)
}

// Config is what a Handler is made of. All of it is required, but for Queries and
// NodeSeconds.
type Config struct {
	Engine Engine
	// Queries explains expressions. Without it only selectors are explained.
	Queries Queries
	// NodeSeconds, if set, says for how many seconds a read keeps a node of the store busy:
	// rows of METRIC, with so many bytes, and rows of INDEX.
	NodeSeconds func(rows, indexRows, bytes int64) float64
	Errors      *request.Responder
	Gate        *request.Gate
	Now         func() time.Time
	// Timeout is how long an explanation may take, answer included.
	Timeout time.Duration
	// MaxSelectors is how many match[] a request may hold, or selectors an expression.
	MaxSelectors int
}

// Handler explains each match[] from start to end, both inclusive, RFC 3339 or
// seconds since 1970. The default of end is now, and of start an hour before end. With
// query it explains an expression: from start to end each step, or at time, which is now
// if none of these is given. max_source_resolution is that of queries, and with reads=false no
// samples and rollups are read.
type Handler struct {
	cfg    Config
	parser parser.Parser
}

// New returns a handler of /api/v1/explain.
func New(cfg Config) *Handler {
	return &Handler{cfg: cfg, parser: expr.NewParser(parser.Options{})}
}

// apiResponse is the envelope of Prometheus' HTTP API.
type apiResponse struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, h.cfg.Timeout)
	defer end()
	request.Compressed(http.HandlerFunc(h.serve)).ServeHTTP(w, r.WithContext(ctx))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	answer, err := h.explain(r.Context(), r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.respond(w, http.StatusOK, apiResponse{Status: "success", Data: answer})
}

// explain returns the answer to the parameters query or match[].
func (h *Handler) explain(ctx context.Context, r *http.Request) (any, error) {
	texts, err := request.MatchParams(r, h.cfg.MaxSelectors)
	switch {
	case err != nil:
		return nil, err
	case !r.Form.Has("query"):
		return h.explainSelectors(ctx, r, texts)
	case len(texts) > 0:
		return nil, request.BadRequest("give either query or match[]")
	case h.cfg.Queries == nil:
		return nil, request.BadRequest("only selectors are explained here: give match[]")
	}
	return h.explainQuery(ctx, r)
}

func (h *Handler) explainSelectors(ctx context.Context, r *http.Request, texts []string) ([]*reader.Explanation, error) {
	queries, err := h.queries(r, texts)
	if err != nil {
		return nil, err
	}
	if err := h.cfg.Gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer h.cfg.Gate.Leave(ctx)
	explanations := make([]*reader.Explanation, len(queries))
	for i, q := range queries {
		if explanations[i], err = h.cfg.Engine.Explain(ctx, q); err != nil {
			return nil, err
		}
	}
	return explanations, nil
}

// queries makes a query of each selector, with the times of r.
func (h *Handler) queries(r *http.Request, texts []string) ([]reader.Query, error) {
	if len(texts) == 0 {
		return nil, request.BadRequest("no match[] parameter provided, and no query")
	}
	selectors, err := h.parser.ParseMetricSelectors(texts)
	if err != nil {
		return nil, request.BadRequest("invalid parameter \"match[]\": %w", err)
	}
	start, end, err := h.rangeParams(r)
	if err != nil {
		return nil, err
	}
	queries := make([]reader.Query, len(selectors))
	for i, matchers := range selectors {
		queries[i] = reader.Query{Matchers: matchers, Mint: start.UnixMilli(), Maxt: end.UnixMilli()}
	}
	return queries, nil
}

// rangeParams reads start and end.
func (h *Handler) rangeParams(r *http.Request) (start, end time.Time, err error) {
	if end, err = timeParam(r, "end", h.cfg.Now()); err != nil {
		return start, end, err
	}
	if start, err = timeParam(r, "start", end.Add(-explainRange)); err != nil {
		return start, end, err
	}
	if end.Before(start) {
		err = request.BadRequest("invalid parameter \"end\": it is before the start")
	}
	return start, end, err
}

// timeParam reads a time as RFC 3339 or as seconds since 1970, with fraction.
func timeParam(r *http.Request, name string, fallback time.Time) (time.Time, error) {
	text := r.Form.Get(name)
	if text == "" {
		return fallback, nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		// Beyond these milliseconds do not fit into 64 bits.
		if ms := seconds * 1000; math.Abs(ms) < 1<<62 {
			return time.UnixMilli(int64(math.Round(ms))), nil
		}
	} else if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, request.BadRequest("invalid parameter %q: cannot parse %s to a valid timestamp", name, request.Abbreviate(text))
}

// fail answers an error in the envelope.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := h.cfg.Errors.Report(w, r, err)
	kind := "unavailable"
	switch {
	case status < http.StatusInternalServerError:
		kind = "bad_data"
	case status == http.StatusInternalServerError:
		kind = "internal"
	}
	h.respond(w, status, apiResponse{Status: "error", ErrorType: kind, Error: request.ErrorText(err)})
}

func (h *Handler) respond(w http.ResponseWriter, status int, body apiResponse) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, fmt.Appendf(nil, `{"status":"error","errorType":"internal","error":%q}`, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error is one of the connection
}

// Package explain serves /api/v1/explain: what the engine reads to answer a
// selector, as JSON.
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

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
)

// explainRange is the range of an explanation without the parameter start.
const explainRange = time.Hour

// Engine explains queries: an *engine.Engine.
type Engine interface {
	Explain(ctx context.Context, q engine.Query) (*engine.Explanation, error)
}

// Config is what a Handler is made of. All of it is required.
type Config struct {
	Engine Engine
	Errors *request.Responder
	Gate   *request.Gate
	Now    func() time.Time
	// Timeout is how long an explanation may take, answer included.
	Timeout time.Duration
	// MaxSelectors is how many match[] a request may hold.
	MaxSelectors int
}

// Handler explains each match[] from start to end, both inclusive, RFC 3339 or
// seconds since 1970. The default of end is now, and of start an hour before end.
type Handler struct {
	cfg    Config
	parser parser.Parser
}

// New returns a handler of /api/v1/explain.
func New(cfg Config) *Handler {
	return &Handler{cfg: cfg, parser: parser.NewParser(parser.Options{})}
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
	explanations, err := h.explain(ctx, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.respond(w, http.StatusOK, apiResponse{Status: "success", Data: explanations})
}

func (h *Handler) explain(ctx context.Context, r *http.Request) ([]*engine.Explanation, error) {
	queries, err := h.queries(r)
	if err != nil {
		return nil, err
	}
	if err := h.cfg.Gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer h.cfg.Gate.Leave()
	explanations := make([]*engine.Explanation, len(queries))
	for i, q := range queries {
		if explanations[i], err = h.cfg.Engine.Explain(ctx, q); err != nil {
			return nil, err
		}
	}
	return explanations, nil
}

// queries reads the parameters of r.
func (h *Handler) queries(r *http.Request) ([]engine.Query, error) {
	texts, err := request.MatchParams(r, h.cfg.MaxSelectors)
	if err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, request.BadRequest("no match[] parameter provided")
	}
	selectors, err := h.parser.ParseMetricSelectors(texts)
	if err != nil {
		return nil, request.BadRequest("invalid parameter \"match[]\": %w", err)
	}
	end, err := timeParam(r, "end", h.cfg.Now())
	if err != nil {
		return nil, err
	}
	start, err := timeParam(r, "start", end.Add(-explainRange))
	if err != nil {
		return nil, err
	}
	if end.Before(start) {
		return nil, request.BadRequest("invalid parameter \"end\": it is before the start")
	}
	queries := make([]engine.Query, len(selectors))
	for i, matchers := range selectors {
		queries[i] = engine.Query{Matchers: matchers, Mint: start.UnixMilli(), Maxt: end.UnixMilli()}
	}
	return queries, nil
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

package explain

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/request"
)

// Queries says how expressions are evaluated: an *api.API.
type Queries interface {
	// Explain returns the tree of an expression that is evaluated from start to end, each
	// step, or at start if step is 0. An error is one of the expression, or that of ctx.
	Explain(ctx context.Context, expr string, start, end time.Time, step time.Duration) (*eval.Node, error)
}

// maxPoints is how many steps a range query may have, as in Prometheus' API.
const maxPoints = 11_000

// A queryAnswer explains an expression.
type queryAnswer struct {
	Query string `json:"query"`
	// Start, End and Step are in milliseconds. Step is 0 of an instant query.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	Step  int64 `json:"step"`
	// Total is what all selectors read.
	Total total `json:"total"`
	Tree  *node `json:"tree"`
}

// A total is what was read.
type total struct {
	engine.Counts
	// NodeSeconds are those of Config.NodeSeconds, if that is set.
	NodeSeconds *float64 `json:"node_seconds,omitempty"`
}

// A node is an eval.Node, with what is read.
type node struct {
	Expr        string  `json:"expr"`
	Kind        string  `json:"kind"`
	Type        string  `json:"type"`
	Streamed    string  `json:"streamed,omitempty"`
	InStreamed  bool    `json:"in_streamed,omitempty"`
	NotStreamed string  `json:"not_streamed,omitempty"`
	Read        *read   `json:"read,omitempty"`
	Children    []*node `json:"children,omitempty"`
}

// A read is what a selector reads.
type read struct {
	Selector string `json:"selector"`
	// Mint and Maxt are the times that are read, in milliseconds, inclusive.
	Mint  int64  `json:"mint"`
	Maxt  int64  `json:"maxt"`
	Lists []list `json:"lists"`
	total
}

// A list is an engine.ExplainedList without its ranges.
type list struct {
	Matcher  string `json:"matcher"`
	Chosen   bool   `json:"chosen"`
	InMemory int    `json:"in_memory"`
	RowsRead int    `json:"rows_read"`
}

// explainQuery explains the parameter query.
func (h *Handler) explainQuery(ctx context.Context, r *http.Request) (*queryAnswer, error) {
	start, end, step, err := h.queryTimes(r)
	if err != nil {
		return nil, err
	}
	if err := h.cfg.Gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer h.cfg.Gate.Leave()
	answer := &queryAnswer{Query: r.Form.Get("query"), Start: start.UnixMilli(), End: end.UnixMilli(), Step: step.Milliseconds()}
	tree, err := h.cfg.Queries.Explain(ctx, answer.Query, start, end, step)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, request.BadRequest("invalid parameter \"query\": %w", err)
	}
	if n := countReads(tree); n > h.cfg.MaxSelectors {
		return nil, request.BadRequest("invalid parameter \"query\": it has %d selectors, and %d are allowed", n, h.cfg.MaxSelectors)
	}
	answer.Tree, err = h.measure(ctx, tree, &answer.Total.Counts)
	answer.Total = h.newTotal(answer.Total.Counts)
	return answer, err
}

// queryTimes reads the parameters of an instant query, time, or of a range query.
func (h *Handler) queryTimes(r *http.Request) (start, end time.Time, step time.Duration, err error) {
	if !r.Form.Has("start") && !r.Form.Has("end") && !r.Form.Has("step") {
		start, err = timeParam(r, "time", h.cfg.Now())
		return start, start, 0, err
	}
	if r.Form.Has("time") {
		return start, end, 0, request.BadRequest("invalid parameter \"time\": it is for queries without start, end and step")
	}
	if start, end, err = h.rangeParams(r); err != nil {
		return start, end, 0, err
	}
	if step, err = stepParam(r); err != nil {
		return start, end, 0, err
	}
	if end.Sub(start)/step > maxPoints {
		err = request.BadRequest("exceeded maximum resolution of %d points per timeseries: use a longer step or a shorter range", maxPoints)
	}
	return start, end, step, err
}

// stepParam reads a step: seconds, or a duration of Prometheus.
func stepParam(r *http.Request) (time.Duration, error) {
	text := r.Form.Get("step")
	step, err := model.ParseDuration(text)
	if seconds, isNumber := strconv.ParseFloat(text, 64); isNumber == nil && seconds < 1e9 {
		step, err = model.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || step < model.Duration(time.Millisecond) {
		return 0, request.BadRequest("invalid parameter \"step\": %s is no duration of a millisecond or more", request.Abbreviate(text))
	}
	return time.Duration(step), nil
}

func countReads(x *eval.Node) (n int) {
	if x.Read != nil {
		n = 1
	}
	for _, child := range x.Children {
		n += countReads(child)
	}
	return n
}

// measure measures what the selectors of x read, and adds it to sum.
func (h *Handler) measure(ctx context.Context, x *eval.Node, sum *engine.Counts) (*node, error) {
	measured := &node{Expr: x.Text, Kind: x.Kind, Type: x.Type, Streamed: x.Streamed, InStreamed: x.InStreamed, NotStreamed: x.Reason}
	if x.Read != nil {
		found, err := h.cfg.Engine.Measure(ctx, engine.Query{Matchers: x.Read.Matchers, Mint: x.Read.Mint, Maxt: x.Read.Maxt}, x.Read.Buckets)
		if err != nil {
			return nil, err
		}
		measured.Read = h.newRead(found)
		sum.Add(found.Total)
	}
	for _, child := range x.Children {
		node, err := h.measure(ctx, child, sum)
		if err != nil {
			return nil, err
		}
		measured.Children = append(measured.Children, node)
	}
	return measured, nil
}

func (h *Handler) newRead(found *engine.Explanation) *read {
	x := &read{Selector: found.Selector, Mint: found.Mint, Maxt: found.Maxt, Lists: []list{}, total: h.newTotal(found.Total)}
	for _, l := range found.Lists {
		x.Lists = append(x.Lists, list{l.Matcher, l.Chosen, l.InMemory, l.RowsRead})
	}
	return x
}

func (h *Handler) newTotal(counts engine.Counts) total {
	if h.cfg.NodeSeconds == nil {
		return total{Counts: counts}
	}
	seconds := h.cfg.NodeSeconds(counts.Rows, counts.IndexRows, counts.Bytes)
	return total{counts, &seconds}
}

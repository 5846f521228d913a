package explain

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/request"
)

// Queries says how expressions are evaluated: an *api.API.
type Queries interface {
	// Explain returns the tree of an expression that is evaluated from start to end, each
	// step, or at start if step is 0. An error is one of the expression, or that of ctx.
	Explain(ctx context.Context, expr string, start, end time.Time, step time.Duration) (*eval.Node, error)
	// Coverage returns how many steps of the same would be answered from cached results.
	Coverage(ctx context.Context, expr string, start, end time.Time, step time.Duration) resultcache.Coverage
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
	Cache cache `json:"cache"`
	// Total is what all selectors read.
	Total total `json:"total"`
	Tree  *node `json:"tree"`
}

// A cache is a resultcache.Coverage.
type cache struct {
	Eligible bool   `json:"eligible"`
	Reason   string `json:"reason,omitempty"`
	Steps    int64  `json:"steps"`
	Closed   int64  `json:"steps_closed"`
	Cached   int64  `json:"steps_cached"`
}

// A total is what was read.
type total struct {
	reader.Counts
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
	// Parts say what the values come from, by the times at which they are evaluated. There are none if buckets cannot answer.
	Parts []reader.ExplainedPart `json:"parts,omitempty"`
	// Seconds is how long reading took.
	Seconds float64 `json:"seconds"`
	total
}

// A list is an engine.ExplainedList without its ranges.
type list struct {
	Matcher  string `json:"matcher"`
	Chosen   bool   `json:"chosen"`
	InMemory int    `json:"in_memory"`
	Series   int    `json:"series"`
	RowsRead int    `json:"rows_read"`
}

// explainQuery explains the parameter query.
func (h *Handler) explainQuery(ctx context.Context, r *http.Request) (*queryAnswer, error) {
	start, end, step, err := h.queryTimes(r)
	if err != nil {
		return nil, err
	}
	reads, err := readsParam(r)
	if err != nil {
		return nil, err
	}
	coarsest, err := eval.ParseCoarsest(r.Form.Get("max_source_resolution"))
	if err != nil {
		return nil, request.BadRequest("invalid parameter \"max_source_resolution\": %w", err)
	}
	ctx = eval.WithCoarsest(ctx, coarsest)
	if resolution := r.Form.Get("max_source_resolution"); resolution != "" && resolution != "auto" {
		ctx = resultcache.WithoutCache(ctx) // as the queries are
	}
	if err := h.cfg.Gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer h.cfg.Gate.Leave(ctx)
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
	held := h.cfg.Queries.Coverage(ctx, answer.Query, start, end, step)
	answer.Cache = cache{held.Why == "", held.Why, held.Steps, held.Closed, held.Cached}
	m := measurement{Handler: h, query: answer, read: h.cfg.Engine.PlanRead}
	if reads {
		m.read = h.cfg.Engine.Measure
	}
	answer.Tree, err = m.measure(ctx, tree)
	answer.Total = h.newTotal(m.sum)
	return answer, err
}

// readsParam reads whether samples and rollups are to be read.
func readsParam(r *http.Request) (bool, error) {
	text := r.Form.Get("reads")
	if text == "" {
		return true, nil
	}
	reads, err := strconv.ParseBool(text)
	if err != nil {
		err = request.BadRequest("invalid parameter \"reads\": %s is neither true nor false", request.Abbreviate(text))
	}
	return reads, err
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

// A measurement measures what the selectors of a query read.
type measurement struct {
	*Handler
	query *queryAnswer
	read  func(context.Context, reader.Query, *eval.Buckets) (*reader.Explanation, error)
	// sum is what was read so far.
	sum reader.Counts
}

// measure returns x with what its selectors read.
func (m *measurement) measure(ctx context.Context, x *eval.Node) (*node, error) {
	measured := &node{Expr: x.Text, Kind: x.Kind, Type: x.Type, Streamed: x.Streamed, InStreamed: x.InStreamed, NotStreamed: x.Reason}
	if x.Read != nil {
		began := time.Now()
		found, err := m.read(ctx, reader.Query{Matchers: x.Read.Matchers, Mint: x.Read.Mint, Maxt: x.Read.Maxt}, x.Read.Buckets)
		if err != nil {
			return nil, err
		}
		measured.Read = m.newRead(x.Read, found)
		measured.Read.Seconds = time.Since(began).Seconds()
		m.sum.Add(found.Total)
	}
	for _, child := range x.Children {
		node, err := m.measure(ctx, child)
		if err != nil {
			return nil, err
		}
		measured.Children = append(measured.Children, node)
	}
	return measured, nil
}

func (m *measurement) newRead(of *eval.Read, found *reader.Explanation) *read {
	x := &read{Selector: found.Selector, Mint: found.Mint, Maxt: found.Maxt, Lists: []list{}, total: m.newTotal(found.Total)}
	for _, l := range found.Lists {
		x.Lists = append(x.Lists, list{l.Matcher, l.Chosen, l.InMemory, l.Series, l.RowsRead})
	}
	for _, p := range found.Parts {
		p.From, p.To = p.From+of.Buckets.Shift, p.To+of.Buckets.Shift
		if of.Buckets.Windows.Count == 1 { // that of a fixed time (@) is of all steps
			p.From, p.To = m.query.Start, m.query.End
		}
		x.Parts = append(x.Parts, p)
	}
	return x
}

func (h *Handler) newTotal(counts reader.Counts) total {
	if h.cfg.NodeSeconds == nil {
		return total{Counts: counts}
	}
	seconds := h.cfg.NodeSeconds(counts.Rows, counts.IndexRows, counts.Bytes)
	return total{counts, &seconds}
}

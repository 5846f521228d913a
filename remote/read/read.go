// Package read serves remote read: it plans the queries of a request, and encodes
// what the engine finds as samples or as chunks.
//
//	read.go               the request, and which kind of answer it gets
//	hints.go              which samples are enough for what Prometheus computes
//	samples.go            SAMPLES: one block for all queries
//	samples_histogram.go  the histograms in it
//	streamed.go           STREAMED_XOR_CHUNKS: a frame for each series
//	frame.go              the bytes of a frame
//	starts.go             chunks for clients that cannot read start timestamps
package read

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/wire"
)

// The kinds of answers, as they stand in metrics.
const (
	responseSamples  = "samples"
	responseStreamed = "streamed"
)

// Engine finds samples: an *engine.Engine.
type Engine interface {
	Select(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error)
}

// Config is what a Handler is made of. All of it is required, but for the
// Registerer and the SlowLog.
type Config struct {
	Engine     Engine
	Errors     *request.Responder
	Gate       *request.Gate
	Registerer prometheus.Registerer
	// SlowLog logs slow reads. It may be nil.
	SlowLog *request.SlowLog
	// MaxBodyBytes bounds the body of a request, as sent and as decompressed.
	MaxBodyBytes int
	// Timeout is how long a read may take, answer included.
	Timeout time.Duration
	// MaxQueries is how many queries a request may hold.
	MaxQueries int
	// MaxSamples is how many samples an answer in one block may hold, over all of
	// its queries.
	MaxSamples int
	// MaxFrameBytes is how large a frame of a streamed answer may be, which holds
	// one whole series.
	MaxFrameBytes int
	// Memory counts what reads hold, beside PromQL. It may be nil.
	Memory *eval.Memory
	// Active are the queries that run. It may be nil.
	Active *queries.Active
}

// Handler serves remote read.
type Handler struct {
	engine        Engine
	errors        *request.Responder
	gate          *request.Gate
	body          request.BodyReader
	timeout       time.Duration
	maxQueries    int
	maxSamples    int
	maxFrameBytes int
	buffers       sync.Pool // of *frameBuffers
	encoders      sync.Pool // of *samplesEncoder
	metrics       *metrics
	slow          *request.SlowLog
	memory        *eval.Memory
	active        *queries.Active
}

// New returns a handler of remote read. Its metrics are registered
// with cfg.Registerer, where they must not be registered yet.
func New(cfg Config) *Handler {
	return &Handler{
		engine:        cfg.Engine,
		errors:        cfg.Errors,
		gate:          cfg.Gate,
		body:          request.BodyReader{Limit: cfg.MaxBodyBytes},
		timeout:       cfg.Timeout,
		maxQueries:    cfg.MaxQueries,
		maxSamples:    cfg.MaxSamples,
		maxFrameBytes: cfg.MaxFrameBytes,
		metrics:       newMetrics(cfg.Registerer),
		slow:          cfg.SlowLog,
		memory:        cfg.Memory,
		active:        cfg.Active,
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, h.timeout)
	defer end()
	if err := h.gate.Enter(ctx); err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	defer h.gate.Leave(ctx)

	started, err := h.read(ctx, w, r)
	switch {
	case err != nil && started:
		h.errors.Abort(r, err)
	case err != nil:
		h.errors.Fail(w, r, err)
	}
}

// read answers a request. If started is true, a part of the answer is sent, and an
// error can no longer be answered.
func (h *Handler) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (started bool, err error) {
	var req prompb.ReadRequest
	err = h.body.Read(ctx, w, r, nil, func(body []byte) error {
		req, err = wire.ReadRequest(body, h.maxQueries)
		return err
	})
	if err != nil {
		return false, err
	}
	selected, err := wire.Queries(req.Queries)
	if err != nil {
		return false, err
	}
	kind, err := upstream.NegotiateResponseType(req.AcceptedResponseTypes)
	if err != nil {
		return false, request.BadRequest("%w", err)
	}
	hinted, err := hintedOf(r)
	if err != nil {
		return false, err
	}
	for i := range selected {
		hinted.reduce(&selected[i], req.Queries[i].Hints)
		selected[i].Decoded = kind == prompb.ReadRequest_SAMPLES
		selected[i].Passing = !selected[i].Decoded
	}
	ctx, end, err := h.active.Begin(ctx, asked(r, selected))
	if err != nil {
		return false, err
	}
	defer end()
	defer func() { err = queries.Cause(ctx, err) }()
	if h.memory != nil && kind == prompb.ReadRequest_SAMPLES { // a stream is bounded by its batches, and cannot be refused half-way
		held, end := h.memory.With(ctx)
		ctx = held
		defer end()
	}
	ctx, watch := h.slow.Watch(ctx, request.QueryRead)
	defer func() { watch.End(err, func() request.SlowQuery { return describe(selected) }) }()
	sets, err := h.plan(ctx, selected)
	if err != nil {
		return false, err
	}
	if kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
		h.metrics.queries.WithLabelValues(responseStreamed).Add(float64(len(sets)))
		return h.streamed(ctx, w, readsStarts(r.Header), sets)
	}
	h.metrics.queries.WithLabelValues(responseSamples).Add(float64(len(sets)))
	return h.samples(ctx, w, selected, sets)
}

// describe describes the queries of a request for the log: their selectors, and the times
// that they span.
func describe(queries []reader.Query) (slow request.SlowQuery) {
	texts := make([]string, len(queries))
	for i, q := range queries {
		texts[i] = reader.SelectorName(q.Matchers)
	}
	slow.Text = strings.Join(texts, "; ")
	slow.Start, slow.End = span(queries)
	return slow
}

// span returns the times that queries span, in milliseconds, inclusive.
func span(queries []reader.Query) (start, end int64) {
	for i, q := range queries {
		if i == 0 {
			start, end = q.Mint, q.Maxt
		}
		start, end = min(start, q.Mint), max(end, q.Maxt)
	}
	return start, end
}

// asked returns the queries of a request as they are listed while they run: their selectors, and the times that they span.
func asked(r *http.Request, of []reader.Query) queries.Query {
	start, end := span(of)
	q := queries.Query{Kind: request.QueryRead, Start: time.UnixMilli(start), End: time.UnixMilli(end), Client: request.ClientOf(r)}
	for i := range of {
		q.Exprs = append(q.Exprs, (&parser.VectorSelector{LabelMatchers: of[i].Matchers}).String())
	}
	return q
}

// plan starts all queries before the first byte of the answer, so that an
// exceeded limit can still be answered.
func (h *Handler) plan(ctx context.Context, queries []reader.Query) ([]storage.ChunkSeriesSet, error) {
	sets := make([]storage.ChunkSeriesSet, len(queries))
	for i, q := range queries {
		q.Share = len(queries) // each holds batches
		if q.Mint > q.Maxt {
			sets[i] = storage.EmptyChunkSeriesSet()
			continue
		}
		set, err := h.engine.Select(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("query %d: %w", i, err)
		}
		sets[i] = set
	}
	return sets, nil
}

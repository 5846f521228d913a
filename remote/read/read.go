// Package read serves remote read: it plans the queries of a request, and encodes
// what the engine finds as samples or as chunks.
//
//	read.go               the request, and which kind of answer it gets
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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
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
	defer h.gate.Leave()

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
	queries, err := wire.Queries(req.Queries)
	if err != nil {
		return false, err
	}
	kind, err := upstream.NegotiateResponseType(req.AcceptedResponseTypes)
	if err != nil {
		return false, request.BadRequest("%w", err)
	}
	for i := range queries {
		queries[i].Decoded = kind == prompb.ReadRequest_SAMPLES
		queries[i].Passing = !queries[i].Decoded
	}
	if h.memory != nil && kind == prompb.ReadRequest_SAMPLES { // a stream is bounded by its batches, and cannot be refused half-way
		held, end := h.memory.With(ctx)
		ctx = held
		defer end()
	}
	ctx, watch := h.slow.Watch(ctx, request.QueryRead)
	defer func() { watch.End(err, func() request.SlowQuery { return describe(queries) }) }()
	sets, err := h.plan(ctx, queries)
	if err != nil {
		return false, err
	}
	if kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
		h.metrics.queries.WithLabelValues(responseStreamed).Add(float64(len(sets)))
		return h.streamed(ctx, w, readsStarts(r.Header), sets)
	}
	h.metrics.queries.WithLabelValues(responseSamples).Add(float64(len(sets)))
	return h.samples(ctx, w, queries, sets)
}

// describe describes the queries of a request for the log: their selectors, and the times
// that they span.
func describe(queries []reader.Query) (slow request.SlowQuery) {
	for i, q := range queries {
		if i == 0 {
			slow.Start, slow.End = q.Mint, q.Maxt
		} else {
			slow.Text += "; "
		}
		slow.Text += reader.SelectorName(q.Matchers)
		slow.Start, slow.End = min(slow.Start, q.Mint), max(slow.End, q.Maxt)
	}
	return slow
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

package remote

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/engine"
)

// The kinds of answers, as they stand in metrics.
const (
	responseSamples  = "samples"
	responseStreamed = "streamed"
)

// maxQueryFields bounds the matchers of a query, before the generated decoder
// makes a structure of each.
const maxQueryFields = 10_000

// readEngine finds samples: an *engine.Engine.
type readEngine interface {
	Select(ctx context.Context, q engine.Query) (storage.ChunkSeriesSet, error)
}

// readConfig says what a readHandler is made of. All of it is required, but for
// the Registerer.
type readConfig struct {
	Engine     readEngine
	Errors     *edge
	Gate       *gate
	Registerer prometheus.Registerer
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
}

// readHandler serves remote read.
type readHandler struct {
	engine        readEngine
	errors        *edge
	gate          *gate
	body          bodyReader
	timeout       time.Duration
	maxQueries    int
	maxSamples    int
	maxFrameBytes int
	buffers       sync.Pool // of *frameBuffers
	encoders      sync.Pool // of *samplesEncoder
	metrics       *readMetrics
}

// newReadHandler returns a handler of remote read. Its metrics are registered
// with cfg.Registerer, where they must not be registered yet.
func newReadHandler(cfg readConfig) *readHandler {
	return &readHandler{
		engine:        cfg.Engine,
		errors:        cfg.Errors,
		gate:          cfg.Gate,
		body:          bodyReader{limit: cfg.MaxBodyBytes},
		timeout:       cfg.Timeout,
		maxQueries:    cfg.MaxQueries,
		maxSamples:    cfg.MaxSamples,
		maxFrameBytes: cfg.MaxFrameBytes,
		metrics:       newReadMetrics(cfg.Registerer),
	}
}

// ServeHTTP implements http.Handler.
func (h *readHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline := time.Now().Add(h.timeout)
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	if err := h.gate.enter(ctx); err != nil {
		h.errors.fail(w, r, err)
		return
	}
	defer h.gate.leave()
	defer limitAnswer(w, deadline)()

	started, err := h.read(ctx, w, r)
	switch {
	case err != nil && started:
		h.errors.abort(r, err)
	case err != nil:
		h.errors.fail(w, r, err)
	}
}

// answerGrace is how long the end of an answer may take past the deadline: an
// error often comes with the deadline and must still go out.
const answerGrace = 5 * time.Second

// limitAnswer lets w take an answer until deadline: a client that does not read
// its answer must hold neither a slot nor the answer for ever. The caller calls
// end when the answer is complete; what the server has gathered of it is then
// sent, since the deadline must not outlive the request.
func limitAnswer(w http.ResponseWriter, deadline time.Time) (end func()) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(deadline) // a writer without, as in a test, has no slow clients
	return func() {
		if grace := time.Now().Add(answerGrace); grace.After(deadline) {
			_ = control.SetWriteDeadline(grace)
		}
		_ = control.Flush() // the server has noticed the error as well
		_ = control.SetWriteDeadline(time.Time{})
	}
}

// read answers a request. started says that a part of the answer is on its way,
// so that an error can no longer be told.
func (h *readHandler) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (started bool, err error) {
	var req prompb.ReadRequest
	err = h.body.read(ctx, w, r, nil, func(body []byte) error {
		req, err = decodeReadRequest(body, h.maxQueries)
		return err
	})
	if err != nil {
		return false, err
	}
	queries, err := toQueries(req.Queries)
	if err != nil {
		return false, err
	}
	kind, err := upstream.NegotiateResponseType(req.AcceptedResponseTypes)
	if err != nil {
		return false, badRequest("%w", err)
	}
	if kind == prompb.ReadRequest_SAMPLES {
		for i := range queries {
			queries[i].Decoded = true
		}
	}
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

// decodeReadRequest decodes body, which it does not refer to afterwards.
func decodeReadRequest(body []byte, maxQueries int) (req prompb.ReadRequest, err error) {
	if err := checkReadRequest(body, maxQueries); err != nil {
		return req, err
	}
	if err := proto.Unmarshal(body, &req); err != nil {
		return req, badRequest("decode read request: %w", err)
	}
	return req, nil
}

// checkReadRequest bounds the parts of a request: empty ones take two bytes on
// the wire and many in memory.
func checkReadRequest(body []byte, maxQueries int) error {
	queries := 0
	for rest := body; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return badRequest("decode read request: %w", err)
		}
		if rest = next; f.num != 1 {
			continue
		}
		if queries++; queries > maxQueries {
			return badRequest("more than %d queries in one request", maxQueries)
		}
		if err := checkQuery(f.bytes); err != nil {
			return err
		}
	}
	return nil
}

func checkQuery(msg []byte) error {
	for fields := 0; len(msg) > 0; fields++ {
		_, next, err := cutField(msg)
		switch {
		case err != nil:
			return badRequest("decode read request: %w", err)
		case fields == maxQueryFields:
			return badRequest("more than %d matchers in one query", maxQueryFields)
		}
		msg = next
	}
	return nil
}

// toQueries translates queries for the engine. Of their hints only the one
// that no samples are needed is heard.
func toQueries(queries []*prompb.Query) ([]engine.Query, error) {
	qs := make([]engine.Query, len(queries))
	for i, q := range queries {
		matchers, err := upstream.FromLabelMatchers(q.Matchers)
		if err != nil {
			return nil, badRequest("query %d: %w", i, err)
		}
		qs[i] = engine.Query{
			Matchers:   matchers,
			Mint:       q.StartTimestampMs,
			Maxt:       q.EndTimestampMs,
			SeriesOnly: q.Hints != nil && q.Hints.Func == "series",
		}
	}
	return qs, nil
}

// plan starts all queries before the first byte of the answer, so that their
// limits can still be told.
func (h *readHandler) plan(ctx context.Context, queries []engine.Query) ([]storage.ChunkSeriesSet, error) {
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

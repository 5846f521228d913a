// Package write serves remote write 1.0 and 2.0, and OTLP metrics: it decodes a
// request, stores what is valid in it and answers.
package write

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/wire"
)

// protocol is a version of remote write.
type protocol uint8

const (
	protocolV1 protocol = iota
	protocolV2
)

// String returns the version as it stands in metrics.
func (p protocol) String() string {
	if p == protocolV2 {
		return "2.0"
	}
	return "1.0"
}

// negotiate returns the protocol of a write. Only the content type decides it.
// The error is a 415.
func negotiate(h http.Header) (protocol, error) {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, string(remoteapi.SnappyBlockCompression)) {
		return 0, unsupportedMedia("content encoding %q is not snappy", encoding)
	}
	contentType := h.Get("Content-Type")
	if contentType == "" {
		return protocolV1, nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/x-protobuf" {
		return 0, unsupportedMedia("content type %q is not application/x-protobuf", contentType)
	}
	message, ok := params["proto"]
	switch {
	case !ok || message == string(remoteapi.WriteV1MessageType):
		return protocolV1, nil
	case message == string(remoteapi.WriteV2MessageType):
		return protocolV2, nil
	}
	return 0, unsupportedMedia("message %q is neither %s nor %s", message, remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType)
}

func unsupportedMedia(format string, args ...any) error {
	return request.WithStatus(http.StatusUnsupportedMediaType, format, args...)
}

// maxWriteWait is how long a write waits for a slot, and for its part of
// Config.MaxBytes. Both waits end with its timeout.
const maxWriteWait = 10 * time.Second

// Engine stores samples, histograms, exemplars and metadata: an
// *engine.Engine.
type Engine interface {
	wire.SeriesCache
	Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error)
	AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error
	AppenderV2(ctx context.Context) storage.AppenderV2
}

// Config is what the handlers of writes are made of. All of it is required, but
// for the Registerer, OTLP and Scope.
type Config struct {
	// Engine returns the engine that stores the samples of a request, by its context.
	Engine     func(ctx context.Context) (Engine, error)
	Errors     *request.Responder
	Registerer prometheus.Registerer
	// MaxBodyBytes bounds the body of a request, as sent and as decompressed.
	MaxBodyBytes int
	// Timeout is how long a write may take, from its header to its answer.
	Timeout time.Duration
	// MaxConcurrent is how many writes may run at once; others wait.
	MaxConcurrent int
	// MaxBytes bounds the bytes of all writes that run, as decompressed, and once
	// more as sent; others wait.
	MaxBytes int
	// OTLP is how OTLP metrics become series.
	OTLP OTLPConfig
}

// Handler serves remote write, both versions.
type Handler struct {
	engine  func(ctx context.Context) (Engine, error)
	errors  *request.Responder
	gate    *request.Gate
	decoded *request.ByteGate
	body    request.BodyReader
	timeout time.Duration
	metrics *metrics
	// decoders are kept for other requests, by protocol.
	decoders [2]sync.Pool
	otlp     OTLPConfig
	deltas   deltaSums
}

// New returns a handler of remote write. Its metrics are registered
// with cfg.Registerer, where they must not be registered yet.
func New(cfg Config) *Handler {
	h := &Handler{
		engine:  cfg.Engine,
		errors:  cfg.Errors,
		gate:    request.NewGate(cfg.MaxConcurrent, maxWriteWait),
		decoded: request.NewByteGate(cfg.MaxBytes, maxWriteWait),
		body:    request.BodyReader{Limit: cfg.MaxBodyBytes, Large: request.NewByteGate(cfg.MaxBytes, maxWriteWait)},
		timeout: cfg.Timeout,
		metrics: newMetrics(cfg.Registerer),
		otlp:    cfg.OTLP.WithDefaults(),
	}
	h.deltas.cfg = h.otlp
	h.decoders[protocolV1].New = func() any { return wire.NewV1(cfg.MaxBodyBytes) }
	h.decoders[protocolV2].New = func() any { return wire.NewV2(cfg.MaxBodyBytes) }
	return h
}

// Close forgets the sums of deltas. No request may be running.
func (h *Handler) Close() error { return h.deltas.close() }

// decoder decodes requests of one protocol, one at a time.
type decoder interface {
	// Use says where the decoder finds series that it knows.
	Use(cache wire.SeriesCache)
	// Decode returns what body asks for, valid until Release.
	Decode(body []byte, rejected *ingest.Rejected) (wire.WriteRequest, error)
	// Release returns whether the decoder may be used again.
	Release() bool
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proto, err := negotiate(r.Header)
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	stored, err := h.write(w, r, proto)
	if proto == protocolV2 {
		// A sender of 1.0 would take zeros for failures.
		upstream.WriteResponseStats{Samples: stored.Samples, Histograms: stored.Histograms, Exemplars: stored.Exemplars}.SetHeaders(w)
	}
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// write decodes and stores a request. An error of the store hides an
// *ingest.Rejected: all of the request must then be sent again.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, proto protocol) (stored ingest.Stored, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	if err := h.gate.Enter(ctx); err != nil {
		return stored, err
	}
	defer h.gate.Leave(ctx)
	engine, err := h.engine(ctx)
	if err != nil {
		return stored, err
	}
	decoded := &request.Reservation{Gate: h.decoded}
	defer decoded.Release()

	var (
		req      wire.WriteRequest
		rejected ingest.Rejected
	)
	var d decoder
	defer func() {
		if d != nil && d.Release() {
			h.decoders[proto].Put(d)
		}
	}()
	err = h.body.Read(ctx, w, r, decoded, func(body []byte) error {
		h.metrics.bodyBytes.Add(float64(len(body)))
		d = h.decoders[proto].Get().(decoder)
		d.Use(engine)
		req, err = d.Decode(body, &rejected)
		return err
	})
	if err != nil {
		return stored, err
	}
	stored, err = h.store(ctx, engine, proto, req, &rejected)
	if err != nil {
		return stored, fmt.Errorf("store: %w", err)
	}
	return stored, rejected.Err()
}

// store appends what is in req, and counts what was stored, rejected and lost.
func (h *Handler) store(ctx context.Context, engine Engine, proto protocol, req wire.WriteRequest, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	before := rejectedSamples(rejected)
	if req.Size > 0 {
		stored, err = engine.Append(ctx, req.Series, rejected)
	}
	if err != nil {
		lost := req.Size - stored.Total() - (rejectedSamples(rejected) - before)
		h.metrics.failed.WithLabelValues(proto.String()).Add(float64(max(lost, 0)))
	}
	if err == nil {
		h.metrics.metadata.Add(float64(req.Repeated))
	}
	if err == nil && len(req.Metadata) > 0 {
		if err = engine.AppendMetadata(ctx, req.Metadata, rejected); err == nil {
			h.metrics.metadata.Add(float64(len(req.Metadata) - rejected.Samples[ingest.ReasonMetadata]))
		}
	}
	h.metrics.count(proto, stored, rejected)
	return stored, err
}

func rejectedSamples(rejected *ingest.Rejected) (n int) {
	for _, samples := range rejected.Samples {
		n += samples
	}
	return n
}

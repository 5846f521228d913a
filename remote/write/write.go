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

	"github.com/promtable/promtable/remote/engine"
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

func (p protocol) decode() wire.DecodeFunc {
	if p == protocolV2 {
		return wire.DecodeV2
	}
	return wire.DecodeV1
}

// negotiate says which protocol a write speaks: its content type says so, and
// no other header. The error is a 415.
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

// maxWriteWait is how long a write waits for a slot, and for its part of the
// bytes that may be in flight. Both end with its timeout.
const maxWriteWait = 10 * time.Second

// Engine stores samples, histograms, exemplars and metadata: an
// *engine.Engine.
type Engine interface {
	wire.SeriesCache
	Append(ctx context.Context, tenant string, batch []engine.Series, rejected *engine.Rejected) (engine.Stored, error)
	AppendMetadata(ctx context.Context, tenant string, batch []engine.Metadata, rejected *engine.Rejected) error
	AppenderV2(ctx context.Context) storage.AppenderV2
}

// Config says what the handlers of writes are made of. All of it is
// required, but for the Registerer.
type Config struct {
	Engine     Engine
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
}

// Handler serves remote write, both versions.
type Handler struct {
	engine  Engine
	errors  *request.Responder
	gate    *request.Gate
	decoded *request.ByteGate
	body    request.BodyReader
	timeout time.Duration
	metrics *metrics
	// decoders are *decoder to be used again.
	decoders sync.Pool
}

// New returns a handler of remote write. Its metrics are registered
// with cfg.Registerer, where they must not be registered yet.
func New(cfg Config) *Handler {
	return &Handler{
		engine:  cfg.Engine,
		errors:  cfg.Errors,
		gate:    request.NewGate(cfg.MaxConcurrent, maxWriteWait),
		decoded: request.NewByteGate(cfg.MaxBytes, maxWriteWait),
		body:    request.BodyReader{Limit: cfg.MaxBodyBytes, Large: request.NewByteGate(cfg.MaxBytes, maxWriteWait)},
		timeout: cfg.Timeout,
		metrics: newMetrics(cfg.Registerer),
	}
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
		// Not in 1.0: there its sender takes zeros for failures.
		upstream.WriteResponseStats{Samples: stored.Samples, Histograms: stored.Histograms, Exemplars: stored.Exemplars}.SetHeaders(w)
	}
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// write does the work of a request. An error of the store is worth more than
// a *engine.Rejected: then everything must be sent again.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, proto protocol) (stored engine.Stored, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	if err := h.gate.Enter(ctx); err != nil {
		return stored, err
	}
	defer h.gate.Leave()
	decoded := &request.Reservation{Gate: h.decoded}
	defer decoded.Release()

	var (
		req      wire.WriteRequest
		rejected engine.Rejected
	)
	var d *wire.Decoder
	defer func() { h.release(d) }()
	err = h.body.Read(ctx, w, r, decoded, func(body []byte) error {
		h.metrics.bodyBytes.Add(float64(len(body)))
		d = h.decoder(&rejected)
		req, err = proto.decode()(d, body)
		return err
	})
	if err != nil {
		return stored, err
	}
	stored, err = h.store(ctx, proto, req, &rejected)
	if err != nil {
		return stored, fmt.Errorf("store: %w", err)
	}
	return stored, rejected.Err()
}

// decoder returns a decoder for a request.
func (h *Handler) decoder(rejected *engine.Rejected) *wire.Decoder {
	d, ok := h.decoders.Get().(*wire.Decoder)
	if !ok {
		d = wire.NewDecoder(h.engine)
	}
	d.Reset(h.body.Limit, rejected)
	return d
}

// release ends the use of a decoder, which may be nil, and of what it returned.
func (h *Handler) release(d *wire.Decoder) {
	if d != nil && d.Release() {
		h.decoders.Put(d)
	}
}

// store appends what is in req and counts what became of all that was sent.
func (h *Handler) store(ctx context.Context, proto protocol, req wire.WriteRequest, rejected *engine.Rejected) (stored engine.Stored, err error) {
	before := rejectedSamples(rejected)
	if req.Size > 0 {
		stored, err = h.engine.Append(ctx, "", req.Series, rejected)
	}
	if err != nil {
		lost := req.Size - stored.Total() - (rejectedSamples(rejected) - before)
		h.metrics.failed.WithLabelValues(proto.String()).Add(float64(max(lost, 0)))
	}
	if err == nil {
		h.metrics.metadata.Add(float64(req.Repeated))
	}
	if err == nil && len(req.Metadata) > 0 {
		if err = h.engine.AppendMetadata(ctx, "", req.Metadata, rejected); err == nil {
			h.metrics.metadata.Add(float64(len(req.Metadata) - rejected.Samples[engine.ReasonMetadata]))
		}
	}
	h.metrics.count(proto, stored, rejected)
	return stored, err
}

func rejectedSamples(rejected *engine.Rejected) (n int) {
	for _, samples := range rejected.Samples {
		n += samples
	}
	return n
}

package write

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
)

// The encodings of OTLP over HTTP.
const (
	otlpProtobuf = "application/x-protobuf"
	otlpJSON     = "application/json"
)

// OTLPHandler serves OTLP metrics over HTTP. Prometheus' translator makes series
// of them. Prometheus' handler is not used, because it answers 200 when storing fails.
type OTLPHandler Handler

// NewOTLP returns a handler of OTLP metrics, which shares engine and
// limits with h.
func NewOTLP(h *Handler) *OTLPHandler { return (*OTLPHandler)(h) }

// ServeHTTP implements http.Handler.
func (h *OTLPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	contentType, err := otlpEncoding(r.Header)
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	rejected, err := h.write(w, r, contentType)
	if err == nil {
		err = respondOTLP(w, contentType, rejected)
	}
	if err != nil {
		h.errors.Fail(w, r, err)
	}
}

// otlpEncoding returns the content type of the body. The error is a 415.
func otlpEncoding(header http.Header) (string, error) {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "gzip" {
		return "", unsupportedMedia("content encoding %q is not gzip", encoding)
	}
	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || (contentType != otlpProtobuf && contentType != otlpJSON) {
		return "", unsupportedMedia("content type %q is neither %s nor %s", header.Get("Content-Type"), otlpProtobuf, otlpJSON)
	}
	return contentType, nil
}

// write stores the metrics of r. What can never be stored is in rejected, the
// rest is stored. After err, all of the request must be sent again.
func (h *OTLPHandler) write(w http.ResponseWriter, r *http.Request, contentType string) (rejected error, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	if err := h.gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer h.gate.Leave(ctx)
	decoded := &request.Reservation{Gate: h.decoded}
	defer decoded.Release()
	body, err := h.receive(ctx, w, r, decoded)
	if err != nil {
		return nil, err
	}
	metrics := pmetricotlp.NewExportRequest()
	if contentType == otlpJSON {
		err = metrics.UnmarshalJSON(body)
	} else {
		err = metrics.UnmarshalProto(body)
	}
	if err != nil {
		return nil, request.BadRequest("decode OTLP metrics: %w", err)
	}
	return h.store(ctx, metrics.Metrics())
}

// receive reads the body of r, decompressed.
func (h *OTLPHandler) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, decoded *request.Reservation) ([]byte, error) {
	request.LimitBody(ctx, w, r)
	limit := h.body.Limit
	announced := limit
	if r.ContentLength >= 0 && r.ContentLength < int64(limit) && r.Header.Get("Content-Encoding") == "" {
		announced = int(r.ContentLength)
	}
	if err := decoded.Take(ctx, announced); err != nil {
		return nil, err
	}
	var reader io.Reader = http.MaxBytesReader(w, r.Body, int64(limit))
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(reader)
		if err != nil {
			return nil, request.BadRequest("decompress request body: %w", err)
		}
		reader = unzipped
	}
	var body bytes.Buffer
	n, err := body.ReadFrom(io.LimitReader(reader, int64(limit)+1))
	switch {
	case n > int64(limit):
		return nil, request.WithStatus(http.StatusRequestEntityTooLarge, "request body of more than %d bytes", limit)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, request.BadRequest("decompress request body: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read request body: %w", err)
	}
	return body.Bytes(), nil
}

// store stores the metrics. What cannot be translated, or never be stored, is
// rejected, the rest is stored all the same.
func (h *OTLPHandler) store(ctx context.Context, metrics pmetric.Metrics) (rejected error, err error) {
	engine, err := h.engine(ctx)
	if err != nil {
		return nil, err
	}
	if h.otlp.Deltas != SumDeltas || !hasDeltas(metrics) {
		return h.translate(ctx, engine, metrics)
	}
	sums, err := h.deltas.of(scope.Of(ctx))
	if err != nil {
		return nil, err
	}
	rejected, err = sums.store(ctx, metrics, func(ctx context.Context, metrics pmetric.Metrics) (error, error) {
		return h.translate(ctx, engine, metrics)
	})
	var dropped droppedDeltas
	if errors.As(rejected, &dropped) {
		h.metrics.droppedDeltas.Add(float64(dropped))
	}
	return rejected, err
}

// translate makes series of the metrics and appends them.
func (h *OTLPHandler) translate(ctx context.Context, engine Engine, metrics pmetric.Metrics) (rejected error, err error) {
	otlp := h.otlp.Settings()
	appender := engine.AppenderV2(ctx)
	warnings, untranslated := prometheusremotewrite.NewPrometheusConverter(appender).FromMetrics(ctx, metrics, prometheusremotewrite.Settings{
		AddMetricSuffixes:                    otlp.TranslationStrategy.ShouldAddSuffixes(),
		AllowUTF8:                            !otlp.TranslationStrategy.ShouldEscape(),
		PromoteResourceAttributes:            prometheusremotewrite.NewPromoteResourceAttributes(otlp),
		KeepIdentifyingResourceAttributes:    otlp.KeepIdentifyingResourceAttributes,
		ConvertHistogramsToNHCB:              otlp.ConvertHistogramsToNHCB,
		PromoteScopeMetadata:                 otlp.PromoteScopeMetadata,
		AllowDeltaTemporality:                h.otlp.Deltas == StoreDeltas,
		LookbackDelta:                        h.otlp.Lookback,
		LabelNameUnderscoreSanitization:      otlp.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: otlp.LabelNamePreserveMultipleUnderscores,
	})
	for category, n := range prometheusremotewrite.CountWarningsByCategory(warnings) {
		h.metrics.otlpWarnings.WithLabelValues(string(category)).Add(float64(n))
	}
	if err := ctx.Err(); err != nil { // the translator reports it, too
		return nil, fmt.Errorf("translate OTLP metrics: %w", err)
	}
	err = appender.Commit()
	var unstorable *ingest.Rejected
	if err != nil && !errors.As(err, &unstorable) {
		return nil, fmt.Errorf("store: %w", err)
	}
	return errors.Join(untranslated, err), nil
}

// respondOTLP answers with what was rejected, if anything was: a partial
// success, as the protocol calls it, whose sender must not repeat it.
func respondOTLP(w http.ResponseWriter, contentType string, rejected error) (err error) {
	response := pmetricotlp.NewExportResponse()
	if rejected != nil {
		response.PartialSuccess().SetErrorMessage(request.ErrorText(rejected))
		response.PartialSuccess().SetRejectedDataPoints(rejectedPoints(rejected))
	}
	var body []byte
	if contentType == otlpJSON {
		body, err = response.MarshalJSON()
	} else {
		body, err = response.MarshalProto()
	}
	if err != nil {
		return fmt.Errorf("encode OTLP response: %w", err)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error is one of the connection
	return nil
}

// rejectedPoints counts what was rejected, at least one: the protocol takes a
// message without a number for a warning.
func rejectedPoints(rejected error) (n int64) {
	var unstorable *ingest.Rejected
	if errors.As(rejected, &unstorable) {
		for _, samples := range unstorable.Samples {
			n += int64(samples)
		}
	}
	var dropped droppedDeltas
	if errors.As(rejected, &dropped) {
		n += int64(dropped)
	}
	return max(n, 1)
}

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/request"
)

const (
	// Path is where a running adapter takes history.
	Path = "/api/v1/admin/import"
	// maxFrameBytes bounds a frame: the samples of a series in a unit. The series of an hour and a half of histograms each second, of some 10 KB
	// each, fit.
	maxFrameBytes = 64 << 20
	// maxUnits bounds the body with units, in bytes.
	maxUnits = 16 << 20
	// handleTimeout is how long a request may take. The store may be overloaded meanwhile.
	handleTimeout = 2 * time.Minute
	// concurrentRequests is how many requests with samples run at once. Each holds a frame and two batches.
	concurrentRequests, maxWait = 4, 30 * time.Second
)

// units is the body of an answer to GET, and of a PUT.
type units struct {
	Units []string `json:"units,omitempty"`
	// Parts are those of a PUT.
	Parts []meta.Part `json:"parts,omitempty"`
	// Rolled is that of the target.
	Rolled int64 `json:"rolled,omitempty"`
}

// An answer is that to a POST.
type answer struct {
	backfill.Counts
	// Refused are the series that can never be stored.
	Refused []Refusal `json:"refused,omitempty"`
}

// A Handler takes history by HTTP:
//
//	GET  ?id=I         which units of an import are stored, and up to which time only rollups are taken, as {"units":[…],"rolled":…}
//	PUT  ?id=I         notes them, as {"parts":[{"id":…,"start":…,"limit":…}]}, beside those that are noted; without parts it forgets all
//	POST ?start=&limit=&rolled=  samples of a unit, in milliseconds: a stream of frames as a streamed remote read has them, each with whole series.
//	                   It is answered when all is durable, with the counts
//
// It is safe for concurrent use.
type Handler struct {
	store  func(ctx context.Context) (*Store, error)
	errors *request.Responder
	gate   *request.Gate
}

// NewHandler returns a handler. store returns the store of a request, by its context.
func NewHandler(store func(ctx context.Context) (*Store, error), errors *request.Responder) *Handler {
	return &Handler{store: store, errors: errors, gate: request.NewGate(concurrentRequests, maxWait)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, handleTimeout)
	defer end()
	for _, name := range []string{"id", "start", "limit"} {
		if value := r.URL.Query().Get(name); value != "" {
			request.Note(ctx, name, value)
		}
	}
	var result any
	store, err := h.store(ctx)
	switch {
	case err != nil:
	case r.Method == http.MethodGet:
		result, err = done(ctx, store, r)
	case r.Method == http.MethodPut:
		result, err = setDone(ctx, store, w, r)
	default:
		result, err = h.take(ctx, store, w, r)
	}
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // the client has hung up
}

func done(ctx context.Context, store *Store, r *http.Request) (found units, err error) {
	if found.Units, err = store.Done(ctx, r.URL.Query().Get("id")); err == nil {
		found.Rolled, err = store.Rolled(ctx)
	}
	return found, err
}

func setDone(ctx context.Context, store *Store, w http.ResponseWriter, r *http.Request) (given units, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUnits)).Decode(&given); err != nil {
		return given, request.BadRequest("units: %w", err)
	}
	return given, store.SetDone(ctx, r.URL.Query().Get("id"), given.Parts...)
}

// take stores the frames of a request.
func (h *Handler) take(ctx context.Context, store *Store, w http.ResponseWriter, r *http.Request) (a answer, err error) {
	if err := h.gate.Enter(ctx); err != nil {
		return a, err
	}
	defer h.gate.Leave(ctx)
	u := Unit{Rolled: r.URL.Query().Get("rolled") == "true"}
	for name, value := range map[string]*int64{"start": &u.Start, "limit": &u.Limit} {
		if *value, err = strconv.ParseInt(r.URL.Query().Get(name), 10, 64); err != nil {
			return a, request.BadRequest("parameter %s: %w", name, err)
		}
	}
	to, err := store.NewWriter(ctx, u)
	if err != nil {
		return a, err
	}
	frames := remote.NewChunkedReader(r.Body, maxFrameBytes, nil)
	for {
		var frame prompb.ChunkedReadResponse
		err := frames.NextProto(&frame)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, request.BadRequest("read a frame: %w", err)
		}
		for _, s := range frame.ChunkedSeries {
			if err := a.write(ctx, to, s); err != nil {
				return a, err
			}
		}
	}
	err = to.Flush(ctx)
	a.Counts = to.Counts()
	return a, err
}

// write writes a series.
func (a *answer) write(ctx context.Context, to Writer, s *prompb.ChunkedSeries) error {
	decoded, err := seriesOf(s)
	if err != nil {
		return request.BadRequest("%w", err)
	}
	err = to.Write(ctx, decoded)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		a.Refused = append(a.Refused, refused.Series...)
		return nil
	case errors.As(err, new(*DamageError)):
		return request.BadRequest("%w", err)
	}
	return err
}

// seriesOf returns a series of a frame.
func seriesOf(s *prompb.ChunkedSeries) (*listSeries, error) {
	var b labels.ScratchBuilder
	for _, l := range s.Labels {
		b.Add(l.Name, l.Value)
	}
	b.Sort()
	metas := make([]chunks.Meta, len(s.Chunks))
	for i, c := range s.Chunks {
		decoded, err := chunkOf(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, fmt.Errorf("series %s: %w", b.Labels(), err)
		}
		metas[i] = chunks.Meta{Chunk: decoded, MinTime: c.MinTimeMs, MaxTime: c.MaxTimeMs}
	}
	return &listSeries{b.Labels(), metas}, nil
}

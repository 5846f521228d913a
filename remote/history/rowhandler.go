package history

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series/expr"
)

// RowsPath is where an adapter gives rows to another one.
const RowsPath = "/api/v1/read/rows"

const (
	// rowsTimeout is how long an answer may take. It may be all that a store has of a unit, and the other side may wait for a store that is overloaded.
	rowsTimeout = time.Hour
	// maxRowSelectors bounds the match[] of a request.
	maxRowSelectors = 100
)

// What is asked for: the values of the parameter of.
const (
	ofSamples = "samples"
	ofRollups = "rollups"
	ofCurrent = "current"
)

// RowsEngine has rows: an *engine.Engine.
type RowsEngine interface {
	Stored(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error
	StoredCurrent(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error
}

// storedIn calls fn with the series of a query.
func storedIn(ctx context.Context, e RowsEngine, q reader.StoredQuery, current bool, fn func(reader.Stored) error) error {
	if current {
		return e.StoredCurrent(ctx, q, fn)
	}
	return e.Stored(ctx, q, fn)
}

// A rowsHandler answers requests for rows:
//
//	POST match[]=&start=&limit=&of=  the cells of series in [start, limit), in milliseconds: of samples, rollups, or current samples. The answer is a stream of
//	                                 frames as a POST to Path has, each with one series, in order of labels but for current samples
type rowsHandler struct {
	engine RowsEngine
	errors *request.Responder
	gate   *request.Gate
	parser parser.Parser
}

// NewRowsHandler returns a handler. Its requests share a gate with others.
func NewRowsHandler(engine RowsEngine, errors *request.Responder, gate *request.Gate) http.Handler {
	return &rowsHandler{engine, errors, gate, expr.NewParser(parser.Options{})}
}

// ServeHTTP implements http.Handler.
func (h *rowsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, rowsTimeout)
	defer end()
	q, current, err := h.query(r)
	if err == nil {
		err = h.gate.Enter(ctx)
	}
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	defer h.gate.Leave(ctx)
	began := false
	frames := remote.NewChunkedWriter(w, noFlusher{})
	err = storedIn(ctx, h.engine, q, current, func(s reader.Stored) error {
		frame, err := frameOf(s)
		if err == nil {
			began = true
			_, err = frames.Write(frame)
		}
		return err
	})
	switch {
	case err != nil && began:
		h.errors.Abort(r, err)
	case err != nil:
		h.errors.Fail(w, r, err)
	}
}

// query returns what is asked for.
func (h *rowsHandler) query(r *http.Request) (q reader.StoredQuery, current bool, err error) {
	texts, err := request.MatchParams(r, maxRowSelectors)
	if err != nil {
		return q, false, err
	}
	if len(texts) == 0 {
		return q, false, request.BadRequest("no match[] parameter")
	}
	if q.Selectors, err = h.parser.ParseMetricSelectors(texts); err != nil {
		return q, false, request.BadRequest("parse match[]: %w", err)
	}
	for name, value := range map[string]*int64{"start": &q.Start, "limit": &q.Limit} {
		if *value, err = strconv.ParseInt(r.Form.Get(name), 10, 64); err != nil {
			return q, false, request.BadRequest("parameter %s: %w", name, err)
		}
	}
	switch of := r.Form.Get("of"); of {
	case ofSamples, ofRollups, ofCurrent:
		q.Rollups = of == ofRollups
		return q, of == ofCurrent, nil
	default:
		return q, false, request.BadRequest("parameter of: %q is none of %s, %s and %s", of, ofSamples, ofRollups, ofCurrent)
	}
}

// frameOf returns the frame of a series.
func frameOf(s reader.Stored) ([]byte, error) {
	of := prompb.ChunkedSeries{Labels: prompb.FromLabels(s.Labels, nil)}
	for _, c := range s.Cells {
		m := metaOf(c)
		of.Chunks = append(of.Chunks, prompb.Chunk{MinTimeMs: m.MinTime, MaxTimeMs: m.MaxTime, Type: prompb.Chunk_Encoding(encodingStored), Data: m.Chunk.Bytes()})
	}
	return (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{&of}}).Marshal()
}

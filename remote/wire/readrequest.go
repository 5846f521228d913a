package wire

import (
	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/prompb"
	upstream "github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
)

// maxQueryFields bounds the matchers of a query, before the generated decoder
// makes a structure of each.
const maxQueryFields = 10_000

// ReadRequest decodes body, to which the result does not refer. The error is a
// 400.
func ReadRequest(body []byte, maxQueries int) (req prompb.ReadRequest, err error) {
	if err := checkReadRequest(body, maxQueries); err != nil {
		return req, err
	}
	if err := proto.Unmarshal(body, &req); err != nil {
		return req, request.BadRequest("decode read request: %w", err)
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
			return request.BadRequest("decode read request: %w", err)
		}
		if rest = next; f.num != 1 {
			continue
		}
		if queries++; queries > maxQueries {
			return request.BadRequest("more than %d queries in one request", maxQueries)
		}
		if err := checkQuery(f.bytes); err != nil {
			return err
		}
	}
	return nil
}

// checkQuery bounds the fields of a query.
func checkQuery(msg []byte) error {
	for fields := 0; len(msg) > 0; fields++ {
		_, next, err := cutField(msg)
		switch {
		case err != nil:
			return request.BadRequest("decode read request: %w", err)
		case fields == maxQueryFields:
			return request.BadRequest("more than %d matchers in one query", maxQueryFields)
		}
		msg = next
	}
	return nil
}

// Queries translates queries for the engine. Of their hints it takes only the one
// that no samples are needed. The error is a 400.
func Queries(queries []*prompb.Query) ([]engine.Query, error) {
	qs := make([]engine.Query, len(queries))
	for i, q := range queries {
		matchers, err := upstream.FromLabelMatchers(q.Matchers)
		if err != nil {
			return nil, request.BadRequest("query %d: %w", i, err)
		}
		qs[i] = engine.Query{
			Kept:       true,
			Matchers:   matchers,
			Mint:       q.StartTimestampMs,
			Maxt:       q.EndTimestampMs,
			SeriesOnly: q.Hints != nil && q.Hints.Func == "series",
		}
	}
	return qs, nil
}

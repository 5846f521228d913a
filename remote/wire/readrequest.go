package wire

import (
	"fmt"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote/engine/reader"
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
func Queries(queries []*prompb.Query) ([]reader.Query, error) {
	qs := make([]reader.Query, len(queries))
	for i, q := range queries {
		matchers, err := matchersOf(q)
		if err != nil {
			return nil, request.BadRequest("query %d: %w", i, err)
		}
		qs[i] = reader.Query{
			Kept:       true,
			Matchers:   matchers,
			Mint:       q.StartTimestampMs,
			Maxt:       q.EndTimestampMs,
			SeriesOnly: q.Hints != nil && q.Hints.Func == "series",
		}
	}
	return qs, nil
}

// matchersOf returns the matchers of a query, as upstream's FromLabelMatchers does, which links service discovery.
func matchersOf(q *prompb.Query) ([]*labels.Matcher, error) {
	types := map[prompb.LabelMatcher_Type]labels.MatchType{
		prompb.LabelMatcher_EQ: labels.MatchEqual, prompb.LabelMatcher_NEQ: labels.MatchNotEqual,
		prompb.LabelMatcher_RE: labels.MatchRegexp, prompb.LabelMatcher_NRE: labels.MatchNotRegexp,
	}
	matchers := make([]*labels.Matcher, len(q.Matchers))
	for i, m := range q.Matchers {
		kind, ok := types[m.Type]
		if !ok {
			return nil, fmt.Errorf("invalid matcher type %d", m.Type)
		}
		var err error
		if matchers[i], err = labels.NewMatcher(kind, m.Name, m.Value); err != nil {
			return nil, err
		}
	}
	return matchers, nil
}
